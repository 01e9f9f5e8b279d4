import math
from pathlib import Path

import pytest

from torch_dpfts.errors import StateError
from torch_dpfts.tune import Outcome, TrialState, TrialStore

IDENTITY = {"fingerprint": "abc", "agent_id": 3}


def test_trials_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "trials.sqlite"
    store = TrialStore(path, IDENTITY)
    first = store.add(0, {"lr": 0.1, "optimizer": "adam"}, (0.1, 1.0))
    second = store.add(1, {"lr": 5e-10}, (5e-10,))
    reports = ((1, 0.5), (2, math.inf))
    store.finish(first.number, Outcome(TrialState.COMPLETE, 0.75, None, 1.5, reports))
    store.finish(second.number, Outcome(TrialState.FAILED, None, "it broke", 0.5))
    third = store.add(2, {}, ())
    trials = store.trials()
    store.close()
    assert [t.number for t in trials] == [0, 1, 2]
    assert trials[0].config == first.config
    assert trials[0].x == first.x
    assert trials[0].outcome == Outcome(TrialState.COMPLETE, 0.75, None, 1.5, reports)
    assert trials[1].outcome.cause == "it broke"
    assert trials[1].config == {"lr": 5e-10}
    assert trials[2] == third
    again = TrialStore(path, IDENTITY)
    assert again.trials() == trials
    again.close()


def test_reports_that_are_no_number_come_back() -> None:
    store = TrialStore(None, IDENTITY)
    trial = store.add(0, {}, ())
    store.finish(trial.number, Outcome(TrialState.STOPPED, 0.5, reports=((1, math.nan),)))
    ((step, value),) = store.trials()[0].outcome.reports
    assert step == 1
    assert math.isnan(value)


def test_settings_are_remembered(tmp_path: Path) -> None:
    for default in (7, 8):
        store = TrialStore(tmp_path / "trials.sqlite", {})
        assert store.setting("seed", default) == 7
        store.close()


def test_the_file_of_another_site_is_refused(tmp_path: Path) -> None:
    TrialStore(tmp_path / "trials.sqlite", IDENTITY).close()
    with pytest.raises(StateError, match="have agent_id 3, not 4; choose another directory"):
        TrialStore(tmp_path / "trials.sqlite", IDENTITY | {"agent_id": 4})


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "trials.sqlite").write_text("not a database, but long enough to look at" * 100)
    with pytest.raises(StateError, match="cannot hold trials"):
        TrialStore(tmp_path / "trials.sqlite", IDENTITY)
    with pytest.raises(StateError, match="cannot hold trials"):
        TrialStore(tmp_path / "missing" / "trials.sqlite", IDENTITY)
