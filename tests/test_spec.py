import json
import math
from typing import Any

import pytest
import torch

from torch_dpfts import ARMS, FederationSpec
from torch_dpfts.errors import InvalidInputError

BOUNDS = ((0.0, 0.0), (1.0, 10.0))
PRIVATE = {"sample_rate": 0.35, "noise_multiplier": 1.0, "clip_norm": 4.0}


def make(**changes: Any) -> FederationSpec:
    settings = {"bounds": BOUNDS, "num_agents": 29, "num_rounds": 60, **PRIVATE}
    return FederationSpec.dp_fts_de(**(settings | changes))


BAD = [
    (
        {"bounds": ((1.0, 0.0), (0.0, 1.0))},
        r"dimension 0 must have lower < upper, got \[1.0, 0.0\]",
    ),
    ({"bounds": ((0.0,), (math.inf,))}, "bounds must be finite, got inf"),
    ({"bounds": (0.0, 1.0)}, r"bounds must have shape 2 x d, got \(2,\)"),
    ({"bounds": ((0.0, 0.0), (1.0,))}, "bounds must be a 2 x d array"),
    ({"bounds": torch.empty(2, 0)}, r"got \(2, 0\)"),
    ({"log_dims": [1]}, r"dimension 1 must be positive as it is in log_dims, got \[0.0, 10.0\]"),
    ({"log_dims": 1}, "log_dims must be a list of dimensions, got 1"),
    ({"integer_dims": [2]}, r"integer_dims must name different dimensions below 2, got \[2\]"),
    ({"integer_dims": [0, 0]}, "integer_dims must name different dimensions"),
    ({"integer_dims": [-1]}, "integer_dims must be at least 0, got -1"),
    (
        {"integer_dims": [1], "bounds": ((0.0, 0.5), (1.0, 3.0))},
        r"dimension 1 must be whole .* got \[0.5, 3.0\]",
    ),
    (
        {"categorical_dims": [1], "bounds": ((0.0, 1.0), (1.0, 3.0))},
        r"dimension 1 must start at 0 .* got \[1.0, 3.0\]",
    ),
    ({"categorical_dims": [1], "integer_dims": [1]}, "must not be in log_dims or integer_dims"),
    (
        {"integer_dims": [0], "region_grid": (4, 1)},
        "more cells along dimension 0 than the 2 values",
    ),
    (
        {"bounds": ((0.0, 0.0), (1.0, 1.0)), "integer_dims": [0, 1], "num_regions": 8},
        "num_regions=8 is more than the values",
    ),
    ({"space": "{"}, "space must be a JSON object in a string, got '{'"),
    ({"space": "[1]"}, r"space must be a JSON object in a string, got '\[1\]'"),
    ({"space": 3}, "space must be a JSON object in a string, got 3"),
    ({"num_agents": 0}, "num_agents must be at least 1, got 0"),
    ({"num_agents": 2.5}, "num_agents must be an integer of at least 1, got 2.5"),
    ({"num_rounds": 0}, "num_rounds must be at least 1, got 0"),
    ({"num_regions": 0}, "num_regions must be at least 1, got 0"),
    ({"region_grid": (2, 3)}, r"\(2, 3\) makes 6 cells and does not divide .* num_regions=4"),
    ({"region_grid": (4,)}, "region_grid must hold 2 integers"),
    ({"region_grid": (4, 0)}, "region_grid must be at least 1, got 0"),
    ({"region_score": 0.5}, "region_score must be a number in"),
    ({"region_hold": -1}, "region_hold must be at least 0, got -1"),
    ({"region_decay": 0}, "region_decay must be at least 1, got 0"),
    ({"num_features": 0}, "num_features must be at least 2, got 0"),
    ({"num_features": 63}, "num_features must be even .* got 63; use 64"),
    ({"feature_seed": -1}, "feature_seed must be at least 0, got -1"),
    ({"kernel": "cubic"}, "kernel must be one of 'rbf', .* got 'cubic'"),
    ({"lengthscales": 0.0}, r"lengthscales must be a number in \(0, inf\), got 0.0"),
    ({"lengthscales": (0.1, 0.2, 0.3)}, r"lengthscales must be one number or 2"),
    ({"lengthscales": "short"}, "lengthscales must be one number or 2"),
    ({"noise_variance": 0.0}, "noise_variance must be a number in"),
    ({"sample_rate": 0.0}, r"sample_rate must be a number in \(0, 1\], got 0.0"),
    ({"sample_rate": 1.5}, r"sample_rate must be a number in \(0, 1\], got 1.5"),
    ({"sample_rate": math.nan}, "sample_rate must be a number .* got nan"),
    ({"noise_multiplier": -1.0}, "noise_multiplier must be a number in .* got -1.0"),
    ({"noise_multiplier": math.nan}, "noise_multiplier must be a number .* got nan"),
    ({"clip_norm": 0.0}, "clip_norm must be a number in .* got 0.0"),
    ({"clip_norm": -3.0}, "clip_norm must be a number in .* got -3.0"),
    ({"clip_norm": math.inf}, "clip_norm must be finite when noise_multiplier > 0"),
    ({"averaging": -0.1}, r"averaging must be a number in \[0, 1\), got -0.1"),
    ({"averaging": 1.0}, r"averaging must be a number in \[0, 1\), got 1.0"),
    ({"delta": 0.0}, r"delta must be a number in \(0, 1\), got 0.0"),
    ({"delta": 1.0}, r"delta must be a number in \(0, 1\), got 1.0"),
    ({"delta": 1.5}, r"delta must be a number in \(0, 1\), got 1.5"),
    ({"target_epsilon": 0.0}, "target_epsilon must be a number in .* got 0.0"),
    ({"target_epsilon": 1.0, "noise_multiplier": 0.0}, "cannot be met with noise_multiplier=0"),
    ({"message": "median"}, "message must be one of .* got 'median'"),
    ({"frequencies": "halton"}, "frequencies must be one of .* got 'halton'"),
    ({"feature_map": "tangent"}, "feature_map must be one of .* got 'tangent'"),
    ({"local_probability": "1/t"}, "local_probability must be one of .* got '1/t'"),
    ({"accountant": "clt"}, "accountant must be one of .* got 'clt'"),
    ({"sensitivity": "none"}, "sensitivity must be one of .* got 'none'"),
    ({"dtype": "float16"}, "dtype must be one of .* got 'float16'"),
    ({"wire_dtype": "bfloat16"}, "wire_dtype must be one of .*'float16', got 'bfloat16'"),
]


@pytest.mark.parametrize(("changes", "message"), BAD)
def test_bad_settings(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        make(**changes)


def test_an_unknown_arm_is_named() -> None:
    with pytest.raises(InvalidInputError, match=r"arm must be one of 'ts', .* got 'dp-ts'"):
        make().arm("dp-ts")


def test_json_both_ways() -> None:
    for spec in (make(), make(target_epsilon=3.0), make().arm("ts"), make(lengthscales=(0.1, 0.3))):
        again = FederationSpec.from_json(spec.to_json())
        assert again == spec
        assert again.fingerprint == spec.fingerprint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ("[]", "must be a JSON object, got list"),
        ('{"bounds": [[0], [1]]}', r"lacks \['num_agents', 'num_rounds'\]"),
        (
            '{"bounds": [[0], [1]], "num_agents": 1, "num_rounds": 1, "speed": 3}',
            r"unknown fields \['speed'\]",
        ),
    ],
)
def test_bad_json(text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        FederationSpec.from_json(text)


def test_every_field_changes_the_fingerprint() -> None:
    spec = make()
    others: dict[str, Any] = {
        "bounds": ((0.0, 0.0), (1.0, 11.0)),
        "num_agents": 30,
        "num_rounds": 61,
        "log_dims": [1],
        "integer_dims": [1],
        "categorical_dims": [1],
        "space": '{"lr": 1}',
        "num_regions": 2,
        "region_grid": (4, 1),
        "region_score": 15.0,
        "region_hold": 9,
        "region_decay": 29,
        "message": "sample",
        "num_features": 62,
        "feature_map": "cosine",
        "frequencies": "iid",
        "feature_seed": 1,
        "kernel": "matern52",
        "lengthscales": 0.3,
        "noise_variance": 0.02,
        "sample_rate": 0.3,
        "noise_multiplier": 1.1,
        "clip_norm": 3.0,
        "clip_quantile": 0.5,
        "count_noise_multiplier": 5.0,
        "delta": 1e-5,
        "target_epsilon": 3.0,
        "accountant": "rdp",
        "sensitivity": "paper",
        "averaging": 0.5,
        "outcome_floor": 0.5,
        "prior_mean": True,
        "local_probability": "1-1/t",
        "dtype": "float32",
        "wire_dtype": "float16",
    }
    assert set(json.loads(spec.to_json())) == set(others)
    positive = {"bounds": ((0.5, 1.0), (1.0, 10.0))}
    prints = {
        make(**{name: value}).fingerprint for name, value in others.items() if name != "log_dims"
    }
    logs = {make(**positive).fingerprint, make(**positive, log_dims=others["log_dims"]).fingerprint}
    assert len(prints | logs | {spec.fingerprint}) == len(others) + 2


def test_equal_spaces_have_one_fingerprint() -> None:
    assert make(space='{"b": 1, "a": [2]}') == make(space='{"a":[2],"b":1}')
    assert make(space='{"a":[2],"b":1}').space == '{"a":[2],"b":1}'


def test_delta_defaults_to_the_roster() -> None:
    assert make().delta == 29**-1.1
    assert FederationSpec.ts(bounds=BOUNDS, num_agents=1, num_rounds=1).delta == 2**-1.1


def test_the_arms_differ_in_what_the_table_says() -> None:
    base = make()
    for name in ARMS:
        arm = base.arm(name)
        assert arm.shares == (name != "ts")
        assert arm.is_private == (name in ("dp-fts", "dp-fts-de", "noise"))
        assert (arm.num_regions > 1) == (name in ("fts-de", "dp-fts-de", "noise"))
    assert base.arm("dp-fts-de") == base
    assert base.arm("noise").message == "zero"
    settings: dict[str, Any] = {"bounds": BOUNDS, "num_agents": 29, "num_rounds": 60}
    assert FederationSpec.ts(**settings) == base.arm("ts")
    assert FederationSpec.fts(**settings) == base.arm("fts")
    assert FederationSpec.fts_de(**settings) == base.arm("fts-de")
    assert FederationSpec.dp_fts(**settings, **PRIVATE) == base.arm("dp-fts")
    assert FederationSpec.noise(**settings, **PRIVATE) == base.arm("noise")
    assert make(num_regions=1) == FederationSpec.dp_fts(**settings, **PRIVATE)


def test_even_grids_leave_room_for_the_values() -> None:
    bounds = ((0.0, 0.0, 0.0), (1.0, 2.0, 1.0))
    spec = make(bounds=bounds, integer_dims=[1], categorical_dims=[0], num_regions=16)
    assert spec.region_grid == (2, 2, 4)


@pytest.mark.parametrize(
    ("regions", "dim", "grid"),
    [(4, 2, (2, 2)), (6, 2, (3, 2)), (5, 3, (5, 1, 1)), (16, 2, (4, 4)), (1, 3, (1, 1, 1))],
)
def test_even_grids(regions: int, dim: int, grid: tuple[int, ...]) -> None:
    spec = make(bounds=[[0.0] * dim, [1.0] * dim], num_regions=regions)
    assert spec.region_grid == grid


def test_it_is_frozen_and_keeps_bounds_in_full() -> None:
    spec = make(bounds=torch.tensor([[5e-10], [1e-6]], dtype=torch.float64), num_regions=1)
    assert spec.bounds == ((5e-10,), (1e-6,))
    assert spec.bounds_tensor().dtype == torch.float64
    with pytest.raises(AttributeError):
        spec.num_agents = 3  # type: ignore[misc]
