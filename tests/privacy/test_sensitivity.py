import math

import pytest
import torch
from scipy.optimize import minimize

from torch_dpfts.errors import InvalidInputError
from torch_dpfts.privacy import (
    charged_sensitivity,
    joint_sensitivity,
    region_weights,
    round_charge,
)
from torch_dpfts.spec import FederationSpec

P, M, Z, S, Q = 4, 6, 1.7, 3.0, 0.35


def make_spec(**settings):
    settings = {"num_agents": 9, "num_rounds": 60, "num_features": M} | settings
    return FederationSpec.dp_fts_de(
        bounds=[[0.0, 0.0], [1.0, 1.0]],
        sample_rate=Q,
        noise_multiplier=Z,
        clip_norm=S,
        num_regions=P,
        **settings,
    )


def whitened_distance(weights, agent, vector):
    """Distance of two neighbouring releases in units of the noise, block by block."""
    clip = S / math.sqrt(P)
    vector = vector * min(1.0, clip / max(float(vector.norm()), 1e-300))
    squared = 0.0
    for row in weights:
        sigma = Z * S * float(row.max()) / Q
        squared += float((row[agent] / Q * vector / sigma).square().sum())
    return math.sqrt(squared)


def random_weights(generator):
    spread = 10.0 * torch.rand((), generator=generator, dtype=torch.float64)
    noise = torch.randn(P, 9, generator=generator, dtype=torch.float64)
    return torch.softmax(spread * noise, dim=-1)


def test_search_for_worse_neighbours_finds_none():
    generator = torch.Generator().manual_seed(0)
    settings = [random_weights(generator) for _ in range(8)]
    settings += [region_weights(make_spec(), t) for t in (1, 37, 40)]
    for weights in settings:
        bound = joint_sensitivity(weights) / Z
        worst = 0.0
        for agent in range(9):
            starts = torch.randn(2, M, generator=generator, dtype=torch.float64)
            for start in starts:
                found = minimize(
                    lambda v, w=weights, n=agent: -whitened_distance(w, n, torch.from_numpy(v)),
                    start.numpy(),
                    method="Nelder-Mead",
                    options={"maxfev": 60},
                )
                worst = max(worst, -found.fun)
        assert worst <= bound * (1 + 1e-12)
        assert worst >= bound * (1 - 1e-6)  # and the bound is attained


def test_limits():
    assert joint_sensitivity(torch.eye(4)) == 0.5
    assert joint_sensitivity(torch.full((4, 9), 1 / 9)) == 1.0
    assert joint_sensitivity(torch.ones(1, 1)) == 1.0


def test_lies_between_its_limits_every_round():
    kappas = [joint_sensitivity(region_weights(make_spec(), t)) for t in range(1, 61)]
    assert all(0.5 <= kappa <= 1.0 for kappa in kappas)
    assert kappas == sorted(kappas)
    assert kappas[39:] == [1.0] * 21


def test_charges():
    exact, paper = make_spec(), make_spec(sensitivity="paper")
    assert round_charge(exact, 1)[0] == pytest.approx(2 * Z)
    assert round_charge(exact, 60) == (Z, Q)
    assert round_charge(paper, 1) == (Z, Q)
    assert charged_sensitivity(paper, 1) == 1.0


@pytest.mark.parametrize(
    "weights",
    [
        torch.ones(3),
        torch.ones(0, 3),
        torch.tensor([[1.0, -0.1]]),
        torch.tensor([[0.0, 0.0], [1.0, 1.0]]),
        torch.tensor([[float("nan"), 1.0]]),
    ],
)
def test_bad_weights_are_refused(weights):
    with pytest.raises(InvalidInputError, match="region_weights"):
        joint_sensitivity(weights)


@pytest.mark.parametrize("sensitivity", ["exact", "paper"])
def test_bad_round_is_refused(sensitivity):
    with pytest.raises(InvalidInputError, match="round"):
        round_charge(make_spec(sensitivity=sensitivity), 0)
