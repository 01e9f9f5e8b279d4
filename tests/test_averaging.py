import pytest
import torch

from torch_dpfts import FederationSpec, Server
from torch_dpfts.averaging import averaging_gain
from torch_dpfts.privacy import NoisyRegionAggregator


def spec(**changes: object) -> FederationSpec:
    return FederationSpec.dp_fts_de(
        bounds=((0.0, 0.0), (1.0, 1.0)), num_agents=6, num_rounds=12, num_regions=2,
        num_features=4, sample_rate=0.5, noise_multiplier=1.0, clip_norm=3.0,
        region_hold=2, region_decay=6, **changes,
    )  # fmt: skip


def test_broadcasts_are_the_weighted_averages_of_the_releases() -> None:
    plain, averaged = Server(spec(), seed=0), Server(spec(averaging=0.7), seed=0)
    aggregator = NoisyRegionAggregator(spec())
    releases = []
    for t in range(1, 11):
        releases.append(plain.round([]).vectors)
        weights = torch.stack(
            [0.7 ** (t - s) / aggregator.noise_scales(s).square() for s in range(1, t + 1)]
        )
        expected = (weights.unsqueeze(-1) * torch.stack(releases)).sum(0) / weights.sum(0)[:, None]
        torch.testing.assert_close(averaged.round([]).vectors, expected)
    assert averaged.epsilon() == plain.epsilon()


def test_without_noise_all_rounds_weigh_the_same() -> None:
    exact = spec().arm("fts-de")
    gain = averaging_gain(NoisyRegionAggregator(exact), 3, 0.5)
    torch.testing.assert_close(gain, torch.full((2,), 1 / 1.75, dtype=torch.float64))


@pytest.mark.parametrize("averaging", [0.0, 0.9])
def test_the_first_release_stands_alone(averaging: float) -> None:
    gain = averaging_gain(NoisyRegionAggregator(spec()), 1, averaging)
    assert gain.tolist() == [1.0, 1.0]
