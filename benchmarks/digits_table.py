"""Compute the table of the digits problem: networks trained at all sites, and Gaussian processes.

    python benchmarks/digits_table.py

Trains the networks of a Sobol sequence of configurations at each of the ten sites (about 40
minutes on two cores; ``--values`` is where they are kept, and an interrupted computation goes
on from there), writes torch_dpfts/problems/data/digits.npz and prints how far the surrogate is
from networks that it did not see.
"""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from scipy.optimize import minimize
from torch import Tensor
from torch.quasirandom import SobolEngine

from torch_dpfts.problems.digits import NUM_SITES, config_at, embed, from_cube
from torch_dpfts.problems.digits_cnn import DigitsCNN

VALUES = Path("digits-accuracies.npy")
TABLE = Path(__file__).parents[1] / "torch_dpfts/problems/data/digits.npz"
BATCH = 20
LENGTHSCALES = (0.03, 30.0)
NOISE = (1e-3, 1.0)  # variance, for standardised accuracies


def configurations(n: int) -> Tensor:
    """The first ``n`` configurations of the sequence, ``n x 6``."""
    return from_cube(SobolEngine(6, scramble=True, seed=0).draw(n, dtype=torch.float64))


def accuracies(x: Tensor) -> list[float]:
    """Train the configuration at ``x`` at every site."""
    torch.set_num_threads(1)
    return [DigitsCNN(site, NUM_SITES)(config_at(x)) for site in range(NUM_SITES)]


def train(X: Tensor, values: Path, processes: int) -> Tensor:
    """Train what ``values`` lacks, and return the accuracies, ``num_sites x K``."""
    done = np.load(values) if values.exists() else np.empty((0, NUM_SITES))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context) as pool:
        while len(done) < len(X):
            batch = list(pool.map(accuracies, X[len(done) :][:BATCH]))
            done = np.concatenate([done, np.array(batch)])
            np.save(values, done)
            print(f"{len(done)} of {len(X)} configurations", flush=True)
    return torch.from_numpy(done[: len(X)]).T


class Surrogate:
    """Gaussian processes with RBF kernels, one for each site.

    Args:
        points: Embedded configurations, ``K x e``.
        Y: Accuracies, ``N x K``.
    """

    def __init__(self, points: Tensor, Y: Tensor) -> None:
        self.points = points
        self.offset, self.scale = Y.mean(-1), Y.std(-1)
        self.y = (Y - self.offset[:, None]) / self.scale[:, None]
        self.lengthscales, self.noise = self._fit()
        self.weights = torch.linalg.solve(self._covariance(), self.y)

    def _kernel(self, points: Tensor) -> Tensor:
        scale = self.lengthscales.unsqueeze(-2)
        difference = (points / scale).unsqueeze(-2) - (self.points / scale).unsqueeze(-3)
        return torch.exp(-0.5 * difference.square().sum(-1))

    def _covariance(self) -> Tensor:
        eye = torch.eye(len(self.points), dtype=self.y.dtype)
        return self._kernel(self.points) + self.noise[:, None, None] * eye

    def _fit(self) -> tuple[Tensor, Tensor]:
        """Maximise the marginal likelihoods: lengthscales ``N x e``, noise variances ``N``."""
        e = self.points.shape[-1]
        bounds = [tuple(np.log(LENGTHSCALES))] * e + [tuple(np.log(NOISE))]
        start = np.log([0.5] * e + [0.05])
        fits = [minimize(self._loss, start, y, "L-BFGS-B", jac=True, bounds=bounds) for y in self.y]
        theta = torch.from_numpy(np.stack([fit.x for fit in fits])).exp()
        return theta[:, :e], theta[:, e]

    def _loss(self, theta: np.ndarray, y: Tensor) -> tuple[float, np.ndarray]:
        """Negative log marginal likelihood of one site, and its gradient."""
        parameters = torch.tensor(theta, requires_grad=True)
        self.lengthscales, self.noise = parameters[None, :-1].exp(), parameters[None, -1].exp()
        root = torch.linalg.cholesky(self._covariance()[0])
        z = torch.linalg.solve_triangular(root, y.unsqueeze(-1), upper=False)
        loss = 0.5 * z.square().sum() + root.diagonal().log().sum()
        (grad,) = torch.autograd.grad(loss, parameters)
        return loss.item(), grad.numpy()

    def __call__(self, points: Tensor) -> Tensor:
        """Predict the accuracies at embedded points ``n x e``: ``N x n``."""
        mean = (self._kernel(points) @ self.weights.unsqueeze(-1)).squeeze(-1)
        return (self.offset[:, None] + self.scale[:, None] * mean).clamp(0, 1)

    def save(self, path: Path) -> None:
        """Write the table, in single precision."""
        parts = ("points", "weights", "lengthscales", "offset", "scale")
        path.parent.mkdir(exist_ok=True)
        np.savez_compressed(path, **{p: getattr(self, p).numpy().astype(np.float32) for p in parts})


def check(points: Tensor, Y: Tensor, held_out: int) -> None:
    """Print how far a surrogate without the last configurations is from their accuracies."""
    surrogate = Surrogate(points[:-held_out], Y[:, :-held_out])
    truth = Y[:, -held_out:]
    error = surrogate(points[-held_out:]) - truth
    spread = truth - truth.mean(-1, keepdim=True)
    explained = 1 - float(error.square().mean() / spread.square().mean())
    print(
        f"{held_out} configurations held out, all sites: absolute error mean "
        f"{error.abs().mean():.4f}, median {error.abs().median():.4f}; "
        f"{explained:.0%} of the variance explained"
    )


def main(
    values: Annotated[Path, typer.Option(help="Where accuracies are kept.")] = VALUES,
    number: Annotated[int, typer.Option(help="Configurations.")] = 360,
    processes: Annotated[int, typer.Option(help="Processes.")] = 2,
    held_out: Annotated[int, typer.Option(help="Configurations for the check.")] = 60,
) -> None:
    start = time.monotonic()
    X = configurations(number)
    Y = train(X, values, processes)
    print(f"{len(X)} configurations at {NUM_SITES} sites; {time.monotonic() - start:.0f} s")
    points = embed(X)
    check(points, Y, held_out)
    Surrogate(points, Y).save(TABLE)
    best = ", ".join(f"{value:.3f}" for value in Y.amax(-1))
    print(f"{TABLE.name}: {TABLE.stat().st_size / 1e3:.0f} kB; best accuracies {best}")


if __name__ == "__main__":
    typer.run(main)
