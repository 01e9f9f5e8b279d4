"""How long everything takes, and how it grows.

    python benchmarks/speed.py --json             # the figures of SPEED.md, about 15 minutes
    python benchmarks/speed.py --quick            # smaller sizes and one repeat, about a minute
    python benchmarks/speed.py --plot speed.png   # also how times grow with n, d, M, N and P

Times are of the processor (user and system) on one thread, and medians of repeats: other work on
the machine then hurts them least. Ratios are of two things measured in turn in the same run.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from botorch.test_functions import Branin, Hartmann
from plain_botorch import make_agent, plain_suggestion
from torch import Tensor

from torch_dpfts import Agent, Contribution, FederationSpec, run_federations
from torch_dpfts.presets import preset_spec
from torch_dpfts.privacy import NoisyRegionAggregator, SeededNoise, epsilon_spent, round_charge
from torch_dpfts.problems import Landmine
from torch_dpfts.surrogate import is_refit_due

Figures = dict[str, float]
_ROUND_TRIPS = 200
_CHUNK = 2000


def seconds(f: Callable[[], Any]) -> float:
    """Processor time of one call."""
    start = time.process_time()
    f()
    return time.process_time() - start


def fleet_ms(arm: str, runs: int, rounds: int) -> float:
    """Milliseconds an agent-round of the landmine problem, with everything a run does."""
    problem = Landmine()
    spec = preset_spec(
        "practical", bounds=problem.bounds, num_agents=problem.num_agents, num_rounds=rounds
    ).arm(arm)
    total = seconds(lambda: run_federations(spec, problem, range(runs), progress=False))
    return 1e3 * total / (runs * rounds * problem.num_agents)


Case = tuple[Agent, Tensor, Callable[[Tensor], Tensor]]


def case(n: int, d: int) -> Case:
    """An agent, n points and the objective: Branin in 2 dimensions, else Hartmann in 6."""
    problem = (Branin(negate=True) if d == 2 else Hartmann(dim=6, negate=True)).double()
    agent = make_agent(problem, seed=0)

    def objective(X: Tensor) -> Tensor:
        return problem(X).unsqueeze(-1)

    return agent, agent.initial_points(n), objective


def agent_seconds(n: int, d: int, repeats: int) -> tuple[float, float]:
    """Seconds of suggest, observe and contribute between refits; and of one refit, amortised.

    A refit comes when the data have grown by a fifth, so each iteration bears 5 / n of it.
    """
    agent, X, objective = case(n, d)
    agent.observe(X, objective(X))
    agent.suggest()  # makes the factor, once after each refit

    def iteration() -> None:
        x = agent.suggest()
        agent.observe(x, objective(x))
        agent.contribute(1)

    between = statistics.median(seconds(iteration) for _ in range(repeats))
    grown = n
    while not is_refit_due(grown, n):
        grown += 1
    more = agent.initial_points(max(grown - len(agent.X), 1))
    refit = seconds(lambda: (agent.observe(more, objective(more)), agent.suggest()))
    return between, refit / (grown - n)


def plain_seconds(n: int, d: int, repeats: int) -> float:
    """Seconds of an iteration of the plain BoTorch loop on the same data."""
    agent, X, objective = case(n, d)
    Y, bounds = objective(X), agent.spec.bounds_tensor()
    torch.manual_seed(0)  # noqa: TID251  BoTorch's loop draws from the global generator

    def iteration() -> None:
        objective(plain_suggestion(X, Y, bounds))

    return statistics.median(seconds(iteration) for _ in range(repeats))


def agents(n: int, d: int, repeats: int) -> Figures:
    """Our single agent and the plain loop, measured one after the other."""
    between, refit = agent_seconds(n, d, repeats)
    plain = plain_seconds(n, d, max(repeats // 3, 1))
    return {"ours": between + refit, "refit": refit, "plain": plain}


def private_spec(N: int, M: int, P: int) -> FederationSpec:
    """A federation of which only the server matters."""
    return FederationSpec.dp_fts_de(
        bounds=[[0.0, 0.0], [1.0, 1.0]], num_agents=N, num_rounds=2, num_features=M,
        num_regions=P, sample_rate=0.5, noise_multiplier=1.0, clip_norm=4.0,
    )  # fmt: skip


def aggregator(N: int, M: int, P: int, repeats: int) -> Figures:
    """The aggregator with clipping, exact sums and noise, against ``torch.mm`` of that size."""
    spec = private_spec(N, M, P)
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(N, M, generator=generator, dtype=torch.float64)
    weights = torch.rand(P, N, generator=generator, dtype=torch.float64)
    ids, noise = torch.arange(N), SeededNoise(0)
    pairs = []
    for _ in range(repeats):
        # Without the weights of the last round: the whole of a round's work.
        ours = seconds(lambda: NoisyRegionAggregator(spec).aggregate(1, vectors, ids, noise))
        pairs.append((ours, seconds(lambda: torch.mm(weights, vectors))))
    return {
        "seconds": statistics.median(ours for ours, _ in pairs),
        "over_matmul": statistics.median(ours / plain for ours, plain in pairs),
    }


def _stream(N: int, M: int, P: int, pipe: Any) -> None:
    """Sum a stream in this process and send its seconds and the peak of its memory in MB."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)

    def chunks() -> Iterator[tuple[Tensor, Tensor]]:
        for ids in torch.arange(N).split(_CHUNK):
            yield ids, torch.randn(len(ids), M, generator=generator, dtype=torch.float64)

    spec = private_spec(N, M, P)
    taken = seconds(
        lambda: NoisyRegionAggregator(spec).aggregate(1, chunks(), noise=SeededNoise(0))
    )
    # Not getrusage, which counts the parent's memory too.
    status = Path("/proc/self/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    pipe.send((taken, int(peak.split()[1]) / 1024))


def stream(N: int, M: int = 256, P: int = 16) -> tuple[float, float]:
    """Seconds and peak memory in MB of a process that sums vectors from a generator."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_stream, args=(N, M, P, sender))
    process.start()
    taken, peak = receiver.recv()
    process.join()
    return taken, peak


def messages(M: int) -> Figures:
    """Size and time of a contribution on its way through the codec."""
    spec = private_spec(2, M, 1)
    message = Contribution(spec.fingerprint, 0, 1, torch.ones(M, dtype=torch.float64))
    data = message.to_bytes()

    def trips() -> None:
        for _ in range(_ROUND_TRIPS):
            Contribution.from_bytes(message.to_bytes())

    return {"bytes": float(len(data)), "us": 1e6 * seconds(trips) / _ROUND_TRIPS}


def accounting_s() -> float:
    """Seconds to account for a federation of 60 rounds by privacy loss distributions."""
    spec = preset_spec("paper", bounds=[[0.0], [1.0]], num_agents=29, num_rounds=60)
    history = [(*round_charge(spec, t), 1) for t in range(1, 61)]
    return seconds(lambda: epsilon_spent(history, spec.delta, spec.accountant))


def start_up(repeats: int) -> Figures:
    """Seconds that our imports add to botorch's, and of ``dpfts --help``.

    Names are looked up when first used, so ``names`` also counts the first use of three.
    """
    program = (
        "import time, botorch; t = time.process_time; a = t(); import torch_dpfts; b = t(); "
        "from torch_dpfts import Agent, Server, run_federation; print(b - a, t() - a)"
    )
    command = [sys.executable, "-c", "from torch_dpfts.cli import main; main()", "--help"]
    added, named, helped = [], [], []
    for _ in range(repeats):
        output = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
        plain, names = map(float, output.stdout.split())
        added.append(plain)
        named.append(names)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        helped.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return {
        "import": statistics.median(added),
        "names": statistics.median(named),
        "help": statistics.median(helped),
    }


def measure(quick: bool) -> Figures:
    """All figures; the quick ones are of smaller sizes."""
    repeats = 1 if quick else 9
    small = agents(70, 2, 3 * repeats)
    large = agents(200 if quick else 1000, 6, min(repeats, 5))
    sums = aggregator(10_000 if quick else 100_000, 1000, 16, min(repeats, 5))
    stream_s, stream_mb = stream(50_000 if quick else 1_000_000)
    start, codec = start_up(min(repeats, 5)), messages(64)
    size = (2, 10) if quick else (10, 60)
    return {
        "fleet_ms_per_agent_round": fleet_ms("ts", *size),
        "fleet_ms_per_agent_round_dp_fts_de": fleet_ms("dp-fts-de", *size),
        "agent_ms_n70_d2": 1e3 * small["ours"],
        "agent_refit_ms_n70_d2": 1e3 * small["refit"],
        "agent_s_n1000_d6": large["ours"],
        "agent_refit_s_n1000_d6": large["refit"],
        "plain_botorch_ms_n70_d2": 1e3 * small["plain"],
        "plain_botorch_s_n1000_d6": large["plain"],
        "plain_botorch_ratio_n70_d2": small["plain"] / small["ours"],
        "plain_botorch_ratio_n1000_d6": large["plain"] / large["ours"],
        "aggregator_over_matmul": sums["over_matmul"],
        "aggregator_s": sums["seconds"],
        "stream_1m_s": stream_s,
        "stream_1m_peak_mb": stream_mb,
        "accounting_s": accounting_s(),
        "message_bytes": codec["bytes"],
        "message_us": codec["us"],
        "import_s": start["import"],
        "import_and_first_names_s": start["names"],
        "help_s": start["help"],
    }


def growth(quick: bool) -> dict[str, tuple[list[int], list[float]]]:
    """How times grow: title to sizes and times."""
    ns = [50, 100, 200] if quick else [50, 100, 200, 400, 700, 1000]
    sums = [1000, 4000, 16000] if quick else [1000, 4000, 16000, 64000]
    cells = [1, 4, 16, 64]
    widths = [32, 64, 256, 1024]
    return {
        "agent between refits against n, ms (d = 2)": (
            ns,
            [1e3 * agent_seconds(n, 2, 5)[0] for n in ns],
        ),
        "agent between refits against n, ms (d = 6)": (
            ns,
            [1e3 * agent_seconds(n, 6, 5)[0] for n in ns],
        ),
        "aggregator against N, ms": (
            sums,
            [1e3 * aggregator(N, 64, 4, 3)["seconds"] for N in sums],
        ),
        "aggregator against M, ms": (
            widths,
            [1e3 * aggregator(4000, M, 4, 3)["seconds"] for M in widths],
        ),
        "aggregator against P, ms": (
            cells,
            [1e3 * aggregator(4000, 64, P, 3)["seconds"] for P in cells],
        ),
        "message against M, bytes": (widths, [messages(M)["bytes"] for M in widths]),
    }


def draw(path: Path, curves: dict[str, tuple[list[int], list[float]]]) -> None:
    """Plot how times grow, on logarithmic axes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 3, figsize=(12, 7), layout="constrained")
    for axis, (title, (sizes, values)) in zip(axes.flat, curves.items(), strict=True):
        axis.loglog(sizes, values, marker="o")
        axis.set_title(title, fontsize=9)
        axis.grid(True, which="both", alpha=0.3)
    figure.savefig(path, dpi=120)


def main(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    quick: Annotated[bool, typer.Option(help="Smaller sizes, one repeat.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Where to draw how times grow.")] = None,
) -> None:
    torch.set_num_threads(1)
    figures: dict[str, Any] = {key: float(f"{v:.4g}") for key, v in measure(quick).items()}
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
