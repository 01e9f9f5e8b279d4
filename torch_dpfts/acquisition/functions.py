"""Batches of functions on the unit cube that can be evaluated at ragged sets of points.

A search over many functions is soon left with a few points of a few of them. A batch of
functions here takes points together with the number of the function that each belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from torch_dpfts.acquisition.paths import NUM_PATH_FEATURES
from torch_dpfts.covariance import FactoredCovariance, rbf
from torch_dpfts.features import SharedFeatures
from torch_dpfts.regions import RegionGrid
from torch_dpfts.rng import normal_rows
from torch_dpfts.space import SearchSpace

_BLOCK = 2**17  # Numbers worked on at a time: they fit into the cache.


@runtime_checkable
class FunctionBatch(Protocol):
    """What a search needs of ``b`` functions on the unit cube."""

    def values(self, U: Tensor) -> Tensor:
        """Evaluate each function at its own points, ``b x r x d -> b x r``.

        Single precision is enough: they rank the points.
        """

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
    """Exact posterior draws of GPs with an RBF kernel, in standardised outcomes.

    The same functions, from the same generators, as
    :func:`~torch_dpfts.acquisition.draw_posterior_path` draws from BoTorch's models, without
    the models.

    Args:
        covariance: The covariances of the ``b`` models' observations.
        y: Standardised outcomes, ``b x n``.
        generators: The source of randomness of each draw.
        num_features: Number of features of the prior; even.
    """

    def __init__(
        self,
        covariance: FactoredCovariance,
        y: Tensor,
        generators: Sequence[torch.Generator],
        num_features: int = NUM_PATH_FEATURES,
    ) -> None:
        pairs, (n, dim) = num_features // 2, covariance.points.shape[-2:]

        def normal(*shape: int) -> Tensor:
            return normal_rows(generators, shape, y.dtype, y.device)

        self._mean = covariance.hyperparameters.mean  # b
        self._inverse = covariance.hyperparameters.lengthscale.reciprocal()  # b x d
        self._points = covariance.points  # b x n x d
        self._columns = covariance.points.mT.contiguous()  # sums over n are faster than over d
        # The prior in units of the lengthscales first, as the points are.
        self._frequencies = normal(pairs, dim).mT.contiguous()  # b x d x F
        # A sine and a cosine of one frequency are one cosine with an amplitude and a phase.
        sin, cos = normal(num_features).chunk(2, dim=-1)
        self._amplitude = torch.hypot(sin, cos) * pairs**-0.5  # b x F
        self._phase = -torch.atan2(sin, cos)  # b x F
        noise = covariance.hyperparameters.noise.sqrt().unsqueeze(-1) * normal(n)
        observed = self._prior(self._points, y.dtype) + self._mean.unsqueeze(-1) + noise
        self._frequencies *= self._inverse.unsqueeze(-1)
        self._coefficients = covariance.solve(y - observed)  # b x n

    def values(self, U: Tensor) -> Tensor:
        """Evaluate each function at its own points, ``b x r x d -> b x r``.

        To rank points: the prior's part has single precision, which halves the time.
        """
        update = rbf(U * self._inverse.unsqueeze(-2), self._points)
        value = (update @ self._coefficients.unsqueeze(-1)).squeeze(-1)
        return value + self._prior(U, torch.float32) + self._mean.unsqueeze(-1)

    def _prior(self, U: Tensor, dtype: torch.dtype) -> Tensor:
        """The prior's draws at ``b x r x d``, a few functions at a time that fit the cache."""
        size = max(_BLOCK // (U.shape[-2] * self._frequencies.shape[-1]), 1)
        blocks = []
        for points, frequencies, phase, amplitude in zip(
            U.to(dtype).split(size),
            self._frequencies.to(dtype).split(size),
            self._phase.to(dtype).unsqueeze(-2).split(size),
            self._amplitude.to(dtype).unsqueeze(-2).split(size),
            strict=True,
        ):
            waves = torch.baddbmm(phase, points, frequencies).cos_()
            # Products by matrices of one column would take longer than the cosines.
            blocks.append(waves.mul_(amplitude).sum(-1))
        return torch.cat(blocks)

    def value_and_grad(self, u: Tensor, of: Tensor) -> tuple[Tensor, Tensor]:
        """Evaluate ragged points; see :class:`FunctionBatch`."""
        frequencies = self._frequencies.index_select(0, of)
        amplitude = self._amplitude.index_select(0, of)
        angles = (u.unsqueeze(-2) @ frequencies).squeeze(-2).add_(self._phase.index_select(0, of))
        value = (angles.cos() * amplitude).sum(-1) + self._mean[of]
        slope = angles.sin_().mul_(amplitude)
        grad = frequencies.mul_(slope.unsqueeze(-2)).sum(-1).neg_()
        inverse = self._inverse[of]
        difference = (u * inverse).unsqueeze(-1) - self._columns.index_select(0, of)  # m x d x n
        term = difference.square().sum(-2).mul_(-0.5).exp_()
        term *= self._coefficients.index_select(0, of)
        value += term.sum(-1)
        grad -= difference.mul_(term.unsqueeze(-2)).sum(-1) * inverse
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
        return self._features.value_and_grad(u, self._vectors[of, self._grid.index(u)])
