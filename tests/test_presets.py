import math
import warnings

import pytest

from torch_dpfts import FederationSpec
from torch_dpfts.errors import DPFTSWarning, InvalidInputError
from torch_dpfts.experiment import planned_epsilon
from torch_dpfts.presets import PRESETS, preset_spec

OPEN = {"bounds": ((0.0, 0.0), (1.0, 1.0)), "num_agents": 29, "num_rounds": 60}


def test_both_presets_are_private_settings_of_the_algorithm() -> None:
    for name in PRESETS:
        spec = preset_spec(name, **OPEN)
        assert spec.is_private
        assert spec.shares


def test_the_papers_settings() -> None:
    spec = preset_spec("paper", **OPEN)
    assert (spec.num_features, spec.clip_norm, spec.num_regions) == (100, 22.0, 4)
    assert (spec.region_score, spec.region_hold, spec.region_decay) == (16.0, 10, 30)
    assert (spec.sample_rate, spec.noise_multiplier) == (0.35, 1.0)
    assert (spec.message, spec.local_probability) == ("sample", "1-1/t")
    assert (spec.lengthscales, spec.noise_variance) == ((0.01, 0.01), 1e-6)


def test_changes_and_unknown_names() -> None:
    assert preset_spec("paper", **OPEN, noise_multiplier=2.0).noise_multiplier == 2.0
    with pytest.raises(InvalidInputError, match="got 'fast'"):
        preset_spec("fast", **OPEN)


def test_recommended_noise_keeps_the_budget() -> None:
    for target in (1.1, 3.3):
        spec = FederationSpec.recommended(**OPEN, target_epsilon=target)
        (epsilon,) = planned_epsilon(spec, [spec.delta]).values()
        assert 0.98 * target < epsilon <= target
        assert spec.target_epsilon == target


@pytest.mark.parametrize(
    "changes",
    [
        {"clip_quantile": 0.5, "averaging": 0.0, "count_noise_multiplier": 20.0},
        {"num_regions": 4, "region_score": 1.0},
        {"num_regions": 4, "region_hold": 0, "region_decay": 1},
    ],
)
def test_recommended_noise_keeps_the_budget_of_all_that_is_charged(
    changes: dict[str, float],
) -> None:
    spec = FederationSpec.recommended(**OPEN, target_epsilon=3.0, accountant="rdp", **changes)
    (epsilon,) = planned_epsilon(spec, [spec.delta]).values()
    assert 0.98 * 3 < epsilon <= 3


def test_a_count_that_costs_more_than_the_budget_is_named() -> None:
    with pytest.raises(InvalidInputError, match=r"epsilon=3 .* Raise count_noise_multiplier"):
        FederationSpec.recommended(
            **OPEN, clip_quantile=0.5, averaging=0.0, count_noise_multiplier=1.0, accountant="rdp"
        )


@pytest.mark.parametrize("bounds", [None, "cube", 5, [0.0, 1.0], [[0.0], [1.0, 2.0]]])
def test_bounds_of_no_shape_are_refused(bounds: object) -> None:
    with pytest.raises(InvalidInputError, match="bounds must"):
        FederationSpec.recommended(**(OPEN | {"bounds": bounds}))


def test_a_preset_without_bounds_asks_for_them() -> None:
    with pytest.raises(InvalidInputError, match="bounds must"):
        preset_spec("recommended", num_agents=29, num_rounds=60)


def test_recommended_settings_send_few_and_small_numbers() -> None:
    spec = FederationSpec.recommended(**OPEN)
    assert spec.num_features <= 64
    assert (spec.num_regions, spec.wire_dtype) == (1, "float16")


def test_lengthscales_grow_with_the_dimension() -> None:
    wide = OPEN | {"bounds": ((0.0,) * 8, (1.0,) * 8)}
    assert FederationSpec.recommended(**wide).lengthscales == (0.4,) * 8
    assert FederationSpec.recommended(**wide, lengthscales=0.3).lengthscales == (0.3,) * 8


def test_recommended_settings_without_privacy() -> None:
    spec = FederationSpec.recommended(**OPEN, target_epsilon=None)
    assert not spec.is_private
    given = FederationSpec.recommended(**OPEN, noise_multiplier=9.0)
    assert (given.noise_multiplier, given.target_epsilon) == (9.0, None)


def test_a_budget_without_signal_warns() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FederationSpec.recommended(**OPEN, target_epsilon=1.1)
    with pytest.warns(DPFTSWarning, match="the noise-only control does about as well"):
        FederationSpec.recommended(**(OPEN | {"num_agents": 3}), target_epsilon=1.0)


def test_bad_numbers_are_refused_by_name() -> None:
    with pytest.raises(InvalidInputError, match="target_epsilon"):
        FederationSpec.recommended(**OPEN, target_epsilon=-1.0)
    with pytest.raises(InvalidInputError, match="num_agents"):
        FederationSpec.recommended(**(OPEN | {"num_agents": 0}))
    with pytest.raises(InvalidInputError, match="bounds"):
        FederationSpec.recommended(**(OPEN | {"bounds": ((0.0, 1.0), (0.0, 2.0))}))
    assert math.isinf(FederationSpec.recommended(**OPEN, target_epsilon=None).arm("fts").clip_norm)
