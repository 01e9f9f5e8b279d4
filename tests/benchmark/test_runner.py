from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.benchmark.valley import Fixed, Valley
from torch_dpfts import FederationSpec, run_federation
from torch_dpfts.benchmark import BenchmarkSettings, Run, run_benchmark
from torch_dpfts.benchmark.runs import FILE_NAME
from torch_dpfts.errors import InvalidInputError, RunError, StateError

ARMS = {"ts": {"arm": "ts"}, "dp": {"arm": "dp-fts"}}


def settings(**changes: Any) -> BenchmarkSettings:
    given = {
        "problem": "tests.benchmark.valley:Valley", "num_rounds": 2, "num_initial": 2, "seeds": 3,
        "arms": ARMS, "settings": {"preset": "recommended"},
    }  # fmt: skip
    return BenchmarkSettings(**(given | changes))


def run_here(settings: BenchmarkSettings, out: Path | None = None) -> list[Run]:
    return run_benchmark(settings, out, processes=1, progress=False)


def curves(runs: list[Run]) -> dict[tuple[str, int], list[float]]:
    return {(run.name, run.seed): list(run.best_values) for run in runs}


def test_runs_are_those_of_run_federation_with_functions_drawn_by_seed() -> None:
    runs = run_here(settings())
    assert [(run.arm, run.seed) for run in runs] == [(a, s) for a in ARMS for s in (0, 1, 2)]
    for run in runs:
        spec = FederationSpec.from_json(json.dumps(run.spec))
        assert spec.fingerprint == run.fingerprint
        alone = run_federation(spec, Valley(seed=run.seed), run.seed, num_initial=2, progress=False)
        best = alone.best_values.mean(-1)
        torch.testing.assert_close(torch.tensor(run.best_values, dtype=best.dtype), best)
        torch.testing.assert_close(torch.tensor(run.regret, dtype=best.dtype), -best)


def test_runs_of_equal_seeds_are_paired() -> None:
    runs = curves(run_here(settings()))
    first = {key: curve[0] for key, curve in runs.items()}
    for seed in (0, 1, 2):
        assert first["ts", seed] == first["dp", seed]
    assert len(set(first.values())) == 3


def test_a_problem_without_seed_is_run_in_batches(tmp_path: Path) -> None:
    fixed = settings(problem="tests.benchmark.valley:Fixed", seeds=7, arms={"ts": {"arm": "ts"}})
    runs = run_here(fixed, tmp_path)
    assert [run.seconds == runs[0].seconds for run in runs] == [True] * 5 + [False] * 2
    assert all(run.regret is None for run in runs)
    spec = FederationSpec.ts(
        bounds=Fixed().bounds, integer_dims=[1], num_agents=3, num_rounds=2,
    ).to_json()  # fmt: skip
    alone = run_federation(
        FederationSpec.from_json(spec), Fixed(), 6, num_initial=2, progress=False
    )
    torch.testing.assert_close(
        torch.tensor(runs[6].best_values).double(), alone.best_values.mean(-1)
    )


def test_processes_change_nothing() -> None:
    apart = run_benchmark(settings(seeds=2), processes=2, progress=False)
    here = curves(run_here(settings(seeds=2)))
    for key, curve in curves(apart).items():
        assert curve == pytest.approx(here[key], rel=1e-6)


def test_what_a_kill_left_is_gone_on_with(tmp_path: Path) -> None:
    whole = run_here(settings(), tmp_path)
    path = tmp_path / FILE_NAME
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:3]) + lines[3][: len(lines[3]) // 2])
    kept = path.read_text().splitlines()[:3]
    again = run_here(settings(), tmp_path)
    assert path.read_text().splitlines()[:3] == kept
    assert len(path.read_text().splitlines()) == len(lines)
    assert curves(again) == curves(whole)
    before = path.read_bytes()
    assert curves(run_here(settings(), tmp_path)) == curves(whole)
    assert path.read_bytes() == before


def test_more_seeds_and_more_arms_are_added(tmp_path: Path) -> None:
    run_here(settings(seeds=1, arms={"ts": {"arm": "ts"}}), tmp_path)
    assert len(run_here(settings(seeds=2), tmp_path)) == 4
    assert len((tmp_path / FILE_NAME).read_text().splitlines()) == 4
    fewer = run_here(settings(seeds=[1], arms={"dp": {"arm": "dp-fts"}}), tmp_path)
    assert [(run.arm, run.seed) for run in fewer] == [("dp", 1)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_rounds": 3}, r"'ts' with num_rounds \[2\], not \[3\]"),
        ({"num_initial": 3}, "'ts' with num_initial 2, not 3"),
        ({"problem": "landmine"}, "'ts' with problem 'tests.benchmark.valley:Valley', not 'landm"),
        ({"problem_settings": {"spread": 0.5}}, "with problem_settings {}, not {'spread': 0.5}"),
        ({"arms": {"dp": {"arm": "dp-fts", "clip_norm": 2.0}}},
         r"'dp' with clip_norm \[1.0\], not \[2.0\]"),
        ({"problem": "landmine", "arms": {"new": {"arm": "ts"}}}, "'ts' with problem"),
    ],
)  # fmt: skip
def test_runs_with_other_settings_are_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    run_here(settings(seeds=1), tmp_path)
    before = (tmp_path / FILE_NAME).read_bytes()
    with pytest.raises(StateError, match=f"{message}.*choose another folder"):
        run_here(settings(seeds=1, **changes), tmp_path)
    assert (tmp_path / FILE_NAME).read_bytes() == before


def test_nothing_is_written_before_the_settings_are_known_to_be_valid(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="got 'agents'"):
        run_here(settings(problem_settings={"agents": 3}), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_sweep_is_run_and_read_again(tmp_path: Path) -> None:
    swept = settings(
        seeds=1, sweep={"num_agents": [2, 3], "noise_multiplier": [1.0, 2.0]},
    )  # fmt: skip
    runs = run_here(swept, tmp_path)
    assert [run.swept for run in runs if run.arm == "ts"] == [{"num_agents": n} for n in (2, 3)]
    assert len([run for run in runs if run.arm == "dp"]) == 4
    assert run_here(swept, tmp_path) == runs


def test_an_infinite_swept_value_is_read_again(tmp_path: Path) -> None:
    clipped = settings(
        seeds=1, arms={"fts": {"arm": "dp-fts", "noise_multiplier": 0.0}},
        sweep={"clip_norm": [1.0, float("inf")]},
    )  # fmt: skip
    runs = run_here(clipped, tmp_path)
    assert [run.swept for run in runs] == [{"clip_norm": 1.0}, {"clip_norm": "inf"}]
    assert run_here(clipped, tmp_path) == runs


def test_a_failure_names_arm_and_seed_and_what_is_done_is_kept(tmp_path: Path) -> None:
    failing = settings(
        problem="tests.benchmark.valley:Failing", arms={"ts": {"arm": "ts"}}, seeds=6
    )
    message = r"arm ts, seed 5: LookupError: no such objective \(valley.py, line \d+\)"
    with pytest.raises(RunError, match=message) as caught:
        run_here(failing, tmp_path)
    assert isinstance(caught.value.__cause__, LookupError)
    kept = (tmp_path / FILE_NAME).read_text().splitlines()
    assert [Run.from_json(line).seed for line in kept] == [0, 1, 2, 3, 4]
