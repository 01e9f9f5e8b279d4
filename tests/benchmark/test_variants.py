from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.benchmark.valley import Valley
from torch_dpfts.benchmark import BenchmarkSettings
from torch_dpfts.benchmark.variants import expand
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.presets import preset_spec

VALLEY = "tests.benchmark.valley:Valley"
ARMS = {
    "ts": {"arm": "ts"},
    "fts": {"arm": "fts"},
    "dp": {"arm": "dp-fts"},
    "fixed": {"arm": "dp-fts", "noise_multiplier": 2.0},
    "noise": {"arm": "noise"},
}


def settings(**changes: Any) -> BenchmarkSettings:
    given = {
        "problem": VALLEY, "num_rounds": 4, "arms": ARMS, "settings": {"preset": "recommended"},
    }  # fmt: skip
    return BenchmarkSettings(**(given | changes))


def test_without_a_sweep_an_arm_is_the_arm_of_the_preset() -> None:
    shared = {
        "preset": "recommended", "averaging": 0.5, "num_regions": 4, "noise_multiplier": 3.0,
    }  # fmt: skip
    base = preset_spec(
        "recommended", bounds=Valley().bounds, num_agents=3, num_rounds=4, averaging=0.5,
        num_regions=4, noise_multiplier=3.0,
    )  # fmt: skip
    specs = {variant.name: variant.spec for variant in expand(settings(settings=shared))}
    assert specs.pop("fixed").noise_multiplier == 2.0
    names = {"ts": "ts", "fts": "fts", "dp": "dp-fts", "noise": "noise"}
    assert specs == {name: base.arm(arm) for name, arm in names.items()}


def test_an_arm_may_have_a_preset_of_its_own() -> None:
    arms = {"paper": {"arm": "dp-fts-de", "preset": "paper"}, "ours": {"arm": "dp-fts"}}
    paper, ours = expand(settings(arms=arms))
    assert (paper.spec.message, paper.spec.num_regions) == ("sample", 4)
    assert (ours.spec.message, ours.spec.num_regions) == ("mean", 1)


def test_a_grid_of_all_arms_gives_way_to_an_arm_with_other_regions() -> None:
    shared = {"preset": "recommended", "num_regions": 2, "region_grid": [1, 2]}
    grids = {v.arm: v.spec.region_grid for v in expand(settings(settings=shared))}
    assert grids["noise"] == (1, 2)
    assert grids["dp"] == (1, 1)


def test_a_sweep_makes_all_combinations_that_matter() -> None:
    sweep = {
        "noise_multiplier": [1.0, 4.0],
        "num_agents": [2, 5],
        "problem_settings": {"spread": [0.0]},
    }
    variants = expand(settings(sweep=sweep))
    names = [variant.name for variant in variants]
    assert [n for n in names if n.startswith("ts")] == [
        "ts [num_agents=2, spread=0]", "ts [num_agents=5, spread=0]",
    ]  # fmt: skip
    assert [n for n in names if n.startswith("noise ")] == [
        f"noise [noise_multiplier={z}, num_agents={agents}, spread=0]"
        for z in (1, 4) for agents in (2, 5)
    ]  # fmt: skip
    # What an arm sets itself, or what it is without, is not swept.
    assert {v.spec.noise_multiplier for v in variants if v.arm == "fixed"} == {2.0}
    assert len([v for v in variants if v.arm in ("fixed", "fts")]) == 4
    for variant in variants:
        agents = variant.swept["num_agents"]
        assert variant.spec.num_agents == variant.problem_settings["num_agents"] == agents
        assert variant.problem_settings["spread"] == 0.0
        assert variant.spec.noise_multiplier == variant.swept.get(
            "noise_multiplier", variant.spec.noise_multiplier
        )


def test_kinds_of_dimensions_come_from_the_problem() -> None:
    (variant, *_) = expand(settings(problem="tests.benchmark.valley:Fixed"))
    assert variant.spec.integer_dims == (1,)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"settings": {"clip_norm": -1.0}}, "arms.dp: clip_norm must be .*got -1.0"),
        ({"arms": {"dp": {"arm": "dp-fts", "noise_multiplier": 1.0}}, "settings": {}},
         "arms.dp: clip_norm must be finite"),
        ({"sweep": {"sample_rate": [0.5, 2.0]}},
         r"arms.dp \[sample_rate=2\]: sample_rate must be .*got 2.0"),
        ({"settings": {"preset": "recommended", "target_epsilon": 0.01, "noise_multiplier": 5.0}},
         "arms.fixed: target_epsilon=0.01 does not last for num_rounds=4, which cost"),
        ({"problem_settings": {"agents": 3}}, "must be among 'num_agents', 'spread', got 'agents'"),
        ({"problem_settings": {"seed": 3}}, "must be among 'num_agents', 'spread', got 'seed'"),
        ({"problem_settings": {"num_agents": "x"}}, "cannot be made with num_agents = 'x'"),
        ({"problem": "landmine", "sweep": {"num_agents": [3]}}, "got 'num_agents'"),
        ({"problem": "tests.benchmark.valley:nothing"}, "which lacks name, bounds, num_agents"),
    ],
)  # fmt: skip
def test_what_cannot_run_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        expand(settings(**changes))


def test_values_that_agree_in_six_digits_have_names_of_their_own(
    make_settings: Callable[..., BenchmarkSettings],
) -> None:
    settings = make_settings(
        sweep={"clip_norm": [2.0, 2.0000001]}, arms={"fts": {"arm": "dp-fts"}},
        control=None, baseline=None,
    )  # fmt: skip
    names = [variant.name for variant in expand(settings)]
    assert names == ["fts [clip_norm=2]", "fts [clip_norm=2.0000001]"]
