import math
from typing import Any

import pytest
from ConfigSpace import Categorical, Float, Integer, NormalFloatHyperparameter

from torch_dpfts.errors import InvalidInputError
from torch_dpfts.tune.parameters import (
    check_parameter,
    checked_code,
    code_of,
    num_values,
    options_of,
    range_of,
    value_at,
)


@pytest.mark.parametrize(
    ("parameter", "low", "high", "count", "value", "code"),
    [
        (Float("p", (0.1, 0.7)), 0.1, 0.7, math.inf, 0.3, 0.3),
        (Float("p", (1e-9, 1.0), log=True), 1e-9, 1.0, math.inf, 1e-4, 1e-4),
        (Integer("p", (-3, 5)), -3.0, 5.0, 9, -2, -2.0),
        (Categorical("p", ["x", "y", "z"]), 0.0, 2.0, 3, "y", 1.0),
        (Categorical("p", [8, 16, 64], ordered=True), 0.0, 2.0, 3, 64, 2.0),
        (Categorical("p", [True, False]), 0.0, 1.0, 2, False, 1.0),
    ],
)
def test_a_parameter_is_a_dimension(
    parameter: Any, low: float, high: float, count: float, value: Any, code: float
) -> None:
    check_parameter(parameter)
    assert range_of(parameter) == (low, high)
    assert num_values(parameter) == count
    assert code_of(parameter, value) == checked_code(parameter, value) == code
    back = value_at(parameter, code)
    assert back == value
    assert type(back) is type(value)


def test_options_are_plain_values_in_order() -> None:
    assert options_of(Categorical("p", [64, 8, 16], ordered=True)) == [64, 8, 16]
    assert [type(o) for o in options_of(Categorical("p", [0.5, 2.0]))] == [float, float]


def test_what_cannot_be_a_dimension() -> None:
    with pytest.raises(InvalidInputError, match="'p' is a NormalFloatHyperparameter"):
        check_parameter(NormalFloatHyperparameter("p", 0, 1, -1, 1))
    with pytest.raises(InvalidInputError, match="Choices of 'p' must be strings"):
        check_parameter(Categorical("p", [(1, 2), (3, 4)]))
