"""The search space as a unit cube: logarithms, whole numbers and categories.

The shared features and the regions live on the unit cube. A dimension on a logarithmic scale is
equally spaced there in the logarithm; a whole number or a category (coded ``0, 1, ..., k - 1``)
takes equally spaced values and is rounded on the way in, so that a function of the cube is a
function of the rounded point.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from botorch.models.transforms.input import (
    ChainedInputTransform,
    InputTransform,
    Log10,
    Normalize,
    Round,
)
from torch import Tensor

from torch_dpfts.errors import InvalidInputError
from torch_dpfts.regions import RegionGrid
from torch_dpfts.spec import FederationSpec

# Inner upper edges belong to the next cell, so boxes end a little below them.
_MARGIN = 1e-6
# Room for rounding errors around whole numbers.
_SLACK = 1e-6


class SearchSpace:
    """Maps between the user's units and the unit cube.

    Args:
        bounds: Bounds in the user's units, ``2 x d``.
        log_dims: Dimensions on a logarithmic scale; their bounds are positive.
        discrete_dims: Dimensions that take whole numbers; their bounds are whole.

    Example:
        >>> bounds = torch.tensor([[1e-4, 1.0], [1.0, 5.0]], dtype=torch.float64)
        >>> space = SearchSpace(bounds, log_dims=[0], discrete_dims=[1])
        >>> space.to_unit(torch.tensor([[0.01, 2.2]], dtype=torch.float64))
        tensor([[0.5000, 0.2500]], dtype=torch.float64)
        >>> space.snap(torch.tensor([[0.01, 2.2]], dtype=torch.float64))
        tensor([[0.0100, 2.0000]], dtype=torch.float64)
    """

    def __init__(
        self,
        bounds: Tensor,
        log_dims: Collection[int] = (),
        discrete_dims: Collection[int] = (),
    ) -> None:
        self.bounds = bounds
        self.log_dims = sorted(log_dims)
        self.discrete_dims = sorted(discrete_dims)
        self._scaled = bounds.clone()
        self._scaled[:, self.log_dims] = bounds[:, self.log_dims].log10()
        self._lower, self._width = self._scaled[0], self._scaled[1] - self._scaled[0]
        self._to_unit = self.input_transform()

    @classmethod
    def from_spec(
        cls, spec: FederationSpec, device: torch.device | str | None = None
    ) -> SearchSpace:
        """The space of a federation."""
        discrete = (*spec.integer_dims, *spec.categorical_dims)
        return cls(spec.bounds_tensor(device), spec.log_dims, discrete)

    @property
    def dim(self) -> int:
        """Number d of dimensions."""
        return self.bounds.shape[-1]

    def input_transform(self) -> InputTransform:
        """A new BoTorch transform from the user's units to the cube, for models and paths."""
        normalize = Normalize(self.dim, bounds=self._scaled)
        steps: dict[str, InputTransform] = {}
        if self.discrete_dims:
            steps["round"] = Round(integer_indices=self.discrete_dims)
        if self.log_dims:
            steps["log"] = Log10(indices=self.log_dims)
        return ChainedInputTransform(**steps, normalize=normalize) if steps else normalize

    def to_unit(self, X: Tensor) -> Tensor:
        """Map ``... x d`` to the cube; whole-numbered dimensions are rounded."""
        unit: Tensor = self._to_unit.transform(X)
        return unit

    def scale(self, X: Tensor) -> Tensor:
        """Map ``... x d`` to the cube without rounding: the inverse of :meth:`from_unit`."""
        X = X.clone()
        X[..., self.log_dims] = X[..., self.log_dims].log10()
        return (X - self._lower) / self._width

    def from_unit(self, U: Tensor) -> Tensor:
        """Map ``... x d`` to the user's units, without rounding."""
        X = self._lower + U * self._width
        if self.log_dims:
            X = X.clone()
            X[..., self.log_dims] = 10.0 ** X[..., self.log_dims]
        return X

    def snap(self, X: Tensor) -> Tensor:
        """Round the whole-numbered dimensions of ``... x d`` and clip to the bounds."""
        if self.discrete_dims:
            X = X.clone()
            X[..., self.discrete_dims] = X[..., self.discrete_dims].round()
        return X.clamp(self.bounds[0], self.bounds[1])

    def boxes(self, grid: RegionGrid) -> tuple[Tensor, Tensor]:
        """Lower corners and widths of the cells in the cube, each ``P x d``.

        A point drawn uniformly from a box and snapped is uniform among the cell's points. Along
        a whole-numbered dimension a box reaches half a step beyond the cell's first and last
        value, which may lie outside the cube.

        Raises:
            InvalidInputError: If a cell holds no value of a whole-numbered dimension.
        """
        lower, upper = grid.lower.to(self.bounds), grid.upper.to(self.bounds)
        width = torch.where(upper < 1, (upper - lower) * (1 - _MARGIN), upper - lower)
        if not self.discrete_dims:
            return lower, width
        first = (self.from_unit(lower) - _SLACK).ceil()
        last = torch.where(
            upper < 1, (self.from_unit(upper) - _SLACK).ceil() - 1, self.bounds[1].expand_as(upper)
        )
        box_lower = self.scale(first - 0.5 + _SLACK)
        box_width = self.scale(last + 0.5 - _SLACK) - box_lower
        for i in self.discrete_dims:
            if (last[:, i] < first[:, i]).any():
                raise InvalidInputError(
                    f"A cell of region_grid {grid.cells} holds no value of dimension {i}; divide "
                    "another dimension."
                )
            lower[:, i], width[:, i] = box_lower[:, i], box_width[:, i]
        return lower, width
