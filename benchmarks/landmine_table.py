"""Compute the tables of the landmine problem: test AUCs on a grid, for both scorers.

    python benchmarks/landmine_table.py path/to/LandmineData.mat

Fits the machines of all 29 tasks (about 20 minutes on one core), writes
torch_dpfts/problems/data/landmine.npz and prints how far the interpolated tables are from
machines fitted at random places. ``--check-only`` skips the fits of the table.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from torch import Tensor

from torch_dpfts.problems import Landmine
from torch_dpfts.problems.landmine import BOUNDS
from torch_dpfts.problems.landmine_svm import NUM_TASKS, SCORERS, LandmineSVM

TABLE = Path(__file__).parents[1] / "torch_dpfts/problems/data/landmine.npz"
GRID = (40, 112)
# Below this coordinate the grid is about evenly spaced, above it about geometrically: the AUC
# changes fastest, and has its optimum, where C and gamma are small.
KNEE = 0.05


def axis(lower: float, upper: float, size: int) -> Tensor:
    """Return ``size`` coordinates from ``lower`` to ``upper``, denser at the lower end."""
    steps = torch.linspace(0, np.log1p((upper - lower) / KNEE), size, dtype=torch.float64)
    coordinates = lower + KNEE * torch.expm1(steps)
    coordinates[-1] = upper
    return coordinates


def fit_table(machines: LandmineSVM, grid: tuple[Tensor, Tensor]) -> np.ndarray:
    """Return the AUCs on the grid, ``29 x I x J``, in units of 1 / 65535."""
    X = torch.cartesian_prod(*grid).unsqueeze(0)
    rows = []
    for task in range(NUM_TASKS):
        rows.append(machines(X, torch.tensor([task])).reshape(GRID).numpy())
        print(f"task {task + 1} of {NUM_TASKS}", flush=True)
    return np.round(np.stack(rows) * np.iinfo(np.uint16).max).astype(np.uint16)


def random_queries(number: int, seed: int) -> tuple[Tensor, Tensor]:
    """Draw points, ``number x 1 x 2``, and tasks, ``number``, uniformly."""
    generator = torch.Generator().manual_seed(seed)
    lower, upper = torch.tensor(BOUNDS, dtype=torch.float64)
    unit = torch.rand(number, 1, 2, generator=generator, dtype=torch.float64)
    return lower + (upper - lower) * unit, torch.randint(NUM_TASKS, (number,), generator=generator)


def main(
    data: Annotated[Path, typer.Argument(help="LandmineData.mat")],
    check_only: Annotated[bool, typer.Option(help="Keep the table that is there.")] = False,
    points: Annotated[int, typer.Option(help="Random places for the check.")] = 500,
    seed: Annotated[int, typer.Option(help="Seed of the random places.")] = 0,
) -> None:
    start = time.process_time()
    if not check_only:
        grid = tuple(map(axis, *BOUNDS, GRID))
        tables = {scorer: fit_table(LandmineSVM(data, scorer), grid) for scorer in SCORERS}
        TABLE.parent.mkdir(exist_ok=True)
        np.savez_compressed(TABLE, C=grid[0].numpy(), gamma=grid[1].numpy(), **tables)
    for scorer in SCORERS:
        query = random_queries(points, seed)
        error = (Landmine(scorer)(*query) - Landmine(scorer, data=data)(*query)).abs()
        print(
            f"{scorer}: interpolation error at {points} random points: mean {error.mean():.5f}, "
            f"median {error.median():.5f}, max {error.max():.5f}"
        )
    seconds = time.process_time() - start
    print(f"{TABLE.name}: {TABLE.stat().st_size / 1e3:.0f} kB; {seconds:.0f} s of CPU time")


if __name__ == "__main__":
    typer.run(main)
