import json
import math
from typing import Any

import pytest
import torch
from ConfigSpace import (
    Categorical,
    ConfigurationSpace,
    Constant,
    EqualsCondition,
    Float,
    ForbiddenEqualsClause,
    Integer,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from torch_dpfts import FederationSpec
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.tune import ParameterSpace

KINDS = {
    "dropout": Float("dropout", (0.0, 0.5)),
    "layers": (1, 3),
    "lr": Float("lr", (5e-10, 1e-6), log=True),
    "optimizer": ["sgd", "adam", "rmsprop"],
    "size": Categorical("size", [16, 32, 64], ordered=True),
    "width": Integer("width", (4, 64), log=True),
}
CONFIG = {
    "dropout": 0.1,
    "layers": 2,
    "lr": 1e-7,
    "optimizer": "adam",
    "size": 32,
    "width": 8,
}


def conditional() -> ParameterSpace:
    space = ConfigurationSpace({"optimizer": ["sgd", "adam"], "momentum": (0.0, 1.0)})
    space.add(EqualsCondition(space["momentum"], space["optimizer"], "sgd"))
    return ParameterSpace(space)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_dimensions_and_the_fields_of_the_specification() -> None:
    space = ParameterSpace(KINDS)
    assert space.names == ("dropout", "layers", "lr", "optimizer", "size", "width")
    assert space.encode(CONFIG).tolist() == [0.1, 2.0, 1e-7, 1.0, 1.0, 8.0]
    spec = FederationSpec.ts(**space.spec_fields(), num_agents=2, num_rounds=5)
    assert spec.bounds == ((0.0, 1.0, 5e-10, 0.0, 0.0, 4.0), (0.5, 3.0, 1e-6, 2.0, 2.0, 64.0))
    assert (spec.log_dims, spec.integer_dims, spec.categorical_dims) == ((2, 5), (1, 4, 5), (3,))
    assert spec.space == space.to_json()


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32 - 1))
def test_round_trips_are_exact(seed: int) -> None:
    for space in (ParameterSpace(KINDS), conditional()):
        (config,) = space.sample(1, generator(seed))
        x = space.encode(config)
        assert space.decode(x) == config
        assert torch.equal(space.encode(space.decode(x)), x)
        assert all(type(v) in (float, int, str) for v in config.values())
        unit = space.to_unit(x)
        assert (unit >= -1e-12).all()
        assert (unit <= 1 + 1e-12).all()


@settings(deadline=None, max_examples=50)
@given(
    lr=st.floats(5e-10, 1e-6),
    dropout=st.floats(0.0, 0.5),
    layers=st.integers(1, 3),
    width=st.integers(4, 64),
)
def test_round_trips_of_any_value_are_exact(**values: Any) -> None:
    space = ParameterSpace(KINDS)
    config = CONFIG | values
    assert space.decode(space.encode(config)) == config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr": 1e-5}, r"Parameter 'lr' must be a number in .* got 1e-05"),
        ({"lr": math.nan}, "Parameter 'lr' must be a number in .* got nan"),
        ({"lr": "fast"}, "Parameter 'lr' must be a number in .* got 'fast'"),
        ({"layers": 4}, "Parameter 'layers' must be at most 3, got 4"),
        ({"layers": 0}, "Parameter 'layers' must be at least 1, got 0"),
        ({"layers": 1.5}, "Parameter 'layers' must be an integer"),
        ({"optimizer": "lion"}, r"Parameter 'optimizer' must be one of \['sgd', .* got 'lion'"),
        ({"size": 48}, r"Parameter 'size' must be one of \[16, 32, 64\], got 48"),
        ({"speed": 1}, r"unknown parameters \['speed'\]"),
    ],
)
def test_values_outside_are_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        ParameterSpace(KINDS).encode(CONFIG | changes)


def test_a_missing_parameter_is_named() -> None:
    with pytest.raises(InvalidInputError, match="lacks 'lr'"):
        ParameterSpace(KINDS).encode({k: v for k, v in CONFIG.items() if k != "lr"})


def test_conditions_switch_parameters_off() -> None:
    space = conditional()
    assert space.names == ("optimizer", "momentum")
    assert space.decode(torch.tensor([1.0, 0.9])) == {"optimizer": "adam"}
    assert space.snap(torch.tensor([1.0, 0.9])).tolist() == [1.0, 0.5]
    assert space.snap(torch.tensor([0.0, 0.9])).tolist() == pytest.approx([0.0, 0.9])
    with pytest.raises(InvalidInputError, match="must not give 'momentum'"):
        space.encode({"optimizer": "adam", "momentum": 0.5})
    with pytest.raises(InvalidInputError, match="lacks 'momentum'"):
        space.encode({"optimizer": "sgd"})


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, "must name at least one parameter"),
        ({"a": [1, 2], "b": Constant("b", 3)}, "'b' is a Constant"),
        ({"a": ["x"]}, r"'a' needs at least 2 choices, got \['x'\]"),
    ],
)
def test_bad_spaces(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        ParameterSpace(parameters)


def test_forbidden_combinations_are_refused() -> None:
    space = ConfigurationSpace({"a": [1, 2], "b": [1, 2]})
    space.add(ForbiddenEqualsClause(space["a"], 2))
    with pytest.raises(InvalidInputError, match="forbidden combinations"):
        ParameterSpace(space)


@pytest.mark.parametrize("x", [torch.zeros(5), torch.zeros(1, 6), None, torch.full((6,), math.nan)])
def test_bad_points(x: Any) -> None:
    with pytest.raises(InvalidInputError, match="x must be"):
        ParameterSpace(KINDS).decode(x)


def test_the_public_part_does_not_depend_on_the_order_of_adding_but_on_everything_else() -> None:
    text = ParameterSpace(KINDS).to_json()
    assert ParameterSpace(dict(reversed(KINDS.items()))).to_json() == text
    assert json.dumps(json.loads(text), sort_keys=True, separators=(",", ":")) == text
    others: list[dict[str, Any]] = [
        KINDS | {"layers": (1, 4)},
        KINDS | {"lr": Float("lr", (5e-10, 1e-6))},
        KINDS | {"optimizer": ["adam", "sgd", "rmsprop"]},
        KINDS | {"optimizer": Categorical("optimizer", ["sgd", "adam", "rmsprop"], ordered=True)},
        KINDS | {"depth": (1, 3)},
    ]
    texts = {ParameterSpace(other).to_json() for other in others}
    assert len(texts | {text, conditional().to_json()}) == len(others) + 2


def test_untried_configurations_come_nearest_first_until_none_is_left() -> None:
    space = ParameterSpace({"a": (1, 3), "b": Categorical("b", [1, 2, 4], ordered=True)})
    assert space.size == 9
    tried: list[tuple[float, ...]] = []
    while (x := space.nearest_untried(torch.tensor([1.0, 0.0]), tried)) is not None:
        tried.append(tuple(x.tolist()))
    assert len(set(tried)) == len(tried) == 9
    distances = [((a - 1) ** 2 + b**2) for a, b in tried]
    assert distances == sorted(distances)


def test_unordered_choices_are_equally_far() -> None:
    space = ParameterSpace({"a": ["p", "q", "r", "s"], "b": (1, 3)})
    tried = {(3.0, 1.0)}
    x = space.nearest_untried(torch.tensor([3.0, 1.0]), tried)
    assert x is not None
    assert x.tolist() == [3.0, 2.0]


def test_conditions_and_exhaustion() -> None:
    cs = ConfigurationSpace({"optimizer": ["sgd", "adam"], "momentum": (1, 5)})
    cs.add(EqualsCondition(cs["momentum"], cs["optimizer"], "sgd"))
    space, tried = ParameterSpace(cs), set[tuple[float, ...]]()
    while (x := space.nearest_untried(torch.tensor([1.0, 3.0]), tried)) is not None:
        tried.add(tuple(x.tolist()))
    assert len(tried) == 6


def test_repeats_are_found_fast_in_a_large_finite_space() -> None:
    space = ParameterSpace({f"n{i}": (1, 1_000_000) for i in range(7)})
    x = torch.full((7,), 1e6)
    tried: set[tuple[float, ...]] = set()
    for _ in range(30):
        point = space.nearest_untried(x, tried)
        assert point is not None
        tried.add(tuple(point.tolist()))
    assert len(tried) == 30


def test_floats_move_by_a_twentieth() -> None:
    space = ParameterSpace({"a": (0.0, 10.0), "b": Float("b", (1e-4, 1.0), log=True)})
    tried = {(10.0, 1.0)}
    expected = [(9.5, 10**-0.2), (9.5, 1.0), (10.0, 10**-0.2)]
    for _ in expected:
        x = space.nearest_untried(torch.tensor([10.0, 1.0]), tried)
        assert x is not None
        tried.add(tuple(x.tolist()))
    assert sorted(tried - {(10.0, 1.0)}) == [pytest.approx(point) for point in expected]


def test_a_line_of_floats_has_room_for_all() -> None:
    space = ParameterSpace({"a": (0.0, 1.0)})
    tried: set[tuple[float, ...]] = set()
    for _ in range(15):
        x = space.nearest_untried(torch.tensor([1.0]), tried)
        assert x is not None
        tried.add(tuple(x.tolist()))
    assert len(tried) == 15


def test_samples_are_uniform_over_values() -> None:
    space = ParameterSpace({"a": (1, 3), "b": ["p", "q"]})
    configs = space.sample(3000, generator(0))
    for value in (1, 2, 3):
        # 1000 expected, standard deviation 26: beyond 5 of them with probability 1e-6.
        assert abs(sum(c["a"] == value for c in configs) - 1000) < 130
    assert abs(sum(c["b"] == "p" for c in configs) - 1500) < 140
