import pytest
import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from gpytorch.kernels import Kernel, MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel
from torch import Tensor

from torch_dpfts import Broadcast, FederationSpec
from torch_dpfts.acquisition import BroadcastPath, draw_posterior_path
from torch_dpfts.features import SharedFeatures
from torch_dpfts.regions import RegionGrid
from torch_dpfts.rng import derived_generator

BOUNDS = torch.tensor([[-5.0, 0.0], [10.0, 15.0]], dtype=torch.float64)
DRAWS = 4096


def rand(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


def points(*shape: int, seed: int = 0) -> Tensor:
    return BOUNDS[0] + rand(*shape, 2, seed=seed) * (BOUNDS[1] - BOUNDS[0])


def outcomes(X: Tensor) -> Tensor:
    return 100 + 20 * (X / 3).sin().sum(-1, keepdim=True)


def model(kernel: Kernel | None, n: int = 12) -> SingleTaskGP:
    X = points(n)
    return SingleTaskGP(
        X, outcomes(X), covar_module=kernel, input_transform=Normalize(2, bounds=BOUNDS),
        outcome_transform=Standardize(1),
    )  # fmt: skip


KERNELS = {
    "default": None,
    "scaled matern": ScaleKernel(MaternKernel(2.5, ard_num_dims=2)),
    "rough": ScaleKernel(MaternKernel(0.5, ard_num_dims=2)),
    "scaled rbf": ScaleKernel(RBFKernel(ard_num_dims=2)),
}


@pytest.mark.parametrize("kernel", KERNELS)
def test_draws_follow_the_exact_posterior(kernel: str) -> None:
    single = model(KERNELS[kernel])
    if isinstance(single.covar_module, ScaleKernel):
        single.covar_module.outputscale = 2.0
        single.covar_module.base_kernel.lengthscale = 0.3
    batch = 64
    X = points(20, seed=1)
    with torch.no_grad():
        exact = single.eval().posterior(X)
        draws = torch.stack(
            [draw_posterior_path(single, [derived_generator(i)])(X) for i in range(DRAWS // batch)]
        )
    # With 64 draws a mean is off by more than .6 sd, or an sd by a factor beyond .6 to 1.5,
    # with probability below 1e-5 a point; the many-draw test below is far sharper.
    sd = exact.variance.sqrt().squeeze(-1)
    assert ((draws.mean(0) - exact.mean.squeeze(-1)).abs() < 0.6 * sd).all()
    assert (draws.std(0) / sd).clamp(0.6, 1.5).equal(draws.std(0) / sd)


def test_many_draws_agree_closely() -> None:
    single = model(None, n=25)
    X = points(10, seed=1)
    with torch.no_grad():
        exact = single.eval().posterior(X)
    fleet = SingleTaskGP(
        points(25).expand(DRAWS, 25, 2).clone(),
        outcomes(points(25)).expand(DRAWS, 25, 1).clone(),
        input_transform=Normalize(2, bounds=BOUNDS),
        outcome_transform=Standardize(1, batch_shape=torch.Size([DRAWS])),
    ).eval()
    fleet.covar_module.lengthscale = single.covar_module.lengthscale.detach().expand(DRAWS, 1, 2)
    path = draw_posterior_path(fleet, [derived_generator(i) for i in range(DRAWS)], 256)
    with torch.no_grad():
        draws = path(X.expand(DRAWS, 10, 2))
    sd = exact.variance.sqrt().squeeze(-1)
    # Standard errors are 1/64 sd of a mean and 1/90 of an sd: the limits are six of them.
    assert ((draws.mean(0) - exact.mean.squeeze(-1)).abs() < 0.1 * sd).all()
    assert ((draws.std(0) / sd - 1).abs() < 0.1).all()


def test_a_path_is_a_copy() -> None:
    single = model(None)
    path = draw_posterior_path(single, [derived_generator(0)])
    X = points(5, seed=1)
    with torch.no_grad():
        before = path(X)
        single.covar_module.lengthscale = 0.05
        single.mean_module.initialize(constant=3.0)
        assert torch.equal(path(X), before)


def test_paths_have_gradients_and_leave_the_global_generator_alone() -> None:
    state = torch.random.get_rng_state()
    X = points(5, seed=1).requires_grad_()
    draw_posterior_path(model(None), [derived_generator(0)])(X).sum().backward()
    assert X.grad is not None
    assert X.grad.isfinite().all()
    assert torch.equal(state, torch.random.get_rng_state())


def test_other_kernels_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="PeriodicKernel"):
        draw_posterior_path(model(PeriodicKernel(ard_num_dims=2)), [derived_generator(0)])


SPEC = FederationSpec.fts_de(bounds=BOUNDS, num_agents=4, num_rounds=3, num_features=16)


def test_a_broadcast_is_the_function_of_its_region() -> None:
    vectors = torch.randn(4, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    path = BroadcastPath.from_broadcast(SPEC, Broadcast(SPEC.fingerprint, 1, vectors))
    X = points(3, 50)
    values = path(X)
    assert values.shape == (3, 50)
    features, grid = SharedFeatures.from_spec(SPEC), RegionGrid((2, 2))
    for x, value in zip(X.flatten(0, 1), values.flatten(), strict=True):
        unit = (x - BOUNDS[0]) / (BOUNDS[1] - BOUNDS[0])
        expected = features(unit) @ vectors[int(grid.index(unit))]
        assert float(value) == pytest.approx(float(expected))


def test_broadcasts_batch_and_move() -> None:
    vectors = torch.randn(2, 4, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    features, grid = SharedFeatures.from_spec(SPEC), RegionGrid((2, 2))
    both = BroadcastPath(features, grid, vectors)
    X = rand(2, 7, 2)
    for i in range(2):
        torch.testing.assert_close(both(X)[i], BroadcastPath(features, grid, vectors[i])(X[i]))
    assert both.float()(X.float()).dtype == torch.float32
