import pytest
import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.models import SingleTaskGP
from torch import Tensor

from torch_dpfts.acquisition import BroadcastPath
from torch_dpfts.acquisition.functions import Autograd, BroadcastFunctions, FunctionBatch
from torch_dpfts.acquisition.mixture import MixedDraws, draw_mixed_path
from torch_dpfts.acquisition.share import scaled_vectors
from torch_dpfts.covariance import FactoredCovariance
from torch_dpfts.features import SharedFeatures
from torch_dpfts.regions import RegionGrid
from torch_dpfts.rng import derived_generator
from torch_dpfts.space import SearchSpace
from torch_dpfts.spec import FederationSpec
from torch_dpfts.surrogate import Hyperparameters, build_model

BOUNDS = torch.tensor([[-5.0, 1e-3], [10.0, 1.0]], dtype=torch.float64)
SPACE = SearchSpace(BOUNDS, log_dims=[1])
SPEC = FederationSpec.fts_de(bounds=BOUNDS, log_dims=[1], num_agents=3, num_rounds=5)
FEATURES, GRID = SharedFeatures.from_spec(SPEC), RegionGrid(SPEC.region_grid)


def rand(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


def hyperparameters(b: int) -> Hyperparameters:
    return Hyperparameters(0.3 * rand(b), 0.2 + rand(b, 2, seed=1), 1e-3 + 0.01 * rand(b, seed=2))


def models(b: int, n: int = 9) -> SingleTaskGP:
    X = SPACE.from_unit(rand(b, n, 2))
    Y = 50 + 7 * (3 * SPACE.to_unit(X)).sum(-1, keepdim=True).sin()
    return build_model(X, Y, SPACE, hyperparameters(b))


def broadcast(b: int) -> BroadcastPath:
    vectors = 30 * (rand(b, 4, 64, seed=5) - 0.5)
    return BroadcastPath(FEATURES, GRID, vectors, SPACE.input_transform())


def generators(b: int) -> list[torch.Generator]:
    return [derived_generator(i, "draw") for i in range(b)]


def test_functions_and_paths_are_the_same_draws_up_to_a_constant() -> None:
    model, others = models(3), broadcast(3)
    path = draw_mixed_path(model, others, generators(3))
    U = rand(3, 9, 2)
    functions: FunctionBatch = MixedDraws(
        FactoredCovariance(U, hyperparameters(3)),
        model.train_targets,
        BroadcastFunctions(FEATURES, GRID, scaled_vectors(FEATURES, GRID, others.vectors)),
        U,
        generators(3),
    )
    u, of = rand(30, 2, seed=7), torch.arange(3).repeat(10)
    value, grad = functions.value_and_grad(u, of)
    expected, slope = Autograd(path, 3, SPACE).value_and_grad(u, of)
    scale = model.outcome_transform.stdvs.flatten()[of]
    constant = expected / scale - value
    for i in range(3):
        torch.testing.assert_close(constant[of == i], constant[i].expand(10))
    torch.testing.assert_close(slope / scale.unsqueeze(-1), grad)
    ranked = functions.values(u.expand(3, 30, 2))[of, torch.arange(30)]
    torch.testing.assert_close(ranked, value, atol=1e-5, rtol=0)


def test_draws_have_the_mean_of_the_model() -> None:
    model, others, X = models(1, 5), broadcast(1), SPACE.from_unit(rand(1, 6, 2, seed=8))
    # The oracle: kriging with an unknown constant for every share, weighed by its evidence.
    vectors = scaled_vectors(FEATURES, GRID, others.vectors)[0]
    g_all = BroadcastPath(FEATURES, GRID, vectors, SPACE.input_transform())
    values = hyperparameters(1)
    points, tests = rand(1, 5, 2)[0], SPACE.to_unit(X)[0]
    y, ones = model.train_targets[0] - values.mean, torch.ones(5).double()

    def k(A: Tensor, B: Tensor) -> Tensor:
        return (-0.5 * torch.cdist(A / values.lengthscale, B / values.lengthscale) ** 2).exp()

    C = k(points, points) + values.noise * torch.eye(5).double()
    inverse = torch.linalg.inv(C)
    g, g_test = g_all(SPACE.from_unit(points)), g_all(X[0])
    g, g_test = g.reshape(-1), g_test.reshape(-1)
    project = inverse - inverse @ torch.outer(ones, ones) @ inverse / (ones @ inverse @ ones)
    log_weight, mean = [], []
    for a in torch.linspace(0, 0.95, 96).double():
        left = y - a * g
        log_weight.append(-2 * (1 - a**2).log() - left @ project @ left / (2 * (1 - a**2)))
        constant = ones @ inverse @ left / (ones @ inverse @ ones)
        mean.append(constant + a * g_test + k(tests, points) @ inverse @ (left - constant))
    expected = torch.stack(log_weight).softmax(0) @ torch.stack(mean) + values.mean
    batch = 4000
    many = build_model(
        SPACE.from_unit(rand(1, 5, 2)).expand(batch, -1, -1),
        (model.train_targets * 7 + 50).unsqueeze(-1).expand(batch, -1, -1),
        SPACE,
        Hyperparameters(*(value.expand(batch, *value.shape[1:]) for value in values)),
    )
    path = draw_mixed_path(many, others, generators(batch))
    draws = path(X.expand(batch, -1, -1)).detach()
    standard = (draws - 50) / 7
    error = standard.std(dim=0) / batch**0.5
    # Six means within 4.5 standard errors: wrong with probability 4e-5. The prior's 512 features
    # stand for its kernel; their error does not show at this size.
    assert ((standard.mean(dim=0) - expected).abs() < 4.5 * error + 2e-3).all()


def test_other_models_are_refused() -> None:
    model = SingleTaskGP(rand(5, 2), rand(5, 2, seed=1))
    with pytest.raises(UnsupportedError, match=r"SingleTaskGP with one output.*with 2"):
        draw_mixed_path(model, broadcast(1), generators(1))


def test_the_model_is_left_as_it_was() -> None:
    model = models(2)
    targets = model.train_targets.clone()
    draw_mixed_path(model, broadcast(2), generators(2))
    assert torch.equal(model.train_targets, targets)
