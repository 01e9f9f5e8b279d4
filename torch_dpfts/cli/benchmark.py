"""``dpfts benchmark``: arms against each other on a problem, from a settings file."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from torch_dpfts.benchmark import Summary


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("benchmark")(benchmark)


def benchmark(
    settings: Annotated[
        str | None, typer.Argument(help="A TOML file, or the name of a shipped one.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the results; default: dpfts-benchmark/NAME, or NAME-quick."),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="How many, or some separated by commas; else the file's.")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Rounds of each run; else the file's.")
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Runs at a time; one for each core by default.")
    ] = None,
    quick: Annotated[bool, typer.Option(help="Two seeds and three rounds at most.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a summary as JSON, not the tables.")
    ] = False,
    show_list: Annotated[
        bool, typer.Option("--list", help="Name the shipped settings and the problems.")
    ] = False,
) -> None:
    """Compare arms on a problem. The same command again goes on where it was stopped."""
    from rich.console import Console

    from torch_dpfts.benchmark import BenchmarkSettings, run_benchmark, summarise
    from torch_dpfts.errors import InvalidInputError

    if show_list:
        _print_names()
        return
    if settings is None:
        raise InvalidInputError("settings must be given; dpfts benchmark --list names some.")
    sys.path.insert(0, os.getcwd())  # for problems of the reader's own
    chosen = BenchmarkSettings.load(settings)
    chosen = chosen.override(seeds=_seeds(seeds), num_rounds=rounds)
    chosen = chosen.quick() if quick else chosen
    folder = out or Path("dpfts-benchmark") / f"{Path(settings).stem}{'-quick' if quick else ''}"
    messages = Console(stderr=True)
    try:
        runs = run_benchmark(chosen, folder, processes=processes)
    except KeyboardInterrupt:
        messages.print(f"Stopped; the same command goes on with the runs in {folder}.")
        raise typer.Exit(130) from None
    summary = summarise(chosen, runs)
    written = _write(summary, folder)
    _print(summary, as_json)
    messages.print(f"Wrote {', '.join(written)} in {folder}.", highlight=False)


def _seeds(text: str | None) -> int | list[int] | None:
    from torch_dpfts.errors import InvalidInputError

    if text is None:
        return None
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise InvalidInputError(
            f"seeds must be a count, or numbers separated by commas, got {text!r}."
        ) from None
    return numbers if "," in text else numbers[0]


def _print_names() -> None:
    from torch_dpfts.benchmark import shipped_settings
    from torch_dpfts.problems.registry import PROBLEMS

    typer.echo("settings: " + ", ".join(shipped_settings()))
    typer.echo("problems: " + ", ".join(PROBLEMS))


def _write(summary: Summary, folder: Path) -> list[str]:
    from torch_dpfts.benchmark import markdown, write_plots

    (folder / "table.md").write_text(markdown(summary), "utf-8")
    return ["runs.jsonl", "table.md", *write_plots(summary, folder)]


def _print(summary: Summary, as_json: bool) -> None:
    from rich.console import Console

    from torch_dpfts.benchmark import print_summary

    if as_json:
        typer.echo(json.dumps(summary.to_dict(), allow_nan=False))
    else:
        print_summary(Console(), summary)
