"""Tables of a benchmark, as Markdown and for a terminal."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from torch_dpfts.benchmark.configuration import BenchmarkSettings
from torch_dpfts.benchmark.statistics import RESAMPLES, Estimate, standard_error
from torch_dpfts.benchmark.summary import PRIVACY, ArmSummary, Comparison, Summary
from torch_dpfts.benchmark.variants import variant_name

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

_ROLES: dict[str, Callable[[ArmSummary], Comparison | None]] = {
    "control": lambda arm: arm.control,
    "baseline": lambda arm: arm.baseline,
}


def markdown(summary: Summary) -> str:
    """All tables as Markdown.

    Args:
        summary: What :func:`summarise` returned.
    """
    rounds = summary.settings.rounds_reported
    lines = [f"# {summary.settings.name}", "", *(f"{line}  " for line in header(summary)), ""]
    lines += ["```toml", settings_toml(summary.settings), "```", ""]
    lines += [f"{_values_title(summary)}.", ""]
    lines += _markdown_row("arm", *(f"round {t}" for t in rounds), "epsilon")
    lines += _markdown_row(*["---"] * (len(rounds) + 2))
    for arm in summary.arms:
        cells = [f"{mean} {error}".rstrip() for mean, error in _value_cells(summary, arm)]
        lines += _markdown_row(arm.name, *cells, epsilon_text(summary, arm))
    for role, comparison in _ROLES.items():
        lines += _markdown_comparison(summary, role, comparison)
    return "\n".join([*lines, "", *footer(summary)]) + "\n"


def _markdown_comparison(
    summary: Summary, role: str, comparison: Callable[[ArmSummary], Comparison | None]
) -> list[str]:
    found = [(arm, other) for arm in summary.arms if (other := comparison(arm)) is not None]
    if not found:
        return []
    rounds = [f"round {t}" for t in summary.settings.rounds_reported]
    lines = ["", f"Gain over the {role}, by the same seeds; positive is better.", ""]
    lines += _markdown_row("arm", "against", *rounds, "level reached")
    lines += _markdown_row(*["---"] * (len(rounds) + 3))
    for arm, other in found:
        cells = _estimate_cells(other.gain, _decimals(summary), "+")
        lines += _markdown_row(arm.name, other.other, *cells, _reached(other))
    if all(other.regret_ratio is not None for _, other in found):
        lines += ["", f"Mean regret over that of the {role}; below 1 is better.", ""]
        lines += _markdown_row("arm", "against", *rounds)
        lines += _markdown_row(*["---"] * (len(rounds) + 2))
        for arm, other in found:
            if other.regret_ratio is not None:
                cells = _estimate_cells(other.regret_ratio)
                lines += _markdown_row(arm.name, other.other, *cells)
    return lines


def _markdown_row(*cells: str) -> list[str]:
    return ["| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"]


def print_summary(console: Console, summary: Summary) -> None:
    """Print the tables, in 80 columns where the arms' names are short.

    Args:
        console: Where to.
        summary: What :func:`summarise` returned.
    """
    from rich.text import Text

    console.print(Text(str(summary.settings.name), style="bold"))
    for line in header(summary):
        console.print(Text(line))
    console.print(Text(f"\n{_values_title(summary)}"))
    table = _table("arm", *summary.settings.rounds_reported, "epsilon")
    for arm in summary.arms:
        cells = [f"{mean}\n{error}" for mean, error in _value_cells(summary, arm)]
        epsilon = epsilon_text(summary, arm).replace(" ", "\n")
        table.add_row(_stacked(arm), *cells, epsilon)
    console.print(table)
    for role, comparison in _ROLES.items():
        found = [(arm, other) for arm in summary.arms if (other := comparison(arm)) is not None]
        if found:
            _print_comparison(console, summary, role, found)
    for line in footer(summary):
        console.print(Text(line))


def _print_comparison(
    console: Console,
    summary: Summary,
    role: str,
    found: Sequence[tuple[ArmSummary, Comparison]],
) -> None:
    from rich.text import Text

    with_regret = all(other.regret_ratio is not None for _, other in found)
    places = _decimals(summary)
    against = sorted({other.other.partition(" [")[0] for _, other in found})
    columns = ["arm", "round", "gain [95%]", *(["regret ratio [95%]"] if with_regret else [])]
    console.print(Text(f"Against the {role}, {', '.join(against)}"))
    table = _table(*columns, "level\nreached")
    for arm, other in found:
        cells = ["\n".join(str(t) for t in summary.settings.rounds_reported)]
        cells.append("\n".join(_estimate_cells(other.gain, places, "+")))
        if other.regret_ratio is not None and with_regret:
            cells.append("\n".join(_estimate_cells(other.regret_ratio)))
        table.add_row(_stacked(arm), *map(Text, cells), _reached(other))
    console.print(table)


def _table(*columns: Any) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        is_name = column == "arm"
        table.add_column(str(column), justify="left" if is_name else "right", no_wrap=not is_name)
    return table


def _stacked(arm: ArmSummary) -> Text:
    from rich.text import Text

    values = (variant_name("", {key: value}).strip(" []") for key, value in arm.swept.items())
    return Text("\n".join([arm.arm, *values]), overflow="fold")


def header(summary: Summary) -> list[str]:
    """What was run, in a few lines."""
    settings, spec = summary.settings, summary.arms[0].spec
    agents = sorted({arm.spec.num_agents for arm in summary.arms})
    own = "".join(f", {key} = {value}" for key, value in settings.problem_settings.items())
    return [
        f"Problem {settings.problem}{own}; {' or '.join(map(str, agents))} agents, "
        f"{settings.num_initial} initial points, {spec.num_rounds} rounds.",
        f"Seeds {_seeds(settings.seeds)}; {PRIVACY}. torch_dpfts {', '.join(summary.versions)}, "
        f"{summary.seconds / 60:.1f} minutes of processor time.",
    ]


def footer(summary: Summary) -> list[str]:
    """What the figures mean."""
    deltas = sorted({arm.spec.delta for arm in summary.arms})
    delta = f"delta = {deltas[0]:.3g}" if len(deltas) == 1 else "the delta of each arm"
    lines = [
        f"Epsilon, at {delta}, is what the same rounds cost with noise from the operating system."
    ]
    if any(arm.control or arm.baseline for arm in summary.arms):
        lines.append(
            f"Brackets hold 95% intervals of {RESAMPLES} bootstrap resamples of the seeds."
        )
        lines.append(
            "Level reached: first round with a mean as good as the other's after the last round."
        )
    if any(arm.control for arm in summary.arms):
        lines.append("What does not beat the control owes nothing to sharing.")
    return lines


def epsilon_text(summary: Summary, arm: ArmSummary) -> str:
    """Epsilon of an arm, with its delta where these differ; ``"-"`` without sharing."""
    if not arm.spec.shares:
        return "-"
    if math.isinf(arm.epsilon):
        return "inf"
    several = len({other.spec.delta for other in summary.arms}) > 1
    text = f"{arm.epsilon_bound:.2f}"
    return f"{text} (δ={arm.spec.delta:.2g})" if several else text


def settings_toml(settings: BenchmarkSettings) -> str:
    """The settings as TOML, with the shared part and each arm on a line of its own."""
    lines = [
        f"{key} = {_toml(getattr(settings, key))}"
        for key in ("problem", "num_rounds", "num_initial", "control", "baseline")
        if getattr(settings, key) is not None
    ]
    lines.append(f"seeds = {_toml(list(settings.seeds))}")
    for key in ("problem_settings", "settings", "sweep"):
        if getattr(settings, key):
            lines.append(f"{key} = {_toml(getattr(settings, key))}")
    lines += [f"arms.{_key(name)} = {_toml(changes)}" for name, changes in settings.arms.items()]
    return "\n".join(lines)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(k)} = {_toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(entry) for entry in value) + "]"
    return "inf" if value == math.inf else json.dumps(value)


def _key(key: str) -> str:
    return key if all(c.isascii() and (c.isalnum() or c in "-_") for c in key) else json.dumps(key)


def _seeds(seeds: Sequence[int]) -> str:
    if len(seeds) > 1 and list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds))


def _values_title(summary: Summary) -> str:
    count = len(summary.settings.seeds)
    return f"{summary.measure}, by round: mean (standard error) of {count} runs"


def _value_cells(summary: Summary, arm: ArmSummary) -> list[tuple[str, str]]:
    shown = summary.shown(arm)[:, list(summary.settings.rounds_reported)]
    places = _decimals(summary)
    errors = standard_error(shown).tolist()
    return [
        (f"{mean:.{places}f}", "" if math.isnan(error) else f"({error:.{places}f})")
        for mean, error in zip(shown.mean(dim=0).tolist(), errors, strict=True)
    ]


def _estimate_cells(estimate: Estimate, places: int = 3, sign: str = "") -> list[str]:
    cells = []
    for value, low, high in torch.stack([estimate.value, *estimate.interval], dim=-1).tolist():
        text = "-" if math.isnan(value) else f"{value:{sign}.{places}f}"
        limits = "" if math.isnan(low) else f" [{low:{sign}.{places}f}, {high:{sign}.{places}f}]"
        cells.append(text + limits)
    return cells


def _decimals(summary: Summary) -> int:
    """Decimals that leave four digits to the largest mean and three to the smallest."""
    rounds = list(summary.settings.rounds_reported)
    means = torch.stack([summary.shown(arm).mean(dim=0)[rounds] for arm in summary.arms]).abs()
    means = means[means > 0]
    if not len(means):
        return 4
    largest, smallest = (math.floor(math.log10(float(m))) for m in (means.max(), means.min()))
    return min(max(3 - largest, 2 - smallest, 1), 6)


def _reached(comparison: Comparison) -> str:
    return "never" if comparison.reached_at is None else str(comparison.reached_at)
