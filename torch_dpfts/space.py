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
from torch.nn.functional import one_hot

from torch_dpfts.errors import InvalidInputError
from torch_dpfts.regions import RegionGrid
from torch_dpfts.spec import FederationSpec

# Inner upper edges belong to the next cell, so boxes end a little below them.
_MARGIN = 1e-6
# Room for rounding errors around whole numbers.
_SLACK = 1e-6
# Points closer than this along every axis of the cube count as repeats of each other.
_REPEAT = 5e-3


class SearchSpace:
    """Maps between the user's units and the unit cube.

    Args:
        bounds: Bounds in the user's units, ``2 x d``.
        log_dims: Dimensions on a logarithmic scale; their bounds are positive.
        integer_dims: Dimensions of whole numbers; their bounds are whole.
        categorical_dims: Dimensions of categories coded ``0, 1, ..., k - 1``.

    Example:
        >>> bounds = torch.tensor([[1e-4, 1.0], [1.0, 5.0]], dtype=torch.float64)
        >>> space = SearchSpace(bounds, log_dims=[0], integer_dims=[1])
        >>> space.to_unit(torch.tensor([[0.01, 2.2]], dtype=torch.float64))
        tensor([[0.5000, 0.2500]], dtype=torch.float64)
        >>> space.snap(torch.tensor([[0.01, 2.2]], dtype=torch.float64))
        tensor([[0.0100, 2.0000]], dtype=torch.float64)
    """

    def __init__(
        self,
        bounds: Tensor,
        log_dims: Collection[int] = (),
        integer_dims: Collection[int] = (),
        categorical_dims: Collection[int] = (),
    ) -> None:
        self.bounds = bounds
        self.log_dims = sorted(log_dims)
        self.categorical_dims = sorted(categorical_dims)
        self.discrete_dims = sorted({*integer_dims, *categorical_dims})
        self._scaled = bounds.clone()
        self._scaled[:, self.log_dims] = bounds[:, self.log_dims].log10()
        self._lower, self._width = self._scaled[0], self._scaled[1] - self._scaled[0]
        self._to_unit = self.input_transform()

    @classmethod
    def from_spec(
        cls, spec: FederationSpec, device: torch.device | str | None = None
    ) -> SearchSpace:
        """The space of a federation."""
        return cls(
            spec.bounds_tensor(device), spec.log_dims, spec.integer_dims, spec.categorical_dims
        )

    @property
    def dim(self) -> int:
        """Number d of dimensions."""
        return self.bounds.shape[-1]

    def input_transform(self, one_hot: bool = False) -> InputTransform:
        """A new BoTorch transform from the user's units to the cube, for models and paths.

        Args:
            one_hot: Whether each category becomes a column of its own, at the end, so that
                a stationary kernel sees all categories equally far apart.
        """
        steps: dict[str, InputTransform] = {}
        if self.discrete_dims:
            steps["round"] = Round(integer_indices=self.discrete_dims)
        if self.log_dims:
            steps["log"] = Log10(indices=self.log_dims)
        steps["normalize"] = Normalize(self.dim, bounds=self._scaled)
        if one_hot and self.categorical_dims:
            counts = {i: int(self._width[i]) + 1 for i in self.categorical_dims}
            steps["one_hot"] = _OneHot(self.dim, counts)
        return ChainedInputTransform(**steps) if len(steps) > 1 else steps["normalize"]

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
            X[..., self.discrete_dims] = X[..., self.discrete_dims].round() + 0.0  # no -0
        return X.clamp(self.bounds[0], self.bounds[1])

    def all_but_repeats(self, x: Tensor, X: Tensor) -> Tensor:
        """Whether a point lies so close to another that evaluating it would teach nothing.

        Args:
            x: Points, ``batch_shape x 1 x d``.
            X: What each of them is compared with, ``batch_shape x n x d``.

        Returns:
            ``batch_shape`` bools: whether all coordinates of the cube agree up to .005 for one of
            the ``n``.
        """
        distance = (self.to_unit(x) - self.to_unit(X)).abs().amax(-1)
        return (distance < _REPEAT).any(-1)

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


class _OneHot(InputTransform):
    """Replaces columns of categories, spread over [0, 1], by columns of 0 and a root of a half.

    Two different categories are then at distance 1, as the ends of another dimension are.
    """

    def __init__(self, dim: int, counts: dict[int, int]) -> None:
        super().__init__()
        self.counts = counts
        self.others = [i for i in range(dim) if i not in counts]
        self.transform_on_train = self.transform_on_eval = self.transform_on_fantasize = True

    def transform(self, X: Tensor) -> Tensor:
        columns = [X[..., self.others]]
        for i, count in self.counts.items():
            code = (X[..., i] * (count - 1)).round().long()
            columns.append(one_hot(code, count).to(X) * 0.5**0.5)
        return torch.cat(columns, dim=-1)
