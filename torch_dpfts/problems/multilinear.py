"""Multilinear interpolation in tables, one for each agent."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class MultilinearTable:
    """Piecewise multilinear functions on one grid, a table of values for each agent.

    Args:
        grid: The coordinates of the grid in each of the ``d`` dimensions, increasing.
        values: The values at the grid's points, ``num_agents x I_1 x ... x I_d``.

    Example:
        >>> grid = torch.tensor([0.0, 1.0]), torch.tensor([0.0, 2.0])
        >>> table = MultilinearTable(grid, torch.tensor([[[0.0, 0.0], [0.0, 4.0]]]))
        >>> table(torch.tensor([[[1.0, 1.0]]]), torch.tensor([0]))
        tensor([[[2.]]])
    """

    def __init__(self, grid: Sequence[Tensor], values: Tensor) -> None:
        self.grid = tuple(grid)
        self.values = values

    def __call__(self, X: Tensor, agent_ids: Tensor) -> Tensor:
        """Interpolate.

        Args:
            X: Points, ``b x n x d``; outside the grid the value at its edge counts.
            agent_ids: The table of each block, ``b``.

        Returns:
            Values, ``b x n x 1``.
        """
        cells, places = zip(*map(_locate, self.grid, X.unbind(-1)), strict=True)  # each b x n
        return self._between((agent_ids.unsqueeze(-1),), cells, places).unsqueeze(-1)

    def _between(
        self, index: tuple[Tensor, ...], cells: Sequence[Tensor], places: Sequence[Tensor]
    ) -> Tensor:
        """Interpolate in the dimensions that ``index`` leaves open, ``b x n``."""
        if not cells:
            return self.values[index]
        lower, upper = (
            self._between((*index, cells[0] + step), cells[1:], places[1:]) for step in (0, 1)
        )
        return torch.lerp(lower, upper, places[0])


def _locate(grid: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cell that holds each coordinate and the place in it, from 0 to 1."""
    cell = (torch.searchsorted(grid, x.contiguous(), right=True) - 1).clamp(0, len(grid) - 2)
    return cell, ((x - grid[cell]) / (grid[cell + 1] - grid[cell])).clamp(0, 1)
