import numpy as np
import pytest
import torch
from botorch.test_functions import Branin, Hartmann, Rosenbrock
from botorch.test_functions.base import BaseTestProblem
from scipy.optimize import minimize
from torch import Tensor

from torch_dpfts.optim import ValueAndGrad, minimize_in_box, on_whole_batch


def on_the_cube(problem: BaseTestProblem) -> ValueAndGrad:
    bounds = problem.bounds.double()

    def value_and_grad(u: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        u = u.detach().requires_grad_()
        f = problem(bounds[0] + u * (bounds[1] - bounds[0]))
        return f.detach(), torch.autograd.grad(f.sum(), u)[0]

    return value_and_grad


def starts(n: int, d: int) -> Tensor:
    return torch.rand(n, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("problem", [Branin(), Hartmann(dim=6), Rosenbrock(dim=4)])
def test_it_finds_what_scipy_finds(problem: BaseTestProblem) -> None:
    f, d = on_the_cube(problem.double()), problem.dim
    zero, one = torch.zeros(d, dtype=torch.float64), torch.ones(d, dtype=torch.float64)
    x, values = minimize_in_box(f, starts(30, d), zero, one, max_evals=200, first_step=0.05)
    assert torch.equal(f(x, torch.arange(30))[0], values)

    def single(u: np.ndarray) -> tuple[float, np.ndarray]:
        value, grad = f(torch.from_numpy(u)[None], torch.arange(1))
        return float(value), grad[0].numpy()

    reference = [
        minimize(single, s.numpy(), jac=True, bounds=[(0, 1)] * d, method="L-BFGS-B").fun
        for s in starts(30, d)
    ]
    # Searches may end in different local minima, so the bests and the medians are compared.
    assert float(values.min()) <= min(reference) + 1e-5
    assert float(values.median()) <= float(np.median(reference)) + 1e-3


def test_minima_on_faces_and_in_corners() -> None:
    target = torch.tensor([[2.0, 0.5], [-1.0, 3.0], [0.25, 0.75]], dtype=torch.float64)

    def f(x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        return (x - target[rows]).square().sum(-1), 2 * (x - target[rows])

    x, _ = minimize_in_box(
        f, torch.full((3, 2), 0.5).double(), torch.zeros(2), torch.ones(2),
        max_evals=50, first_step=0.1,
    )  # fmt: skip
    torch.testing.assert_close(x, target.clamp(0, 1), atol=1e-5, rtol=0)


def test_a_result_does_not_depend_on_the_batch() -> None:
    f = on_the_cube(Hartmann(dim=3).double())
    x0 = starts(8, 3)
    zero, one = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    together, _ = minimize_in_box(f, x0, zero, one, max_evals=40, first_step=0.05)
    for i in range(8):
        alone, _ = minimize_in_box(f, x0[i : i + 1], zero, one, max_evals=40, first_step=0.05)
        torch.testing.assert_close(alone[0], together[i], atol=1e-10, rtol=0)


def test_a_value_that_is_not_finite_stops_that_problem_alone() -> None:
    def f(x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        values = (x - 0.3).square().sum(-1)
        values[rows == 0] = torch.nan
        return values, 2 * (x - 0.3)

    x, values = minimize_in_box(
        f, torch.full((2, 2), 0.9).double(), torch.zeros(2), torch.ones(2),
        max_evals=30, first_step=0.1,
    )  # fmt: skip
    assert torch.equal(x[0], torch.full((2,), 0.9).double())
    assert float(values[1]) < 1e-8


def test_badly_scaled_variables_are_not_given_up() -> None:
    """Small steps do not mean small gradients: one steep variable must not hide a flat one."""
    scales = torch.tensor([1e4, 1e-1], dtype=torch.float64)

    def f(x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        return (scales * (x - 0.7).square()).sum(-1), 2 * scales * (x - 0.7)

    x, _ = minimize_in_box(
        f, torch.zeros(1, 2).double(), torch.zeros(2), torch.ones(2),
        max_evals=60, first_step=0.5,
    )  # fmt: skip
    torch.testing.assert_close(x, torch.full((1, 2), 0.7).double(), atol=1e-3, rtol=0)


def test_problems_that_are_done_are_not_evaluated_again() -> None:
    seen: list[int] = []
    f = on_the_cube(Hartmann(dim=3).double())

    def counting(x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        seen.append(len(rows))
        return f(x, rows)

    zero, one = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    minimize_in_box(counting, starts(40, 3), zero, one, max_evals=100, first_step=0.05)
    assert seen[0] == 40
    assert sum(seen) < 0.7 * 40 * len(seen)


def test_a_function_of_the_whole_batch_can_be_used() -> None:
    f = on_the_cube(Hartmann(dim=3).double())
    x0 = starts(5, 3)
    zero, one = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    everything = on_whole_batch(lambda x: f(x, torch.arange(5)), x0)
    adapted = minimize_in_box(everything, x0, zero, one, max_evals=30, first_step=0.05)
    plain = minimize_in_box(f, x0, zero, one, max_evals=30, first_step=0.05)
    torch.testing.assert_close(adapted, plain)
