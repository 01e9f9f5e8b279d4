import json
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from torch_dpfts.cli import app
from torch_dpfts.errors import InvalidInputError, StateError

SIZE = ["--sites", "2", "--rounds", "1", "--initial", "1"]
RUN = ["tune", *SIZE, "--seed", "0", "--time-limit", "600"]


def test_tune_writes_and_prints_what_it_found_and_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [*RUN, "--out", str(out), "--processes", "2"]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert result.exit_code == 0
    for text in ("Best configurations", "weight_decay", "first score", "seeded: not private"):
        assert text in result.stdout
    trials = pd.read_csv(out / "trials.csv")
    assert len(trials) == 4
    assert (out / "tune.png").stat().st_size > 10_000
    again = CliRunner().invoke(app, [*command, "--resume", "--json"], catch_exceptions=False)
    report = json.loads(again.stdout)
    assert report == json.loads((out / "results.json").read_text())
    assert [site["trials"] for site in report["sites"]] == [2, 2]
    assert report["sites"][0]["best_score"] == pytest.approx(
        trials[trials.agent_id == 0].score.max()
    )
    assert len(report["mean_best_score"]) == 2
    with pytest.raises(StateError, match="already holds a run; add --resume"):
        CliRunner().invoke(app, command, catch_exceptions=False)


def test_bad_options(tmp_path: Path) -> None:
    out = ["--out", str(tmp_path / "out")]
    with pytest.raises(StateError, match="holds no run to go on with"):
        CliRunner().invoke(app, [*RUN, *out, "--resume"], catch_exceptions=False)
    with pytest.raises(InvalidInputError, match="example must be one of 'digits', got 'cifar'"):
        CliRunner().invoke(app, [*RUN, *out, "--example", "cifar"], catch_exceptions=False)
    with pytest.raises(InvalidInputError, match="arm must be one of"):
        CliRunner().invoke(app, [*RUN, *out, "--arm", "dp-ts"], catch_exceptions=False)
    assert CliRunner().invoke(app, ["tune", "--sites", "1"]).exit_code == 2
    assert not (tmp_path / "out").exists()
