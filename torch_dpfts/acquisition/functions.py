"""Batches of functions on the unit cube that can be evaluated at ragged sets of points.

A search over many functions is soon left with a few points of a few of them. A batch of
functions here takes points together with the number of the function that each belongs to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch
from botorch.sampling.pathwise.posterior_samplers import MatheronPath
from gpytorch.kernels import RBFKernel
from torch import Tensor

from torch_dpfts.features import SharedFeatures
from torch_dpfts.regions import RegionGrid
from torch_dpfts.space import SearchSpace


@runtime_checkable
class FunctionBatch(Protocol):
    """What a search needs of ``b`` functions on the unit cube."""

    def values(self, U: Tensor) -> Tensor:
        """Evaluate each function at its own points, ``b x r x d -> b x r``."""

    def value_and_grad(self, u: Tensor, of: Tensor) -> tuple[Tensor, Tensor]:
        """Evaluate function ``of[i]`` at point ``u[i]``.

        Args:
            u: Points, ``m x d``.
            of: Numbers of functions, ``m``.

        Returns:
            Values ``m`` and gradients ``m x d``.
        """


class Autograd:
    """Any differentiable function of a batch, in the user's units.

    Args:
        f: Maps ``b x r x d`` to ``b x r``.
        batch_size: The number ``b`` of functions.
        space: The search space.
    """

    def __init__(self, f: Callable[[Tensor], Tensor], batch_size: int, space: SearchSpace) -> None:
        self._f = f
        self._batch_size = batch_size
        self._space = space

    def values(self, U: Tensor) -> Tensor:
        """Evaluate each function at its own points, ``b x r x d -> b x r``."""
        return self._f(self._space.from_unit(U))

    def value_and_grad(self, u: Tensor, of: Tensor) -> tuple[Tensor, Tensor]:
        """Evaluate ragged points by padding them to a rectangle; see :class:`FunctionBatch`."""
        order = of.argsort(stable=True)
        counts = torch.bincount(of, minlength=self._batch_size)
        first = counts.cumsum(0) - counts
        column = torch.empty_like(of)
        column[order] = torch.arange(len(of), device=of.device) - first[of[order]]
        U = u[:1].repeat(self._batch_size, int(counts.max()), 1)
        U[of, column] = u.detach()
        U.requires_grad_()
        values = self.values(U)
        (grads,) = torch.autograd.grad(values.sum(), U)
        return values.detach()[of, column], grads[of, column]


class PosteriorDraws:
    """Posterior draws of GPs with an RBF kernel, in standardised outcomes.

    Args:
        path: Draws of a batch of ``b`` models; see
            :func:`~torch_dpfts.acquisition.draw_posterior_path`.
    """

    def __init__(self, path: MatheronPath) -> None:
        prior: Any = path["prior_paths"]
        update: Any = path["update_paths"]
        kernel: RBFKernel = update.feature_map.kernel
        features = prior.feature_map
        self._frequencies = features.weight  # b x F x d
        sin, cos = (prior.weight * features.output_transform.scale.squeeze(-2)).chunk(2, dim=-1)
        self._sin, self._cos = sin.contiguous(), cos.contiguous()  # b x F
        self._mean = prior.bias_module.constant.detach()  # b
        self._inverse = kernel.lengthscale.detach().squeeze(-2).reciprocal()  # b x d
        self._points = update.feature_map.points * self._inverse.unsqueeze(-2)  # b x n x d
        self._coefficients = update.weight  # b x n

    def values(self, U: Tensor) -> Tensor:
        """Evaluate each function at its own points, ``b x r x d -> b x r``."""
        angles = U @ self._frequencies.mT
        value = angles.sin() @ self._sin.unsqueeze(-1) + angles.cos() @ self._cos.unsqueeze(-1)
        Z = U * self._inverse.unsqueeze(-2)
        squares = Z.square().sum(-1, keepdim=True) + self._points.square().sum(-1).unsqueeze(-2)
        covariance = squares.baddbmm_(Z, self._points.mT, alpha=-2).mul_(-0.5).exp_()
        value += covariance @ self._coefficients.unsqueeze(-1)
        return value.squeeze(-1) + self._mean.unsqueeze(-1)

    def value_and_grad(self, u: Tensor, of: Tensor) -> tuple[Tensor, Tensor]:
        """Evaluate ragged points; see :class:`FunctionBatch`."""
        frequencies, sin_weight, cos_weight = self._frequencies[of], self._sin[of], self._cos[of]
        angles = (frequencies @ u.unsqueeze(-1)).squeeze(-1)
        sin, cos = angles.sin(), angles.cos()
        value = (sin * sin_weight).sum(-1) + (cos * cos_weight).sum(-1) + self._mean[of]
        slope = cos.mul_(sin_weight).sub_(sin.mul_(cos_weight))
        grad = (slope.unsqueeze(-2) @ frequencies).squeeze(-2)
        inverse = self._inverse[of]
        difference = (u * inverse).unsqueeze(-2) - self._points[of]
        term = difference.square().sum(-1).mul_(-0.5).exp_().mul_(self._coefficients[of])
        value += term.sum(-1)
        grad -= (term.unsqueeze(-2) @ difference).squeeze(-2) * inverse
        return value, grad


class BroadcastFunctions:
    r"""The broadcasts as functions, :math:`\phi(x)^\top \omega^{(i(x))}`.

    Args:
        features: The shared feature map.
        grid: The sub-regions.
        vectors: Weights of each function and sub-region, ``b x P x M``.
    """

    def __init__(self, features: SharedFeatures, grid: RegionGrid, vectors: Tensor) -> None:
        self._features = features
        self._grid = grid
        self._vectors = vectors

    def values(self, U: Tensor) -> Tensor:
        """Evaluate each function at its own points, ``b x r x d -> b x r``."""
        by_region = self._features(U) @ self._vectors.mT
        return by_region.gather(-1, self._grid.index(U).unsqueeze(-1)).squeeze(-1)

    def value_and_grad(self, u: Tensor, of: Tensor) -> tuple[Tensor, Tensor]:
        """Evaluate ragged points; see :class:`FunctionBatch`."""
        weights = self._vectors[of, self._grid.index(u)]
        u = u.detach().requires_grad_()
        values = (self._features(u) * weights).sum(-1)
        (grads,) = torch.autograd.grad(values.sum(), u)
        return values.detach(), grads
