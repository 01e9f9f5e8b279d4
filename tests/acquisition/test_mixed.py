"""Logarithmic, whole-numbered and categorical dimensions from the specification to the agent."""

import math

import pytest
import torch
from torch import Tensor

from torch_dpfts import Agent, Broadcast, FederationSpec
from torch_dpfts.acquisition import (
    BroadcastPath,
    FederatedThompsonSampling,
    maximize_per_region,
    optimize_acqf_per_region,
)
from torch_dpfts.features import SharedFeatures
from torch_dpfts.regions import RegionGrid
from torch_dpfts.space import SearchSpace

# A learning rate, a number of layers and one of four optimisers.
BOUNDS = [[1e-5, 1.0, 0.0], [1.0, 5.0, 3.0]]
SPEC = FederationSpec.fts_de(
    bounds=BOUNDS, num_agents=4, num_rounds=9, num_features=512, lengthscales=[0.3, 0.5, 0.8],
    log_dims=[0], integer_dims=[1], categorical_dims=[2], local_probability="1-1/t",
)  # fmt: skip
SPACE = SearchSpace.from_spec(SPEC)


def points(n: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    lower, width = SPACE.boxes(RegionGrid([1, 1, 1]))
    U = torch.rand(n, 3, generator=generator, dtype=torch.float64)
    return SPACE.snap(SPACE.from_unit(lower + U * width))


def objective(X: Tensor) -> Tensor:
    bonus = torch.tensor([0.0, 0.3, 1.0, 0.5], dtype=torch.float64)[X[..., 2:].long()]
    return bonus - (X[..., :1].log10() + 2).square() / 9 - (X[..., 1:2] - 4).square() / 16


def broadcast(seed: int = 0) -> Broadcast:
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(4, 512, generator=generator, dtype=torch.float64)
    return Broadcast(SPEC.fingerprint, 1, vectors)


def test_shared_features_have_the_kernel_of_each_kind_of_dimension() -> None:
    U = SPACE.to_unit(points(30))
    phi = SharedFeatures.from_spec(SPEC)(U)
    gap = U.unsqueeze(1) - U
    rbf = torch.exp(-(gap[..., :2] / torch.tensor([0.3, 0.5])).square().sum(-1) / 2)
    same = torch.where(gap[..., 2] == 0, 1.0, math.exp(-1 / 0.8))
    torch.testing.assert_close((phi * phi).sum(-1), torch.ones(30).double())
    # Independent frequencies would err by 1/sqrt(512) = .044; Sobol frequencies err by less.
    assert ((phi @ phi.mT - rbf * same).abs() < 0.1).all()


@pytest.mark.parametrize("kernel", ["matern12", "matern52"])
def test_categories_go_with_every_kernel(kernel: str) -> None:
    spec = FederationSpec.fts(
        bounds=BOUNDS, num_agents=4, num_rounds=9, num_features=4096, kernel=kernel,
        categorical_dims=[2], lengthscales=1.0,
    )  # fmt: skip
    U = torch.tensor([[0.5, 0.5, c / 3] for c in range(4)], dtype=torch.float64)
    phi = SharedFeatures.from_spec(spec)(U)
    expected = torch.full((4, 4), math.exp(-1)).double().fill_diagonal_(1.0)
    torch.testing.assert_close(phi @ phi.mT, expected, atol=0.05, rtol=0)


def test_a_broadcast_rounds_inside() -> None:
    path = BroadcastPath.from_broadcast(SPEC, broadcast())
    X = points(50)
    near = X + torch.tensor([0.0, 0.3, -0.4], dtype=torch.float64)
    assert torch.equal(path(near), path(X))


def test_no_point_of_the_lattice_is_better() -> None:
    path = BroadcastPath.from_broadcast(SPEC, broadcast())
    grid = RegionGrid(SPEC.region_grid)
    best = maximize_per_region(
        lambda X: path(X.squeeze(0)).unsqueeze(0), grid, SPACE, [0], raw_samples=256
    )
    rates = torch.logspace(-5, 0, 201, dtype=torch.float64)
    lattice = torch.cartesian_prod(
        rates, torch.arange(1.0, 6.0).double(), torch.arange(4.0).double()
    )
    with torch.no_grad():
        assert float(best.value) > float(path(lattice).max()) - 0.01
    assert torch.equal(SPACE.snap(best.x), best.x)
    assert int(best.region) == int(grid.index(SPACE.to_unit(best.x)))
    torch.testing.assert_close(path(best.x), best.value)


def test_agents_find_the_best_category_and_layers() -> None:
    agent = Agent(SPEC, agent_id=1, seed=0)
    X = agent.initial_points(6)
    assert torch.equal(SPACE.snap(X), X)
    agent.observe(X, objective(X))
    for round in range(1, 15):
        x = agent.suggest(broadcast(round) if round % 3 == 0 else None)
        assert torch.equal(SPACE.snap(x), x)
        agent.observe(x, objective(x))
    best = agent.X[agent.Y.argmax()]
    assert best[1:].tolist() == [4.0, 2.0]
    assert float(agent.Y.max()) > 0.95
    assert agent.contribute(round=1).vector.isfinite().all()


def test_an_agent_suggests_what_the_acquisition_function_does() -> None:
    agent = Agent(SPEC, agent_id=1, seed=0)
    X = points(8)
    agent.observe(X, objective(X))
    bounds = SPEC.bounds_tensor()
    for seed in range(8):
        acqf = FederatedThompsonSampling(agent.model, SPEC, broadcast(), seed=seed)
        candidates, _, regions = optimize_acqf_per_region(
            acqf, bounds, q=2, sequential=True, return_regions=True
        )
        assert torch.equal(SPACE.snap(candidates), candidates)
        follows = [acqf.follows_broadcast(i) for i in range(2)]
        index = RegionGrid(SPEC.region_grid).index(SPACE.to_unit(candidates))
        assert regions.tolist() == [int(i) * f for i, f in zip(index, follows, strict=True)]


def test_seven_integers_are_explored() -> None:
    spec = FederationSpec.fts(
        bounds=[[1.0] * 7, [3.0] * 7], num_agents=1, num_rounds=30, integer_dims=range(7)
    )
    agent = Agent(spec, agent_id=0, seed=0)
    for _ in range(30):
        x = agent.suggest()
        agent.observe(x, -(x - 2).square().sum(-1, keepdim=True))
    assert len(agent.X.unique(dim=0)) >= 15
