"""``dpfts privacy``, ``plan``, ``privacy-report`` and ``audit``: what a federation costs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torch_dpfts.cli import audit

if TYPE_CHECKING:
    from torch_dpfts.privacy.planning import NoisePlan
    from torch_dpfts.spec import FederationSpec

Agents = Annotated[int | None, typer.Option(help="Size N of the roster.")]
Rounds = Annotated[int | None, typer.Option(help="Number T of broadcasts.")]
Regions = Annotated[int | None, typer.Option(help="Number P of sub-regions.")]
Rate = Annotated[float | None, typer.Option(help="Probability q of drawing an agent.")]
Multiplier = Annotated[float | None, typer.Option(help="Noise multiplier z.")]
Delta = Annotated[float | None, typer.Option(help="Delta; default N ** -1.1.")]
Method = Annotated[str, typer.Option(help="Accountant: pld, rdp, prv or moments.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_PAPER_AGENTS, _PAPER_ROUNDS = 29, 60


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("privacy")(privacy)
    app.command("plan")(plan)
    app.command("privacy-report")(privacy_report)
    audit.register(app)


def privacy(
    num_agents: Agents = None,
    num_rounds: Rounds = None,
    sample_rate: Rate = None,
    noise_multiplier: Multiplier = None,
    num_regions: Regions = None,
    delta: Delta = None,
    method: Method = "pld",
    sensitivity: Annotated[
        str | None,
        typer.Option(help="exact or paper; default exact, but paper for the method moments."),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="Take what is not given from a preset: paper, recommended.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the epsilon that a whole federation spends: an upper bound."""
    from torch_dpfts import checks
    from torch_dpfts.presets import PRESETS
    from torch_dpfts.privacy.accounting import METHODS, epsilon_spent
    from torch_dpfts.privacy.sensitivity import planned_charges

    checks.choice("method", method, METHODS)
    if preset is not None:
        checks.choice("preset", preset, PRESETS)
        num_agents = _PAPER_AGENTS if num_agents is None else num_agents
        num_rounds = _PAPER_ROUNDS if num_rounds is None else num_rounds
    given = {
        "num_agents": num_agents,
        "sample_rate": sample_rate,
        "noise_multiplier": noise_multiplier,
        "num_regions": num_regions,
        "delta": delta,
    }
    rounds = checks.integer("num_rounds", num_rounds)
    settings = (PRESETS[preset] if preset else {}) | {
        name: value for name, value in given.items() if value is not None
    }
    spec = _spec(settings, rounds, sensitivity or ("paper" if method == "moments" else "exact"))
    epsilon = epsilon_spent(planned_charges(spec) if rounds else [], spec.delta, method)
    figures = {
        "epsilon": epsilon if math.isfinite(epsilon) else "inf",
        "delta": spec.delta,
        "method": method,
        "sensitivity": spec.sensitivity,
        "num_agents": spec.num_agents,
        "num_rounds": rounds,
        "num_regions": spec.num_regions,
        "sample_rate": spec.sample_rate,
        "noise_multiplier": spec.noise_multiplier,
    }
    if as_json:
        typer.echo(json.dumps(figures))
    else:
        typer.echo(
            f"epsilon = {epsilon:.4g} at delta = {spec.delta:.3g} ({method} accountant, "
            f"{spec.sensitivity} sensitivity) after {rounds} rounds"
        )


def _spec(settings: dict[str, Any], rounds: int, sensitivity: str) -> FederationSpec:
    from torch_dpfts.errors import InvalidInputError
    from torch_dpfts.spec import FederationSpec

    for name in ("num_agents", "sample_rate", "noise_multiplier"):
        if name not in settings:
            raise InvalidInputError(
                f"{name} must be given: add --{name.replace('_', '-')}, or --preset paper."
            )
    return FederationSpec(
        bounds=((0.0,), (1.0,)),
        num_rounds=max(rounds, 1),
        sensitivity=sensitivity,
        **({"clip_norm": 1.0} | settings | {"lengthscales": 0.2}),
    )


def plan(
    epsilon: Annotated[float | None, typer.Option(help="Epsilon of the whole run.")] = None,
    delta: Delta = None,
    num_agents: Agents = None,
    num_rounds: Rounds = None,
    num_regions: Regions = None,
    sample_rate: Rate = None,
    noise_multiplier: Multiplier = None,
    num_features: Annotated[int, typer.Option(help="Length M of a vector.")] = 64,
    clip_norm: Annotated[float, typer.Option(help="Clip norm S.")] = 1.0,
    message_norm: Annotated[
        float | None, typer.Option(help="Norm of a typical vector; default: the clip norm.")
    ] = None,
    target_signal_to_noise: Annotated[
        float, typer.Option(help="Ratio that the number of agents is solved for.")
    ] = 1.0,
    sensitivity: Annotated[str, typer.Option(help="exact or paper.")] = "exact",
    method: Method = "pld",
    as_json: Json = False,
) -> None:
    """Solve for the one number that is left out, and show what the broadcasts will carry."""
    from torch_dpfts.privacy.planning import plan_noise

    found = plan_noise(
        epsilon=epsilon,
        delta=delta,
        num_agents=num_agents,
        num_rounds=num_rounds,
        num_regions=num_regions,
        sample_rate=sample_rate,
        noise_multiplier=noise_multiplier,
        num_features=num_features,
        clip_norm=clip_norm,
        message_norm=message_norm,
        target_signal_to_noise=target_signal_to_noise,
        sensitivity=sensitivity,
        method=method,
    )
    options = [("this plan", found), *found.alternatives()]
    if as_json:
        listed = [{"option": name} | _plan_figures(option) for name, option in options]
        typer.echo(json.dumps(_plan_figures(found) | {"options": listed}))
    else:
        _print_plan(found, options)


def _plan_figures(plan: NoisePlan) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(plan) | {
        "signal_to_noise_first_round": plan.signal_to_noise(1),
        "signal_to_noise": plan.signal_to_noise(),
        "verdict": plan.verdict,
    }


def _print_plan(found: NoisePlan, options: list[tuple[str, NoisePlan]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Options at the same epsilon: noise, and signal-to-noise ratio (SNR)")
    for column in ("", "epsilon", "delta", "N", "T", "P", "M", "q", "z"):
        table.add_column(column, justify="right")
    table.add_column("SNR in\nround 1", justify="right")
    table.add_column("in the\nlast", justify="right")
    table.add_column("")
    table.box, table.padding = box.SIMPLE_HEAD, (0, 0)
    for name, option in options:
        table.add_row(
            name,
            f"{option.epsilon:.3g}",
            f"{option.delta:.2g}",
            str(option.num_agents),
            str(option.num_rounds),
            str(option.num_regions),
            str(option.num_features),
            f"{option.sample_rate:.3g}",
            f"{option.noise_multiplier:.4g}",
            f"{option.signal_to_noise(1):.2f}",
            f"{option.signal_to_noise():.2f}",
            option.verdict.partition(":")[0],
        )
    console = Console()
    value = getattr(found, found.solved_for)
    console.print(f"{found.solved_for} = {value:.4g}", highlight=False)
    console.print(table)
    console.print(f"This plan: {found.verdict}.", highlight=False)


def privacy_report(
    ledger: Annotated[Path, typer.Argument(help="The ledger, a file of JSON lines.")],
    delta: Annotated[
        float | None,
        typer.Option(help="Delta; default: that of the federation beside the ledger, or 1e-5."),
    ] = None,
    methods: Annotated[
        str, typer.Option(help="Accountants, separated by commas; the first gives the figure.")
    ] = "pld,rdp",
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path(),
    as_json: Json = False,
) -> None:
    """Write a one-page report on a ledger as Markdown and HTML, or print it as JSON."""
    from torch_dpfts.privacy import report
    from torch_dpfts.privacy.ledger import PrivacyLedger

    record = PrivacyLedger(ledger, read_only=True)
    delta = _federation_delta(ledger) if delta is None else delta
    names = [name.strip() for name in methods.split(",")]
    figures = report.privacy_report(record, delta, names)
    if as_json:
        typer.echo(json.dumps(figures.as_dict()))
        return
    typer.echo(figures.summary)
    for path in figures.write(out):
        typer.echo(f"Wrote {path}")


def _federation_delta(ledger: Path) -> float:
    """The delta in the server's state beside the ledger, if there is one."""
    try:
        return float(json.loads((ledger.parent / "server.json").read_text())["spec"]["delta"])
    except (OSError, ValueError, KeyError, TypeError):
        return 1e-5
