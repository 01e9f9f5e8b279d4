from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from torch_dpfts.benchmark import BenchmarkSettings, shipped_settings
from torch_dpfts.benchmark.variants import expand
from torch_dpfts.errors import InvalidInputError

TEXT = """
problem = "landmine"
num_rounds = 12
control = "noise"
[settings]
preset = "recommended"
[arms.dp-fts]
arm = "dp-fts"
clip_norm = inf
noise_multiplier = 0
[arms.noise]
arm = "noise"
"""


def settings(**changes: Any) -> BenchmarkSettings:
    arms = {"alone": {"arm": "ts"}, "both": {"arm": "fts"}}
    return BenchmarkSettings(**({"problem": "landmine", "num_rounds": 12, "arms": arms} | changes))


def test_defaults() -> None:
    read = BenchmarkSettings.from_toml(TEXT, "mine")
    assert read.name == "mine"
    assert read.seeds == tuple(range(20))
    assert read.num_initial == 10
    assert read.rounds_reported == (0, 2, 4, 8, 12)
    assert read.baseline is None
    assert list(read.arms) == ["dp-fts", "noise"]


def test_seeds_are_a_count_or_a_list() -> None:
    assert settings(seeds=3).seeds == (0, 1, 2)
    assert settings(seeds=[7, 2]).seeds == (7, 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"problem": "sphere"}, "problem must be one of 'landmine', .*got 'sphere'"),
        ({"problem": "no_such_module:f"}, "'no_such_module:f' cannot be imported"),
        ({"num_rounds": 0}, "num_rounds must be at least 1, got 0"),
        ({"num_initial": 0}, "num_initial must be at least 1, got 0"),
        ({"seeds": 0}, "seeds must be at least 1, got 0"),
        ({"seeds": []}, r"seeds must be different numbers, at least one, got \[\]"),
        ({"seeds": [1, 1]}, r"seeds must be different numbers, at least one, got \[1, 1\]"),
        ({"seeds": [1, -2]}, "seeds must be at least 0, got -2"),
        ({"rounds_reported": 3}, "rounds_reported must be a list of rounds, got 3"),
        ({"rounds_reported": []}, r"rounds_reported must be a list of rounds, got \[\]"),
        ({"rounds_reported": [13]}, "rounds_reported must be at most num_rounds=12, got 13"),
        ({"rounds_reported": ["last"]}, "rounds_reported must be an integer .*got 'last'"),
        ({"settings": 3}, "settings must be a table, got 3"),
        ({"settings": {"clipnorm": 3}}, "A key of settings must be one of .*got 'clipnorm'"),
        ({"settings": {"num_agents": 3}}, "must not hold 'num_agents': it comes from the problem"),
        ({"settings": {"num_rounds": 3}}, "must not hold 'num_rounds': it belongs at the top"),
        ({"settings": {"preset": "best"}}, "settings.preset must be one of .*got 'best'"),
        ({"arms": {}}, r"arms must hold at least one table \[arms.NAME\], got none"),
        ({"arms": {"a": {}}}, "arms.a must be a table with a key 'arm', got {}"),
        ({"arms": {"a": {"arm": "dp"}}}, "arms.a.arm must be one of .*got 'dp'"),
        ({"arms": {"a": {"arm": "ts", "z": 1}}}, "A key of arms.a must be one of .*got 'z'"),
        ({"arms": {"a": {"arm": "ts", "control": "b"}}}, "arms.a.control .*'a', got 'b'"),
        ({"control": "noise"}, "control must be one of 'alone', 'both', got 'noise'"),
        ({"baseline": "ts"}, "baseline must be one of 'alone', 'both', got 'ts'"),
        ({"sweep": {"zeta": [1]}}, "A key of sweep must be one of .*got 'zeta'"),
        ({"sweep": {"clip_norm": 3}}, "sweep.clip_norm must be a list of values, got 3"),
        ({"sweep": {"clip_norm": []}}, r"sweep.clip_norm must be a list of values, got \[\]"),
        ({"sweep": {"clip_norm": [3, 3.0]}}, "sweep.clip_norm must hold different values"),
        ({"sweep": {"problem_settings": 3}}, "sweep.problem_settings must be a table, got 3"),
        (
            {"sweep": {"problem_settings": {"num_agents": [3]}}},
            r"sweep.problem_settings must not hold 'num_agents': put it in \[sweep\]",
        ),
        ({"problem_settings": {"data": Path("x")}}, "problem_settings must hold finite numbers"),
    ],
)
def test_a_bad_value_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        settings(**changes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("problem = ", "not valid TOML"),
        ('problem = "landmine"', "The settings lack 'num_rounds'; add it"),
        (TEXT + "[sweeps]\n", "A key of the settings must be one of .*got 'sweeps'"),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(InvalidInputError, match=f"{path}: .*{message}"):
        BenchmarkSettings.load(path)


def test_a_missing_file_is_refused_and_the_shipped_ones_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"'landmine'.* got '.*none.toml'"):
        BenchmarkSettings.load(tmp_path / "none.toml")


@pytest.mark.parametrize("name", shipped_settings())
def test_shipped_settings_can_be_run(name: str) -> None:
    settings = BenchmarkSettings.load(name)
    assert {variant.arm for variant in expand(settings)} == settings.arms.keys()
    assert len(settings.seeds) >= 10


def test_the_example_of_the_guide_can_be_run() -> None:
    guide = Path(__file__).parents[2] / "docs" / "guide.md"
    (text,) = re.findall(r"```toml\n(problem.*?)```", guide.read_text("utf-8"), flags=re.DOTALL)
    names = [variant.name for variant in expand(BenchmarkSettings.from_toml(text))]
    assert names[:2] == ["ts", "averaged [noise_multiplier=1]"]


def test_a_file_in_a_folder_is_named_after_itself(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(TEXT)
    assert BenchmarkSettings.load(tmp_path / "mine.toml").name == "mine"


def test_override_and_quick() -> None:
    full = settings(seeds=5, rounds_reported=[0, 4, 8])
    assert full.override() == full
    longer = full.override(seeds=[9], num_rounds=20)
    assert (longer.seeds, longer.num_rounds, longer.rounds_reported) == ((9,), 20, (0, 4, 8, 20))
    quick = full.quick()
    assert (quick.seeds, quick.num_rounds, quick.rounds_reported) == ((0, 1), 3, (0, 3))
