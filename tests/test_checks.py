import math

import pytest
import torch

from torch_dpfts import checks
from torch_dpfts.errors import InvalidInputError


@pytest.mark.parametrize("value", [True, 1.5, "3", None])
def test_integer_refuses_other_types(value: object) -> None:
    with pytest.raises(InvalidInputError, match="n must be an integer"):
        checks.integer("n", value)


def test_integer_accepts_index_types() -> None:
    assert checks.integer("n", torch.tensor(3)) == 3


@pytest.mark.parametrize("value", [math.nan, 0.0, 1.5, "0.5", None, True])
def test_real_refuses(value: object) -> None:
    with pytest.raises(InvalidInputError, match=r"q must be a number in \(0, 1\], got"):
        checks.real("q", value, above=0.0, maximum=1.0)


def test_real_accepts_infinity_where_nothing_excludes_it() -> None:
    assert checks.real("S", math.inf, above=0.0) == math.inf
    with pytest.raises(InvalidInputError):
        checks.real("S", math.inf, above=0.0, below=math.inf)


def test_choice_lists_the_options() -> None:
    assert checks.choice("kernel", "rbf", ("rbf", "matern52")) == "rbf"
    with pytest.raises(InvalidInputError, match="one of 'rbf', 'matern52', got 'cubic'"):
        checks.choice("kernel", "cubic", ("rbf", "matern52"))


def test_boolean_takes_no_number() -> None:
    assert checks.boolean("prior_mean", True)
    with pytest.raises(InvalidInputError, match="prior_mean must be True or False, got 1"):
        checks.boolean("prior_mean", 1)


def test_finite_names_the_place() -> None:
    with pytest.raises(InvalidInputError, match=r"Y must be finite, got inf at index \(1, 0\)"):
        checks.finite("Y", torch.tensor([[0.1], [math.inf], [math.nan]]))
