import math
from dataclasses import replace

import pytest
import torch

from torch_dpfts.errors import InvalidInputError
from torch_dpfts.privacy import NoisyRegionAggregator, SeededNoise, region_weights, signal_to_noise
from torch_dpfts.privacy.signal import averaged_signal_to_noise
from torch_dpfts.spec import FederationSpec


def make_spec(**settings):
    settings = {"num_agents": 40, "num_rounds": 60, "num_features": 16} | settings
    return FederationSpec.dp_fts_de(
        bounds=[[0.0, 0.0], [1.0, 1.0]],
        sample_rate=0.5,
        noise_multiplier=2.0,
        clip_norm=3.0,
        **settings,
    )


@pytest.mark.parametrize("round", [1, 60])
def test_it_is_what_a_server_measures(round):
    """All agents send one vector: the mean release over its spread about it."""
    spec = make_spec()
    aggregator = NoisyRegionAggregator(spec)
    vector = torch.zeros(16, dtype=torch.float64)
    vector[0] = 9.0  # to be clipped to S / sqrt(P) = 1.5
    vectors, ids = vector.expand(40, 16), torch.arange(40)
    released = torch.stack(
        [
            aggregator.aggregate(round, vectors, ids, SeededNoise(seed)) * spec.sample_rate
            for seed in range(400)
        ]
    )
    signal = released.mean(0)[:, 0]
    spread = (released - released.mean(0)).square().sum(-1).mean(0).sqrt() / spec.sample_rate
    # 400 runs: both estimates are within a few percent of the truth.
    measured = signal / spread
    assert torch.allclose(measured, signal_to_noise(spec, round), rtol=0.35, atol=0.02)


def test_short_messages_carry_less():
    spec = make_spec()
    assert torch.equal(signal_to_noise(spec, 60, 99.0), signal_to_noise(spec, 60))
    torch.testing.assert_close(
        signal_to_noise(spec, 60, 0.15), 0.1 * signal_to_noise(spec, 60), rtol=1e-12, atol=0.0
    )


def test_formula():
    spec = make_spec()
    largest = region_weights(spec, 7).amax(-1)
    expected = 0.5 / (2.0 * largest * math.sqrt(4 * 16))
    torch.testing.assert_close(signal_to_noise(spec, 7), expected)


def test_without_noise_it_is_infinite():
    spec = make_spec().arm("fts-de")
    assert signal_to_noise(spec, 1).tolist() == [math.inf] * 4


@pytest.mark.parametrize("norm", [0.0, -1.0, math.nan, math.inf])
def test_bad_norms_are_refused(norm):
    with pytest.raises(InvalidInputError, match="message_norm"):
        signal_to_noise(make_spec(), 1, norm)


def test_averages_gain_by_the_root_of_their_effective_rounds():
    spec = replace(make_spec(), num_regions=1, region_grid=None)
    (single,) = averaged_signal_to_noise(spec, 7, agreement=1.0)
    assert float(single) == pytest.approx(float(signal_to_noise(spec, 7)[0]))
    (two,) = averaged_signal_to_noise(replace(spec, averaging=0.5), 2, agreement=1.0)
    assert float(two) == pytest.approx(float(single) * 1.5 / 1.25**0.5)
    assert averaged_signal_to_noise(replace(spec, noise_multiplier=0.0), 1).isinf().all()
