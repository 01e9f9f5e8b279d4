from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torch_dpfts.benchmark import (
    BenchmarkSettings,
    Run,
    plot_convergence,
    plot_privacy_utility,
    plot_sharing_gain,
    summarise,
    write_plots,
)

Settings = Callable[..., BenchmarkSettings]
Runs = Callable[..., list[Run]]
SWEEP = {"noise_multiplier": [4.0, 1.0], "num_agents": [2, 3]}


@pytest.mark.parametrize("seeds", [1, 3])
def test_without_a_sweep_there_is_one_figure(
    tmp_path: Path, make_settings: Settings, make_runs: Runs, seeds: int
) -> None:
    settings = make_settings(seeds=seeds)
    summary = summarise(settings, make_runs(settings))
    assert write_plots(summary, tmp_path) == ["convergence.png"]
    assert (tmp_path / "convergence.png").read_bytes().startswith(b"\x89PNG")
    (axes,) = plot_convergence(summary).axes
    _, labels = axes.get_legend_handles_labels()
    bound = f"{summary.arms[2].epsilon_bound:.2f}"
    assert labels == ["ts", "fts", f"dp-fts (epsilon {bound})", f"noise (epsilon {bound})"]
    drawn = axes.get_lines()[2].get_ydata()
    assert list(drawn) == pytest.approx(summary.shown(summary.arms[2]).mean(0).tolist())


def test_a_sweep_has_a_panel_for_each_combination(
    tmp_path: Path, make_settings: Settings, make_runs: Runs
) -> None:
    settings = make_settings(sweep=SWEEP)
    summary = summarise(settings, make_runs(settings))
    assert write_plots(summary, tmp_path) == [
        "convergence.png", "privacy_utility.png", "sharing_gain.png",
    ]  # fmt: skip
    panels = plot_convergence(summary).axes
    assert [axes.get_title() for axes in panels] == [
        f"noise_multiplier={z}, num_agents={n}" for z in (4, 1) for n in (2, 3)
    ]
    assert all(len(axes.get_lines()) == 4 for axes in panels)


def test_privacy_and_utility(make_settings: Settings, make_runs: Runs) -> None:
    settings = make_settings(sweep=SWEEP)
    summary = summarise(settings, make_runs(settings))
    figure = plot_privacy_utility(summary)
    assert figure is not None
    assert [axes.get_title() for axes in figure.axes] == ["num_agents=2", "num_agents=3"]
    handles, labels = figure.axes[1].get_legend_handles_labels()
    assert sorted(labels) == ["dp-fts", "fts", "noise", "ts"]
    line = handles[labels.index("dp-fts")].lines[0]
    arms = {arm.name: arm for arm in summary.arms}
    expected = [arms[f"dp-fts [noise_multiplier={z}, num_agents=3]"] for z in (4, 1)]
    assert list(line.get_xdata()) == [arm.epsilon for arm in expected]
    assert list(line.get_ydata()) == pytest.approx(
        [float(summary.shown(arm)[:, 4].mean()) for arm in expected]
    )


def test_gain_from_sharing(make_settings: Settings, make_runs: Runs) -> None:
    settings = make_settings(sweep=SWEEP)
    summary = summarise(settings, make_runs(settings))
    figure = plot_sharing_gain(summary)
    assert figure is not None
    by_noise, by_agents = figure.axes
    assert (by_noise.get_xlabel(), by_agents.get_xlabel()) == (
        "epsilon, by noise_multiplier", "num_agents",
    )  # fmt: skip
    handles, labels = by_agents.get_legend_handles_labels()
    line = handles[labels.index("dp-fts [noise_multiplier=1]")].lines[0]
    arms = {arm.name: arm for arm in summary.arms}
    controls = [arms[f"dp-fts [noise_multiplier=1, num_agents={n}]"].control for n in (2, 3)]
    assert list(line.get_xdata()) == [2, 3]
    assert list(line.get_ydata()) == [float(c.gain.value[-1]) for c in controls if c is not None]


def test_a_sweep_of_words_and_lists(make_settings: Settings, make_runs: Runs) -> None:
    settings = make_settings(
        seeds=1, sweep={"kernel": ["rbf", "matern52"], "lengthscales": [0.1, [0.1, 0.3]]}
    )
    summary = summarise(settings, make_runs(settings))
    assert plot_privacy_utility(summary) is None
    figure = plot_sharing_gain(summary)
    assert figure is not None
    ticks = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert ticks == ["rbf", "matern52"]
