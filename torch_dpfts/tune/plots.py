"""Figures of a tuning run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from torch_dpfts.errors import InvalidInputError
from torch_dpfts.tune.result import TuneResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MIN_SCORES = 4


def plot_best(result: TuneResult) -> Figure:
    """Best score so far of each site by round, and their mean."""
    figure, axes = _figure()
    draw_best(axes, result)
    return figure


def plot_importance(result: TuneResult, seed: int = 0) -> Figure:
    """How much each hyperparameter matters, by site; see :func:`importance`.

    Raises:
        InvalidInputError: If no site has enough scores.
    """
    figure, axes = _figure()
    draw_importance(axes, result, seed)
    return figure


def plot_epsilon(result: TuneResult) -> Figure:
    """Privacy spent by round, at ``spec.delta``.

    Raises:
        InvalidInputError: If the run was not private.
    """
    figure, axes = _figure()
    draw_epsilon(axes, result)
    return figure


def plot_summary(result: TuneResult) -> Figure:
    """All of the above that the run allows, side by side."""
    from matplotlib.figure import Figure

    parts = [draw_best]
    if any(len(_scored(result, agent)[0]) >= _MIN_SCORES for agent in result.trials):
        parts.append(draw_importance)
    if result.charges and math.isfinite(result.epsilon):
        parts.append(draw_epsilon)
    figure = Figure(figsize=(5 * len(parts), 4), layout="constrained")
    for axes, draw in zip(figure.subplots(1, len(parts), squeeze=False)[0], parts, strict=True):
        draw(axes, result)
    return figure


def draw_best(axes: Axes, result: TuneResult) -> None:
    """Draw :func:`plot_best` in given axes."""
    best = result.best_scores
    lines = axes.plot(best, color="C0", alpha=0.35, linewidth=1)
    lines[0].set_label("each site")
    axes.plot(best.nanmean(dim=1), color="C1", linewidth=2.5, label="mean of the sites")
    goal = "lowest" if result.minimize else "highest"
    axes.set(xlabel="round", ylabel=f"{goal} score so far", title="Best so far")
    axes.grid(alpha=0.3)
    axes.legend()


def draw_importance(axes: Axes, result: TuneResult, seed: int = 0) -> None:
    """Draw :func:`plot_importance` in given axes."""
    names = result.space.names
    shares = [
        importance(result, agent, seed)
        for agent in result.trials
        if len(_scored(result, agent)[0]) >= _MIN_SCORES
    ]
    if not shares:
        raise InvalidInputError(
            f"Importance needs a site with at least {_MIN_SCORES} scores, got none; "
            "run more rounds."
        )
    table = torch.tensor([[share[name] for name in names] for share in shares])
    order = table.mean(0).argsort().tolist()
    places = range(len(names))
    axes.barh(places, table.mean(0)[order].tolist(), color="C0", alpha=0.6)
    for row in table:
        axes.plot(row[order], places, "o", color="C1", markersize=3)
    axes.set_yticks(places, [names[i] for i in order])
    axes.set(xlabel="share of the importance", title="Importance (dots: sites)")


def draw_epsilon(axes: Axes, result: TuneResult) -> None:
    """Draw :func:`plot_epsilon` in given axes."""
    if not result.charges or not math.isfinite(result.epsilon):
        raise InvalidInputError(
            f"There is no finite epsilon to draw, as epsilon is {result.epsilon}; share with noise."
        )
    spent = result.epsilon_by_round()
    axes.step(range(len(spent)), spent, where="post", color="C0")
    if result.spec.target_epsilon is not None:
        axes.axhline(result.spec.target_epsilon, color="C3", linestyle="--", label="budget")
        axes.legend()
    axes.set(
        xlabel="round",
        ylabel=f"epsilon at delta = {result.spec.delta:.2g}",
        title="Privacy spent",
    )
    axes.grid(alpha=0.3)


def importance(result: TuneResult, agent_id: int, seed: int = 0) -> dict[str, float]:
    """How much a random forest needs each hyperparameter to predict the scores of a site.

    It is the loss of fit when the hyperparameter's values are permuted (Breiman, "Random
    forests", 2001), as a share of the sum over all of them.

    Args:
        result: The run.
        agent_id: The site.
        seed: Seed of forest and permutations.

    Raises:
        InvalidInputError: If the site is unknown or has too few scores.
    """
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.inspection import permutation_importance

    if agent_id not in result.trials:
        raise InvalidInputError(f"agent_id must be one of {list(result.trials)}, got {agent_id}.")
    X, y = _scored(result, agent_id)
    if len(X) < _MIN_SCORES:
        raise InvalidInputError(
            f"Importance needs at least {_MIN_SCORES} scores, agent {agent_id} has {len(X)}."
        )
    unit = result.space.to_unit(torch.tensor(X, dtype=torch.float64)).numpy()
    forest = RandomForestRegressor(100, random_state=seed).fit(unit, y)
    drops = permutation_importance(forest, unit, y, random_state=seed).importances_mean
    total = sum(max(drop, 0.0) for drop in drops) or 1.0
    return {
        name: max(float(drop), 0.0) / total
        for name, drop in zip(result.space.names, drops, strict=True)
    }


def _scored(result: TuneResult, agent_id: int) -> tuple[list[tuple[float, ...]], list[float]]:
    pairs = [(t.x, t.score) for t in result.trials[agent_id] if t.score is not None]
    return [x for x, _ in pairs], [score for _, score in pairs]


def _figure() -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    return figure, figure.subplots()
