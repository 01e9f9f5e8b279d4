"""Sub-regions of the unit cube: a grid of half-open cells, and who is assigned to which."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torch_dpfts import checks
from torch_dpfts.errors import InvalidInputError


class RegionGrid:
    """A grid of ``P`` cells ``[lo, hi)`` that cover the unit cube; the last ones are closed.

    Cells are numbered in row-major order, the last dimension fastest.

    Args:
        cells: Number of cells along each of the ``d`` dimensions.
        dtype: Dtype of ``lower`` and ``upper``.
        device: Device of ``lower`` and ``upper``.

    Example:
        >>> grid = RegionGrid((2, 2))
        >>> grid.index(torch.tensor([[0.1, 0.5], [1.0, 0.0]]))
        tensor([1, 2])
    """

    def __init__(
        self,
        cells: Sequence[int],
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
    ) -> None:
        self.cells = tuple(checks.integer("cells", count, minimum=1) for count in cells)
        if not self.cells:
            raise InvalidInputError("cells must hold one integer a dimension, got none.")
        axes = [torch.arange(count, device=device) for count in self.cells]
        corner = torch.cartesian_prod(*axes).reshape(-1, len(self.cells))
        counts = torch.tensor(self.cells, dtype=dtype, device=device)
        self.lower = corner.to(dtype) / counts  # P x d
        self.upper = (corner + 1).to(dtype) / counts  # P x d

    def __len__(self) -> int:
        return len(self.lower)

    @property
    def dim(self) -> int:
        """Number d of dimensions."""
        return len(self.cells)

    def index(self, X: Tensor) -> Tensor:
        """Return the number of the cell that holds each point.

        Points a rounding error outside the cube count to the nearest cell.

        Args:
            X: Points of the unit cube, ``... x d``.

        Returns:
            A ``...`` LongTensor with values in ``[0, P)``.
        """
        number = torch.zeros(X.shape[:-1], dtype=torch.long, device=X.device)
        for i, count in enumerate(self.cells):
            edges = torch.arange(1, count, dtype=X.dtype, device=X.device) / count
            place = torch.bucketize(X[..., i].contiguous(), edges, right=True)
            number = number * count + place
        return number

    def assigned(self, agent_ids: Tensor) -> Tensor:
        """Return the region of each agent: ``n mod P``."""
        return agent_ids % len(self)
