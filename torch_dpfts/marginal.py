r"""The log marginal likelihood of many Gaussian processes with an RBF kernel, with its gradient.

GPyTorch evaluates whole batches, also the models whose fit is long done, and spends most of
its time on bookkeeping for models this small. The closed form here evaluates any rows of a
batch:

.. math:: \partial_\theta \log p(y) = \tfrac12 \operatorname{tr} \left( (\alpha \alpha^\top -
   K^{-1}) \, \partial_\theta K \right), \quad \alpha = K^{-1} (y - m)

(Rasmussen and Williams, *Gaussian Processes for Machine Learning*, equation 5.9).
"""

from __future__ import annotations

import math

import torch
from gpytorch.priors import LogNormalPrior
from torch import Tensor


class LogMarginalLikelihood:
    """Log marginal likelihoods with log-normal priors, divided by n as GPyTorch does.

    Parameters are ``(mean, log lengthscales, log noise variance)``, ``d + 2`` for each model.

    Args:
        X: Inputs, ``b x n x d``.
        y: Targets, ``b x n``.
        lengthscale_prior: Prior of each lengthscale.
        noise_prior: Prior of the noise variance.
    """

    def __init__(
        self, X: Tensor, y: Tensor, lengthscale_prior: LogNormalPrior, noise_prior: LogNormalPrior
    ) -> None:
        self.X, self.y = X, y
        d = X.shape[-1]
        self._loc = torch.cat([lengthscale_prior.loc.expand(d), noise_prior.loc.expand(1)]).to(X)
        scales = torch.cat([lengthscale_prior.scale.expand(d), noise_prior.scale.expand(1)])
        self._scale = scales.to(X)

    def __call__(self, theta: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Evaluate the models ``rows`` (``m``) at ``theta`` (``m x (d + 2)``).

        Returns:
            Values ``m`` (``-inf`` where the covariance is not positive definite) and gradients
            ``m x (d + 2)``.
        """
        n = self.y.shape[-1]
        mean, scales = theta[:, 0], theta[:, 1:].exp()
        Z = self.X[rows] / scales[:, None, :-1]
        squares = Z.square().sum(-1)
        K = (squares.unsqueeze(-1) + squares.unsqueeze(-2)).baddbmm_(Z, Z.mT, alpha=-2)
        K.clamp_min_(0).mul_(-0.5).exp_()
        covariance = K.clone()
        covariance.diagonal(dim1=-2, dim2=-1).add_(scales[:, -1:])
        factor, info = torch.linalg.cholesky_ex(covariance)
        residual = (self.y[rows] - mean.unsqueeze(-1)).unsqueeze(-1)
        alpha = torch.cholesky_solve(residual, factor)
        log_det = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        value = -0.5 * (residual * alpha).sum((-2, -1)) - log_det - 0.5 * n * math.log(2 * math.pi)
        G = alpha @ alpha.mT - torch.cholesky_inverse(factor)
        noise_grad = 0.5 * G.diagonal(dim1=-2, dim2=-1).sum(-1) * scales[:, -1]
        # Entry (a, b) of dK / d log l_j is K_ab (z_aj - z_bj)^2; the square is multiplied out.
        GK = G.mul_(K)
        scale_grad = (GK.sum(-1, keepdim=True) * Z.square()).sum(-2) - (Z * (GK @ Z)).sum(-2)
        grad = torch.cat(
            [alpha.sum((-2, -1)).unsqueeze(-1), scale_grad, noise_grad.unsqueeze(-1)], dim=-1
        )
        standard = (theta[:, 1:] - self._loc) / self._scale
        normalisers = theta[:, 1:] + (self._scale * math.sqrt(2 * math.pi)).log()
        value = value - (0.5 * standard.square() + normalisers).sum(-1)
        grad[:, 1:] -= 1 + standard / self._scale
        return torch.where(info == 0, value, -torch.inf) / n, grad / n
