import pytest
import torch
from torch import Tensor

from torch_dpfts import Agent, Broadcast, FederationSpec, Fleet
from torch_dpfts.fleet import agent_seed


def objective(X: Tensor) -> Tensor:
    return -(X - 0.3).square().sum(-1, keepdim=True)


@pytest.mark.parametrize("prior_mean", [False, True])
def test_a_fleet_is_its_agents(prior_mean: bool) -> None:
    spec = FederationSpec.fts_de(
        bounds=[[0.0, 0.0], [1.0, 1.0]], num_agents=5, num_rounds=9, num_features=16,
        message="sample", local_probability="1-1/t", prior_mean=prior_mean,
    )  # fmt: skip
    fleet = Fleet(spec, range(5), [agent_seed(0, n) for n in range(5)])
    agents = [Agent(spec, n, seed=0) for n in range(5)]
    X = fleet.initial_points(6)
    fleet.observe(X, objective(X))
    for agent, x in zip(agents, X, strict=True):
        assert torch.equal(agent.initial_points(6), x)
        agent.observe(x, objective(x))
    generator = torch.Generator().manual_seed(0)
    for round in range(1, 6):
        sent = fleet.contribute(round)
        vectors = torch.randn(4, 16, generator=generator, dtype=torch.float64)
        X = fleet.suggest(vectors.expand(5, 4, 16), round)
        fleet.observe(X, objective(X))
        for n, agent in enumerate(agents):
            torch.testing.assert_close(agent.contribute(round).vector, sent[n])
            x = agent.suggest(Broadcast(spec.fingerprint, round, vectors))
            # The same draws; only the rounding of batched arithmetic differs.
            torch.testing.assert_close(x, X[n], atol=1e-6, rtol=0)
            agent.observe(X[n], objective(X[n]))


def test_runs_of_different_seeds_share_a_batch() -> None:
    spec = FederationSpec.fts(bounds=[[0.0], [1.0]], num_agents=2, num_rounds=1)
    seeds = [agent_seed(run, n) for run in (0, 1) for n in (0, 1)]
    both = Fleet(spec, [0, 1, 0, 1], seeds)
    second = Fleet(spec, [0, 1], seeds[2:])
    assert torch.equal(both.initial_points(3)[2:], second.initial_points(3))
    vectors = torch.stack([torch.full((1, 64), v, dtype=torch.float64) for v in (1, 1, -1, -1)])
    assert both.suggest(vectors, 1).shape == (4, 1, 1)


def observed(n: int = 12, **settings: object) -> Fleet:
    spec = FederationSpec.fts(
        bounds=[[0.0, 0.0], [1.0, 1.0]], num_agents=40, num_rounds=9, **settings
    )
    fleet = Fleet(spec, range(40), [agent_seed(0, n) for n in range(40)])
    X = fleet.initial_points(n)
    fleet.observe(X, objective(X))
    return fleet


def summit(fleet: Fleet, place: float) -> Tensor:
    """A broadcast with its summit where all coordinates are ``place``, ``40 x 1 x M``."""
    center = torch.full((1, fleet.spec.dim), place, dtype=torch.float64)
    return fleet.features(center).expand(40, 1, -1)


def test_a_broadcast_that_fits_guides_the_own_draws() -> None:
    settings = {"prior_mean": True, "local_probability": "1-1/t^2", "lengthscales": 0.3}
    fleet = observed(5, **settings)
    alone = (fleet.suggest() - 0.3).norm(dim=-1).mean()
    right = (fleet.suggest(summit(fleet, 0.3), 9) - 0.3).norm(dim=-1).mean()
    # Of 40 agents the coin sends one or none to the broadcast itself at p = .99.
    assert right < 0.8 * alone


def test_a_broadcast_that_does_not_fit_is_left_aside() -> None:
    settings = {"prior_mean": True, "local_probability": "1-1/t^2", "lengthscales": 0.3}
    fleet = observed(30, **settings)
    wrong = (fleet.suggest(summit(fleet, 0.9), 9) - 0.3).norm(dim=-1)
    assert wrong.median() < 0.1


def test_a_prior_mean_in_a_discrete_space() -> None:
    fleet = observed(6, prior_mean=True, integer_dims=[0], local_probability="1-1/t^2")
    X = fleet.suggest(summit(fleet, 0.0), 9)
    assert torch.equal(X[..., 0], X[..., 0].round())


def test_a_broadcast_that_repeats_an_old_query_gives_way_to_an_own_draw() -> None:
    fleet = observed(4, local_probability="1-1/t")
    first = fleet.suggest(summit(fleet, 0.6), 1)
    followed = (first - 0.6).abs().amax(-1) < 0.01
    assert 8 <= int(followed.sum()) <= 32  # a coin of 1/2: all but 1e-4
    fleet.observe(first, objective(first))
    again = fleet.suggest(summit(fleet, 0.6), 1)
    assert not ((again - first).abs().amax(-1) < 5e-3)[followed].any()


def test_a_message_raises_outcomes_to_the_floor() -> None:
    fleet, plain = observed(7, outcome_floor=0.5), observed(7)
    raised = torch.maximum(plain.Y, plain.Y.median(dim=-2, keepdim=True).values)
    assert not torch.equal(fleet.contribute(1), plain.contribute(1))
    plain.Y = raised
    torch.testing.assert_close(fleet.contribute(1), plain.contribute(1))
    torch.testing.assert_close(fleet.Y, observed(7).Y)
