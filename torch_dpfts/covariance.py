r"""Cholesky factors of the covariances of many Gaussian processes, extended as points arrive.

Between two fits of the hyperparameters the covariance of n points keeps its leading block. A
new point then costs one triangular solve instead of a new factor, :math:`O(n^2)` instead of
:math:`O(n^3)`:

.. math:: \begin{pmatrix} L & 0 \\ l^\top & s \end{pmatrix}, \quad L l = k(X, x), \quad
   s^2 = k(x, x) + \sigma^2 - l^\top l

(Osborne, *Bayesian Gaussian Processes for Sequential Prediction, Optimisation and Quadrature*,
2010, appendix B).
"""

from __future__ import annotations

import torch
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor
from torch.nn.functional import pad

from torch_dpfts.surrogate import Hyperparameters


class FactoredCovariance:
    """Covariances with an RBF kernel and observation noise, and their Cholesky factors.

    Args:
        X: Inputs, ``b x n x k``.
        hyperparameters: Those of the ``b`` models.

    Attributes:
        hyperparameters: As given.
        points: Inputs divided by the lengthscales, ``b x n x k``.
        factor: Lower Cholesky factors, ``b x n x n``.
    """

    def __init__(self, X: Tensor, hyperparameters: Hyperparameters) -> None:
        self.hyperparameters = hyperparameters
        self.points = X / hyperparameters.lengthscale.unsqueeze(-2)
        covariance = rbf(self.points, self.points)
        covariance.diagonal(dim1=-2, dim2=-1).add_(hyperparameters.noise.unsqueeze(-1))
        self.factor: Tensor = psd_safe_cholesky(covariance)

    def __len__(self) -> int:
        """Number of points of each model."""
        return self.points.shape[-2]

    def extend(self, X: Tensor) -> None:
        """Take in the rows of ``X``, ``b x n x k``, that come after those already in.

        One at a time, so that rounding does not depend on how many came together.
        """
        scale = self.hyperparameters.lengthscale.unsqueeze(-2)
        for i in range(len(self), X.shape[-2]):
            self._append(X[..., i : i + 1, :] / scale)

    def _append(self, point: Tensor) -> None:
        column = rbf(self.points, point)
        row = torch.linalg.solve_triangular(self.factor, column, upper=False).mT  # b x 1 x n
        noise = self.hyperparameters.noise
        # Without rounding errors no Schur complement is smaller than the noise.
        rest = torch.maximum(1 + noise - row.square().sum((-2, -1)), noise).sqrt()
        self.factor = torch.cat([pad(self.factor, (0, 1)), pad(row, (0, 1))], dim=-2)
        self.factor[..., -1, -1] = rest
        self.points = torch.cat([self.points, point], dim=-2)

    def __getitem__(self, rows: Tensor) -> FactoredCovariance:
        """Those of some of the models."""
        part = object.__new__(FactoredCovariance)
        part.hyperparameters = Hyperparameters(*(value[rows] for value in self.hyperparameters))
        part.points, part.factor = self.points[rows], self.factor[rows]
        return part

    def solve(self, residual: Tensor) -> Tensor:
        """Solve with the covariances, ``b x n -> b x n``."""
        return torch.cholesky_solve(residual.unsqueeze(-1), self.factor).squeeze(-1)


def rbf(Z: Tensor, Z2: Tensor) -> Tensor:
    """The kernel of points divided by the lengthscales, ``b x n x k, b x m x k -> b x n x m``."""
    squares = Z.square().sum(-1, keepdim=True) + Z2.square().sum(-1).unsqueeze(-2)
    return squares.baddbmm_(Z, Z2.mT, alpha=-2).clamp_min_(0).mul_(-0.5).exp_()
