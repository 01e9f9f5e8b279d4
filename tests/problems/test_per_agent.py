from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from botorch.test_functions import Branin
from torch import Tensor

from torch_dpfts.errors import InvalidInputError
from torch_dpfts.problems import PerAgent, Problem

BOUNDS = torch.tensor([[0.0, -1.0], [2.0, 1.0]], dtype=torch.float64)


def total(X: Tensor) -> Tensor:
    return X.sum(-1)


def spread(X: Tensor) -> Tensor:
    return (X[:, :1] - X[:, 1:]).double()


def test_evaluates_each_block_with_its_own_function() -> None:
    problem: Problem = PerAgent([total, spread], BOUNDS)
    X = torch.tensor([[[1.0, 0.5]], [[2.0, -1.0]], [[0.5, 1.0]]])
    Y = problem(X, torch.tensor([1, 0, 1]))
    torch.testing.assert_close(Y, torch.tensor([[[0.5]], [[1.0]], [[-0.5]]]))


def test_attributes() -> None:
    problem = PerAgent([total, spread, total], BOUNDS)
    assert (problem.name, problem.num_agents, problem.dim) == ("per-agent", 3, 2)
    assert torch.equal(problem.bounds, BOUNDS)
    assert problem.optimal_values is None


def test_takes_botorch_functions() -> None:
    branin = Branin(negate=True)
    problem = PerAgent([branin, branin], branin.bounds)
    X = branin.bounds[0] + 15 * torch.rand(
        2, 7, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    Y = problem(X, torch.tensor([1, 0]))
    torch.testing.assert_close(Y, branin(X).unsqueeze(-1))


@pytest.mark.parametrize("n", [0, 1, 2])
def test_takes_any_number_of_points(n: int) -> None:
    X = torch.ones(2, n, 2)
    Y = PerAgent([total, spread], BOUNDS)(X, torch.tensor([0, 1]))
    torch.testing.assert_close(Y, torch.tensor([2.0, 0.0]).reshape(2, 1, 1).expand(2, n, 1))


@pytest.mark.parametrize(
    ("functions", "bounds", "message"),
    [
        ([], BOUNDS, "functions must hold one callable"),
        ([total, 3], BOUNDS, r"functions\[1\] must be callable, got 3"),
        ([total], BOUNDS[0], r"bounds must have shape 2 x d, got \(2,\)"),
        ([total], BOUNDS.flip(0), "bounds must have lower < upper"),
        ([total], BOUNDS * math.inf, "bounds must be finite"),
    ],
)
def test_refuses_at_construction(functions: Any, bounds: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        PerAgent(functions, bounds)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda X: X, r"functions\[0\] must return a tensor of shape 3 or 3 x 1, got .*\[3, 2\]"),
        (lambda X: X.sum(), r"3 or 3 x 1, got .*\[\]"),
        (lambda X: 1.0, "3 or 3 x 1, got float"),
    ],
)
def test_refuses_what_a_function_returns(function: Any, message: str) -> None:
    problem = PerAgent([function], BOUNDS)
    with pytest.raises(InvalidInputError, match=message):
        problem(torch.ones(1, 3, 2), torch.tensor([0]))


def test_refuses_a_bad_query_before_any_function_runs() -> None:
    calls: list[Tensor] = []
    problem = PerAgent([lambda X: calls.append(X) or total(X)], BOUNDS)
    with pytest.raises(InvalidInputError, match="got 3 at index"):
        problem(torch.tensor([[[1.0, 0.0], [3.0, 0.0]]]), torch.tensor([0]))
    with pytest.raises(InvalidInputError, match="from 0 to 0, got 1"):
        problem(torch.ones(1, 1, 2), torch.tensor([1]))
    assert calls == []
