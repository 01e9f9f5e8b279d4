import pytest
import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from torch_dpfts.covariance import FactoredCovariance
from torch_dpfts.surrogate import Hyperparameters


def data(n: int) -> tuple[Tensor, Hyperparameters]:
    generator = torch.Generator().manual_seed(n)

    def rand(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    return rand(3, n, 2), Hyperparameters(rand(3), 0.1 + rand(3, 2), 1e-4 + 0.1 * rand(3))


def by_gpytorch(X: Tensor, values: Hyperparameters) -> Tensor:
    kernel = RBFKernel(ard_num_dims=2, batch_shape=X.shape[:1]).double()
    kernel.lengthscale = values.lengthscale.unsqueeze(-2)
    noise = torch.diag_embed(values.noise.unsqueeze(-1).expand(X.shape[:2]))
    return (kernel(X).to_dense() + noise).detach()


@pytest.mark.parametrize("first", [1, 7, 30])
def test_the_factor_is_that_of_gpytorchs_covariance(first: int) -> None:
    X, values = data(30)
    covariance = FactoredCovariance(X[:, :first], values)
    for n in (first, (first + 30) // 2, 30):
        covariance.extend(X[:, :n])
        assert len(covariance) == n
        torch.testing.assert_close(
            covariance.factor @ covariance.factor.mT, by_gpytorch(X[:, :n], values)
        )
    residual = X.sum(-1)
    expected = torch.linalg.solve(by_gpytorch(X, values), residual)
    torch.testing.assert_close(covariance.solve(residual), expected, rtol=1e-6, atol=1e-8)


def test_bits_do_not_depend_on_how_many_points_came_together() -> None:
    X, values = data(20)
    together, singly = (FactoredCovariance(X[:, :9], values) for _ in range(2))
    together.extend(X)
    for n in range(10, 21):
        singly.extend(X[:, :n])
    assert torch.equal(together.factor, singly.factor)


def test_rows_are_models() -> None:
    X, values = data(8)
    covariance = FactoredCovariance(X, values)
    part = covariance[torch.tensor([2, 0])]
    assert torch.equal(part.factor, covariance.factor[[2, 0]])
    assert torch.equal(part.points, covariance.points[[2, 0]])
    assert torch.equal(part.hyperparameters.noise, values.noise[[2, 0]])
    part.extend(torch.cat([X[[2, 0]], X[[2, 0], :1]], dim=-2))
    assert (len(part), len(covariance)) == (9, 8)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_repeated_points_keep_a_factor(dtype: torch.dtype) -> None:
    X, values = data(5)
    X, values = X.to(dtype), Hyperparameters(*(value.to(dtype) for value in values))
    values.noise.fill_(1e-4)
    covariance = FactoredCovariance(X, values)
    covariance.extend(torch.cat([X, X[:, :1].repeat(1, 30, 1)], dim=-2))
    assert covariance.factor.isfinite().all()
    assert (covariance.factor.diagonal(dim1=-2, dim2=-1) >= 0.009).all()
