"""One named parameter as one dimension: its coordinate, its value, its range."""

from __future__ import annotations

import math
from typing import Any

from ConfigSpace import (
    CategoricalHyperparameter,
    OrdinalHyperparameter,
    UniformFloatHyperparameter,
    UniformIntegerHyperparameter,
)

from torch_dpfts import checks
from torch_dpfts.errors import InvalidInputError

CHOICES = (CategoricalHyperparameter, OrdinalHyperparameter)
NUMBERS = (UniformFloatHyperparameter, UniformIntegerHyperparameter)


def check_parameter(parameter: Any) -> None:
    """Refuse what cannot be a dimension of the federation."""
    if not isinstance(parameter, CHOICES + NUMBERS):
        raise InvalidInputError(
            f"Parameter {parameter.name!r} is a {type(parameter).__name__}; use a uniform float "
            "or integer or a choice, and give constants to train_fn directly."
        )
    if isinstance(parameter, CHOICES):
        options = options_of(parameter)
        if len(options) < 2:
            raise InvalidInputError(
                f"Parameter {parameter.name!r} needs at least 2 choices, got {options!r}; "
                "give constants to train_fn directly."
            )
        for option in options:
            if type(option) not in (str, int, float, bool):
                raise InvalidInputError(
                    f"Choices of {parameter.name!r} must be strings, numbers or truth values, "
                    f"got {option!r}; name it by a string and look it up in train_fn."
                )


def options_of(parameter: Any) -> list[Any]:
    """The values of a choice, in order."""
    ordered = isinstance(parameter, OrdinalHyperparameter)
    options = parameter.sequence if ordered else parameter.choices
    return [o.item() if hasattr(o, "item") else o for o in options]


def range_of(parameter: Any) -> tuple[float, float]:
    """Lower and upper bound of the dimension."""
    if isinstance(parameter, CHOICES):
        return 0.0, float(len(options_of(parameter)) - 1)
    return float(parameter.lower), float(parameter.upper)


def num_values(parameter: Any) -> float:
    """How many values there are; infinite for floats."""
    low, high = range_of(parameter)
    return math.inf if isinstance(parameter, UniformFloatHyperparameter) else high - low + 1


def code_of(parameter: Any, value: Any) -> float:
    """The coordinate of a value."""
    if isinstance(parameter, CHOICES):
        return float(options_of(parameter).index(value))
    return float(value)


def checked_code(parameter: Any, value: Any) -> float:
    """The coordinate of a value, or an error that names the parameter."""
    name = f"Parameter {parameter.name!r}"
    if isinstance(parameter, CHOICES):
        options = options_of(parameter)
        if value not in options:
            raise InvalidInputError(f"{name} must be one of {options}, got {value!r}.")
        return code_of(parameter, value)
    low, high = parameter.lower, parameter.upper
    if isinstance(parameter, UniformIntegerHyperparameter):
        code = checks.integer(name, value, minimum=low)
        if code > high:
            raise InvalidInputError(f"{name} must be at most {high}, got {code}.")
        return float(code)
    return checks.real(name, value, minimum=low, maximum=high)


def value_at(parameter: Any, code: float) -> Any:
    """The value at a coordinate."""
    if isinstance(parameter, CHOICES):
        return options_of(parameter)[int(code)]
    return code if isinstance(parameter, UniformFloatHyperparameter) else int(code)
