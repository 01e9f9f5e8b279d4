"""The Gaussian process of each agent, with a batch dimension over agents.

The model is BoTorch's ``SingleTaskGP`` with its default kernel and priors [Hvarfner2024]_,
inputs normalised by the public bounds and outcomes standardised by each agent's own mean and
standard deviation. Its hyperparameters are fitted for all agents at once.

.. [Hvarfner2024] C. Hvarfner, E. O. Hellsten and L. Nardi. Vanilla Bayesian Optimization
   Performs Great in High Dimensions. ICML 2024.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import torch
from botorch.exceptions.warnings import InputDataWarning
from botorch.models import SingleTaskGP
from botorch.models.transforms import Standardize
from torch import Tensor

from torch_dpfts.marginal import LogMarginalLikelihood
from torch_dpfts.optim import minimize_in_box
from torch_dpfts.space import SearchSpace


class Limits(NamedTuple):
    """A limit of the search, the lower ones being those of BoTorch's constraints."""

    lengthscale: float
    noise: float


_LOWER = Limits(lengthscale=2.5e-2, noise=1e-4)
_UPPER = Limits(lengthscale=1e3, noise=1e2)
_REFIT_GROWTH = 1.2
_MAX_FITTED = 1000
_MIN_SPREAD = 1e-8  # as in BoTorch's Standardize


class Hyperparameters(NamedTuple):
    """Fitted values, in the units of the unit cube and of standardised outcomes.

    Args:
        mean: ``b``.
        lengthscale: ``b x d``.
        noise: ``b``, variance of the observation noise.
    """

    mean: Tensor
    lengthscale: Tensor
    noise: Tensor


def build_model(
    X: Tensor, Y: Tensor, space: SearchSpace, hyperparameters: Hyperparameters | None = None
) -> SingleTaskGP:
    """Build the batch of models.

    Args:
        X: Inputs in the user's units, ``b x n x d`` with ``n >= 1``.
        Y: Outcomes, ``b x n x 1``.
        space: The public search space.
        hyperparameters: Values to set; ``None`` leaves the modes of the priors.

    Returns:
        The models in evaluation mode.
    """
    batch_shape = X.shape[:-2]
    with warnings.catch_warnings():
        # The federation chose the dtype, and equal outcomes cannot be standardised.
        warnings.simplefilter("ignore", InputDataWarning)
        model = SingleTaskGP(
            X,
            Y,
            input_transform=space.input_transform(one_hot=True),
            outcome_transform=Standardize(1, batch_shape=batch_shape),
        )
    if hyperparameters is not None:
        set_hyperparameters(model, hyperparameters)
    return model.eval()


def standardized(Y: Tensor) -> Tensor:
    """Standardise ``b x n x 1`` as the models do; equal outcomes keep their units."""
    if Y.shape[-2] < 2:
        return torch.zeros_like(Y)  # a single outcome has no spread to be measured in
    mean = Y.mean(dim=-2, keepdim=True)
    spread = Y.std(dim=-2, keepdim=True)
    return (Y - mean) / torch.where(spread >= _MIN_SPREAD, spread, torch.ones_like(spread))


def set_hyperparameters(model: SingleTaskGP, values: Hyperparameters) -> None:
    """Write fitted values into a model."""
    model.mean_module.initialize(constant=values.mean)
    model.covar_module.initialize(lengthscale=values.lengthscale.unsqueeze(-2))
    model.likelihood.initialize(noise=values.noise.unsqueeze(-1))


def get_hyperparameters(model: SingleTaskGP) -> Hyperparameters:
    """Read a model's values."""
    return Hyperparameters(
        model.mean_module.constant.detach().clone(),
        model.covar_module.lengthscale.detach().squeeze(-2).clone(),
        model.likelihood.noise.detach().squeeze(-1).clone(),
    )


def is_refit_due(num_observations: int, num_fitted: int) -> bool:
    """Whether the data have grown by a fifth since the last fit, which keeps refits rare."""
    return num_observations >= _REFIT_GROWTH * num_fitted


def fit_model(model: SingleTaskGP, max_evals: int = 100) -> Hyperparameters:
    """Fit all models of the batch by their maximum a posteriori, warm-started where they are.

    Of more than 1,000 observations an evenly spaced subset of at most as many is fitted, since
    a fit costs O(n^3) many times over. The posterior is always conditioned on all of them.

    Args:
        model: The models; their parameters are changed.
        max_evals: Most evaluations of the likelihood.

    Returns:
        The fitted values.
    """
    (X,) = model.eval().train_inputs  # in evaluation mode these are in the unit cube
    step = -(-X.shape[-2] // _MAX_FITTED)
    likelihood = LogMarginalLikelihood(
        X[..., ::step, :],
        model.train_targets[..., ::step],
        model.covar_module.lengthscale_prior,
        model.likelihood.noise_covar.noise_prior,
    )

    def loss_and_grad(theta: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        value, grad = likelihood(theta, rows)
        return -value, -grad

    start = _pack(get_hyperparameters(model))
    lower, upper = _limits(start, -torch.inf, _LOWER), _limits(start, torch.inf, _UPPER)
    theta, _ = minimize_in_box(
        loss_and_grad,
        start.clamp(lower, upper),
        lower,
        upper,
        max_evals=max_evals,
        first_step=0.5,
    )
    values = _unpack(theta)
    set_hyperparameters(model, values)
    return values


def _pack(values: Hyperparameters) -> Tensor:
    scales = torch.cat([values.lengthscale, values.noise.unsqueeze(-1)], dim=-1)
    return torch.cat([values.mean.unsqueeze(-1), scales.log()], dim=-1)


def _limits(theta: Tensor, mean: float, limits: Limits) -> Tensor:
    scales = [limits.lengthscale] * (theta.shape[-1] - 2) + [limits.noise]
    return torch.cat([theta.new_tensor([mean]), theta.new_tensor(scales).log()])


def _unpack(theta: Tensor) -> Hyperparameters:
    return Hyperparameters(theta[..., 0], theta[..., 1:-1].exp(), theta[..., -1].exp())
