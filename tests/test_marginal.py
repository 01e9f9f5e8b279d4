import pytest
import torch
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from torch_dpfts.marginal import LogMarginalLikelihood
from torch_dpfts.space import SearchSpace
from torch_dpfts.surrogate import Hyperparameters, build_model, set_hyperparameters

BOUNDS = torch.tensor([[200.0, -1.0, 0.0], [8000.0, 1.0, 9.0]], dtype=torch.float64)


def case(n: int) -> tuple[torch.nn.Module, LogMarginalLikelihood, Tensor]:
    generator = torch.Generator().manual_seed(n)
    unit = torch.rand(4, n, 3, generator=generator, dtype=torch.float64)
    X, Y = BOUNDS[0] + unit * (BOUNDS[1] - BOUNDS[0]), (6 * unit).sin().sum(-1, keepdim=True)
    model = build_model(X, Y, SearchSpace(BOUNDS))
    likelihood = LogMarginalLikelihood(
        model.train_inputs[0],
        model.train_targets,
        model.covar_module.lengthscale_prior,
        model.likelihood.noise_covar.noise_prior,
    )
    theta = 0.3 * torch.randn(4, 5, generator=generator, dtype=torch.float64) - 1
    return model, likelihood, theta


@pytest.mark.parametrize("n", [1, 7, 40])
def test_values_and_gradients_are_gpytorchs(n: int) -> None:
    model, likelihood, theta = case(n)
    values, grads = likelihood(theta, torch.arange(4))
    scales = theta[:, 1:].exp()
    set_hyperparameters(model, Hyperparameters(theta[:, 0], scales[:, :-1], scales[:, -1]))
    mll = ExactMarginalLogLikelihood(model.likelihood, model).train()
    reference = mll(model(*model.train_inputs), model.train_targets)
    torch.testing.assert_close(values, reference.detach())
    mean, lengthscale, noise = torch.autograd.grad(
        reference.sum(),
        [
            model.mean_module.raw_constant,
            model.covar_module.raw_lengthscale,
            model.likelihood.noise_covar.raw_noise,
        ],
    )
    logs = torch.cat([lengthscale.squeeze(-2), noise], dim=-1) * scales
    torch.testing.assert_close(grads, torch.cat([mean.unsqueeze(-1), logs], dim=-1))


def test_any_rows_can_be_asked_for() -> None:
    _, likelihood, theta = case(7)
    values, grads = likelihood(theta, torch.arange(4))
    some = torch.tensor([2, 0])
    torch.testing.assert_close(likelihood(theta[some], some), (values[some], grads[some]))


def test_a_covariance_that_is_not_positive_definite_has_no_likelihood() -> None:
    _, likelihood, theta = case(40)
    theta[1, 1:] = torch.tensor([9.0, 9.0, 9.0, -200.0])
    values, _ = likelihood(theta, torch.arange(4))
    assert values.isfinite().tolist() == [True, False, True, True]
