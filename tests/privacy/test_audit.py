import math

import pytest
import torch
from scipy import stats

from torch_dpfts.cli.audit import server_runner
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.privacy import (
    NoisyRegionAggregator,
    SecureNoise,
    audit_privacy,
    epsilon_spent,
    plot_audits,
    round_charge,
)
from torch_dpfts.privacy.audit import _clopper_pearson
from torch_dpfts.privacy.faults import FAULTS
from torch_dpfts.spec import FederationSpec


def make_spec(**settings):
    settings = {
        "num_agents": 29,
        "num_rounds": 2,
        "num_regions": 9,
        "num_features": 4,
        "sample_rate": 1.0,
        "noise_multiplier": 0.7,
        "clip_norm": 2.0,
    } | settings
    return FederationSpec.dp_fts_de(bounds=[[0.0, 0.0], [1.0, 1.0]], **settings)


def test_honest_server_stays_below_its_claim_and_reaches_half_of_it():
    # Seeded. Over seeds, the bound exceeds the claim with probability .001 at most.
    spec = make_spec(noise_multiplier=0.3)
    result = audit_privacy(spec, server_runner(spec, seed=0), trials=2500, num_rounds=1)
    assert result.claim == epsilon_spent([(*round_charge(spec, 1), 1)], spec.delta)
    assert result.passed
    assert 0.5 * result.claim <= result.bound <= result.claim
    assert result.statistic == "likelihood ratio"


def test_sampled_cohorts():
    spec = make_spec(sample_rate=0.5, noise_multiplier=0.3)
    result = audit_privacy(spec, server_runner(spec, seed=0), trials=300, num_rounds=1)
    assert result.passed
    assert result.sample_rate == 0.5


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_caught(fault):
    spec = make_spec()
    result = audit_privacy(spec, server_runner(spec, seed=0, fault=fault), trials=350)
    assert not result.passed
    assert result.bound > result.claim


def test_faults_show_in_sampled_cohorts_too():
    spec = make_spec(sample_rate=0.8, noise_multiplier=1.5)
    runner = server_runner(spec, seed=0, fault="uniform-if-empty")
    assert not audit_privacy(spec, runner, trials=300).passed


def test_a_server_with_system_entropy():
    """The aggregator with its exact sampler, without a server around it."""
    spec = make_spec(num_regions=4, noise_multiplier=0.4)
    aggregator = NoisyRegionAggregator(spec)

    def run(messages, trial):
        return torch.stack(
            [
                aggregator.aggregate(
                    t,
                    torch.stack([*vectors.values(), torch.zeros(4, dtype=torch.float64)]),
                    torch.tensor([*vectors, 28]),
                    SecureNoise(),
                )
                for t, vectors in enumerate(messages, start=1)
            ]
        )

    # Unseeded: the bound exceeds the claim with probability 1e-6 at most.
    result = audit_privacy(spec, run, trials=100, num_rounds=1, confidence=1 - 1e-6)
    assert result.passed


def test_every_run_is_announced():
    calls = []
    spec = make_spec()
    audit_privacy(
        spec,
        lambda m, _: torch.zeros(1, 9, 4),
        trials=100,
        num_rounds=1,
        on_trial=lambda: calls.append(1),
    )
    assert len(calls) == 400


def test_plot():
    spec = make_spec()
    result = audit_privacy(spec, lambda m, _: torch.zeros(1, 9, 4), trials=100, num_rounds=1)
    assert result.bound == 0.0
    assert plot_audits([result, result]).startswith(b"\x89PNG")


@pytest.mark.parametrize(("successes", "count"), [(0, 50), (3, 50), (25, 50), (50, 50)])
def test_clopper_pearson(successes, count):
    low, high = _clopper_pearson(successes, count, 0.01)
    if successes:
        assert stats.binom.sf(successes - 1, count, low) == pytest.approx(0.01)
    else:
        assert low == 0.0
    if successes < count:
        assert stats.binom.cdf(successes, count, high) == pytest.approx(0.01)
    else:
        assert high == 1.0


@pytest.mark.parametrize(
    ("settings", "arguments", "message"),
    [
        ({"noise_multiplier": 0.0}, {}, "noise_multiplier > 0"),
        ({"num_agents": 2, "num_regions": 1}, {}, "at least 3 agents"),
        ({}, {"trials": 99}, "trials"),
        ({}, {"num_rounds": 0}, "num_rounds"),
        ({}, {"delta": 1.0}, "delta"),
        ({}, {"delta": math.nan}, "delta"),
        ({}, {"confidence": 1.0}, "confidence"),
        ({}, {"confidence": 0.1}, "confidence"),
        ({}, {"num_rounds": 3}, "shape"),
    ],
)
def test_bad_arguments_are_refused(settings, arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        audit_privacy(make_spec(**settings), lambda m, _: torch.zeros(2, 9, 4), **arguments)
