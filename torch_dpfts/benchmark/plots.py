"""Figures of a benchmark: convergence, privacy against utility, gain from sharing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch_dpfts.benchmark.statistics import standard_error
from torch_dpfts.benchmark.summary import ArmSummary, Summary
from torch_dpfts.benchmark.variants import variant_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 3
# Of the fields that change epsilon, those that trade it for utility.
_TRADES = ("target_epsilon", "noise_multiplier", "sample_rate")


def write_plots(summary: Summary, folder: str | Path) -> list[str]:
    """Write every figure that the benchmark has something for.

    Args:
        summary: What :func:`summarise` returned.
        folder: Where to; it must exist.

    Returns:
        Names of the files.
    """
    figures = {
        "convergence.png": plot_convergence(summary),
        "privacy_utility.png": plot_privacy_utility(summary),
        "sharing_gain.png": plot_sharing_gain(summary),
    }
    made = {name: figure for name, figure in figures.items() if figure is not None}
    for name, figure in made.items():
        figure.savefig(Path(folder) / name, dpi=150)
    return list(made)


def plot_convergence(summary: Summary) -> Figure:
    """The measure by round, mean and standard error; a panel for each combination swept.

    Args:
        summary: What :func:`summarise` returned.
    """
    panels = _largest(arm.swept for arm in summary.arms)
    figure, axes = _figure(summary, "best so far, mean over agents", len(panels))
    for place, swept in zip(axes, panels, strict=True):
        for arm in summary.arms:
            if not arm.swept.items() <= swept.items():
                continue
            shown = summary.shown(arm)
            mean, error = shown.mean(dim=0), standard_error(shown).nan_to_num()
            cost = f" (epsilon {arm.epsilon_bound:.2f})" if arm.is_private else ""
            color = _color(summary, arm.arm)
            place.plot(mean, label=f"{arm.arm}{cost}", color=color)
            place.fill_between(range(len(mean)), mean - error, mean + error, alpha=0.2, color=color)
        place.set(xlabel="round", ylabel=summary.measure)
        _finish(place, swept)
    return figure


def plot_privacy_utility(summary: Summary) -> Figure | None:
    """The measure against epsilon at the last round reported, with standard errors.

    A line for each private arm, along the swept target epsilon, noise multiplier or sample rate,
    and a level for each other arm; a panel for each combination of the other swept fields.

    Args:
        summary: What :func:`summarise` returned.

    Returns:
        ``None`` if none of these is swept for a private arm.
    """
    private = [arm for arm in summary.arms if arm.is_private]
    field = next((f for f in _TRADES if any(f in arm.swept for arm in private)), None)
    if field is None:
        return None
    lines = _lines([arm for arm in private if field in arm.swept], field)
    panels = _unique(rest for _, rest, _ in lines)
    figure, axes = _figure(summary, "privacy and utility", len(panels))
    last = summary.settings.rounds_reported[-1]
    for place, swept in zip(axes, panels, strict=True):
        for name, rest, arms in lines:
            if rest == swept:
                arms.sort(key=lambda arm: arm.epsilon)
                values = [summary.shown(arm)[:, [last]] for arm in arms]
                place.errorbar(
                    [arm.epsilon for arm in arms],
                    [float(value.mean()) for value in values],
                    [float(standard_error(value).nan_to_num()) for value in values],
                    **_MARKS,
                    label=name,
                    color=_color(summary, name),
                )
        for arm in summary.arms:
            if field not in arm.swept and arm.swept.items() <= swept.items():
                level = float(summary.shown(arm)[:, last].mean())
                color = _color(summary, arm.arm)
                place.axhline(level, linestyle="--", label=arm.arm, color=color)
        place.set(xlabel="epsilon", ylabel=f"{summary.measure}, round {last}", xscale="log")
        _finish(place, swept)
    return figure


def plot_sharing_gain(summary: Summary) -> Figure | None:
    """Gain over the control at the last round reported, with 95% intervals, by swept field.

    A panel for each field, a line for each arm and combination of the other fields. The noise
    multiplier and the sample rate are shown as epsilon.

    Args:
        summary: What :func:`summarise` returned.

    Returns:
        ``None`` if nothing is swept, or no arm has a control with the same values.
    """
    compared = [arm for arm in summary.arms if arm.control is not None]
    fields = _unique(key for arm in compared for key in arm.swept)
    if not fields:
        return None
    figure, axes = _figure(summary, "gain from sharing", len(fields))
    last = summary.settings.rounds_reported[-1]
    for place, field in zip(axes, fields, strict=True):
        of_field = [arm for arm in compared if field in arm.swept]
        as_epsilon = field in _TRADES and all(arm.is_private for arm in of_field)
        places = _places([arm.swept[field] for arm in of_field])
        for name, rest, arms in _lines(of_field, field):
            if as_epsilon:
                arms.sort(key=lambda arm: arm.epsilon)
            x = [arm.epsilon if as_epsilon else places[str(arm.swept[field])] for arm in arms]
            gains = [arm.control.gain for arm in arms if arm.control is not None]
            means = [float(gain.value[-1]) for gain in gains]
            limits = [gain.interval[:, -1].nan_to_num(nan=float(gain.value[-1])) for gain in gains]
            errors = [
                [abs(mean - float(pair[side])) for mean, pair in zip(means, limits, strict=True)]
                for side in (0, 1)
            ]
            place.errorbar(x, means, errors, **_MARKS, label=variant_name(name, rest))
        if not as_epsilon:
            place.set_xticks(list(places.values()), list(places))
        place.axhline(0, color="black", linewidth=0.8)
        label = f"epsilon, by {field}" if as_epsilon else field
        place.set(xlabel=label, ylabel=f"gain over the control, round {last}")
        _finish(place, {})
    return figure


_MARKS: dict[str, Any] = {"marker": "o", "markersize": 4, "capsize": 3}


def _figure(summary: Summary, title: str, panels: int) -> tuple[Figure, Sequence[Axes]]:
    from matplotlib.figure import Figure

    columns = min(panels, _COLUMNS)
    rows = math.ceil(panels / columns)
    size = (7, 4.5) if panels == 1 else (4.5 * columns, 3.6 * rows + 0.4)
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(f"{summary.settings.name}: {title}")
    axes = list(figure.subplots(rows, columns, squeeze=False).flatten())
    for unused in axes[panels:]:
        unused.remove()
    return figure, axes[:panels]


def _finish(place: Axes, swept: Mapping[str, Any]) -> None:
    if swept:
        place.set_title(variant_name("", swept).strip(" []"), fontsize="medium")
    place.grid(alpha=0.3)
    place.legend(fontsize="small")


def _lines(
    arms: Iterable[ArmSummary], field: str
) -> list[tuple[str, dict[str, Any], list[ArmSummary]]]:
    """Arms that differ in the values of one field alone, with the values of the others."""
    lines: list[tuple[str, dict[str, Any], list[ArmSummary]]] = []
    for arm in arms:
        rest = {key: value for key, value in arm.swept.items() if key != field}
        found = next((line for line in lines if line[:2] == (arm.arm, rest)), None)
        if found is None:
            lines.append((arm.arm, rest, [arm]))
        else:
            found[2].append(arm)
    return lines


def _largest(combinations: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The combinations of swept values that are no part of another one."""
    every = _unique(combinations)
    return [one for one in every if not any(one.items() < other.items() for other in every)]


def _unique(items: Iterable[Any]) -> list[Any]:
    found: list[Any] = []  # swept values may be lists, which have no hash
    for item in items:
        if item not in found:
            found.append(item)
    return found


def _color(summary: Summary, name: str) -> str:
    return f"C{list(summary.settings.arms).index(name)}"


def _places(values: Sequence[Any]) -> dict[str, float]:
    """Where swept values stand on an axis: numbers at their place, others in their order."""
    if all(isinstance(value, int | float) for value in values):
        return {str(value): value for value in values}
    return {str(value): place for place, value in enumerate(_unique(values))}
