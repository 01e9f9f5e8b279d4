import math
import random
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy import stats

from torch_dpfts.errors import InvalidInputError
from torch_dpfts.privacy import NoiseSource, SecureNoise, SeededNoise
from torch_dpfts.privacy.noise import GRID_BITS

SOURCES = [SeededNoise(7), SecureNoise()]
ALPHA = 1e-9  # Probability of a false alarm of each statistical test of unseeded draws.


@pytest.mark.parametrize("source", SOURCES)
def test_sources_keep_the_protocol(source):
    assert isinstance(source, NoiseSource)
    drawn = source.normal(1, (3, 4))
    assert drawn.shape == (3, 4)
    assert drawn.dtype == torch.float64
    coins = source.coins(1, 5, 1.0)
    assert coins.dtype == torch.bool
    assert coins.tolist() == [True] * 5


@pytest.mark.parametrize("source", SOURCES)
def test_draws_are_standard_normal(source):
    drawn = source.normal(1, (400, 100)).flatten().numpy()
    assert stats.kstest(drawn, "norm").pvalue > ALPHA


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("rate", [0.05, 0.35, 1 / 3])
def test_rate_of_the_coins(source, rate):
    count = 100_000
    heads = int(source.coins(1, count, rate).sum())
    assert stats.binomtest(heads, count, rate).pvalue > ALPHA


def test_seeded_draws_depend_on_seed_round_and_purpose_alone():
    first = SeededNoise(3)
    first.coins(1, 10, 0.5)
    first.normal(2, (5,))
    again = SeededNoise(3)
    assert torch.equal(first.normal(4, (5,)), again.normal(4, (5,)))
    assert torch.equal(first.coins(9, 50, 0.5), again.coins(9, 50, 0.5))
    others = [
        SeededNoise(4).normal(4, (5,)),
        again.normal(5, (5,)),
        again.normal(4, (5,), purpose="other"),
    ]
    assert all(not torch.equal(first.normal(4, (5,)), other) for other in others)


def test_sources_say_what_they_are():
    assert SeededNoise(0).description == "seeded: not private"
    assert "operating system" in SecureNoise().description


def test_secure_draws_lie_on_the_grid_and_never_repeat():
    source = SecureNoise()
    drawn = source.normal(1, (1000,)) * 2.0**GRID_BITS
    assert torch.equal(drawn, drawn.round())
    assert not torch.equal(drawn, source.normal(1, (1000,)) * 2.0**GRID_BITS)


def test_secure_source_refuses_to_round_off_its_grid():
    with pytest.raises(InvalidInputError, match="dtype"):
        SecureNoise().normal(1, (2,), dtype=torch.float32)


def test_secure_rate_is_never_above_the_asked_one(monkeypatch):
    threshold = math.floor(Fraction(0.3) * 2**64)
    edge = [threshold, threshold - 1]
    monkeypatch.setattr(
        "torch_dpfts.privacy.exact_gaussian.words",
        lambda count: np.array(edge, dtype=np.uint64),
    )
    assert SecureNoise().coins(1, 2, 0.3).tolist() == [False, True]


def test_seeded_float32_is_the_rounded_float64():
    drawn = SeededNoise(0).normal(1, (10,), dtype=torch.float32)
    assert torch.equal(drawn, SeededNoise(0).normal(1, (10,)).float())


@pytest.mark.parametrize("source", SOURCES)
def test_global_generators_are_left_alone(source):
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1]  # noqa: NPY002
    source.normal(1, (10,))
    source.coins(1, 10, 0.5)
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1] == random.getstate()
    assert (states[2] == np.random.get_state()[1]).all()  # noqa: NPY002


@pytest.mark.parametrize("source", SOURCES)
def test_bad_arguments_are_refused(source):
    with pytest.raises(InvalidInputError, match="round"):
        source.normal(0, (2,))
    with pytest.raises(InvalidInputError, match="round"):
        source.coins(0, 2, 0.5)
    for rate in (0.0, 1.1, float("nan")):
        with pytest.raises(InvalidInputError, match="sample_rate"):
            source.coins(1, 2, rate)
    with pytest.raises(InvalidInputError, match="num_agents"):
        source.coins(1, 0, 0.5)


@pytest.mark.parametrize("seed", [-1, 1.5, None, True])
def test_bad_seed_is_refused(seed):
    with pytest.raises(InvalidInputError, match="seed"):
        SeededNoise(seed)
