"""What speed.py measures, one function a figure.

Times are of the processor (user and system) on one thread, and medians of repeats: other work on
the machine then hurts them least. Ratios are of two things measured in turn.
"""

from __future__ import annotations

import multiprocessing
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from botorch.test_functions.synthetic import SyntheticTestFunction
from plain_botorch import make_agent, plain_suggestion
from torch import Tensor

from torch_dpfts import Agent, Contribution, FederationSpec, run_federation, run_federations
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


def fleet_ms(preset: str, arm: str, runs: int, rounds: int) -> float:
    """Milliseconds an agent-round of the landmine problem, with everything a run does."""
    problem = Landmine()
    spec = preset_spec(
        preset, bounds=problem.bounds, num_agents=problem.num_agents, num_rounds=rounds
    ).arm(arm)
    total = seconds(lambda: run_federations(spec, problem, range(runs), progress=False))
    return 1e3 * total / (runs * rounds * problem.num_agents)


def federation_seconds(N: int, rounds: int) -> tuple[float, float]:
    """Processor and wall seconds of a private run with N agents, one function each, d = 2."""
    generator = torch.Generator().manual_seed(0)
    optima = 0.3 + 0.4 * torch.rand(N, 1, 2, generator=generator, dtype=torch.float64)

    def objective(X: Tensor, agent_ids: Tensor) -> Tensor:
        return -(X - optima[agent_ids]).square().sum(-1, keepdim=True)

    spec = FederationSpec.dp_fts(
        bounds=[[0.0, 0.0], [1.0, 1.0]], num_agents=N, num_rounds=rounds, sample_rate=0.35,
        noise_multiplier=1.0, clip_norm=4.0,
    )  # fmt: skip
    start = time.perf_counter()
    taken = seconds(lambda: run_federation(spec, objective, progress=False))
    return taken, time.perf_counter() - start


Case = tuple[Agent, Tensor, Callable[[Tensor], Tensor]]


def case(problem: SyntheticTestFunction, n: int, seed: int) -> Case:
    """An agent, n points and the objective."""
    agent = make_agent(problem, seed)

    def objective(X: Tensor) -> Tensor:
        return problem(X).unsqueeze(-1)

    return agent, agent.initial_points(n), objective


def iteration_seconds(
    problem: SyntheticTestFunction, n: int, seed: int, iterations: int
) -> list[float]:
    """Seconds of each suggest, observe and contribute after a fit of n points."""
    agent, X, objective = case(problem, n, seed)
    agent.observe(X, objective(X))

    def iteration() -> None:
        x = agent.suggest()
        agent.observe(x, objective(x))
        agent.contribute(1)

    return [seconds(iteration) for _ in range(iterations)]


def agent_seconds(problem: SyntheticTestFunction, n: int, repeats: int) -> tuple[float, float]:
    """Seconds of an iteration, all told and between refits: medians over seeds.

    The first counts all that happens from one refit to the next: the factor made after a fit,
    and at the end, when the data have grown by a fifth, the next fit.
    """
    grown = n
    while not is_refit_due(grown, n):
        grown += 1
    cycles = [iteration_seconds(problem, n, seed, grown - n) for seed in range(repeats)]
    return (
        statistics.median(statistics.mean(cycle) for cycle in cycles),
        statistics.median(statistics.median(cycle) for cycle in cycles),
    )


def plain_seconds(problem: SyntheticTestFunction, n: int, repeats: int) -> float:
    """Seconds of an iteration of the plain BoTorch loop on the same data: median over seeds."""

    def of(seed: int) -> float:
        _, X, objective = case(problem, n, seed)
        Y = objective(X)
        torch.manual_seed(seed)  # noqa: TID251  BoTorch's loop draws from the global generator
        return seconds(lambda: objective(plain_suggestion(X, Y, problem.bounds)))

    return statistics.median(of(seed) for seed in range(repeats))


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


def stream_seconds(N: int, M: int = 256, P: int = 16) -> float:
    """Seconds to sum vectors that come from a generator."""
    generator = torch.Generator().manual_seed(0)

    def chunks() -> Iterator[tuple[Tensor, Tensor]]:
        for ids in torch.arange(N).split(_CHUNK):
            yield ids, torch.randn(len(ids), M, generator=generator, dtype=torch.float64)

    spec = private_spec(N, M, P)
    return seconds(lambda: NoisyRegionAggregator(spec).aggregate(1, chunks(), noise=SeededNoise(0)))


def with_peak_mb(f: Callable[..., Any], *args: int) -> tuple[Any, float]:
    """What a function returns in a process of its own, and the peak of that process in MB."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send_peak, args=(f, args, sender))
    process.start()
    sender.close()
    result: tuple[Any, float] = receiver.recv()
    process.join()
    return result


def _send_peak(f: Callable[..., Any], args: tuple[int, ...], pipe: Any) -> None:
    torch.set_num_threads(1)
    result = f(*args)
    # Not getrusage, which counts the parent's memory too.
    status = Path("/proc/self/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    pipe.send((result, int(peak.split()[1]) / 1024))


def messages(M: int) -> Figures:
    """Size and time of a contribution on its way through the codec."""
    spec = private_spec(2, M, 1)
    message = Contribution(spec.fingerprint, 0, 1, torch.ones(M, dtype=torch.float64))
    data = message.to_bytes()

    def trips() -> None:
        for _ in range(_ROUND_TRIPS):
            Contribution.from_bytes(message.to_bytes())

    return {"bytes": float(len(data)), "us": 1e6 * seconds(trips) / _ROUND_TRIPS}


def accounting_s(rounds: int) -> float:
    """Seconds to account for a federation by privacy loss distributions."""
    spec = preset_spec("paper", bounds=[[0.0], [1.0]], num_agents=29, num_rounds=rounds)
    history = [(*round_charge(spec, t), 1) for t in range(1, rounds + 1)]
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
    added, named, helped, walls = [], [], [], []
    for _ in range(repeats):
        output = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
        plain, names = map(float, output.stdout.split())
        added.append(plain)
        named.append(names)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        start = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        walls.append(time.perf_counter() - start)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        helped.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return {
        "import": statistics.median(added),
        "names": statistics.median(named),
        "help": statistics.median(helped),
        "help_wall": statistics.median(walls),
    }
