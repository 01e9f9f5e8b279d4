import torch
from torch import Tensor

from torch_dpfts import Agent, Broadcast, FederationSpec, Fleet
from torch_dpfts.fleet import agent_seed


def objective(X: Tensor) -> Tensor:
    return -(X - 0.3).square().sum(-1, keepdim=True)


def test_a_fleet_is_its_agents() -> None:
    spec = FederationSpec.fts_de(
        bounds=[[0.0, 0.0], [1.0, 1.0]], num_agents=5, num_rounds=9, num_features=16,
        message="sample", local_probability="1-1/t",
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
