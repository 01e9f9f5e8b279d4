from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from botorch.test_functions import Branin, Hartmann
from torch import Tensor

from torch_dpfts.errors import InvalidInputError
from torch_dpfts.problems import SHIFTED_FUNCTIONS, ShiftedFunctions
from torch_dpfts.problems.shifted import _random_rotation

ALL = pytest.mark.parametrize("function", SHIFTED_FUNCTIONS)


def uniform(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


def standardize(values: Tensor, sample: Tensor) -> Tensor:
    return (values - sample.mean()) / sample.std()


def sobol(dim: int) -> Tensor:
    return torch.quasirandom.SobolEngine(dim).draw(1024, dtype=torch.float64)


def test_there_are_twelve_of_two_to_ten_dimensions() -> None:
    dims = [ShiftedFunctions(function, 1).dim for function in SHIFTED_FUNCTIONS]
    assert len(dims) == 12
    assert (min(dims), max(dims)) == (2, 10)


def test_without_shift_and_rotation_it_is_botorch_s_function() -> None:
    problem = ShiftedFunctions("hartmann6", 3, shift=0.0, rotation=0.0)
    reference, X = Hartmann(dim=6, negate=True), uniform(3, 7, 6)
    expected = standardize(reference(X), reference(sobol(6)))
    torch.testing.assert_close(problem(X, torch.arange(3)).squeeze(-1), expected)


def test_it_is_botorch_s_function_at_the_transformed_point() -> None:
    """Two dimensions, written out with sines and cosines."""
    problem = ShiftedFunctions("branin", 4, shift=0.02, rotation=0.1, seed=3)
    x, agent_id = (0.6, 0.45), 2
    (sx, sy), turn = problem._shifts[agent_id].tolist(), problem._rotations[agent_id]
    angle = math.atan2(float(turn[1, 0]), float(turn[0, 0]))
    assert 0 < abs(angle) <= 0.1
    dx, dy = x[0] - 0.5 - sx, x[1] - 0.5 - sy
    u = 0.5 + math.cos(angle) * dx - math.sin(angle) * dy
    v = 0.5 + math.sin(angle) * dx + math.cos(angle) * dy
    reference = Branin(negate=True)
    point = torch.tensor([[-5 + 15 * u, 15 * v]], dtype=torch.float64)
    sample = reference(torch.tensor([-5.0, 0.0]).double() + 15 * sobol(2))
    expected = standardize(reference(point), sample)
    found = problem(torch.tensor([[x]], dtype=torch.float64), torch.tensor([agent_id]))
    torch.testing.assert_close(found.flatten(), expected)


@ALL
@pytest.mark.parametrize(("shift", "rotation"), [(0.0, 0.0), (0.05, 0.1), (0.3, 1.0)])
def test_the_maximum_lies_in_the_cube_and_is_one(
    function: str, shift: float, rotation: float
) -> None:
    """Known optima, against many points, of which a third lie close to the maximiser."""
    problem = ShiftedFunctions(function, 8, shift, rotation)
    points = problem.optimal_points.unsqueeze(-2)  # N x 1 x d
    assert ((points >= 0) & (points <= 1)).all()
    ids = torch.arange(8)
    attained = problem(points, ids).flatten()
    torch.testing.assert_close(attained, problem.optimal_values, atol=1e-5, rtol=0)
    noise = uniform(8, 500, problem.dim, seed=1) - 0.5
    near = (points + 0.02 * noise).clamp(0, 1)
    X = torch.cat([uniform(8, 1000, problem.dim), near], dim=-2)
    assert (problem(X, ids).squeeze(-1) <= problem.optimal_values.unsqueeze(-1) + 1e-9).all()


@ALL
def test_outcomes_are_standardised(function: str) -> None:
    problem = ShiftedFunctions(function, 1, shift=0.0, rotation=0.0)
    Y = problem(sobol(problem.dim).unsqueeze(0), torch.tensor([0]))
    assert float(Y.mean()) == pytest.approx(0.0, abs=1e-9)
    assert float(Y.std()) == pytest.approx(1.0)


def test_the_dial_sets_how_far_agents_differ() -> None:
    X = uniform(1, 300, 6).expand(16, -1, -1)

    def spread(shift: float, rotation: float) -> float:
        Y = ShiftedFunctions("hartmann6", 16, shift, rotation)(X, torch.arange(16))
        return float(Y.std(0).mean())

    assert spread(0.0, 0.0) < 1e-12
    assert 0 < spread(0.05, 0.1) < spread(0.3, 1.0)


@pytest.mark.parametrize("dim", [2, 3, 5, 6])
def test_rotations_are_rotations_by_limited_angles(dim: int) -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        turn = _random_rotation(dim, 0.7, generator)
        torch.testing.assert_close(turn @ turn.mT, torch.eye(dim, dtype=torch.float64))
        assert float(torch.linalg.det(turn)) == pytest.approx(1.0)
        angles = torch.linalg.eigvals(turn).angle().abs()
        assert 0 < float(angles.max()) <= 0.7 + 1e-9
        assert int((angles > 1e-9).sum()) == 2 * (dim // 2)


def test_a_value_does_not_depend_on_its_company() -> None:
    problem, X = ShiftedFunctions("ackley5", 4), uniform(3, 5, 5)
    Y = problem(X, torch.tensor([3, 0, 3]))
    torch.testing.assert_close(problem(X[1:2, 2:3], torch.tensor([0])), Y[1:2, 2:3])


def test_the_seed_alone_decides() -> None:
    X, ids, state = uniform(2, 5, 2), torch.arange(2), torch.get_rng_state()
    Y = ShiftedFunctions("ackley2", 2, seed=7)(X, ids)
    assert torch.equal(ShiftedFunctions("ackley2", 2, seed=7)(X, ids), Y)
    assert not torch.allclose(ShiftedFunctions("ackley2", 2, seed=8)(X, ids), Y)
    # More agents leave the others as they were.
    assert torch.equal(ShiftedFunctions("ackley2", 5, seed=7)(X, ids), Y)
    assert torch.equal(torch.get_rng_state(), state)


def test_dtype_is_that_of_the_points() -> None:
    problem, X = ShiftedFunctions("levy3", 2), uniform(2, 5, 3)
    Y = problem(X.float(), torch.arange(2))
    assert Y.dtype == torch.float32
    torch.testing.assert_close(Y.double(), problem(X, torch.arange(2)), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"function": "sphere"}, "function must be one of 'branin', .* got 'sphere'"),
        ({"num_agents": 0}, "num_agents must be at least 1, got 0"),
        ({"shift": 0.6}, r"shift must be a number in \[0, 0.5\], got 0.6"),
        ({"rotation": -0.1}, "rotation must be a number in"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
    ],
)
def test_refuses(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        ShiftedFunctions(**settings)


def test_bad_queries_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="X must lie in the bounds, got 2"):
        ShiftedFunctions("branin", 2)(torch.full((1, 1, 2), 2.0), torch.tensor([0]))
    with pytest.raises(InvalidInputError, match="agent_ids must be from 0 to 1, got 2"):
        ShiftedFunctions("branin", 2)(uniform(1, 1, 2), torch.tensor([2]))
