from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.interpolate import RegularGridInterpolator

from torch_dpfts.problems.multilinear import MultilinearTable

GRID = (
    torch.tensor([0.0, 0.1, 0.5, 3.0], dtype=torch.float64),
    torch.tensor([-2.0, -1.9, 0.0, 0.3, 4.0], dtype=torch.float64),
)
VALUES = torch.rand(3, 4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_agrees_with_scipy() -> None:
    rng = np.random.default_rng(0)
    agent_ids = torch.tensor([2, 0, 2, 1])
    X = rng.uniform([0.0, -2.0], [3.0, 4.0], size=(4, 50, 2))
    Y = MultilinearTable(GRID, VALUES)(torch.from_numpy(X), agent_ids)
    assert Y.shape == (4, 50, 1)
    for row, agent in enumerate(agent_ids.tolist()):
        oracle = RegularGridInterpolator([g.numpy() for g in GRID], VALUES[agent].numpy())
        np.testing.assert_allclose(Y[row, :, 0].numpy(), oracle(X[row]), rtol=0, atol=1e-14)


def test_meets_the_values_on_the_grid() -> None:
    X = torch.cartesian_prod(*GRID).expand(3, -1, -1)
    Y = MultilinearTable(GRID, VALUES)(X, torch.arange(3))
    torch.testing.assert_close(Y, VALUES.reshape(3, -1, 1), rtol=0, atol=1e-15)


@pytest.mark.parametrize(
    ("point", "corner"), [((-1.0, -3.0), (0, 0)), ((5.0, 9.0), (3, 4)), ((-1.0, 9.0), (0, 4))]
)
def test_counts_the_edge_outside(point: tuple[float, float], corner: tuple[int, int]) -> None:
    X = torch.tensor([[point]], dtype=torch.float64)
    assert MultilinearTable(GRID, VALUES)(X, torch.tensor([1])).item() == VALUES[1][corner].item()


@pytest.mark.parametrize("shape", [(0, 4, 2), (2, 0, 2)])
def test_takes_no_points(shape: tuple[int, ...]) -> None:
    ids = torch.zeros(shape[0], dtype=torch.int64)
    assert MultilinearTable(GRID, VALUES)(torch.zeros(shape), ids).shape == (*shape[:2], 1)


@pytest.mark.parametrize("dim", [1, 3])
def test_agrees_with_scipy_in_any_dimension(dim: int) -> None:
    rng = np.random.default_rng(1)
    grid = [np.sort(rng.uniform(size=4 + axis)) for axis in range(dim)]
    values = rng.uniform(size=[2] + [len(axis) for axis in grid])
    low, high = [axis[0] for axis in grid], [axis[-1] for axis in grid]
    X = rng.uniform(low, high, size=(2, 40, dim))
    table = MultilinearTable([torch.from_numpy(axis) for axis in grid], torch.from_numpy(values))
    Y = table(torch.from_numpy(X), torch.tensor([1, 0]))
    for row, agent in enumerate([1, 0]):
        oracle = RegularGridInterpolator(grid, values[agent])
        np.testing.assert_allclose(Y[row, :, 0].numpy(), oracle(X[row]), rtol=0, atol=1e-14)
