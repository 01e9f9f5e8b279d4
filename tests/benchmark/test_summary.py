from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from torch_dpfts.benchmark import BenchmarkSettings, Run, summarise
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.experiment import planned_epsilon

Settings = Callable[..., BenchmarkSettings]
Runs = Callable[..., list[Run]]


def test_figures_by_hand(make_settings: Settings, make_runs: Runs) -> None:
    settings = make_settings()
    runs = make_runs(settings)
    summary = summarise(settings, runs)
    assert [arm.name for arm in summary.arms] == ["ts", "fts", "dp-fts", "noise"]
    curves = {
        arm: torch.tensor([run.best_values for run in runs if run.arm == arm]).double()
        for arm in settings.arms
    }
    _, _, private, noise = summary.arms
    torch.testing.assert_close(private.best_values.float(), curves["dp-fts"].float())
    assert private.control is not None
    assert private.baseline is not None
    gap = (curves["dp-fts"] - curves["noise"])[:, [0, 2, 4]]
    torch.testing.assert_close(private.control.gain.value.float(), gap.mean(0).float())
    expected = gap.std(0) / math.sqrt(3)
    torch.testing.assert_close(private.control.gain.standard_error.float(), expected.float())
    assert private.control.regret_ratio is not None
    ratio = (1 - curves["dp-fts"]).mean(0) / (1 - curves["noise"]).mean(0)
    torch.testing.assert_close(private.control.regret_ratio.value.float(), ratio[[0, 2, 4]].float())
    level = curves["ts"].mean(0)[-1]
    mean = curves["dp-fts"].mean(0).tolist()
    reached = [t for t, value in enumerate(mean) if value >= level]
    assert private.baseline.reached_at == (reached[0] if reached else None)
    assert (noise.control, summary.arms[0].baseline) == (None, None)
    assert summary.seconds == 60 * 12


def test_epsilon_is_zero_without_sharing_and_infinite_without_noise(
    make_settings: Settings, make_runs: Runs
) -> None:
    settings = make_settings()
    summary = summarise(settings, make_runs(settings))
    ts, fts, private, noise = summary.arms
    assert (ts.epsilon, fts.epsilon) == (0.0, math.inf)
    assert private.epsilon == planned_epsilon(private.spec, [1e-3])[1e-3] == noise.epsilon
    assert private.epsilon <= private.epsilon_bound <= private.epsilon + 0.01
    assert [arm.is_private for arm in summary.arms] == [False, False, True, True]


def test_measures(make_settings: Settings, make_runs: Runs) -> None:
    settings = make_settings()
    for changes, measure, first in (
        ({"score": "AUC"}, "1 - AUC", lambda run: 1 - run.best_values[0]),
        ({}, "simple regret", lambda run: run.regret[0]),
        ({"regret": None}, "best value", lambda run: run.best_values[0]),
    ):
        runs = make_runs(settings, **changes)
        summary = summarise(settings, runs)
        assert summary.measure == measure
        assert summary.shown(summary.arms[0])[0, 0].item() == pytest.approx(first(runs[0]))
        ratio = summary.arms[2].control
        assert ratio is not None
        assert (ratio.regret_ratio is None) == (measure == "best value")


def test_swept_arms_are_compared_at_equal_values(make_settings: Settings, make_runs: Runs) -> None:
    settings = make_settings(sweep={"noise_multiplier": [1.0, 2.0], "num_agents": [2, 3]})
    summary = summarise(settings, make_runs(settings))
    compared = {
        arm.name: (arm.control and arm.control.other, arm.baseline and arm.baseline.other)
        for arm in summary.arms
    }
    assert compared["dp-fts [noise_multiplier=2, num_agents=3]"] == (
        "noise [noise_multiplier=2, num_agents=3]", "ts [num_agents=3]",
    )  # fmt: skip
    # Which of the controls would be its own?
    assert compared["fts [num_agents=2]"] == (None, "ts [num_agents=2]")


def test_an_arm_may_have_a_control_of_its_own(make_settings: Settings, make_runs: Runs) -> None:
    arms = {
        "a": {"arm": "dp-fts", "control": "quiet"}, "b": {"arm": "dp-fts"},
        "noise": {"arm": "noise"}, "quiet": {"arm": "noise", "noise_multiplier": 0.5},
    }  # fmt: skip
    settings = make_settings(arms=arms, baseline=None)
    a, b, _, quiet = summarise(settings, make_runs(settings)).arms
    assert [arm.control and arm.control.other for arm in (a, b, quiet)] == [
        "quiet", "noise", "noise",
    ]  # fmt: skip


@pytest.mark.parametrize("seeds", [1, 3])
def test_json(make_settings: Settings, make_runs: Runs, seeds: int) -> None:
    settings = make_settings(seeds=seeds)
    summary = summarise(settings, make_runs(settings))
    content = json.loads(json.dumps(summary.to_dict(), allow_nan=False))
    assert content["privacy"] == "seeded: not private"
    arm: dict[str, Any] = content["arms"]["dp-fts"]
    assert len(arm["mean"]) == len(arm["se"]) == 5
    assert len(arm["control"]["gain"]) == len(arm["control"]["interval"]) == 3
    assert (arm["control"]["interval"][0] == [None, None]) == (seeds == 1)
    assert content["arms"]["fts"]["epsilon"] == "inf"
    assert content["arms"]["noise"]["control"] is None
    assert content["settings"]["seeds"] == list(range(seeds))


def test_only_the_seeds_asked_for_count(make_settings: Settings, make_runs: Runs) -> None:
    runs = make_runs(make_settings())
    assert len(summarise(make_settings(seeds=[1]), runs).arms[0].best_values) == 1


def test_missing_runs_are_named(make_settings: Settings, make_runs: Runs) -> None:
    settings = make_settings()
    with pytest.raises(InvalidInputError, match=r"'noise' lacks \[2\]"):
        summarise(settings, make_runs(settings)[:-1])
    with pytest.raises(InvalidInputError, match="at least one run, got none"):
        summarise(settings, [])
