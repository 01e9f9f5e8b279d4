"""Simple regret of one agent without a federation, against the loop that BoTorch users write.

    python benchmarks/plain_botorch.py --problem hartmann --seeds 20

Both start from the same points and query one point an iteration. The plain loop is a
``SingleTaskGP`` fitted anew by ``fit_gpytorch_mll``, ``PathwiseThompsonSampling`` and
``optimize_acqf`` with 8 restarts.
"""

from __future__ import annotations

import json
import time
from typing import Annotated

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


def main(
    problem: Annotated[str, typer.Option(help="branin or hartmann")] = "hartmann",
    seeds: Annotated[int, typer.Option(help="Number of seeds.")] = 20,
    first_seed: Annotated[int, typer.Option(help="The first of them.")] = 0,
    iterations: Annotated[int, typer.Option(help="Points queried.")] = 60,
    initial: Annotated[int, typer.Option(help="Points to start from.")] = 10,
    loop: Annotated[str, typer.Option(help="ours, plain or both")] = "both",
) -> None:
    torch.set_num_threads(1)
    objective = PROBLEMS[problem](negate=True).double()
    for name in ("ours", "plain") if loop == "both" else (loop,):
        for seed in range(first_seed, first_seed + seeds):
            regret, seconds = run(objective, seed, iterations, initial, name == "plain")
            row = {
                "problem": problem,
                "loop": name,
                "seed": seed,
                "seconds": seconds,
                "regret": regret,
            }
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    typer.run(main)
