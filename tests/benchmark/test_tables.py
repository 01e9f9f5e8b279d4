from __future__ import annotations

import io
import tomllib
from collections.abc import Callable

import pytest
from rich.console import Console

from torch_dpfts.benchmark import BenchmarkSettings, Run, markdown, print_summary, summarise
from torch_dpfts.benchmark.statistics import standard_error

Settings = Callable[..., BenchmarkSettings]
Runs = Callable[..., list[Run]]


def printed(summary: object, width: int = 80) -> str:
    text = io.StringIO()
    print_summary(Console(file=text, width=width), summary)  # type: ignore[arg-type]
    return text.getvalue()


def test_markdown_holds_every_figure(make_settings: Settings, make_runs: Runs) -> None:
    settings = make_settings(name="My | benchmark")
    summary = summarise(settings, make_runs(settings))
    text = markdown(summary)
    assert text.startswith("# My | benchmark\n")
    assert "Seeds 0 to 2; seeded: not private. torch_dpfts 1.2.3, 12.0 minutes" in text
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line[:1] == "|"]
    values, control, ratio, baseline, _ = (
        rows[i:j] for i, j in ((0, 6), (6, 11), (11, 16), (16, 21), (21, 26))
    )
    assert values[0] == ["arm", "round 0", "round 2", "round 4", "epsilon"]
    private = summary.arms[2]
    shown = summary.shown(private)
    cell = f"{shown.mean(0)[2]:.4f} ({standard_error(shown)[2]:.4f})"
    (row,) = [row for row in values if row[0] == "dp-fts"]
    assert row[2] == cell
    assert row[-1] == f"{private.epsilon_bound:.2f}"
    assert [row[-1] for row in values[2:4]] == ["-", "inf"]
    assert [row[0] for row in control[2:]] == ["ts", "fts", "dp-fts"]
    assert private.control is not None
    assert private.control.regret_ratio is not None
    low, high = private.control.gain.interval[:, 1].tolist()
    mean = private.control.gain.value[1]
    assert control[4][3] == f"{mean:+.4f} [{low:+.4f}, {high:+.4f}]"
    assert ratio[4][3].startswith(f"{private.control.regret_ratio.value[1]:.3f} [")
    assert [row[0] for row in baseline[2:]] == ["fts", "dp-fts", "noise"]
    assert "What does not beat the control owes nothing to sharing." in text


def test_the_settings_in_it_make_the_same_benchmark(
    make_settings: Settings, make_runs: Runs
) -> None:
    arms = {"ts": {"arm": "ts"}, "a b": {"arm": "dp-fts", "clip_norm": 3.0}}
    settings = make_settings(
        arms=arms, control=None, rounds_reported=None,
        sweep={"lengthscales": [[0.1, 0.2], 0.3], "problem_settings": {"spread": [0.1]}},
    )  # fmt: skip
    text = markdown(summarise(settings, make_runs(settings)))
    block = text.partition("```toml\n")[2].partition("```")[0]
    assert BenchmarkSettings.from_toml(block) == settings
    assert tomllib.loads(block)["arms"] == arms


def test_the_terminal_needs_80_columns(make_settings: Settings, make_runs: Runs) -> None:
    settings = make_settings(num_rounds=60, rounds_reported=[0, 10, 20, 40, 60])
    text = printed(summarise(settings, make_runs(settings)))
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in text
    assert sum("[+" in line or "[-" in line for line in lines) == 30
    assert "seeded: not private" in text


def test_names_with_swept_values_are_printed_whole(
    make_settings: Settings, make_runs: Runs
) -> None:
    settings = make_settings(
        sweep={"noise_multiplier": [1.0, 2.5], "num_agents": [2, 3]},
        settings={"preset": "recommended"},
    )
    text = printed(summarise(settings, make_runs(settings)), width=120)
    assert text.count("noise_multiplier=2.5") == 4 + 2 + 4
    assert "δ=" in text
    assert "…" not in printed(summarise(settings, make_runs(settings)))


@pytest.mark.parametrize("changes", [{"score": "AUC"}, {"regret": None}])
def test_other_measures(
    make_settings: Settings, make_runs: Runs, changes: dict[str, object]
) -> None:
    settings = make_settings(seeds=1, control=None, baseline=None)
    summary = summarise(settings, make_runs(settings, **changes))
    for text in (markdown(summary), printed(summary)):
        assert summary.measure in text
        assert "nan" not in text
        assert "control" not in text
