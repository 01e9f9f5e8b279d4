"""What every benchmark problem offers, and the check of what it is asked."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from torch_dpfts import checks
from torch_dpfts.errors import InvalidInputError


class Problem(Protocol):
    """An objective for each agent of a federation, to be maximised.

    A call evaluates ``n`` points for each of ``b`` agents at once: ``problem(X, agent_ids)``
    maps ``X`` of shape ``b x n x d``, in the user's units, and ``agent_ids`` of shape ``b``
    (int64) to values of shape ``b x n x 1`` with the dtype and the device of ``X``.

    Two attributes are optional: ``score``, the name of a score from 0 to 1 if that is what the
    values are, for tables that show one minus it; and ``spec_fields``, bounds and kinds of the
    dimensions as fields of a :class:`~torch_dpfts.FederationSpec`.
    """

    @property
    def name(self) -> str:
        """Name for tables and figures."""

    @property
    def dim(self) -> int:
        """Number ``d`` of dimensions of the search space."""

    @property
    def num_agents(self) -> int:
        """Number of agents, each with a function of its own."""

    @property
    def bounds(self) -> Tensor:
        """Lower and upper bounds of the search space, ``2 x d``, float64."""

    @property
    def optimal_values(self) -> Tensor | None:
        """Largest value of each agent's function, ``num_agents``, or None if unknown."""

    def __call__(self, X: Tensor, agent_ids: Tensor) -> Tensor:
        """Evaluate ``X``, ``b x n x d``, for the agents ``agent_ids``, ``b``."""


def check_query(X: Tensor, agent_ids: Tensor, bounds: Tensor, num_agents: int) -> None:
    """Refuse a query that does not fit a problem; points may be a rounding error outside.

    Args:
        X: Points in the user's units, ``b x n x d``.
        agent_ids: Which agent each of the ``b`` blocks belongs to, ``b``.
        bounds: Bounds of the problem, ``2 x d``.
        num_agents: Number of agents of the problem.

    Raises:
        InvalidInputError: If ``X`` is not a real floating-point tensor of that shape, not
            finite or outside the bounds, or ``agent_ids`` is not an int64 tensor of shape
            ``b`` with values from 0 to ``num_agents - 1``.
    """
    dim = bounds.shape[-1]
    if not isinstance(X, Tensor) or not X.is_floating_point():
        raise InvalidInputError(
            f"X must be a floating-point tensor, got {getattr(X, 'dtype', type(X).__name__)}."
        )
    if X.ndim != 3 or X.shape[-1] != dim:
        raise InvalidInputError(
            f"X must have shape b x n x {dim}, got {tuple(X.shape)}; "
            "for one agent use X.unsqueeze(0)."
        )
    if not isinstance(agent_ids, Tensor) or agent_ids.dtype != torch.int64:
        raise InvalidInputError(
            "agent_ids must be an int64 tensor, got "
            f"{getattr(agent_ids, 'dtype', type(agent_ids).__name__)}."
        )
    if agent_ids.shape != X.shape[:1]:
        raise InvalidInputError(
            f"agent_ids must have shape {tuple(X.shape[:1])}, one for each block of X, "
            f"got {tuple(agent_ids.shape)}."
        )
    strangers = agent_ids[(agent_ids < 0) | (agent_ids >= num_agents)]
    if len(strangers):
        raise InvalidInputError(
            f"agent_ids must be from 0 to {num_agents - 1}, got {int(strangers[0])}."
        )
    checks.finite("X", X)
    _check_inside(X, bounds.to(X))


def _check_inside(X: Tensor, bounds: Tensor) -> None:
    # Scaling from the unit cube, and a float32 on the way, may move a point past its bound.
    eps = max(torch.finfo(X.dtype).eps, torch.finfo(torch.float32).eps)
    slack = 8 * eps * bounds.abs().amax(0)
    outside = (X < bounds[0] - slack) | (X > bounds[1] + slack)
    if outside.any():
        row, point, column = (int(i) for i in outside.nonzero()[0])
        low, high = bounds[:, column].tolist()
        raise InvalidInputError(
            f"X must lie in the bounds, got {float(X[row, point, column]):g} at index "
            f"{(row, point, column)}, where [{low:g}, {high:g}] is allowed; "
            "X is in the user's units, not in the unit cube."
        )
