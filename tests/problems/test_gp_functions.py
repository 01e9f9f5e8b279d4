from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from torch_dpfts.errors import InvalidInputError
from torch_dpfts.problems import GPFunctions


def uniform(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


def test_moments_over_seeds_are_the_prior_s() -> None:
    """Mean, variance, and covariance between points and agents, over 1500 problems.

    Each of the 14 means of products has a standard error of at most sqrt(2 / 1500) = .037; a
    deviation of 5 of them has a probability below 1e-6 each.
    """
    X = torch.tensor([[[0.3, 0.6], [0.4, 0.6]]], dtype=torch.float64)
    draws = torch.stack(
        [
            GPFunctions(2, lengthscale=0.2, shared=0.6, seed=seed)(
                X.expand(2, -1, -1), torch.arange(2)
            ).flatten()
            for seed in range(1500)
        ]
    )  # seeds x (agent 0 at both points, agent 1 at both points)
    near = float(torch.exp(torch.tensor(-0.5 * 0.5**2)))
    own = torch.tensor([[1.0, near], [near, 1.0]], dtype=torch.float64)
    expected = torch.cat([torch.cat([own, 0.6 * own], 1), torch.cat([0.6 * own, own], 1)])
    assert (draws.mean(0).abs() < 5 / 1500**0.5).all()
    assert ((draws.mT @ draws / 1500 - expected).abs() < 5 * (2 / 1500) ** 0.5).all()


def test_agents_are_equal_when_all_is_shared() -> None:
    problem = GPFunctions(3, shared=1.0)
    Y = problem(uniform(1, 6, 2).expand(3, -1, -1), torch.arange(3))
    torch.testing.assert_close(Y[0], Y[2])
    assert float(problem.optimal_values.std()) < 1e-9


def test_agents_are_strangers_when_nothing_is_shared() -> None:
    """Correlation of two functions over a fine lengthscale: about 400 independent places."""
    problem = GPFunctions(2, lengthscale=0.02, shared=0.0)
    Y = problem(uniform(1, 2000, 2).expand(2, -1, -1), torch.arange(2)).squeeze(-1)
    # Standard error about .05: a deviation of 5 of them has a probability below 1e-6.
    assert abs(float(torch.corrcoef(Y)[0, 1])) < 0.25


def zoomed_maximum(problem: GPFunctions, agent_id: int) -> float:
    """The best of a grid, and then of a finer grid around the best."""
    center, reach, size = torch.full((problem.dim,), 0.5, dtype=torch.float64), 0.5, 81
    for _ in range(3):
        axis = torch.linspace(-reach, reach, size, dtype=torch.float64)
        grid = torch.cartesian_prod(*[axis] * problem.dim).reshape(-1, problem.dim)
        X = (center + grid).clamp(0, 1)
        Y = problem(X.unsqueeze(0), torch.tensor([agent_id])).flatten()
        center, reach, size = X[Y.argmax()], 2 * reach / (size - 1), 21
    return float(Y.max())


@pytest.mark.parametrize("dim", [1, 2])
def test_optimal_values_are_those_of_a_fine_grid(dim: int) -> None:
    problem = GPFunctions(8, dim=dim, seed=5)
    found = torch.tensor([zoomed_maximum(problem, agent_id) for agent_id in range(8)])
    torch.testing.assert_close(problem.optimal_values, found.double(), atol=1e-4, rtol=0)


def test_optimal_values_in_three_dimensions_exceed_many_points() -> None:
    problem = GPFunctions(10, dim=3, lengthscale=0.3)
    Y = problem(uniform(1, 3000, 3).expand(10, -1, -1), torch.arange(10))
    assert (problem.optimal_values >= Y.amax((-2, -1))).all()


def test_a_value_does_not_depend_on_its_company() -> None:
    problem, X = GPFunctions(4), uniform(3, 5, 2)
    Y = problem(X, torch.tensor([3, 0, 3]))
    torch.testing.assert_close(problem(X[1:2, 2:3], torch.tensor([0])), Y[1:2, 2:3])


def test_the_seed_alone_decides() -> None:
    X, state = uniform(2, 5, 2), torch.get_rng_state()
    ids = torch.arange(2)
    Y = GPFunctions(2, seed=7)(X, ids)
    assert torch.equal(GPFunctions(2, seed=7)(X, ids), Y)
    assert not torch.allclose(GPFunctions(2, seed=8)(X, ids), Y)
    assert torch.equal(torch.get_rng_state(), state)


def test_dtype_is_that_of_the_points() -> None:
    problem, X = GPFunctions(2), uniform(2, 5, 2)
    Y = problem(X.float(), torch.arange(2))
    assert Y.dtype == torch.float32
    torch.testing.assert_close(Y.double(), problem(X, torch.arange(2)), atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_agents": 0}, "num_agents must be at least 1, got 0"),
        ({"dim": 0}, "dim must be at least 1, got 0"),
        ({"lengthscale": 0.0}, "lengthscale must be a number in"),
        ({"shared": 1.1}, r"shared must be a number in \[0, 1\], got 1.1"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
    ],
)
def test_refuses(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        GPFunctions(**settings)


def test_bad_queries_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="X must lie in the bounds, got 2"):
        GPFunctions(2)(torch.full((1, 1, 2), 2.0), torch.tensor([0]))
    with pytest.raises(InvalidInputError, match="agent_ids must be from 0 to 1, got 2"):
        GPFunctions(2)(uniform(1, 1, 2), torch.tensor([2]))
