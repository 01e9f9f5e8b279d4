"""A problem made of one function for each agent."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from torch_dpfts import checks
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.problems.base import check_query


class PerAgent:
    """Adapter that turns single-agent functions into a :class:`~torch_dpfts.problems.Problem`.

    Any function of points is accepted, such as BoTorch's synthetic test functions (most of
    which are to be minimised: construct them with ``negate=True``).

    Args:
        functions: One callable for each agent, from points ``n x d`` in the user's units to
            values ``n`` or ``n x 1``; larger is better.
        bounds: Bounds of the search space, common to all agents, ``2 x d``.

    Raises:
        InvalidInputError: If there is no function, one is not callable, or the bounds are not
            finite, ``2 x d`` and in order.

    Example:
        >>> from botorch.test_functions import Branin
        >>> quiet, noisy = Branin(negate=True), Branin(negate=True, noise_std=0.1)
        >>> problem = PerAgent([quiet, noisy], bounds=quiet.bounds)
        >>> X = torch.zeros(2, 5, 2, dtype=torch.float64)
        >>> problem(X, torch.tensor([0, 1])).shape
        torch.Size([2, 5, 1])
    """

    name = "per-agent"
    optimal_values: Tensor | None = None

    def __init__(self, functions: Sequence[Callable[[Tensor], Tensor]], bounds: Tensor) -> None:
        self.functions = tuple(functions)
        if not self.functions:
            raise InvalidInputError("functions must hold one callable for each agent, got none.")
        for agent_id, function in enumerate(self.functions):
            if not callable(function):
                raise InvalidInputError(
                    f"functions[{agent_id}] must be callable, got {function!r}."
                )
        self.bounds = torch.as_tensor(bounds, dtype=torch.float64, device="cpu")
        if self.bounds.ndim != 2 or len(self.bounds) != 2:
            raise InvalidInputError(
                f"bounds must have shape 2 x d, got {tuple(self.bounds.shape)}."
            )
        checks.finite("bounds", self.bounds)
        if not (self.bounds[0] < self.bounds[1]).all():
            raise InvalidInputError(
                f"bounds must have lower < upper in each column, got {self.bounds.tolist()}."
            )
        self.num_agents = len(self.functions)
        self.dim = self.bounds.shape[1]

    def __call__(self, X: Tensor, agent_ids: Tensor) -> Tensor:
        """Evaluate each agent's function at its points.

        Args:
            X: Points in the user's units, ``b x n x d``.
            agent_ids: Whose function each of the ``b`` blocks is for, ``b``, int64.

        Returns:
            Values, ``b x n x 1``, with the dtype and the device of ``X``.

        Raises:
            InvalidInputError: If ``X`` or ``agent_ids`` does not fit the problem, or a
                function returns neither ``n`` nor ``n x 1`` values.
        """
        check_query(X, agent_ids, self.bounds, self.num_agents)
        Y = X.new_empty(*X.shape[:2], 1)
        for row, agent_id in enumerate(agent_ids.tolist()):
            Y[row] = self._evaluate(agent_id, X[row])
        return Y

    def _evaluate(self, agent_id: int, X: Tensor) -> Tensor:
        values = self.functions[agent_id](X)
        n = len(X)
        if not isinstance(values, Tensor) or values.shape not in ((n,), (n, 1)):
            shape = getattr(values, "shape", type(values).__name__)
            raise InvalidInputError(
                f"functions[{agent_id}] must return a tensor of shape {n} or {n} x 1, got {shape}."
            )
        return values.reshape(n, 1).to(X)
