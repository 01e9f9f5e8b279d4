import pytest
import torch
from torch import Tensor

from torch_dpfts.acquisition import BroadcastPath, draw_posterior_path
from torch_dpfts.acquisition.functions import (
    Autograd,
    BroadcastFunctions,
    FunctionBatch,
    PosteriorDraws,
)
from torch_dpfts.covariance import FactoredCovariance
from torch_dpfts.features import SharedFeatures
from torch_dpfts.regions import RegionGrid
from torch_dpfts.rng import derived_generator
from torch_dpfts.space import SearchSpace
from torch_dpfts.spec import FederationSpec
from torch_dpfts.surrogate import Hyperparameters, build_model

BOUNDS = torch.tensor([[-5.0, 1e-3], [10.0, 1.0]], dtype=torch.float64)
SPACE = SearchSpace(BOUNDS, log_dims=[1])


def rand(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


def posterior() -> tuple[FunctionBatch, Autograd, Tensor, Tensor]:
    X = SPACE.from_unit(rand(3, 9, 2))
    values = Hyperparameters(0.3 * rand(3), 0.1 + rand(3, 2, seed=1), 0.01 * rand(3, seed=2))
    model = build_model(X, 50 + 7 * X.sum(-1, keepdim=True).sin(), SPACE, values)
    path = draw_posterior_path(model, [derived_generator(i) for i in range(3)], 64)
    covariance = FactoredCovariance(SPACE.to_unit(X), values)
    generators = [derived_generator(i) for i in range(3)]
    Y: Tensor = model.outcome_transform.means, model.outcome_transform.stdvs
    draws = PosteriorDraws(covariance, model.train_targets, generators, 64)
    return draws, Autograd(path, 3, SPACE), Y[0].view(3), Y[1].view(3)


def broadcast(feature_map: str) -> tuple[FunctionBatch, Autograd, Tensor, Tensor]:
    spec = FederationSpec.fts_de(
        bounds=BOUNDS, num_agents=1, num_rounds=1, num_features=16, feature_map=feature_map,
        log_dims=[1],
    )  # fmt: skip
    features, grid = SharedFeatures.from_spec(spec), RegionGrid(spec.region_grid)
    vectors = rand(3, 4, 16, seed=3) - 0.5
    path = BroadcastPath(features, grid, vectors, SPACE.input_transform())
    zero, one = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    return BroadcastFunctions(features, grid, vectors), Autograd(path, 3, SPACE), zero, one


CASES = {
    "posterior": posterior,
    "sincos": lambda: broadcast("sincos"),
    "cosine": lambda: broadcast("cosine"),
}


@pytest.mark.parametrize("case", CASES)
def test_they_are_the_sample_paths(case: str) -> None:
    functions, path, mean, scale = CASES[case]()
    assert isinstance(functions, FunctionBatch)
    U = rand(3, 20, 2, seed=5)
    with torch.no_grad():
        expected = path.values(U)
    # Values rank points, in single precision; those with gradients are exact.
    torch.testing.assert_close(
        mean.unsqueeze(-1) + scale.unsqueeze(-1) * functions.values(U),
        expected,
        rtol=1e-5,
        atol=1e-4,
    )
    of = torch.tensor([2, 0, 2, 1, 2])
    values, grads = functions.value_and_grad(U[of, :5].diagonal(dim1=0, dim2=1).mT, of)
    reference, reference_grads = path.value_and_grad(U[of, :5].diagonal(dim1=0, dim2=1).mT, of)
    torch.testing.assert_close(mean[of] + scale[of] * values, reference)
    torch.testing.assert_close(scale[of, None] * grads, reference_grads)


def test_autograd_pads_ragged_points() -> None:
    weights = torch.tensor([1.0, 10.0, 100.0], dtype=torch.float64)
    space = SearchSpace(torch.tensor([[0.0], [1.0]], dtype=torch.float64))
    functions = Autograd(lambda X: weights[:, None] * X.squeeze(-1).square(), 3, space)
    u, of = rand(6, 1), torch.tensor([1, 1, 0, 1, 2, 0])
    values, grads = functions.value_and_grad(u, of)
    torch.testing.assert_close(values, weights[of] * u.squeeze(-1).square())
    torch.testing.assert_close(grads, 2 * weights[of, None] * u)
