import pytest
import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.models import MixedSingleTaskGP
from botorch.models.kernels import CategoricalKernel
from botorch.sampling.pathwise import gen_kernel_features, get_matheron_path_model
from gpytorch.kernels import Kernel, MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel
from torch import Tensor

from torch_dpfts.acquisition.fourier import categorical_inputs, fourier_features, single_draws

DIM = 4
COUNT = 8192


def points() -> Tensor:
    X = torch.rand(12, DIM, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    X[:, 2:] = (4 * X[:, 2:]).floor()
    return X


def set_lengthscales(kernel: Kernel) -> Kernel:
    for part in kernel.modules():
        if isinstance(part, Kernel) and part.has_lengthscale:
            part.lengthscale = torch.linspace(0.4, 0.9, part.lengthscale.shape[-1])
        if isinstance(part, ScaleKernel):
            part.outputscale = 1.7
    return kernel.double()


def mixed() -> Kernel:
    X = points()
    return MixedSingleTaskGP(X, X[:, :1], cat_dims=[2, 3]).covar_module


KERNELS = {
    "rbf": lambda: RBFKernel(ard_num_dims=DIM),
    "matern": lambda: ScaleKernel(MaternKernel(1.5, ard_num_dims=DIM)),
    "some inputs": lambda: ScaleKernel(RBFKernel(ard_num_dims=2, active_dims=[3, 1])),
    "scale picks": lambda: ScaleKernel(
        RBFKernel(ard_num_dims=1, active_dims=[0]) + RBFKernel(ard_num_dims=1, active_dims=[1]),
        active_dims=[2, 0],
    ),
    "categorical": lambda: CategoricalKernel(ard_num_dims=2, active_dims=[2, 3]),
    "sum": lambda: RBFKernel(active_dims=[0]) + ScaleKernel(MaternKernel(2.5, active_dims=[1])),
    "product": lambda: RBFKernel(active_dims=[0]) * MaternKernel(0.5, active_dims=[1]),
    "product of sums": lambda: (
        (RBFKernel(active_dims=[0]) + RBFKernel(active_dims=[1]))
        * (MaternKernel(active_dims=[1]) + CategoricalKernel(active_dims=[2]))
    ),
    "mixed": mixed,
}


@pytest.mark.parametrize("name", KERNELS)
def test_features_reproduce_the_kernel(name: str) -> None:
    kernel = set_lengthscales(KERNELS[name]())
    X = points()
    draws = single_draws(torch.Generator().manual_seed(1), (), kernel)
    features = fourier_features(kernel, DIM, 2 * COUNT, draws)
    assert features.num_outputs == 2 * COUNT
    with torch.no_grad():
        phi = features(X)
        exact = kernel(X).to_dense()
    torch.testing.assert_close((phi * phi).sum(-1), exact.diagonal())
    # An entry's standard error is at most k(x, x) / sqrt(2 K) with K pairs of features a term
    # (at most four terms here): the limit is six of them.
    worst = 6 * exact.diagonal().max() / (2 * COUNT / 4) ** 0.5
    assert ((phi @ phi.mT - exact).abs() < worst).all()


def test_batches_of_kernels_have_features_of_their_own() -> None:
    kernel = ScaleKernel(RBFKernel(batch_shape=torch.Size([3])), batch_shape=torch.Size([3]))
    kernel.double().base_kernel.lengthscale = torch.tensor([0.2, 1.0, 5.0]).reshape(3, 1, 1)
    kernel.outputscale = torch.tensor([1.0, 2.0, 3.0])
    draws = single_draws(torch.Generator().manual_seed(1), (3,), kernel)
    with torch.no_grad():
        phi = fourier_features(kernel, DIM, 2 * COUNT, draws)(points())
        exact = kernel(points()).to_dense()
    assert phi.shape == (3, 12, 2 * COUNT)
    # As above, with one term.
    assert ((phi @ phi.mT - exact).abs() < 6 * 3.0 / (2 * COUNT) ** 0.5).all()


def test_categorical_inputs_are_found() -> None:
    assert categorical_inputs(mixed(), DIM) == [2, 3]
    assert categorical_inputs(RBFKernel(), DIM) == []


@pytest.mark.parametrize("name", ["categorical", "sum", "product", "mixed"])
def test_botorch_learns_the_kernels(name: str) -> None:
    kernel = set_lengthscales(KERNELS[name]())
    state = torch.random.get_rng_state()
    features = gen_kernel_features(
        kernel, DIM, 2 * COUNT, generator=torch.Generator().manual_seed(0)
    )
    assert torch.equal(state, torch.random.get_rng_state())
    with torch.no_grad():
        phi = features(points())
        exact = kernel(points()).to_dense()
    worst = 6 * exact.diagonal().max() / (2 * COUNT / 4) ** 0.5  # as above
    assert ((phi @ phi.mT - exact).abs() < worst).all()


def test_botorch_draws_paths_of_mixed_models() -> None:
    X = points()
    model = MixedSingleTaskGP(X, X[:, :1], cat_dims=[2, 3])
    assert get_matheron_path_model(model)(X).shape == (12, 1)


def test_what_has_no_features_is_named() -> None:
    draws = single_draws(torch.Generator(), (), RBFKernel())
    with pytest.raises(UnsupportedError, match="PeriodicKernel has no known spectral density"):
        fourier_features(RBFKernel() + PeriodicKernel(), DIM, 64, draws)
    for count in (63, 2):
        with pytest.raises(UnsupportedError, match=f"even and at least 4, got {count}"):
            fourier_features(RBFKernel() + RBFKernel(), DIM, count, draws)
