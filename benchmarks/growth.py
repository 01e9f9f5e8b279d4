"""How the times of speed.py grow, and a plot of each."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from botorch.test_functions import Ackley
from timings import (
    accounting_s,
    aggregator,
    federation_seconds,
    iteration_seconds,
    messages,
)

Curve = tuple[list[int], list[float]]


def agent_ms(n: int, d: int) -> float:
    """Milliseconds of an iteration of the single agent between refits."""
    # The first iteration makes the factor, and up to 5 more no refit is due.
    return 1e3 * statistics.median(iteration_seconds(Ackley(dim=d).double(), n, 0, 6)[1:])


def fleet_ms(N: int, rounds: int = 5) -> float:
    """Milliseconds an agent-round of a private federation in 2 dimensions."""
    return 1e3 * federation_seconds(N, rounds)[0] / (N * rounds)


def aggregator_ms(N: int, M: int, P: int) -> float:
    """Milliseconds of a round of the server."""
    return 1e3 * aggregator(N, M, P, 3)["seconds"]


def growth(quick: bool) -> dict[str, Curve]:
    """Title to sizes and figures."""

    def curve(sizes: Sequence[int], f: Callable[[int], float]) -> Curve:
        sizes = list(sizes[:3] if quick else sizes)
        return sizes, [float(f"{f(size):.4g}") for size in sizes]

    ns = [50, 100, 200, 400, 700, 1000, 2000, 5000]
    cohort = [1000, 4000, 16000, 64000]
    widths = [32, 64, 256, 1024, 4096]
    return {
        "agent, ms, against n (d = 2)": curve(ns, lambda n: agent_ms(n, 2)),
        "agent, ms, against n (d = 6)": curve(ns, lambda n: agent_ms(n, 6)),
        "agent, ms, against d (n = 200)": curve([1, 2, 4, 8, 16], lambda d: agent_ms(200, d)),
        "fleet, ms an agent-round, against N": curve([10, 30, 100, 300, 1000], fleet_ms),
        "aggregator, ms, against N": curve(cohort, lambda N: aggregator_ms(N, 64, 4)),
        "aggregator, ms, against M": curve(widths, lambda M: aggregator_ms(4000, M, 4)),
        "aggregator, ms, against P": curve([1, 4, 16, 64], lambda P: aggregator_ms(4000, 64, P)),
        "message, bytes, against M": curve(widths, lambda M: messages(M)["bytes"]),
        "message, us there and back, against M": curve(widths, lambda M: messages(M)["us"]),
        "accounting, s, against rounds": curve([100, 1000, 10000], accounting_s),
    }


def draw(path: Path, curves: dict[str, Curve]) -> None:
    """Plot how times grow, on logarithmic axes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 5, figsize=(17, 6.5), layout="constrained")
    for axis, (title, (sizes, values)) in zip(axes.flat, curves.items(), strict=True):
        axis.loglog(sizes, values, marker="o")
        axis.set_title(title, fontsize=9)
        axis.grid(True, which="both", alpha=0.3)
    figure.savefig(path, dpi=80)
