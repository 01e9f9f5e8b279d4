"""Simple regret of one agent without a federation, against the loop that BoTorch users write.

    python benchmarks/plain_botorch.py branin --iterations 40 --rows branin.jsonl
    python benchmarks/plain_botorch.py hartmann --iterations 50 --rows hartmann.jsonl

Both start from the same points and query one point an iteration. The plain loop is a
``SingleTaskGP`` fitted anew by ``fit_gpytorch_mll``, ``PathwiseThompsonSampling`` and
``optimize_acqf`` with 8 restarts.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from botorch import fit_gpytorch_mll
from botorch.acquisition.thompson_sampling import PathwiseThompsonSampling
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.optim import optimize_acqf
from botorch.test_functions import Branin, Hartmann
from botorch.test_functions.synthetic import SyntheticTestFunction
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from torch_dpfts import Agent, FederationSpec

Row = dict[str, Any]

PROBLEMS = {"branin": Branin, "hartmann": lambda **kwargs: Hartmann(dim=6, **kwargs)}


def plain_suggestion(X: Tensor, Y: Tensor, bounds: Tensor) -> Tensor:
    """The next point of the plain loop, ``1 x d``; draws come from torch's global generator."""
    model = SingleTaskGP(X, Y, input_transform=Normalize(X.shape[-1], bounds=bounds))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    acqf = PathwiseThompsonSampling(model)
    return optimize_acqf(acqf, bounds, q=1, num_restarts=8, raw_samples=128)[0]


def make_agent(problem: SyntheticTestFunction, seed: int) -> Agent:
    """An agent that is alone in its federation."""
    spec = FederationSpec.ts(bounds=problem.bounds.tolist(), num_agents=1, num_rounds=1)
    return Agent(spec, 0, seed=seed)


def run(
    problem: SyntheticTestFunction, seed: int, iterations: int, initial: int, plain: bool
) -> tuple[list[float], float]:
    """Run one loop; returns the simple regret after each iteration and the seconds it took."""
    agent = make_agent(problem, seed)
    X = agent.initial_points(initial)
    Y = problem(X).unsqueeze(-1)
    agent.observe(X, Y)
    torch.manual_seed(seed)  # noqa: TID251  BoTorch's loop draws from the global generator
    start = time.process_time()
    for _ in range(iterations):
        x = plain_suggestion(X, Y, problem.bounds) if plain else agent.suggest()
        y = problem(x).unsqueeze(-1)
        X, Y = torch.cat([X, x]), torch.cat([Y, y])
        if not plain:
            agent.observe(x, y)
    seconds = time.process_time() - start
    regret = problem.optimal_value - Y.squeeze(-1).cummax(0).values[initial - 1 :]
    return regret.tolist(), seconds


def compare(ours: list[Row], plain: list[Row], iterations: int) -> Iterator[str]:
    """Lines of a table of mean simple regrets, with the standard errors of paired differences."""
    yield "| iteration | ours | plain | ours less plain |"
    yield "|---|---|---|---|"
    for t in range(10, iterations + 1, 10):
        a, b = ([row["regret"][t] for row in rows] for rows in (ours, plain))
        difference = [x - y for x, y in zip(a, b, strict=True)]
        error = statistics.stdev(difference) / len(difference) ** 0.5
        cells = (statistics.mean(a), statistics.mean(b), statistics.mean(difference))
        yield "| {} | {:.4f} | {:.4f} | {:+.4f} ({:.4f}) |".format(t, *cells, error)
    times = (statistics.mean(row["seconds"] for row in rows) for rows in (ours, plain))
    yield "seconds a run: {:.2f} and {:.2f}".format(*times)


def main(
    problem: Annotated[str, typer.Argument(help="branin or hartmann")],
    rows: Annotated[Path, typer.Option(help="Where runs are kept; those in it are not repeated.")],
    seeds: Annotated[int, typer.Option(help="Number of seeds, at least 2.")] = 20,
    iterations: Annotated[int, typer.Option(help="Points queried.")] = 50,
    initial: Annotated[int, typer.Option(help="Points to start from.")] = 10,
) -> None:
    torch.set_num_threads(1)
    objective = PROBLEMS[problem](negate=True).double()
    lines = rows.read_text().splitlines() if rows.exists() else []
    done = {(row["loop"], row["seed"]): row for row in map(json.loads, lines)}
    for seed in range(seeds):
        for name in ("ours", "plain"):
            if (name, seed) in done:
                continue
            regret, seconds = run(objective, seed, iterations, initial, name == "plain")
            row = {"loop": name, "seed": seed, "seconds": seconds, "regret": regret}
            done[name, seed] = row
            with rows.open("a") as file:
                print(json.dumps(row), file=file)
    ours, plain = ([done[name, seed] for seed in range(seeds)] for name in ("ours", "plain"))
    print("\n".join(compare(ours, plain, iterations)))


if __name__ == "__main__":
    typer.run(main)
