import pytest

from torch_dpfts.errors import InvalidInputError
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
