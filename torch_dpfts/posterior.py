r"""The posterior of the weights of a function in the shared features.

With features :math:`\Phi` (``n x M``), standardised y and regulariser :math:`\lambda`,

.. math:: \omega \sim N(\Sigma^{-1} \Phi^\top y, \lambda \Sigma^{-1}), \quad
   \Sigma = \Phi^\top \Phi + \lambda I

(equation 2 of [Dai2021]_). No matrix is inverted: with fewer points than features everything
is solved through the ``n x n`` kernel matrix, otherwise through the ``M x M`` Cholesky factor.
"""

from __future__ import annotations

import torch
from torch import Tensor


def weight_mean(features: Tensor, y: Tensor, noise_variance: float) -> Tensor:
    """Return the posterior mean of the weights.

    Args:
        features: ``batch_shape x n x M``; n may be 0.
        y: Standardised observations, ``batch_shape x n``.
        noise_variance: The regulariser lambda.

    Returns:
        ``batch_shape x M``.
    """
    n, num_features = features.shape[-2:]
    if n < num_features:
        return _kernel_solve(features, y, noise_variance)
    return _weight_solve(features, y, noise_variance)[0]


def weight_sample(
    features: Tensor, y: Tensor, noise_variance: float, prior: Tensor, noise: Tensor
) -> Tensor:
    r"""Return an exact posterior draw of the weights.

    For ``n < M`` by Matheron's rule, :math:`\omega = \omega_0 + \Phi^\top (\Phi \Phi^\top +
    \lambda I)^{-1} (y - \Phi \omega_0 - e)`; else by the Cholesky factor of :math:`\Sigma`.

    Args:
        features: ``batch_shape x n x M``; n may be 0.
        y: Standardised observations, ``batch_shape x n``.
        noise_variance: The regulariser lambda.
        prior: Standard normal draws, ``batch_shape x M``.
        noise: Standard normal draws, ``batch_shape x n``.

    Returns:
        ``batch_shape x M``.
    """
    n, num_features = features.shape[-2:]
    if n < num_features:
        observed = (features @ prior.unsqueeze(-1)).squeeze(-1) + noise_variance**0.5 * noise
        return prior + _kernel_solve(features, y - observed, noise_variance)
    mean, factor = _weight_solve(features, y, noise_variance)
    # Sigma = L L', so L'^-1 times a standard normal has covariance Sigma^-1.
    spread = torch.linalg.solve_triangular(factor.mT, prior.unsqueeze(-1), upper=True).squeeze(-1)
    return mean + noise_variance**0.5 * spread


def _kernel_solve(features: Tensor, y: Tensor, noise_variance: float) -> Tensor:
    eye = torch.eye(features.shape[-2], dtype=features.dtype, device=features.device)
    factor = torch.linalg.cholesky(features @ features.mT + noise_variance * eye)
    return (features.mT @ torch.cholesky_solve(y.unsqueeze(-1), factor)).squeeze(-1)


def _weight_solve(features: Tensor, y: Tensor, noise_variance: float) -> tuple[Tensor, Tensor]:
    eye = torch.eye(features.shape[-1], dtype=features.dtype, device=features.device)
    factor = torch.linalg.cholesky(features.mT @ features + noise_variance * eye)
    return torch.cholesky_solve(features.mT @ y.unsqueeze(-1), factor).squeeze(-1), factor
