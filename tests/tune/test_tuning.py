import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from torch_dpfts import FederationSpec
from torch_dpfts.errors import InvalidInputError, StateError
from torch_dpfts.tune import ParameterSpace, Site, Trial, TrialState, TuneResult, tune_across_sites

SPACE = ParameterSpace({"a": (0.0, 1.0), "b": ["p", "q", "r"]})
ROUNDS, INITIAL = 3, 2


def spec(**changes: Any) -> FederationSpec:
    settings = {"num_agents": 4, "num_rounds": ROUNDS, **SPACE.spec_fields()}
    private = {"sample_rate": 0.5, "noise_multiplier": 1.0, "clip_norm": 3.0}
    return FederationSpec.dp_fts(**(settings | private | changes))


def good(config: dict[str, Any], report: Any) -> float:
    return float(config["a"])


def misbehaves(config: dict[str, Any], report: Any) -> float:
    if config["a"] > 0.7:
        os.kill(os.getpid(), signal.SIGKILL)
    if config["a"] > 0.4:
        raise ValueError("a secret of the site")
    return float("nan")


def sites(**options: Any) -> list[Site]:
    functions = [good, misbehaves, good]
    return [Site(SPACE, f, agent_id, **options) for agent_id, f in enumerate(functions)]


class Interrupted(Exception):
    """Stands for a crash in the middle of a run."""


class Run:
    """A run of all sites that was interrupted, gone on with, and its counterpart that was not."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.seen: list[tuple[int, Trial]] = []
        self.whole = tune_across_sites(
            sites(), spec(), num_initial=INITIAL, seed=0, processes=2, progress=self.count
        )

        def interrupt(agent_id: int, trial: Trial) -> None:
            if trial.round == 2:
                raise Interrupted

        with pytest.raises(Interrupted):
            self.tune(interrupt)
        self.resumed = self.tune(False)

    def count(self, agent_id: int, trial: Trial) -> None:
        self.seen.append((agent_id, trial))

    def tune(self, progress: Any, seed: int = 0, **changes: Any) -> TuneResult:
        return tune_across_sites(
            sites(),
            spec(**changes),
            num_initial=INITIAL,
            seed=seed,
            processes=2,
            progress=progress,
            directory=self.directory,
        )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(tmp_path_factory.mktemp("run"))


def essence(result: TuneResult) -> Any:
    return {
        agent: [(t.number, t.round, t.x, t.state, t.score) for t in trials]
        for agent, trials in result.trials.items()
    }


def test_every_site_tries_its_share_whatever_happens(run: Run) -> None:
    for trials in run.whole.trials.values():
        assert [t.round for t in trials] == [0] * INITIAL + list(range(1, ROUNDS + 1))
    assert all(t.state == TrialState.COMPLETE for t in run.whole.trials[0])
    bad = run.whole.trials[1]
    expected = {TrialState.KILLED, TrialState.FAILED, TrialState.NOT_FINITE}
    assert {t.state for t in bad} <= expected
    for trial in bad:
        a = trial.config["a"]
        state = TrialState.FAILED if a > 0.4 else TrialState.NOT_FINITE
        assert trial.state == (TrialState.KILLED if a > 0.7 else state)
        assert trial.outcome.cause


def test_progress_is_told_of_every_trial(run: Run) -> None:
    assert len(run.seen) == 3 * (INITIAL + ROUNDS)
    assert {agent for agent, _ in run.seen} == {0, 1, 2}


def test_what_was_spent(run: Run) -> None:
    assert run.whole.epsilon > 0
    assert run.whole.privacy == "seeded: not private"
    assert run.whole.epsilon_by_round()[-1] == pytest.approx(run.whole.epsilon)
    assert len(run.whole.epsilon_by_round()) == ROUNDS + 1


def test_an_interrupted_run_goes_on_as_if_it_had_not_been(run: Run) -> None:
    assert essence(run.resumed) == essence(run.whole)
    assert run.resumed.epsilon == run.whole.epsilon


def test_a_finished_run_is_only_read(run: Run) -> None:
    assert essence(run.tune(False)) == essence(run.whole)


def test_the_directory_of_another_run_is_refused(run: Run) -> None:
    with pytest.raises(StateError, match="holds a federation with fingerprint"):
        run.tune(False, noise_multiplier=2.0)
    with pytest.raises(StateError, match=r"seed 0, not .* and 1"):
        run.tune(False, seed=1)


def test_causes_stay_in_the_sites_own_file(run: Run) -> None:
    holders = [
        path.name
        for path in run.directory.rglob("*")
        if path.is_file() and b"a secret of the site" in path.read_bytes()
    ]
    failed = any(t.state == TrialState.FAILED for t in run.whole.trials[1])
    assert holders == (["site-001.sqlite"] if failed else [])


def test_the_budget_ends_the_run() -> None:
    result = tune_across_sites(
        sites()[:1], spec(target_epsilon=0.2), num_initial=1, seed=0, processes=1, progress=False
    )
    assert result.stopped_by_budget
    assert result.epsilon <= 0.2
    assert len(result.trials[0]) < 1 + ROUNDS


def test_without_sharing_there_is_no_server() -> None:
    state = torch.get_rng_state()
    fields = SPACE.spec_fields()
    alone = FederationSpec.ts(**fields, num_agents=2, num_rounds=1)
    result = tune_across_sites(sites()[:1], alone, num_initial=1, processes=1, progress=True)
    assert torch.equal(torch.get_rng_state(), state)
    assert (result.epsilon, result.privacy) == (0.0, "nothing shared")
    assert len(result.trials[0]) == 2


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ([], "at least one site, got none"),
        ([(SPACE, 0), (SPACE, 0)], r"must differ and be below num_agents=4, got \[0, 0\]"),
        ([(SPACE, 4)], r"must differ and be below num_agents=4, got \[4\]"),
        ([(ParameterSpace({"a": (0.0, 1.0)}), 0)], r"make the specification with \*\*space"),
    ],
)
def test_bad_sites(changed: list[tuple[ParameterSpace, int]], message: str) -> None:
    bad = [Site(space, good, agent_id) for space, agent_id in changed]
    with pytest.raises(InvalidInputError, match=message):
        tune_across_sites(bad, spec(), progress=False)


def test_sites_agree_on_the_direction() -> None:
    mixed = [Site(SPACE, good, 0), Site(SPACE, good, 1, minimize=True)]
    with pytest.raises(InvalidInputError, match="Some sites minimise and some maximise"):
        tune_across_sites(mixed, spec(), progress=False)


def test_bad_numbers() -> None:
    with pytest.raises(InvalidInputError, match="num_initial must be at least 1"):
        tune_across_sites(sites(), spec(), num_initial=0)
