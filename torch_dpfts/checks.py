"""Checks of scalar and tensor arguments, so that every refusal reads alike."""

from __future__ import annotations

import math
import operator
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor

from torch_dpfts.errors import InvalidInputError


def integer(name: str, value: Any, *, minimum: int = 0) -> int:
    """Return ``value`` as an ``int`` of at least ``minimum``, or refuse it by name."""
    try:
        if isinstance(value, bool):
            raise TypeError
        result = operator.index(value)
    except TypeError:
        raise InvalidInputError(
            f"{name} must be an integer of at least {minimum}, got {value!r}."
        ) from None
    if result < minimum:
        raise InvalidInputError(f"{name} must be at least {minimum}, got {result}.")
    return result


def real(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    below: float | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
) -> float:
    """Return ``value`` as a ``float`` above/below open and minimum/maximum closed limits.

    NaN is always refused; infinity is accepted where no limit excludes it.
    """
    if above is not None:
        low = f"({above:g}"
    else:
        low = "[-inf" if minimum is None else f"[{minimum:g}"
    if below is not None:
        high = f"{below:g})"
    else:
        high = "inf]" if maximum is None else f"{maximum:g}]"
    message = f"{name} must be a number in {low}, {high}, got {value!r}."
    try:
        if isinstance(value, bool | str):
            raise TypeError
        result = float(value)
    except (TypeError, ValueError):
        raise InvalidInputError(message) from None
    if (
        math.isnan(result)
        or (above is not None and result <= above)
        or (below is not None and result >= below)
        or (minimum is not None and result < minimum)
        or (maximum is not None and result > maximum)
    ):
        raise InvalidInputError(message)
    return result


def boolean(name: str, value: Any) -> bool:
    """Return ``value`` if it is ``True`` or ``False``, or refuse it by name."""
    if not isinstance(value, bool):
        raise InvalidInputError(f"{name} must be True or False, got {value!r}.")
    return value


def choice(name: str, value: Any, options: Collection[str]) -> str:
    """Return ``value`` if it is one of ``options``, or refuse it and list them."""
    if not isinstance(value, str) or value not in options:
        known = ", ".join(repr(option) for option in options)
        raise InvalidInputError(f"{name} must be one of {known}, got {value!r}.")
    return value


def finite(name: str, value: Tensor) -> Tensor:
    """Return ``value`` if all its entries are finite, or name the first that is not."""
    bad = ~torch.isfinite(value)
    if bad.any():
        position = tuple(int(i) for i in bad.nonzero()[0])
        raise InvalidInputError(
            f"{name} must be finite, got {float(value[position])} at index {position}; "
            "drop or repair that row."
        )
    return value
