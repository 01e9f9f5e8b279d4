"""``dpfts tune``: hyperparameters of PyTorch models, tuned across sites."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from torch_dpfts.tune import TuneResult

_EXAMPLES = ("digits",)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("tune")(tune)


def tune(
    example: Annotated[str, typer.Option(help="What to tune: digits.")] = "digits",
    sites: Annotated[int, typer.Option(min=2, max=40, help="Number of sites.")] = 10,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, a trial at each site.")] = 15,
    initial: Annotated[int, typer.Option(min=1, help="Trials before the first round.")] = 3,
    arm: Annotated[
        str, typer.Option(help="How sites share: dp-fts, dp-fts-de, fts, fts-de, ts or noise.")
    ] = "dp-fts",
    epsilon: Annotated[float, typer.Option(help="Epsilon of a private arm's whole run.")] = 3.0,
    stopping: Annotated[
        bool, typer.Option(help="End trials early that fall below the median.")
    ] = True,
    time_limit: Annotated[float, typer.Option(min=0.1, help="Seconds for a trial.")] = 60.0,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Trials at a time; one for each core by default.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Make the run repeatable, and not private.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("dpfts-tune"),
    resume: Annotated[bool, typer.Option(help="Go on with the run in that folder.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a summary as JSON.")] = False,
) -> None:
    """Tune a small network at sites with different images of digits, which share privately."""
    from rich.console import Console

    from torch_dpfts import checks
    from torch_dpfts.errors import InvalidInputError, StateError

    try:
        from torch_dpfts.tune import MedianRule, plot_summary, tune_across_sites
        from torch_dpfts.tune.digits import digits_sites, digits_spec
    except ImportError as error:
        raise InvalidInputError(f"This command cannot run: {error}") from None

    checks.choice("example", example, _EXAMPLES)
    spec = digits_spec(sites, rounds, target_epsilon=epsilon).arm(arm)
    runs = out / "run"
    if runs.exists() != resume:
        raise StateError(
            f"{str(runs)!r} holds no run to go on with; leave out --resume."
            if resume
            else f"{str(runs)!r} already holds a run; add --resume, or choose another --out."
        )
    rule = MedianRule() if stopping else None
    result = tune_across_sites(
        digits_sites(sites, stopping=rule, time_limit=time_limit),
        spec,
        num_initial=initial,
        directory=runs,
        seed=seed,
        processes=processes,
    )
    summary = {"example": example, "arm": arm, **result.summary()}
    (out / "results.json").write_text(json.dumps(summary, indent=1, allow_nan=False) + "\n")
    result.frame().to_csv(out / "trials.csv", index=False)
    plot_summary(result).savefig(out / "tune.png", dpi=150)
    if as_json:
        typer.echo(json.dumps(summary, allow_nan=False))
    else:
        _print(Console(), result, summary)
    written = ", ".join(str(out / name) for name in ("results.json", "trials.csv", "tune.png"))
    Console(stderr=True).print(f"Wrote {written}.")


def _print(console: Console, result: TuneResult, summary: dict[str, Any]) -> None:
    scores = _table("Sites", "site", "first score", "best", "trials", "stopped early", "no score")
    configs = _table("Best configurations", "site", *result.space.names)
    first = result.best_scores[0].tolist()
    for site, start in zip(summary["sites"], first, strict=True):
        states, number = site["states"], str(site["agent_id"])
        stopped = states.get("stopped", 0)
        lost = site["trials"] - stopped - states.get("complete", 0)
        best = site["best_score"]
        scores.add_row(
            number,
            "-" if math.isnan(start) else f"{start:.3f}",
            "-" if best is None else f"{best:.3f}",
            *(str(count) for count in (site["trials"], stopped, lost)),
        )
        config = site["best_config"] or {}
        configs.add_row(number, *(_short(config.get(name, "-")) for name in result.space.names))
    console.print(scores)
    console.print(configs)
    mean = result.best_scores.nanmean(dim=1)
    console.print(
        f"Mean accuracy of the sites: {float(mean[0]):.3f} after the initial trials, "
        f"{float(mean[-1]):.3f} after {len(mean) - 1} rounds."
    )
    console.print(_privacy(result))


def _table(title: str, *columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _privacy(result: TuneResult) -> str:
    if not result.spec.shares:
        return "The sites shared nothing."
    if not result.spec.is_private:
        return "The sites shared without noise: not private."
    what = f"epsilon = {result.epsilon:.2f} at delta = {result.spec.delta:.2g}"
    if result.privacy.startswith("seeded"):
        return f"The run is {result.privacy}. Unseeded it would have spent {what}."
    return f"Privacy spent: {what} (user-level: a site takes part or not)."


def _short(value: Any) -> str:
    return f"{value:.2g}" if isinstance(value, float) else str(value)
