"""Compute the table of the watch problem: validation accuracies on a grid.

    python benchmarks/watch_table.py

Trains the models of all 20 agents (about a minute on one core; needs the extra ``[activity]``),
writes torch_dpfts/problems/data/watch.npz and prints how far the interpolated table is from
models trained at random places. ``--check-only`` keeps the table.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from torch import Tensor

from torch_dpfts.problems import Watch
from torch_dpfts.problems.activity import BOUNDS, NAMES, ActivityRecognition
from torch_dpfts.problems.watch import NUM_AGENTS, NUM_CLASSES, load_watch

TABLE = Path(__file__).parents[1] / "torch_dpfts/problems/data/watch.npz"
GRID = (31, 19, 9)


def axes() -> list[Tensor]:
    """The coordinates of the grid, evenly spaced in the logarithm."""
    bounds = torch.tensor(BOUNDS, dtype=torch.float64).log()
    lr, l2, size = (
        torch.linspace(float(low), float(high), steps, dtype=torch.float64).exp()
        for (low, high), steps in zip(bounds.T, GRID, strict=True)
    )
    grid = [lr, l2, size.round()]
    for axis, low, high in zip(grid, *BOUNDS, strict=True):
        axis[0], axis[-1] = low, high
    return grid


def fit_table(grid: list[Tensor]) -> np.ndarray:
    """Return the accuracies on the grid, ``20 x I x J x K``, in units of 1 / 65535."""
    models = ActivityRecognition(load_watch(), NUM_CLASSES)
    lr, l2 = torch.cartesian_prod(*grid[:2]).T
    tables = []
    for agent in range(NUM_AGENTS):
        columns = [models.train(agent, lr, l2, int(size)) for size in grid[2]]
        tables.append(torch.stack(columns, dim=-1).reshape(GRID).numpy())
        print(f"agent {agent + 1} of {NUM_AGENTS}", flush=True)
    return np.round(np.stack(tables) * np.iinfo(np.uint16).max).astype(np.uint16)


def random_queries(number: int, seed: int) -> tuple[Tensor, Tensor]:
    """Draw points, ``number x 1 x 3``, and agents, ``number``, uniformly in the logarithms."""
    generator = torch.Generator().manual_seed(seed)
    lower, upper = torch.tensor(BOUNDS, dtype=torch.float64).log()
    unit = torch.rand(number, 1, len(NAMES), generator=generator, dtype=torch.float64)
    agents = torch.randint(NUM_AGENTS, (number,), generator=generator)
    return (lower + (upper - lower) * unit).exp(), agents


def main(
    check_only: Annotated[bool, typer.Option(help="Keep the table that is there.")] = False,
    points: Annotated[int, typer.Option(help="Random places for the check.")] = 500,
    seed: Annotated[int, typer.Option(help="Seed of the random places.")] = 0,
) -> None:
    start = time.process_time()
    if not check_only:
        grid = axes()
        content = {name: axis.numpy() for name, axis in zip(NAMES, grid, strict=True)}
        np.savez_compressed(TABLE, accuracy=fit_table(grid), **content)
    query = random_queries(points, seed)
    truth, table = Watch(train=True)(*query), Watch()(*query)
    error = (table - truth).abs()
    print(
        f"interpolation error at {points} random points: mean {error.mean():.4f}, "
        f"median {error.median():.4f}, max {error.max():.4f}; standard deviation of the "
        f"accuracies there {truth.std():.4f}"
    )
    seconds = time.process_time() - start
    print(f"{TABLE.name}: {TABLE.stat().st_size / 1e3:.0f} kB; {seconds:.0f} s of CPU time")


if __name__ == "__main__":
    typer.run(main)
