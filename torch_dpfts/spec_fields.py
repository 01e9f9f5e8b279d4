"""Checks of the fields of a specification that are not a single number or name."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from torch_dpfts import checks
from torch_dpfts.errors import InvalidInputError

if TYPE_CHECKING:
    from torch_dpfts.spec import FederationSpec


def check_bounds(bounds: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return finite bounds with lower < upper as two tuples."""
    try:
        values = torch.as_tensor(bounds, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise InvalidInputError(
            f"bounds must be a 2 x d array of numbers, got {bounds!r}."
        ) from None
    if values.ndim != 2 or values.shape[0] != 2 or values.shape[1] == 0:
        raise InvalidInputError(f"bounds must have shape 2 x d, got {tuple(values.shape)}.")
    checks.finite("bounds", values)
    lower, upper = values.tolist()
    for i, (low, high) in enumerate(zip(lower, upper, strict=True)):
        if not low < high:
            raise InvalidInputError(
                f"bounds of dimension {i} must have lower < upper, got [{low}, {high}]; "
                "swap or widen them."
            )
    return tuple(lower), tuple(upper)


def num_values(spec: FederationSpec) -> list[float]:
    """How many values each dimension takes."""
    discrete = {*spec.integer_dims, *spec.categorical_dims}
    widths = [high - low for low, high in zip(*spec.bounds, strict=True)]
    return [widths[i] + 1 if i in discrete else math.inf for i in range(spec.dim)]


def check_grid(grid: Any, num_regions: int, num_values: list[float]) -> tuple[int, ...]:
    """Return the cells along each dimension, evenly dealt if ``grid`` is ``None``."""
    dim = len(num_values)
    if grid is None:
        return _even_grid(num_regions, num_values)
    if not isinstance(grid, Sequence) or len(grid) != dim:
        raise InvalidInputError(f"region_grid must hold {dim} integers, got {grid!r}.")
    cells = tuple(checks.integer("region_grid", count, minimum=1) for count in grid)
    if math.prod(cells) != num_regions:
        raise InvalidInputError(
            f"region_grid {cells} makes {math.prod(cells)} cells and does not divide the space "
            f"into num_regions={num_regions}; make the two agree."
        )
    for i, (count, values) in enumerate(zip(cells, num_values, strict=True)):
        if count > values:
            raise InvalidInputError(
                f"region_grid {cells} has more cells along dimension {i} than the {values:g} "
                "values it takes; divide another dimension."
            )
    return cells


def _even_grid(num_regions: int, num_values: list[float]) -> tuple[int, ...]:
    """Deal the prime factors, largest first, to the dimension with the fewest cells."""
    cells = [1] * len(num_values)
    factors, rest, prime = [], num_regions, 2
    while rest > 1:
        while rest % prime == 0:
            factors.append(prime)
            rest //= prime
        prime += 1
    for factor in reversed(factors):
        room = [i for i, values in enumerate(num_values) if cells[i] * factor <= values]
        if not room:
            raise InvalidInputError(
                f"num_regions={num_regions} is more than the values of the dimensions can be "
                "divided into; lower it."
            )
        cells[min(room, key=lambda i: cells[i])] *= factor
    return tuple(cells)


def check_dims(name: str, dims: Any, dim: int) -> tuple[int, ...]:
    """Return distinct dimensions in order."""
    if not isinstance(dims, Sequence) or isinstance(dims, str):
        raise InvalidInputError(f"{name} must be a list of dimensions, got {dims!r}.")
    values = sorted(checks.integer(name, i) for i in dims)
    if len(set(values)) < len(values) or (values and values[-1] >= dim):
        raise InvalidInputError(f"{name} must name different dimensions below {dim}, got {dims!r}.")
    return tuple(values)


def check_kinds(spec: FederationSpec) -> None:
    """Bounds must suit the kind of each dimension."""
    for i in spec.categorical_dims:
        if i in spec.log_dims or i in spec.integer_dims:
            raise InvalidInputError(
                f"Dimension {i} is in categorical_dims and must not be in log_dims or integer_dims."
            )
    for i, (low, high) in enumerate(zip(*spec.bounds, strict=True)):
        if i in spec.log_dims and low <= 0:
            raise InvalidInputError(
                f"bounds of dimension {i} must be positive as it is in log_dims, got "
                f"[{low}, {high}]."
            )
        discrete = i in spec.integer_dims or i in spec.categorical_dims
        if discrete and not (low.is_integer() and high.is_integer()):
            raise InvalidInputError(
                f"bounds of dimension {i} must be whole as it is in integer_dims or "
                f"categorical_dims, got [{low}, {high}]."
            )
        if i in spec.categorical_dims and low != 0:
            raise InvalidInputError(
                f"bounds of dimension {i} must start at 0 as it is in categorical_dims, got "
                f"[{low}, {high}]; code the categories 0, 1, ..."
            )


def check_space(space: Any) -> str | None:
    """Return the JSON in canonical form, so that equal spaces have equal fingerprints."""
    if space is None:
        return None
    try:
        content = json.loads(space)
    except (TypeError, ValueError):
        content = None
    if not isinstance(content, Mapping):
        raise InvalidInputError(
            f"space must be a JSON object in a string, got {space!r}; take it from "
            "ParameterSpace.spec_fields()."
        )
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def check_lengthscales(lengthscales: Any, dim: int) -> tuple[float, ...]:
    """Return one positive lengthscale a dimension."""
    message = f"lengthscales must be one number or {dim} (one a dimension), got {lengthscales!r}."
    try:
        values = torch.as_tensor(lengthscales, dtype=torch.float64).tolist()
    except (TypeError, ValueError, RuntimeError):
        raise InvalidInputError(message) from None
    values = values if isinstance(values, list) else [values] * dim
    if len(values) != dim:
        raise InvalidInputError(message)
    return tuple(checks.real("lengthscales", v, above=0.0, below=math.inf) for v in values)
