"""``dpfts demo``: the arms side by side on the landmine problem."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from torch_dpfts.experiment import ArmResult
    from torch_dpfts.spec import FederationSpec

_ARMS = "ts,fts,dp-fts,noise"
_SCORERS = {"paper": "probability", "recommended": "decision"}
_ROUNDS_SHOWN = (0, 10, 20, 40, 60)
_SECOND_DELTA = 1e-5


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo")(demo)


def demo(
    arms: Annotated[
        str, typer.Option(help="Some of ts, fts, fts-de, dp-fts, dp-fts-de, noise.")
    ] = _ARMS,
    runs: Annotated[int, typer.Option(min=1, help="Paired runs of each arm.")] = 4,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each run.")] = 60,
    preset: Annotated[str, typer.Option(help="Settings: paper or recommended.")] = "recommended",
    scorer: Annotated[
        str | None, typer.Option(help="decision or probability; the default is the preset's.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the first run; the next ones follow it.")
    ] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("dpfts-demo"),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print results.json, not the table.")
    ] = False,
) -> None:
    """Tune an SVM at 29 sites of the landmine problem and compare the arms."""
    from rich.console import Console

    from torch_dpfts import checks
    from torch_dpfts.experiment import run_arms
    from torch_dpfts.presets import PRESETS, preset_spec
    from torch_dpfts.problems import Landmine

    checks.choice("preset", preset, PRESETS)
    problem = Landmine(scorer=scorer or _SCORERS[preset])
    spec = preset_spec(
        preset, bounds=problem.bounds, num_agents=problem.num_agents, num_rounds=rounds
    )
    names = [name.strip() for name in arms.split(",")]
    for name in names:
        spec.arm(name)
    seeds = list(range(seed, seed + runs))
    messages = Console(stderr=True)
    messages.print(f"{runs} runs of {rounds} rounds for each of {', '.join(names)}.")
    with _progress(messages, names, runs * rounds) as advance:
        results = run_arms(spec, problem, names, seeds, deltas=[_SECOND_DELTA], on_round=advance)
    report = _report(results, spec, preset, problem.scorer, seeds)
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps(report, indent=1, allow_nan=False) + "\n")
    _plot(results, out / "convergence.png")
    if as_json:
        typer.echo(json.dumps(report, allow_nan=False))
    else:
        _print_table(Console(), results, spec, runs)
    messages.print(f"Wrote {out / 'results.json'} and {out / 'convergence.png'}.")


@contextmanager
def _progress(
    console: Console, arms: Sequence[str], rounds: int
) -> Iterator[Callable[[str], None]]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:>10}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TextColumn("rounds"), TimeElapsedColumn(), console=console) as bar:
        tasks = {arm: bar.add_task(arm, total=rounds) for arm in arms}
        yield lambda arm: bar.advance(tasks[arm])


def _report(
    results: dict[str, ArmResult],
    spec: FederationSpec,
    preset: str,
    scorer: str,
    seeds: Sequence[int],
) -> dict[str, Any]:
    """The content of results.json: 1 - AUC by round, round 0 first; se is null for one run.

    ``runs`` holds the values of the single runs after the last round, for paired comparisons.
    """
    arms = {
        name: {
            "mean": (1 - result.mean).tolist(),
            "se": result.standard_error.tolist() if len(seeds) > 1 else [None] * len(result.mean),
            "runs": (1 - result.best_values[:, -1]).tolist(),
            "epsilon": {str(delta): value for delta, value in result.epsilon.items()},
        }
        for name, result in results.items()
    }
    settings = {
        "problem": "landmine",
        "scorer": scorer,
        "preset": preset,
        "measure": "1 - AUC of the best point so far, mean over agents",
        "privacy": "seeded: not private",
        "spec": json.loads(spec.to_json()),
    }
    return {"arms": arms, "settings": settings, "seeds": list(seeds)}


def _print_table(
    console: Console, results: dict[str, ArmResult], spec: FederationSpec, runs: int
) -> None:
    from rich import box
    from rich.table import Table

    rounds = sorted({t for t in _ROUNDS_SHOWN if t < spec.num_rounds} | {spec.num_rounds})
    # Plain lines, so that eight columns fit a terminal of 80 characters.
    title = f"1 - AUC by round, mean (standard error) of {runs} runs"
    table = Table(title=title, box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("arm", no_wrap=True)
    for t in rounds:
        table.add_column(str(t), justify="right")
    for delta in (spec.delta, _SECOND_DELTA):
        table.add_column(f"epsilon\nδ={delta:.2g}", justify="right")
    for name, result in results.items():
        errors = result.standard_error.tolist()
        cells = [
            f"{1 - float(result.mean[t]):.4f}"
            + (f"\n({errors[t]:.4f})".replace("0.", ".") if runs > 1 else "")
            for t in rounds
        ]
        spent = [f"{value:.2f}" for value in result.epsilon.values()] or ["-", "-"]
        table.add_row(name, *cells, *spent)
    console.print(table)
    if spec.num_regions == 1:
        console.print("These settings have one region, so dp-fts-de is dp-fts and fts-de is fts.")
    console.print(
        "The noise arm adds the same noise to zero contributions: what does not beat it owes "
        "nothing to sharing."
    )
    console.print(
        "The runs are seeded: not private. Epsilon is what the same rounds cost with noise from "
        "the operating system."
    )


def _plot(results: dict[str, ArmResult], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for name, result in results.items():
        mean, error = 1 - result.mean, result.standard_error.nan_to_num()
        epsilon = next(iter(result.epsilon.values()), None)
        label = name if epsilon is None else f"{name} (epsilon {epsilon:.2f})"
        (line,) = axes.plot(mean, label=label)
        axes.fill_between(
            range(len(mean)), mean - error, mean + error, alpha=0.2, color=line.get_color()
        )
    axes.set(xlabel="round", ylabel="1 - AUC, best so far, mean over agents")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=150)
