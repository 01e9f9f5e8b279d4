import math

import pytest

from torch_dpfts import spec_fields
from torch_dpfts.errors import InvalidInputError


def test_bounds_and_lengthscales_become_tuples() -> None:
    assert spec_fields.check_bounds([[0, 1], [2, 3]]) == ((0.0, 1.0), (2.0, 3.0))
    assert spec_fields.check_lengthscales(0.2, 3) == (0.2, 0.2, 0.2)
    with pytest.raises(InvalidInputError, match="lower < upper"):
        spec_fields.check_bounds([[0, 3], [2, 3]])


@pytest.mark.parametrize(
    ("regions", "values", "grid"),
    [(4, [math.inf, math.inf], (2, 2)), (6, [math.inf, math.inf], (3, 2)), (5, [math.inf], (5,))],
)
def test_regions_are_dealt_evenly(regions: int, values: list[float], grid: tuple[int, ...]) -> None:
    assert spec_fields.check_grid(None, regions, values) == grid
    with pytest.raises(InvalidInputError, match="does not divide"):
        spec_fields.check_grid([regions + 1] * len(values), regions, values)


def test_dimensions_are_listed_once() -> None:
    assert spec_fields.check_dims("log_dims", [2, 0], 3) == (0, 2)
    with pytest.raises(InvalidInputError, match="log_dims"):
        spec_fields.check_dims("log_dims", [3], 3)
