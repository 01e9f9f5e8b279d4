"""``dpfts audit``: measure the privacy of the real server from outside."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from torch import Tensor

    from torch_dpfts.privacy.audit import AuditResult, RunRounds
    from torch_dpfts.spec import FederationSpec


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("audit")(audit)


def audit(
    noise_multipliers: Annotated[
        str, typer.Option(help="Noise multipliers z to audit, separated by commas.")
    ] = "0.5,0.7,1",
    sample_rate: Annotated[float, typer.Option(help="Probability q of drawing an agent.")] = 1.0,
    num_agents: Annotated[int, typer.Option(help="Size N of the roster.")] = 29,
    num_regions: Annotated[int, typer.Option(help="Number P of sub-regions.")] = 4,
    num_features: Annotated[int, typer.Option(help="Length M of a vector.")] = 8,
    rounds: Annotated[int, typer.Option(help="Rounds of each run.")] = 2,
    trials: Annotated[int, typer.Option(help="Runs with and runs without the agent.")] = 4000,
    delta: Annotated[float | None, typer.Option(help="Delta; default N ** -1.1.")] = None,
    confidence: Annotated[float, typer.Option(help="Confidence of the bound.")] = 0.999,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the first run; default: system entropy.")
    ] = None,
    fault: Annotated[
        str | None, typer.Option(help="Audit a server with a planted fault of this name.")
    ] = None,
    out: Annotated[Path, typer.Option(help="File for the plot.")] = Path("audit.png"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Try to tell whether one agent took part: a lower bound on epsilon, against the claim.

    Exit status 1 means that a measured bound exceeds the claim: the server is broken.
    """
    import torch

    from torch_dpfts import checks
    from torch_dpfts.privacy.audit import audit_privacy, plot_audits
    from torch_dpfts.privacy.faults import FAULTS
    from torch_dpfts.spec import FederationSpec

    torch.set_num_threads(1)  # thousands of tiny tensors: threads would only wait
    if fault is not None:
        checks.choice("fault", fault, FAULTS)
    specs = [
        FederationSpec.dp_fts_de(
            bounds=((0.0,), (1.0,)),
            num_agents=num_agents,
            num_rounds=max(rounds, 1),
            num_regions=num_regions,
            num_features=num_features,
            sample_rate=sample_rate,
            noise_multiplier=multiplier,
            clip_norm=1.0,
            delta=delta,
        )
        for multiplier in _numbers(noise_multipliers)
    ]
    results = []
    with _progress(4 * trials * len(specs)) as advance:
        for spec in specs:
            results.append(
                audit_privacy(
                    spec,
                    server_runner(spec, seed, fault),
                    trials=trials,
                    num_rounds=rounds,
                    confidence=confidence,
                    on_trial=advance,
                )
            )
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(plot_audits(results))
    if as_json:
        typer.echo(json.dumps([_figures(result) for result in results]))
    else:
        _print(results, out)
    if not all(result.passed for result in results):
        raise typer.Exit(1)


def server_runner(spec: FederationSpec, seed: int | None, fault: str | None = None) -> RunRounds:
    """Return a function that runs a fresh :class:`~torch_dpfts.server.Server` for each trial."""
    import torch

    from torch_dpfts.messages import Contribution
    from torch_dpfts.privacy.faults import FAULTS
    from torch_dpfts.server import Server

    def run(messages: Sequence[Mapping[int, Tensor]], trial: int) -> Tensor:
        server = Server(spec, None if seed is None else seed + trial)
        if fault is not None:
            server._aggregator = FAULTS[fault](spec)
        released = []
        for t, vectors in enumerate(messages, start=1):
            sent = [Contribution(spec.fingerprint, n, t, vector) for n, vector in vectors.items()]
            released.append(server.round(sent).vectors)
        return torch.stack(released)

    return run


def _numbers(text: str) -> list[float]:
    from torch_dpfts.errors import InvalidInputError

    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidInputError(
            f"noise_multipliers must be numbers separated by commas, got {text!r}."
        ) from None


def _figures(result: AuditResult) -> dict[str, object]:
    from dataclasses import asdict

    return asdict(result) | {"passed": result.passed}


def _print(results: Sequence[AuditResult], out: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"Epsilon at delta {results[0].delta:.3g}: claimed and measured")
    for column in ("z", "q", "claim", f"measured ({results[0].confidence:.1%})", "by", "verdict"):
        table.add_column(column, justify="right")
    for result in results:
        table.add_row(
            f"{result.noise_multiplier:g}",
            f"{result.sample_rate:g}",
            f"{result.claim:.3f}",
            f"{result.bound:.3f}",
            f"{result.statistic}, {result.setting}",
            "consistent" if result.passed else "BROKEN",
        )
    console = Console()
    console.print(table)
    console.print(f"Wrote {out}", highlight=False)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[], None]]:
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("audit", total=total)
        yield lambda: bar.advance(task)
