from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from torch_dpfts.errors import InvalidInputError
from torch_dpfts.problems.base import check_query

BOUNDS = torch.tensor([[1e-4, 200.0], [0.1, 8000.0]], dtype=torch.float64)


def points(*rows: tuple[float, float], dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor([rows], dtype=dtype)


GOOD = points((0.05, 300.0), (0.1, 8000.0))
ID = torch.tensor([2])


@pytest.mark.parametrize(
    ("X", "agent_ids", "message"),
    [
        (GOOD.tolist(), ID, "X must be a floating-point tensor, got list"),
        (GOOD.long(), ID, "X must be a floating-point tensor, got torch.int64"),
        (GOOD[0], ID, r"X must have shape b x n x 2, got \(2, 2\); for one agent"),
        (GOOD[..., :1], ID, r"X must have shape b x n x 2, got \(1, 2, 1\)"),
        (GOOD, [2], "agent_ids must be an int64 tensor, got list"),
        (GOOD, ID.int(), "agent_ids must be an int64 tensor, got torch.int32"),
        (GOOD, ID.double(), "agent_ids must be an int64 tensor, got torch.float64"),
        (GOOD, ID[0], r"agent_ids must have shape \(1,\).* got \(\)"),
        (GOOD, torch.tensor([0, 1]), r"agent_ids must have shape \(1,\).* got \(2,\)"),
        (GOOD, torch.tensor([3]), "agent_ids must be from 0 to 2, got 3"),
        (GOOD, torch.tensor([-1]), "agent_ids must be from 0 to 2, got -1"),
        (points((0.05, math.nan)), ID, r"X must be finite, got nan at index \(0, 0, 1\)"),
        (points((math.inf, 300.0)), ID, r"X must be finite, got inf at index \(0, 0, 0\)"),
        (
            points((0.05, 300), (0.05, 8001)),
            ID,
            r"got 8001 at index \(0, 1, 1\), where \[200, 8000",
        ),
        (points((0.0, 300.0)), ID, r"got 0 at index \(0, 0, 0\), where \[0.0001, 0.1\]"),
        (points((0.05, 0.5)), ID, "not in the unit cube"),
    ],
)
def test_refuses(X: Any, agent_ids: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        check_query(X, agent_ids, BOUNDS, 3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_takes_the_bounds_in_any_dtype(dtype: torch.dtype) -> None:
    check_query(BOUNDS.to(dtype).unsqueeze(0), ID, BOUNDS, 3)


def test_takes_bounds_that_went_through_float32() -> None:
    there_and_back = BOUNDS.float().double()
    assert not torch.equal(there_and_back, BOUNDS)
    check_query(there_and_back.unsqueeze(0), ID, BOUNDS, 3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_takes_corners_scaled_from_the_unit_cube(dtype: torch.dtype) -> None:
    lower, upper = BOUNDS.to(dtype)
    unit = torch.linspace(0, 1, 101, dtype=dtype).expand(2, -1).T
    there = (upper - lower) * unit + lower
    back_and_forth = (upper - lower) * ((there - lower) / (upper - lower)) + lower
    check_query(torch.stack([there, back_and_forth]), torch.tensor([0, 1]), BOUNDS, 3)


@pytest.mark.parametrize("shape", [(0, 4, 2), (2, 0, 2)])
def test_takes_no_points(shape: tuple[int, ...]) -> None:
    check_query(torch.zeros(shape), torch.zeros(shape[0], dtype=torch.int64), BOUNDS, 3)
