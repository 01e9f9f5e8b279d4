import math

import pytest
import torch
from scipy import stats

from torch_dpfts.errors import InvalidInputError
from torch_dpfts.messages import to_wire
from torch_dpfts.privacy import (
    NoisyRegionAggregator,
    SecureNoise,
    SeededNoise,
    joint_sensitivity,
    region_weights,
)
from torch_dpfts.spec import FederationSpec

N, M, P, Q, S = 29, 16, 4, 0.35, 3.0


class NoNoise:
    description = "none"

    def normal(self, round, shape, dtype=torch.float64, device="cpu", purpose="broadcast"):
        return torch.zeros(tuple(shape), dtype=dtype, device=device)

    def coins(self, round, num_agents, sample_rate):
        raise NotImplementedError


def make_spec(**settings):
    settings = {
        "num_agents": N,
        "num_rounds": 60,
        "num_features": M,
        "num_regions": P,
        "sample_rate": Q,
        "noise_multiplier": 1.0,
        "clip_norm": S,
    } | settings
    return FederationSpec(bounds=[[0.0, 0.0], [1.0, 1.0]], **settings)


def make_vectors(count, seed=0, scale=2.0):
    generator = torch.Generator().manual_seed(seed)
    lengths = scale * torch.rand(count, 1, generator=generator, dtype=torch.float64)
    directions = torch.randn(count, M, generator=generator, dtype=torch.float64)
    return lengths * directions / directions.norm(dim=-1, keepdim=True)


def by_loop(spec, round, vectors, agent_ids, normal):
    phi = region_weights(spec, round)
    clip = spec.clip_norm / math.sqrt(spec.num_regions)
    result = torch.zeros(spec.num_regions, spec.num_features, dtype=torch.float64)
    for i in range(spec.num_regions):
        for vector, n in zip(vectors, agent_ids.tolist(), strict=True):
            shortened = vector * min(1.0, clip / float(vector.norm()))
            result[i] += phi[i, n] / spec.sample_rate * shortened
        sigma = spec.noise_multiplier * spec.clip_norm * float(phi[i].max()) / spec.sample_rate
        result[i] += sigma * normal[i] if spec.noise_multiplier else 0.0
    return result


COHORT = torch.tensor([3, 0, 28, 17, 9])


@pytest.mark.parametrize("round", [1, 25, 60])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"noise_multiplier": 0.05},
        {"noise_multiplier": 40.0},
        {"noise_multiplier": 0.0},
        {"noise_multiplier": 0.0, "clip_norm": math.inf},
        {"sample_rate": 1.0, "num_regions": 1},
        {"num_agents": 5000},
    ],
)
def test_equals_a_loop(settings, round):
    spec = make_spec(**settings)
    vectors, noise = make_vectors(5), SeededNoise(1)
    result = NoisyRegionAggregator(spec).aggregate(round, vectors, COHORT, noise)
    shape = (spec.num_regions, M)
    expected = by_loop(spec, round, vectors, COHORT, noise.normal(round, shape))
    # Vectors are rounded to a grid of 2**-20 of the clip norm or finer, noise to 2**-40.
    torch.testing.assert_close(result, expected, rtol=0.0, atol=2e-6 * float(expected.abs().max()))


def test_without_noise_it_is_the_plain_sum():
    spec = make_spec(noise_multiplier=0.0)
    vectors = make_vectors(5)
    result = NoisyRegionAggregator(spec).aggregate(7, vectors, COHORT)
    expected = by_loop(spec, 7, vectors, COHORT, None)
    torch.testing.assert_close(result, expected, rtol=1e-13, atol=1e-15)


def test_noise_of_each_region_has_its_scale():
    spec = make_spec(num_features=2000, noise_multiplier=1.7)
    aggregator = NoisyRegionAggregator(spec)
    empty, nobody = torch.empty(0, 2000, dtype=torch.float64), torch.empty(0, dtype=torch.int64)
    for round in (1, 20, 60):
        released = aggregator.aggregate(round, empty, nobody, SecureNoise())
        phi = region_weights(spec, round)
        for row, weights in zip(released, phi, strict=True):
            sigma = 1.7 * S * float(weights.max()) / Q
            statistic = float((row / sigma).square().sum())
            tail = stats.chi2.cdf(statistic, 2000)
            assert 1e-9 < tail < 1 - 1e-9  # a false alarm has probability 2e-9


def test_noise_scales():
    aggregator = NoisyRegionAggregator(make_spec())
    expected = S / Q * region_weights(make_spec(), 12).amax(-1)
    torch.testing.assert_close(aggregator.noise_scales(12), expected)
    quiet = NoisyRegionAggregator(make_spec(noise_multiplier=0.0))
    assert quiet.noise_scales(12).tolist() == [0.0] * P


def test_empty_cohort_releases_the_noise_alone():
    spec, noise = make_spec(), SeededNoise(5)
    aggregator = NoisyRegionAggregator(spec)
    for vectors in (torch.empty(0, M), []):
        ids = torch.empty(0, dtype=torch.int64) if isinstance(vectors, torch.Tensor) else None
        released = aggregator.aggregate(2, vectors, ids, noise)
        expected = aggregator.noise_scales(2).unsqueeze(-1) * noise.normal(2, (P, M))
        torch.testing.assert_close(released, expected, rtol=0.0, atol=1e-9)


def test_missing_agents_change_neither_denominator_nor_noise():
    aggregator, noise = NoisyRegionAggregator(make_spec()), SeededNoise(0)
    vectors = make_vectors(5)
    with_zeros = torch.cat([vectors, torch.zeros(3, M, dtype=torch.float64)])
    ids = torch.cat([COHORT, torch.tensor([1, 2, 4])])
    assert torch.equal(
        aggregator.aggregate(1, vectors, COHORT, noise),
        aggregator.aggregate(1, with_zeros, ids, noise),
    )


def test_sum_does_not_depend_on_order_or_chunks():
    spec = make_spec(num_agents=1000)
    aggregator, noise = NoisyRegionAggregator(spec), SeededNoise(0)
    vectors, ids = make_vectors(1000), torch.arange(1000)
    whole = aggregator.aggregate(3, vectors, ids, noise)
    shuffle = torch.randperm(1000, generator=torch.Generator().manual_seed(1))
    vectors, ids = vectors[shuffle], ids[shuffle]
    assert torch.equal(whole, aggregator.aggregate(3, vectors, ids, noise))
    for size in (1, 7, 300):
        chunks = zip(ids.split(size), vectors.split(size), strict=True)
        assert torch.equal(whole, aggregator.aggregate(3, chunks, noise=noise))
    parts = [
        aggregator.partial_sum(3, [(i, v)])
        for i, v in zip(ids.split(400), vectors.split(400), strict=True)
    ]
    assert torch.equal(whole, aggregator.release(3, torch.stack(parts).sum(0), noise))


@pytest.mark.parametrize("noise_multiplier", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("round", [1, 36, 60])
def test_no_agent_moves_the_sum_by_more_than_the_sensitivity(noise_multiplier, round):
    spec = make_spec(noise_multiplier=noise_multiplier)
    aggregator = NoisyRegionAggregator(spec)
    bound = joint_sensitivity(region_weights(spec, round)) / noise_multiplier
    largest = 0.0
    for seed in range(30):
        vectors = make_vectors(N, seed, scale=100.0)
        for n in range(N):
            moved = aggregator.partial_sum(round, [(torch.tensor([n]), vectors[n : n + 1])])
            largest = max(largest, float((moved.double() * aggregator._grid).norm()))
    assert largest <= bound
    assert largest > bound * (1 - 1e-3)


def test_release_lies_on_a_grid_that_no_agent_can_move():
    spec = make_spec()
    aggregator = NoisyRegionAggregator(spec)
    released = aggregator.aggregate(1, make_vectors(5), COHORT, SecureNoise())
    steps = released / aggregator.noise_scales(1).unsqueeze(-1) / aggregator._grid
    torch.testing.assert_close(steps, steps.round(), rtol=1e-14, atol=0.0)


def test_dtypes():
    spec = make_spec(dtype="float32")
    released = NoisyRegionAggregator(spec).aggregate(
        1, make_vectors(5).float(), COHORT.int(), SeededNoise(0)
    )
    assert released.dtype == torch.float32


def test_a_vector_too_long_for_its_norm_counts_as_zero():
    aggregator, noise = NoisyRegionAggregator(make_spec()), SeededNoise(0)
    huge = torch.full((1, M), 1e300, dtype=torch.float64)
    nobody = torch.empty(0, dtype=torch.int64)
    assert torch.equal(
        aggregator.aggregate(1, huge, torch.tensor([2]), noise),
        aggregator.aggregate(1, huge[:0], nobody, noise),
    )


@pytest.mark.parametrize(
    ("vectors", "ids", "message"),
    [
        (torch.zeros(2, M + 1), [0, 1], "shape"),
        (torch.zeros(M), [0], "shape"),
        (torch.zeros(2, M, dtype=torch.int64), [0, 1], "dtype"),
        (torch.zeros(2, M), [0], "agent_ids"),
        (torch.zeros(2, M), [0.0, 1.0], "agent_ids"),
        (torch.zeros(2, M), [0, N], "0..28, got 29"),
        (torch.zeros(2, M), [-1, 0], "got -1"),
        (torch.zeros(2, M), [5, 5], "distinct, got 5"),
        (torch.full((1, M), math.nan), [4], "agent 4 must be finite"),
        (torch.full((1, M), -math.inf), [4], "agent 4 must be finite"),
    ],
)
def test_bad_input_is_refused(vectors, ids, message):
    aggregator = NoisyRegionAggregator(make_spec())
    with pytest.raises(InvalidInputError, match=message):
        aggregator.aggregate(1, vectors, torch.tensor(ids), SeededNoise(0))


def test_an_agent_in_two_chunks_is_refused():
    chunks = [(torch.tensor([1, 2]), torch.zeros(2, M)), (torch.tensor([2]), torch.zeros(1, M))]
    with pytest.raises(InvalidInputError, match="distinct, got 2"):
        NoisyRegionAggregator(make_spec()).aggregate(1, chunks, noise=SeededNoise(0))


def test_bad_calls_are_refused():
    aggregator = NoisyRegionAggregator(make_spec())
    with pytest.raises(InvalidInputError, match="noise must be given"):
        aggregator.aggregate(1, make_vectors(5), COHORT)
    with pytest.raises(InvalidInputError, match="round"):
        aggregator.aggregate(0, make_vectors(5), COHORT, SeededNoise(0))
    with pytest.raises(InvalidInputError, match="tensors"):
        aggregator.aggregate(1, make_vectors(5), None, SeededNoise(0))
    with pytest.raises(InvalidInputError, match="partial_sum"):
        aggregator.release(1, torch.zeros(P, M), SeededNoise(0))
    with pytest.raises(InvalidInputError, match="noise_multiplier"):
        NoisyRegionAggregator(make_spec(noise_multiplier=1e-200))


def test_rounding_up_on_the_wire_makes_no_contribution_longer():
    spec = make_spec(wire_dtype="float16")
    vectors = make_vectors(100)
    vectors = to_wire(spec, vectors / vectors.norm(dim=-1, keepdim=True) * S / math.sqrt(P))
    longest = vectors[vectors.double().norm(dim=-1).argmax()].unsqueeze(0)
    assert longest.double().norm() > S / math.sqrt(P)  # what the test needs
    aggregator = NoisyRegionAggregator(spec)
    released = aggregator.aggregate(1, longest, torch.tensor([0]), NoNoise())
    whitened = released / aggregator.noise_scales(1).unsqueeze(-1)
    kappa = joint_sensitivity(region_weights(spec, 1))
    assert 0.9 * kappa < whitened.norm() * spec.noise_multiplier <= kappa
