import math

import pytest
import torch
from scipy import stats

from torch_dpfts.errors import InvalidInputError
from torch_dpfts.privacy import (
    NoisyRegionAggregator,
    SecureNoise,
    SeededNoise,
    clip_votes,
    joint_multiplier,
    next_clip_norm,
    planned_charges,
    region_weights,
    round_charge,
)
from torch_dpfts.privacy.adaptive_clip import LEARNING_RATE
from torch_dpfts.spec import FederationSpec


def make_spec(**settings):
    settings = {
        "num_agents": 200,
        "num_rounds": 60,
        "num_regions": 4,
        "num_features": 8,
        "sample_rate": 0.5,
        "noise_multiplier": 1.0,
        "clip_norm": 1.0,
        "clip_quantile": 0.7,
        "count_noise_multiplier": 5.0,
    } | settings
    return FederationSpec.dp_fts_de(bounds=[[0.0, 0.0], [1.0, 1.0]], **settings)


def by_formula(spec, clip_norm, norms, normal):
    """Algorithm 1 of Andrew et al. (2021) with half-units, as printed there."""
    clipped = clip_norm / math.sqrt(spec.num_regions)
    bits = [0.5 if norm <= clipped else -0.5 for norm in norms.tolist()]
    sigma = spec.count_noise_multiplier / 2
    cohort = spec.sample_rate * spec.num_agents
    fraction = 0.5 + (sum(bits) + sigma * normal) / cohort
    return clip_norm * math.exp(-LEARNING_RATE * (fraction - spec.clip_quantile))


@pytest.mark.parametrize("count", [0, 1, 57, 200])
def test_equals_the_published_formula(count):
    spec, noise = make_spec(), SeededNoise(3)
    norms = torch.rand(count, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    normal = float(noise.normal(4, (1,), purpose="clip norm")[0])
    expected = by_formula(spec, 1.3, norms, normal)
    votes = clip_votes(spec, 1.3, norms.unsqueeze(-1))
    assert next_clip_norm(spec, 4, 1.3, votes, noise) == pytest.approx(expected, rel=1e-9)


def test_it_finds_the_quantile():
    """Norms are exponential; the whole cohort answers."""
    spec, noise = make_spec(num_agents=2000), SeededNoise(0)
    generator = torch.Generator().manual_seed(1)
    clip_norm, visited = spec.clip_norm, []
    for t in range(1, 121):
        cohort = noise.coins(t, 2000, 0.5)
        norms = -torch.rand(2000, generator=generator, dtype=torch.float64).log()
        votes = clip_votes(spec, clip_norm, norms[cohort].unsqueeze(-1))
        clip_norm = next_clip_norm(spec, t, clip_norm, votes, noise)
        visited.append(clip_norm)
    settled = sum(visited[60:]) / 60 / math.sqrt(spec.num_regions)
    # Mean of 60 values about the exact quantile, each within 4%.
    assert settled == pytest.approx(-math.log(0.3), rel=0.03)


def test_noise_of_the_count_has_its_scale():
    spec, noise = make_spec(), SecureNoise()
    cohort = spec.sample_rate * spec.num_agents
    draws = []
    for _ in range(500):
        moved = next_clip_norm(spec, 1, 1.0, 10, noise)
        fraction = spec.clip_quantile - math.log(moved) / LEARNING_RATE
        draws.append(((fraction - 0.5) * 2 * cohort - 10) / spec.count_noise_multiplier)
    assert stats.kstest(draws, "norm").pvalue > 1e-9  # probability of a false alarm: 1e-9


def test_one_agent_moves_the_count_by_one_unit_of_its_noise_at_most():
    class Zero(SeededNoise):
        def normal(self, round, shape, **options):
            return torch.zeros(tuple(shape), dtype=torch.float64)

    spec = make_spec(count_noise_multiplier=3.0)
    cohort = spec.sample_rate * spec.num_agents

    def whitened(norms):
        vectors = torch.tensor(norms, dtype=torch.float64).unsqueeze(-1)
        moved = next_clip_norm(spec, 1, 1.0, clip_votes(spec, 1.0, vectors), Zero(0))
        fraction = spec.clip_quantile - math.log(moved) / LEARNING_RATE
        return (fraction - 0.5) * 2 * cohort / spec.count_noise_multiplier

    others = [0.1, 2.0, 0.4]
    for extra in (0.0, 0.5, 0.50001, 7.0):
        moved = abs(whitened([*others, extra]) - whitened(others))
        assert moved == pytest.approx(1 / 3.0, rel=1e-9)


def test_it_stays_within_a_factor_of_a_thousand():
    spec, noise = make_spec(), SeededNoise(0)
    for votes, limit in ((100, 1e-3), (-100, 1e3)):
        clip_norm = 1.0
        for t in range(1, 200):
            clip_norm = next_clip_norm(spec, t, clip_norm, votes, noise)
        assert clip_norm == limit


def test_it_is_charged_with_the_broadcast():
    spec, fixed = make_spec(), make_spec(clip_quantile=None)
    for t in (1, 60):
        multiplier, rate = round_charge(fixed, t)
        assert round_charge(spec, t) == (joint_multiplier(multiplier, 5.0), rate)
    assert sum(rounds for _, _, rounds in planned_charges(spec)) == 60


def test_the_aggregator_takes_the_clip_norm_of_the_round():
    spec, noise = make_spec(), SeededNoise(0)
    aggregator = NoisyRegionAggregator(spec)
    vectors = torch.full((3, 8), 5.0, dtype=torch.float64)
    released = aggregator.aggregate(2, vectors, torch.arange(3), noise, clip_norm=2.5)
    phi = region_weights(spec, 2)
    clipped = vectors[0] / vectors[0].norm() * 2.5 / 2
    scales = 1.0 * 2.5 / 0.5 * phi.amax(-1)
    expected = phi[:, :3].sum(-1, keepdim=True) / 0.5 * clipped
    expected += scales.unsqueeze(-1) * noise.normal(2, (4, 8))
    torch.testing.assert_close(released, expected, rtol=0.0, atol=1e-5)
    torch.testing.assert_close(aggregator.noise_scales(2, clip_norm=2.5), scales)
    with pytest.raises(InvalidInputError, match="clip_norm must be given"):
        aggregator.aggregate(2, vectors, torch.arange(3), noise)
    with pytest.raises(InvalidInputError, match="clip_norm must be given"):
        aggregator.noise_scales(2)
    for value in (0.0, -1.0, math.nan, math.inf, 1e-300):
        with pytest.raises(InvalidInputError, match="clip_norm"):
            aggregator.aggregate(2, vectors, torch.arange(3), noise, clip_norm=value)
    fixed = NoisyRegionAggregator(make_spec(clip_quantile=None))
    with pytest.raises(InvalidInputError, match="clip_norm must be given"):
        fixed.aggregate(2, vectors, torch.arange(3), noise, clip_norm=2.5)


def test_specification():
    spec = make_spec()
    assert FederationSpec.from_json(spec.to_json()) == spec
    assert spec.arm("fts-de").clip_quantile is None
    assert spec.arm("noise").clip_quantile == 0.7
    for quantile in (0.0, 1.0, -1.0, math.nan, "x"):
        with pytest.raises(InvalidInputError, match="clip_quantile"):
            make_spec(clip_quantile=quantile)
    for multiplier in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InvalidInputError, match="count_noise_multiplier"):
            make_spec(count_noise_multiplier=multiplier)
    for settings in ({"noise_multiplier": 0.0}, {"averaging": 0.5}):
        with pytest.raises(InvalidInputError, match="clip_quantile"):
            make_spec(**settings)


def test_bad_calls_are_refused():
    noise = SeededNoise(0)
    with pytest.raises(InvalidInputError, match="clip_quantile"):
        next_clip_norm(make_spec(clip_quantile=None), 1, 1.0, 3, noise)
    with pytest.raises(InvalidInputError, match="clip_norm"):
        next_clip_norm(make_spec(), 1, 0.0, 3, noise)
    for votes in (-201, 1.5, None):
        with pytest.raises(InvalidInputError, match="votes"):
            next_clip_norm(make_spec(), 1, 1.0, votes, noise)
    with pytest.raises(InvalidInputError, match="vectors"):
        clip_votes(make_spec(), 1.0, torch.zeros(3))
    with pytest.raises(InvalidInputError, match="clip_norm"):
        clip_votes(make_spec(), math.nan, torch.zeros(3, 8))
    with pytest.raises(InvalidInputError, match="round"):
        next_clip_norm(make_spec(), 0, 1.0, 3, noise)
