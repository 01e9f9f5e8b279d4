"""Compare the acquisition function and its optimiser with BoTorch's own.

    python benchmarks/acquisition.py regret      # simple regret, 20 seeds, paired
    python benchmarks/acquisition.py timing      # seconds a suggestion
    python benchmarks/acquisition.py per-region  # functions that jump: quality and seconds
    python benchmarks/acquisition.py paths       # draws against the exact posterior
    python benchmarks/acquisition.py all

Results are printed; those of the last full run are in benchmarks/acquisition.txt. One thread.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable

import torch
import typer
from botorch.acquisition.thompson_sampling import PathwiseThompsonSampling
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Log, Normalize, Standardize
from botorch.models.transforms.input import ChainedInputTransform, Log10, Round, Warp
from botorch.optim import optimize_acqf
from botorch.test_functions import Ackley, Hartmann, SyntheticTestFunction
from gpytorch.mlls import ExactMarginalLogLikelihood
from scipy.stats import ttest_rel, wilcoxon
from torch import Size, Tensor

from torch_dpfts import Broadcast, FederationSpec
from torch_dpfts.acquisition import (
    BroadcastPath,
    FederatedThompsonSampling,
    draw_posterior_path,
    maximize_per_region,
    optimize_acqf_per_region,
)
from torch_dpfts.regions import RegionGrid
from torch_dpfts.rng import derived_generator
from torch_dpfts.space import SearchSpace
from torch_dpfts.surrogate import build_model, fit_model

app = typer.Typer(add_completion=False)
RESTARTS, RAW = 4, 128

Suggest = Callable[[SingleTaskGP, Tensor, int], Tensor]


def botorch_suggestion(model: SingleTaskGP, bounds: Tensor, seed: int) -> Tensor:
    # BoTorch's has no seed of its own and draws from the global generator.
    torch.manual_seed(seed)  # noqa: TID251
    acqf = PathwiseThompsonSampling(model)
    return optimize_acqf(acqf, bounds, 1, RESTARTS, RAW)[0]


def one_line_suggestion(model: SingleTaskGP, bounds: Tensor, seed: int) -> Tensor:
    torch.manual_seed(seed)  # noqa: TID251 (the optimiser's)
    acqf = FederatedThompsonSampling(model, seed=seed)
    return optimize_acqf(acqf, bounds, 1, RESTARTS, RAW)[0]


def per_region_suggestion(model: SingleTaskGP, bounds: Tensor, seed: int) -> Tensor:
    acqf = FederatedThompsonSampling(model, seed=seed)
    return optimize_acqf_per_region(acqf, bounds, 1, RESTARTS, RAW, seed=seed)[0]


ARMS: dict[str, Suggest] = {
    "PathwiseThompsonSampling, optimize_acqf": botorch_suggestion,
    "FederatedThompsonSampling, optimize_acqf": one_line_suggestion,
    "FederatedThompsonSampling, per region": per_region_suggestion,
}
PROBLEMS: dict[str, SyntheticTestFunction] = {
    "Hartmann6": Hartmann(dim=6, negate=True, dtype=torch.float64),
    "Ackley5": Ackley(dim=5, negate=True, bounds=[(-32.768, 32.768)] * 5, dtype=torch.float64),
}


def simple_regret(
    problem: SyntheticTestFunction, suggest: Suggest, seed: int, num_initial: int, budget: int
) -> float:
    bounds = problem.bounds.double()
    space = SearchSpace(bounds)
    generator = torch.Generator().manual_seed(seed)
    U = torch.rand(num_initial, problem.dim, generator=generator, dtype=torch.float64)
    X = space.from_unit(U)
    Y = problem(X).unsqueeze(-1)
    for t in range(budget):
        model = build_model(X.unsqueeze(0), Y.unsqueeze(0), space)
        values = fit_model(model)
        # The same hyperparameters for every arm, in a model without a batch dimension.
        single = SingleTaskGP(X, Y, input_transform=space.input_transform()).eval()
        single.mean_module.initialize(constant=values.mean[0])
        single.covar_module.initialize(lengthscale=values.lengthscale)
        single.likelihood.initialize(noise=values.noise)
        x = suggest(single, bounds, 1000 * seed + t)
        X, Y = torch.cat([X, x]), torch.cat([Y, problem(x).unsqueeze(-1)])
    return float(problem.optimal_value - Y.max())


@app.command()
def regret(seeds: int = 20, num_initial: int = 10, budget: int = 30) -> None:
    """Simple regret of every arm from the same initial points, and paired tests."""
    print(f"Simple regret: {seeds} seeds, {num_initial} initial points, {budget} suggestions")
    for name, problem in PROBLEMS.items():
        results = {
            arm: [simple_regret(problem, suggest, s, num_initial, budget) for s in range(seeds)]
            for arm, suggest in ARMS.items()
        }
        reference = results[next(iter(ARMS))]
        for arm, values in results.items():
            error = statistics.stdev(values) / seeds**0.5
            line = f"  {name:<10} {arm:<42} {statistics.mean(values):.3f} (s.e. {error:.3f})"
            if values is not reference:
                gap = [a - b for a, b in zip(values, reference, strict=True)]
                worse = ttest_rel(values, reference, alternative="greater").pvalue
                ranks = wilcoxon(values, reference, alternative="greater").pvalue
                line += (
                    f", minus BoTorch's {statistics.mean(gap):+.3f} "
                    f"(s.e. {statistics.stdev(gap) / seeds**0.5:.3f}; p(worse): "
                    f"paired t {worse:.2f}, Wilcoxon {ranks:.2f})"
                )
            print(line, flush=True)


@app.command()
def timing(repeats: int = 15) -> None:
    """Median seconds of a suggestion, draws and optimisation, the arms taking turns."""
    print(
        f"Seconds a suggestion (median of {repeats}; model given; {RESTARTS} restarts, {RAW} raw)"
    )
    for name, problem in PROBLEMS.items():
        for n in (20, 100):
            generator = torch.Generator().manual_seed(0)
            U = torch.rand(n, problem.dim, generator=generator, dtype=torch.float64)
            space = SearchSpace(problem.bounds.double())
            X = space.from_unit(U)
            model = SingleTaskGP(
                X, problem(X).unsqueeze(-1), input_transform=space.input_transform()
            )
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
            seconds: dict[str, list[float]] = {arm: [] for arm in ARMS}
            for s in range(repeats):
                for arm, suggest in ARMS.items():
                    start = time.process_time()
                    suggest(model, problem.bounds.double(), s)
                    seconds[arm].append(time.process_time() - start)
            reference = statistics.median(seconds[next(iter(ARMS))])
            for arm, values in seconds.items():
                median = statistics.median(values)
                print(f"  {name:<10} n={n:<4} {arm:<42} {median:.3f}  {median / reference:.2f} x")


@app.command(name="per-region")
def per_region(count: int = 20) -> None:
    """Random functions that jump between four cells: gap to a dense grid, and seconds."""
    bounds = torch.tensor([[-5.0, 0.0], [10.0, 15.0]], dtype=torch.float64)
    grid = RegionGrid((2, 2))
    spec = FederationSpec.fts_de(bounds=bounds, num_agents=1, num_rounds=1, lengthscales=0.15)
    axis = torch.linspace(0, 1, 201, dtype=torch.float64)
    dense = SearchSpace(bounds).from_unit(torch.cartesian_prod(axis, axis))
    model = SingleTaskGP(dense[:3], dense[:3, :1])
    gaps: dict[str, list[float]] = {"optimize_acqf": [], "per region": [], "all at once": []}
    seconds: dict[str, list[float]] = {name: [] for name in gaps}
    vectors = torch.randn(
        count, 4, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    paths = [BroadcastPath.from_broadcast(spec, Broadcast(spec.fingerprint, 1, v)) for v in vectors]
    for i, path in enumerate(paths):
        acqf = FederatedThompsonSampling(model, seed=0)
        acqf._value = lambda index, X, path=path: path(X).squeeze(-1)  # every draw the broadcast
        with torch.no_grad():
            highest = float(path(dense).max())
        for name in ("optimize_acqf", "per region"):
            torch.manual_seed(i)  # noqa: TID251 (BoTorch's optimiser)
            start = time.process_time()
            if name == "optimize_acqf":
                _, value = optimize_acqf(acqf, bounds, 1, 8, RAW)
            else:
                _, value = optimize_acqf_per_region(acqf, bounds, 1, 8, RAW, grid=grid, seed=i)
            seconds[name].append(time.process_time() - start)
            gaps[name].append(highest - float(value))
        start = time.process_time()
        best = maximize_per_region(
            lambda X, path=path: path(X), grid, bounds, [i], raw_samples=RAW, num_restarts=8
        )
        seconds["all at once"].append(time.process_time() - start)
        gaps["all at once"].append(highest - float(best.value))
    print(f"{count} functions that jump between 4 cells, d=2, 8 restarts, {RAW} raw samples")
    for name, gap in gaps.items():
        print(
            f"  {name:<14} worst gap to the 201 x 201 grid {max(gap):+.4f}, more than .01 below: "
            f"{sum(g > 0.01 for g in gap)} of {count}, "
            f"median {statistics.median(seconds[name]):.3f} s"
        )


def transforms(d: int, size: int) -> dict[str, dict[str, object]]:
    bounds = torch.tensor([[0.0] * d, [1.0] * d], dtype=torch.float64)
    bounds[1, 0] = 20.0
    bounds[:, -1] = torch.tensor([0.1, 1.1], dtype=torch.float64).log10()
    warp = Warp(d, indices=list(range(d)), bounds=torch.tensor([[0.0] * d, [1.0] * d]))
    warp.concentration0.data.fill_(1.6)
    warp.concentration1.data.fill_(0.7)
    chain = ChainedInputTransform(
        round=Round(integer_indices=[0]),
        log=Log10(indices=[d - 1]),
        normalize=Normalize(d, bounds=bounds),
    )
    standardize = Standardize(1, batch_shape=Size([size]) if size else Size())
    return {
        "Standardize": {"outcome_transform": standardize},
        "no transform": {"outcome_transform": None},
        "Normalize": {"outcome_transform": standardize, "input_transform": Normalize(d)},
        "Round, Log10, Normalize": {"outcome_transform": standardize, "input_transform": chain},
        "Warp": {"outcome_transform": standardize, "input_transform": warp},
        "Log": {"outcome_transform": Log()},
    }


@app.command()
def paths(draws: int = 4096) -> None:
    """Worst mean and sd of sample paths against the exact posterior, at 10 points."""
    print(f"{draws} draws at 10 points: |mean error| / sd at most .1, sd ratio in .9 to 1.1")
    for d in (2, 6):
        for n in (25, 200):
            size = 512 if n == 25 else 128
            for name in transforms(d, 0):
                generator = torch.Generator().manual_seed(0)
                U = torch.rand(n + 10, d, generator=generator, dtype=torch.float64)
                X, Y = U.clone(), 100 + 20 * (4 * U).sin().sum(-1, keepdim=True)
                if name.startswith("Round"):
                    X[:, 0] *= 20
                    X[:, -1] += 0.1
                if name == "no transform":
                    Y = (Y - Y.mean()) / Y.std()
                exact = SingleTaskGP(X[:n], Y[:n], **transforms(d, 0)[name]).eval()
                batch = SingleTaskGP(
                    X[:n].repeat(size, 1, 1), Y[:n].repeat(size, 1, 1), **transforms(d, size)[name]
                ).eval()
                for model in (exact, batch):
                    model.covar_module.lengthscale = 0.4 * d**0.5
                test_X = X[n:].repeat(size, 1, 1)
                with torch.no_grad():
                    drawn = torch.cat([
                        draw_posterior_path(batch, [derived_generator(i)], 64)(test_X)
                        for i in range(draws // size)
                    ])  # fmt: skip
                    if name == "Log":
                        del exact.outcome_transform
                        drawn = drawn.log()
                    posterior = exact.posterior(X[n:])
                sd = posterior.variance.sqrt().squeeze(-1)
                error = ((drawn.mean(0) - posterior.mean.squeeze(-1)).abs() / sd).max()
                ratio = drawn.std(0) / sd
                print(
                    f"  d={d} n={n:<4} {name:<24} {float(error):.3f}   "
                    f"{float(ratio.min()):.3f} to {float(ratio.max()):.3f}", flush=True,
                )  # fmt: skip


@app.command(name="all")
def everything() -> None:
    """Run all of the above."""
    timing()
    per_region()
    paths()
    regret()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    app()
