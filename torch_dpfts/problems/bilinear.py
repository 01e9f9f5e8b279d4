"""Bilinear interpolation in tables, one for each agent."""

from __future__ import annotations

import torch
from torch import Tensor


class BilinearTable:
    """Piecewise bilinear functions on one grid, a table of values for each agent.

    Args:
        grid: The coordinates of the grid, increasing, of shapes ``I`` and ``J``.
        values: The values at the grid's points, ``num_agents x I x J``.

    Example:
        >>> grid = torch.tensor([0.0, 1.0]), torch.tensor([0.0, 2.0])
        >>> table = BilinearTable(grid, torch.tensor([[[0.0, 0.0], [0.0, 4.0]]]))
        >>> table(torch.tensor([[[1.0, 1.0]]]), torch.tensor([0]))
        tensor([[[2.]]])
    """

    def __init__(self, grid: tuple[Tensor, Tensor], values: Tensor) -> None:
        self.grid = grid
        self.values = values

    def __call__(self, X: Tensor, agent_ids: Tensor) -> Tensor:
        """Interpolate.

        Args:
            X: Points, ``b x n x 2``; outside the grid the value at its edge counts.
            agent_ids: The table of each block, ``b``.

        Returns:
            Values, ``b x n x 1``.
        """
        i, u = _locate(self.grid[0], X[..., 0])  # b x n
        j, v = _locate(self.grid[1], X[..., 1])  # b x n
        agent = agent_ids.unsqueeze(-1)  # b x 1
        lower = torch.lerp(self.values[agent, i, j], self.values[agent, i, j + 1], v)
        upper = torch.lerp(self.values[agent, i + 1, j], self.values[agent, i + 1, j + 1], v)
        return torch.lerp(lower, upper, u).unsqueeze(-1)


def _locate(grid: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cell that holds each coordinate and the place in it, from 0 to 1."""
    cell = (torch.searchsorted(grid, x.contiguous(), right=True) - 1).clamp(0, len(grid) - 2)
    return cell, ((x - grid[cell]) / (grid[cell + 1] - grid[cell])).clamp(0, 1)
