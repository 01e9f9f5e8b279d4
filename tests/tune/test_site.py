import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from ConfigSpace import Categorical

from torch_dpfts import FederationSpec
from torch_dpfts.errors import InvalidInputError, StateError
from torch_dpfts.tune import Outcome, ParameterSpace, Site, Trial, TrialState, Tuner

SPACE = ParameterSpace({"a": (0.0, 1.0), "b": (1, 8)})


def spec(space: ParameterSpace = SPACE, **changes: Any) -> FederationSpec:
    settings = {"num_agents": 2, "num_rounds": 5, **space.spec_fields()} | changes
    return FederationSpec.fts(**settings)


def site(space: ParameterSpace = SPACE, **options: Any) -> Site:
    return Site(space, lambda config, report: 0.0, agent_id=0, **options)


def complete(score: float) -> Outcome:
    return Outcome(TrialState.COMPLETE, score)


FAILED = Outcome(TrialState.FAILED, None, "cause")


def play(tuner: Tuner, outcomes: list[Outcome], num_initial: int = 2) -> list[Trial]:
    """Give each trial the next outcome."""
    queue = iter(outcomes)
    for trial in tuner.initial_trials(num_initial):
        tuner.record(trial.number, next(queue))
    for round, outcome in enumerate(queue, start=1):
        trial = tuner.next_trial(round)
        assert trial is not None
        tuner.record(trial.number, outcome)
    return tuner.trials


def test_trials_are_proposed_and_recorded() -> None:
    tuner = Tuner(site(), spec(), seed=0)
    trials = play(tuner, [complete(v) for v in (0.1, 0.5, 0.3)])
    assert [t.round for t in trials] == [0, 0, 1]
    assert [t.score for t in trials] == [0.1, 0.5, 0.3]
    for trial in trials:
        assert SPACE.encode(trial.config).tolist() == list(trial.x)
    assert tuner.agent().Y.squeeze(-1).tolist() == [0.1, 0.5, 0.3]
    assert tuner.contribute(2).vector.isfinite().all()


def test_minimising_turns_scores_around() -> None:
    tuner = Tuner(site(minimize=True), spec(), seed=0)
    play(tuner, [complete(1.0), FAILED, complete(3.0)])
    assert tuner.agent().Y.squeeze(-1).tolist() == [-1.0, -3.0, -3.0]


def test_a_trial_without_a_score_counts_like_the_worst() -> None:
    tuner = Tuner(site(), spec(), seed=0)
    play(tuner, [FAILED, complete(0.5), complete(0.2)])
    assert tuner.agent().Y.squeeze(-1).tolist() == [0.2, 0.5, 0.2]


def test_failures_alone_do_not_stop_the_site_or_repeat_a_trial() -> None:
    tuner = Tuner(site(), spec(), seed=0)
    trials = play(tuner, [FAILED] * 6)
    assert len({t.x for t in trials}) == 6
    assert tuner.contribute(6).vector.tolist() == [0.0] * 64


def test_a_site_that_stopped_goes_on_as_if_it_had_not(tmp_path: Path) -> None:
    outcomes = [complete(v) for v in (0.1, 0.5, 0.3, 0.7)]
    whole = play(Tuner(site(), spec(), seed=0), outcomes)
    first = Tuner(site(), spec(), tmp_path / "a.sqlite", seed=0)
    play(first, outcomes[:3])
    pending = first.next_trial(2)
    first.close()
    second = Tuner(site(), spec(), tmp_path / "a.sqlite", seed=0)
    assert second.initial_trials(2) == []
    assert second.next_trial(1) is None
    again = second.next_trial(2)
    assert again == pending
    assert again is not None
    second.record(again.number, outcomes[3])
    assert second.trials == whole
    assert second.next_trial(2) is None
    second.close()


def test_a_seed_from_the_system_is_kept(tmp_path: Path) -> None:
    points = []
    for path in ("a", "a", "b"):
        tuner = Tuner(site(), spec(), tmp_path / path)
        points.append([t.x for t in tuner.initial_trials(2)])
        tuner.close()
    assert points[0] == points[1] != points[2]


def test_a_three_by_three_grid_is_exhausted_after_nine() -> None:
    grid = ParameterSpace({"a": (1, 3), "b": Categorical("b", [1, 2, 4], ordered=True)})
    tuner = Tuner(site(grid), spec(grid, num_rounds=9), seed=0)
    trials = play(tuner, [complete(float(-i)) for i in range(9)], num_initial=1)
    assert len({t.x for t in trials}) == 9
    assert tuner.next_trial(9) is None
    assert tuner.contribute(9).vector.isfinite().all()
    assert len(Tuner(site(grid), spec(grid), seed=0).initial_trials(20)) == 9


def test_seven_small_integers_do_not_repeat() -> None:
    space = ParameterSpace({f"n{i}": (1, 3) for i in range(7)})
    tuner = Tuner(site(space), spec(space, num_rounds=30), seed=0)

    def score(trial: Trial) -> Outcome:
        return complete(-sum((value - 2) ** 2 for value in trial.x))

    for trial in tuner.initial_trials(1):
        tuner.record(trial.number, score(trial))
    for round in range(1, 31):
        trial = tuner.next_trial(round)
        assert trial is not None
        tuner.record(trial.number, score(trial))
    assert len({t.x for t in tuner.trials}) == 31


def test_another_space_seed_or_federation_is_refused(tmp_path: Path) -> None:
    other = ParameterSpace({"a": (0.0, 1.0), "c": (1, 8)})
    with pytest.raises(InvalidInputError, match=r"make the specification with \*\*space"):
        Tuner(site(other), spec())
    Tuner(site(), spec(), tmp_path / "a", seed=0).close()
    with pytest.raises(StateError, match="have seed"):
        Tuner(site(), spec(), tmp_path / "a", seed=1)
    with pytest.raises(StateError, match="have fingerprint"):
        Tuner(site(), spec(num_rounds=6), tmp_path / "a", seed=0)
    with pytest.raises(StateError, match="have minimize False, not True"):
        Tuner(site(minimize=True), spec(), tmp_path / "a", seed=0)


def test_bad_sites() -> None:
    with pytest.raises(InvalidInputError, match="space must be a ParameterSpace"):
        Site({"a": (0, 1)}, lambda c, r: 0.0, 0)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="train_fn must be callable"):
        Site(SPACE, 3, 0)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="agent_id must be at least 0"):
        Site(SPACE, lambda c, r: 0.0, -1)
    with pytest.raises(InvalidInputError, match="time_limit must be a number"):
        site(time_limit=-1.0)
    lock = threading.Lock()
    with pytest.raises(InvalidInputError, match="agent 0 cannot be sent to a process"):
        Site(SPACE, lambda c, r: lock.locked(), 0)


def test_global_generators_are_left_alone() -> None:
    state = torch.get_rng_state()
    play(Tuner(site(), spec(), seed=0), [complete(v) for v in (0.1, 0.5, 0.3)])
    assert torch.equal(torch.get_rng_state(), state)
