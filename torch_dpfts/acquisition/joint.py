"""An exact posterior draw of any Gaussian model, revealed point by point.

Where a kernel has no features to draw a whole function from, the function's values are drawn
from the model's joint posterior as they are asked for, each given all the values that came
before. That is exact, but costs a Cholesky factor of the points asked for so far.
"""

from __future__ import annotations

import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.models.deterministic import DeterministicModel
from botorch.models.model import Model
from botorch.utils.context_managers import delattr_ctx
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from torch_dpfts.rng import derived_generator, normal_rows

# Variance added where values are conditioned on, as a share of the largest posterior variance:
# points close together would otherwise make the covariance singular.
_JITTER = {torch.float64: 1e-8, torch.float32: 1e-4}


class JointDraw(DeterministicModel):
    """A draw from a model's joint posterior, conditioned on the values it has already shown.

    A point asked for again has the same value, whatever it is asked together with. Values of
    new points depend on the order of the questions; the same questions with the same seed give
    the same answers. Gradients are those of the posterior mean given every value shown so far,
    which passes through the values. The model is not copied: build a new draw after a refit.

    Args:
        model: A model with a Gaussian posterior and no batch dimension.
        seed: Seed of the draw.

    Raises:
        UnsupportedError: If the model has a batch dimension, or (when evaluated) its posterior is
            not Gaussian.
    """

    def __init__(self, model: Model, seed: int) -> None:
        super().__init__()
        if model.batch_shape:
            raise UnsupportedError(
                "Joint draws need a model without batch dimension, got batch_shape="
                f"{tuple(model.batch_shape)}; draw from each model of the batch."
            )
        self.model = model
        self._num_outputs = model.num_outputs
        self._seed = seed
        self._points: Tensor | None = None  # k x d, every point asked for
        self._values: Tensor | None = None  # k x m, before the outcome transform is undone

    def forward(self, X: Tensor) -> Tensor:
        """Evaluate, ``batch_shape x q x d -> batch_shape x q x m``."""
        flat = X.reshape(-1, X.shape[-1])
        with torch.no_grad():
            points, shown = self._reveal(flat.detach())
            values = shown[_equal_rows(flat, points).to(torch.uint8).argmax(dim=-1)]
        if X.requires_grad:
            mean, _, _ = self._given(points, shown, flat)
            values = values + (mean - mean.detach())
        transform = getattr(self.model, "outcome_transform", None)
        values = values.reshape(*X.shape[:-1], self._num_outputs)
        return values if transform is None else transform.untransform(values)[0]

    def _reveal(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """All points asked for and their values, once the new ones of ``b x d`` are drawn."""
        if self._points is None or self._values is None:
            self._points, self._values = X[:0], X.new_zeros(0, self._num_outputs)
        X = torch.unique(X, dim=0)
        new = X[~_equal_rows(X, self._points).any(dim=-1)]
        if len(new):
            mean, covariance, half = self._given(self._points, self._values, new)
            rest = covariance - half.mT @ half
            # A symmetric root copes with new points that lie on top of one another.
            eigenvalues, vectors = torch.linalg.eigh((rest + rest.mT) / 2)
            root = vectors * eigenvalues.clamp_min(0).sqrt()
            generator = derived_generator(self._seed, "joint", len(self._points))
            noise = normal_rows([generator], (mean.numel(), 1), mean.dtype, mean.device)[0]
            self._points = torch.cat([self._points, new])
            self._values = torch.cat([self._values, mean + (root @ noise).reshape(mean.shape)])
        return self._points, self._values

    def _given(self, points: Tensor, shown: Tensor, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The posterior at ``X`` given the values shown at ``points``.

        Returns:
            The mean given them, ``b x m``; the covariance without them, ``bm x bm``; and the
            ``km x bm`` matrix H for which H'H is what they take away from it.
        """
        mean, covariance = self._posterior(torch.cat([points, X]))
        at_points, at_X = mean[: len(points)], mean[len(points) :]
        k = at_points.numel()
        jitter = _JITTER[mean.dtype] * covariance.diagonal().max().detach()
        known = covariance[:k, :k].detach() + jitter * torch.eye(k, dtype=X.dtype, device=X.device)
        factor = psd_safe_cholesky(known)
        half = torch.linalg.solve_triangular(factor, covariance[:k, k:], upper=False)
        errors = (shown - at_points.detach()).reshape(-1, 1)
        shift = half.mT @ torch.linalg.solve_triangular(factor, errors, upper=False)
        return at_X + shift.reshape(at_X.shape), covariance[k:, k:], half

    def _posterior(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Mean ``b x m`` and covariance ``bm x bm`` (outputs fastest) of transformed outcomes."""
        with delattr_ctx(self.model, "outcome_transform"):
            normal = getattr(self.model.posterior(X), "distribution", None)
        if not isinstance(normal, MultivariateNormal):
            raise UnsupportedError(
                f"{type(self.model).__name__} has no Gaussian posterior to draw functions from."
            )
        covariance: Tensor = normal.covariance_matrix
        mean: Tensor = normal.mean
        if isinstance(normal, MultitaskMultivariateNormal):
            if not normal._interleaved:
                b, m = mean.shape
                order = torch.arange(b * m, device=X.device).reshape(m, b).mT.reshape(-1)
                covariance = covariance[order][:, order]
            return mean, covariance
        return mean.unsqueeze(-1), covariance


def _equal_rows(X: Tensor, points: Tensor) -> Tensor:
    """Which rows agree, ``b x k``."""
    return (X.unsqueeze(-2) == points).all(dim=-1)
