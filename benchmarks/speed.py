"""How long everything takes, and how it grows.

    python benchmarks/speed.py --json             # the figures of SPEED.md, about 3 minutes
    python benchmarks/speed.py --quick            # smaller sizes and one repeat
    python benchmarks/speed.py --plot speed.png   # also how times grow with n, d, M, N, P
    python benchmarks/speed.py --large            # only 10,000 agents x 20 rounds, a few minutes

See timings.py for what is measured and growth.py for the sizes of the plots.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from botorch.test_functions import Branin, Hartmann
from growth import draw, growth
from timings import (
    Figures,
    accounting_s,
    agent_seconds,
    aggregator,
    federation_seconds,
    fleet_ms,
    messages,
    plain_seconds,
    start_up,
    stream_seconds,
    with_peak_mb,
)


def agents(quick: bool) -> Figures:
    """Our single agent and the plain loop, one after the other."""
    branin, hartmann = Branin(negate=True).double(), Hartmann(dim=6, negate=True).double()
    large = 200 if quick else 1000
    small_ours, small_between = agent_seconds(branin, 70, 1 if quick else 9)
    small_plain = plain_seconds(branin, 70, 1 if quick else 9)
    ours, between = agent_seconds(hartmann, large, 1 if quick else 3)
    plain = plain_seconds(hartmann, large, 1 if quick else 3)
    return {
        "agent_ms_n70_d2": 1e3 * small_ours,
        "agent_between_refits_ms_n70_d2": 1e3 * small_between,
        "agent_s_n1000_d6": ours,
        "agent_between_refits_s_n1000_d6": between,
        "plain_botorch_ms_n70_d2": 1e3 * small_plain,
        "plain_botorch_s_n1000_d6": plain,
        "plain_botorch_ratio_n70_d2": small_plain / small_ours,
        "plain_botorch_ratio_n1000_d6": plain / ours,
    }


def measure(quick: bool) -> Figures:
    """All figures; the quick ones are of smaller sizes."""
    size = (2, 10) if quick else (10, 60)
    repeats = 1 if quick else 5
    accounting = accounting_s(60)  # before the fleets: figures are kept
    fleets = {
        "fleet_ms_per_agent_round": fleet_ms("recommended", "ts", *size),
        "fleet_ms_per_agent_round_recommended": fleet_ms("recommended", "dp-fts", *size),
        "fleet_ms_per_agent_round_paper": fleet_ms("paper", "dp-fts-de", *size),
    }
    single = agents(quick)
    sums = aggregator(10_000 if quick else 100_000, 1000, 16, repeats)
    stream_s, stream_mb = with_peak_mb(stream_seconds, 50_000 if quick else 1_000_000)
    start, codec = start_up(repeats), messages(64)
    return {
        **fleets,
        **single,
        "aggregator_over_matmul": sums["over_matmul"],
        "aggregator_s": sums["seconds"],
        "stream_1m_s": stream_s,
        "stream_1m_peak_mb": stream_mb,
        "accounting_s": accounting,
        "message_bytes": codec["bytes"],
        "message_us": codec["us"],
        "import_s": start["import"],
        "import_and_first_names_s": start["names"],
        "help_s": start["help"],
        "help_wall_s": start["help_wall"],
    }


def measure_large(quick: bool) -> Figures:
    """A federation of many agents, by one call of ``run_federation``."""
    (taken, wall), peak = with_peak_mb(federation_seconds, 500 if quick else 10_000, 20)
    return {"large_s": taken, "large_wall_s": wall, "large_peak_mb": peak}


def main(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    quick: Annotated[bool, typer.Option(help="Smaller sizes, one repeat.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Where to draw how times grow.")] = None,
    large: Annotated[bool, typer.Option(help="Only the large federation.")] = False,
) -> None:
    torch.set_num_threads(1)
    measured = measure_large(quick) if large else measure(quick)
    figures: dict[str, Any] = {key: float(f"{value:.4g}") for key, value in measured.items()}
    if plot is not None:
        figures["growth"] = curves = growth(quick)
        draw(plot, curves)
    if as_json:
        print(json.dumps(figures))
    else:
        for key, value in figures.items():
            print(f"{key:40} {value}")


if __name__ == "__main__":
    typer.run(main)
