r"""BoTorch's synthetic test functions, shifted and rotated differently for each agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from torch_dpfts import checks
from torch_dpfts.problems.base import check_query
from torch_dpfts.rng import derived_generator

_SPREAD_POINTS = 1024


@dataclass(frozen=True)
class BoxedFunction:
    """A function of :mod:`botorch.test_functions` and the box that becomes the unit cube.

    Args:
        kind: Name of the class.
        dim: Number of dimensions.
        bounds: Lower and upper bound of every coordinate; None for the function's own.
    """

    kind: str
    dim: int
    bounds: tuple[tuple[float, float], ...] | None = None

    def make(self, bounds: tuple[tuple[float, float], ...] | None) -> Any:
        """The function, to be maximised, in double precision."""
        from botorch import test_functions

        kind = getattr(test_functions, self.kind)
        settings: dict[str, Any] = {"bounds": bounds}
        if self.kind in _VARIABLE_DIM:
            settings["dim"] = self.dim
        return kind(negate=kind(**settings).is_minimization_problem, **settings)


_VARIABLE_DIM = ("Ackley", "Griewank", "Hartmann", "Levy", "Rosenbrock", "StyblinskiTang")

SHIFTED_FUNCTIONS: dict[str, BoxedFunction] = {
    "branin": BoxedFunction("Branin", 2),
    "six-hump-camel": BoxedFunction("SixHumpCamel", 2, ((-2.0, 2.0), (-1.0, 1.0))),
    "rosenbrock2": BoxedFunction("Rosenbrock", 2, ((-2.0, 2.0),) * 2),
    "ackley2": BoxedFunction("Ackley", 2, ((-5.0, 10.0),) * 2),
    "hartmann3": BoxedFunction("Hartmann", 3),
    "levy3": BoxedFunction("Levy", 3, ((-5.0, 10.0),) * 3),
    "styblinski-tang4": BoxedFunction("StyblinskiTang", 4, ((-5.0, 5.0),) * 4),
    "ackley5": BoxedFunction("Ackley", 5, ((-5.0, 10.0),) * 5),
    "griewank5": BoxedFunction("Griewank", 5, ((-10.0, 15.0),) * 5),
    "hartmann6": BoxedFunction("Hartmann", 6),
    "cosine8": BoxedFunction("Cosine8", 8, ((-1.0, 1.5),) * 8),
    "levy10": BoxedFunction("Levy", 10, ((-5.0, 10.0),) * 10),
}
"""The functions by name. Boxes keep the maximiser off the centre, which no rotation moves."""


class ShiftedFunctions:
    r"""A test function whose input is shifted and rotated for each agent.

    Agent n's function is :math:`f_n(x) = f(c + R_n (x - c - s_n))` on the unit cube with centre
    c: s_n is uniform in ``[-shift, shift]^d``, and R_n turns the cube about its centre, in
    random planes orthogonal to each other, by angles uniform in ``[-rotation, rotation]``. Each
    f is defined on the whole space and its maximiser in the box is a global one; an agent whose
    maximiser would come to lie outside its cube is drawn again. Outcomes are to be maximised and
    standardised by the mean and the standard deviation of f at a fixed Sobol sequence of 1024
    points, so that regrets of different functions compare.

    The heterogeneity is dialled by ``shift`` and ``rotation``: (0, 0) makes all agents alike,
    (.05, .1) similar, (.3, 1.) different. The evaluation runs on the CPU in float64, wherever
    ``X`` lies, and has no noise.

    Args:
        function: A key of ``SHIFTED_FUNCTIONS``.
        num_agents: Number of agents.
        shift: Largest shift of each coordinate, in units of the cube, at most .5.
        rotation: Largest angle, in radians, at most pi.
        seed: Seed of shifts and rotations.

    Attributes:
        bounds: The unit cube, ``2 x d``, float64.
        optimal_values: Largest value of each agent's function, ``num_agents``, float64: known,
            not searched for, and the same for all agents; right to 1e-5.
        optimal_points: Where each agent attains it (one place of several for some functions),
            ``num_agents x d``, float64.

    Raises:
        InvalidInputError: If an argument is out of range.

    Example:
        >>> problem = ShiftedFunctions("hartmann6", num_agents=4, shift=0.3, rotation=1.0)
        >>> Y = problem(problem.optimal_points.unsqueeze(-2), torch.arange(4))
        >>> torch.allclose(Y.flatten(), problem.optimal_values, atol=1e-4)
        True
    """

    def __init__(
        self,
        function: str = "branin",
        num_agents: int = 16,
        shift: float = 0.05,
        rotation: float = 0.1,
        seed: int = 0,
    ) -> None:
        self.function = checks.choice("function", function, SHIFTED_FUNCTIONS)
        self.num_agents = checks.integer("num_agents", num_agents, minimum=1)
        self.shift = checks.real("shift", shift, minimum=0.0, maximum=0.5)
        self.rotation = checks.real("rotation", rotation, minimum=0.0, maximum=torch.pi)
        self.seed = checks.integer("seed", seed)
        self.name = f"shifted {function}"
        entry = SHIFTED_FUNCTIONS[function]
        self.dim = entry.dim
        self.bounds = torch.tensor([[0.0] * self.dim, [1.0] * self.dim], dtype=torch.float64)

        original = entry.make(entry.bounds)
        self._box = original.bounds
        # The shifted and rotated cubes reach out of the box; BoTorch checks the bounds.
        reach = self._to_box(torch.tensor([[-2.0] * self.dim, [3.0] * self.dim]).double())
        self._base = entry.make(tuple((float(low), float(high)) for low, high in reach.T))
        sample = SobolEngine(self.dim).draw(_SPREAD_POINTS, dtype=torch.float64)
        values = self._base(self._to_box(sample))
        self._offset, self._scale = values.mean(), values.std()

        maximizers = original.optimizers  # k x d
        best = torch.maximum(
            torch.tensor(original.optimal_value).double(), self._base(maximizers).max()
        )
        self.optimal_values = ((best - self._offset) / self._scale).repeat(self.num_agents)
        offsets = self._from_box(maximizers) - 0.5
        self._draw(offsets[offsets.norm(dim=-1).argmin()])

    def _to_box(self, unit: Tensor) -> Tensor:
        return self._box[0] + (self._box[1] - self._box[0]) * unit

    def _from_box(self, X: Tensor) -> Tensor:
        return (X - self._box[0]) / (self._box[1] - self._box[0])

    def _draw(self, offset: Tensor) -> None:
        """Draw shifts and rotations that keep the maximiser, ``offset`` from the centre, inside."""
        shifts, rotations, points = [], [], []
        for agent_id in range(self.num_agents):
            generator = derived_generator(self.seed, "shifted", agent_id)
            while True:
                shift = self.shift * _symmetric(self.dim, generator)
                rotation = _random_rotation(self.dim, self.rotation, generator)
                point = 0.5 + shift + rotation.mT @ offset
                # A shift towards the centre is drawn half of the time in each coordinate.
                if ((point >= 0) & (point <= 1)).all():
                    break
            shifts.append(shift)
            rotations.append(rotation)
            points.append(point)
        self._shifts, self._rotations = torch.stack(shifts), torch.stack(rotations)
        self.optimal_points = torch.stack(points)

    def __call__(self, X: Tensor, agent_ids: Tensor) -> Tensor:
        """Evaluate the agents' functions.

        Args:
            X: Points of the unit cube, ``b x n x d``.
            agent_ids: The agent of each of the ``b`` blocks, ``b``, int64.

        Returns:
            Values, ``b x n x 1``, with the dtype and the device of ``X``.

        Raises:
            InvalidInputError: If ``X`` or ``agent_ids`` does not fit the problem.
        """
        check_query(X, agent_ids, self.bounds, self.num_agents)
        agent = agent_ids.cpu()
        centered = X.to("cpu", torch.float64) - 0.5 - self._shifts[agent].unsqueeze(-2)
        turned = 0.5 + centered @ self._rotations[agent].mT  # b x n x d
        values = (self._base(self._to_box(turned)) - self._offset) / self._scale
        return values.unsqueeze(-1).to(X)


def _symmetric(size: int, generator: torch.Generator) -> Tensor:
    return 2 * torch.rand(size, generator=generator, dtype=torch.float64) - 1


def _random_rotation(dim: int, largest: float, generator: torch.Generator) -> Tensor:
    """A rotation ``d x d`` by angles of at most ``largest`` in ``d // 2`` orthogonal planes."""
    normal = torch.randn(dim, dim, generator=generator, dtype=torch.float64)
    axes = torch.linalg.qr(normal).Q[:, : 2 * (dim // 2)]
    first, second = axes[:, ::2], axes[:, 1::2]  # d x planes
    angles = largest * _symmetric(dim // 2, generator)
    return torch.linalg.matrix_exp((second * angles) @ first.mT - (first * angles) @ second.mT)
