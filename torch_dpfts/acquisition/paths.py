r"""Functions drawn exactly from the posterior of a Gaussian process, as BoTorch sample paths.

.. [Wilson2020] J. Wilson et al. Efficiently Sampling Functions from Gaussian Process
   Posteriors. ICML 2020.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.models.deterministic import DeterministicModel
from botorch.models.model import Model
from botorch.models.transforms.input import InputTransform, Round
from botorch.sampling.pathwise import draw_kernel_feature_paths, draw_matheron_paths
from botorch.sampling.pathwise.features.maps import KernelEvaluationMap
from botorch.sampling.pathwise.paths import GeneralizedLinearPath, SamplePath
from botorch.sampling.pathwise.posterior_samplers import MatheronPath
from botorch.sampling.pathwise.update_strategies import gaussian_update
from botorch.sampling.pathwise.utils import get_train_inputs
from gpytorch.kernels import Kernel
from linear_operator.operators import ZeroLinearOperator
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Size, Tensor

from torch_dpfts.acquisition.fourier import (
    Draws,
    categorical_inputs,
    fourier_features,
    num_terms,
)
from torch_dpfts.rng import normal_rows, uniform_rows

NUM_PATH_FEATURES = 512


class PathModel(DeterministicModel):
    """A sample path as a deterministic model, with the output dimension at the end.

    Args:
        path: Maps ``batch_shape x q x d`` to ``batch_shape x q``; with several outputs,
            ``batch_shape x 1 x q x d`` to ``batch_shape x m x q``.
        num_outputs: The number ``m`` of outputs.
        member: For a path of an ensemble, which maps to ``batch_shape x num_ensemble x q``, the
            member to follow.
    """

    def __init__(self, path: SamplePath, num_outputs: int = 1, member: int | None = None) -> None:
        super().__init__()
        self.path = path
        self.member = member
        self._num_outputs = num_outputs

    def forward(self, X: Tensor) -> Tensor:
        """Evaluate, ``batch_shape x q x d -> batch_shape x q x m``."""
        if self._num_outputs > 1:
            values: Tensor = self.path(X.unsqueeze(-3))
            return values.mT
        values = self.path(X)
        if self.member is not None:
            values = values[..., self.member, :]
        return values.unsqueeze(-1)


def draw_posterior_path(
    model: Model,
    generators: Sequence[torch.Generator],
    num_features: int = NUM_PATH_FEATURES,
) -> MatheronPath:
    """Draw functions from the posterior of an exact Gaussian process by Matheron's rule.

    The prior is drawn in random Fourier features; the data enter exactly, so that the
    variance does not collapse when observations outnumber features [Wilson2020]_. The path
    is a copy: later changes of the model do not reach it. Inputs on which a categorical kernel
    acts are rounded to whole numbers inside the path.

    Args:
        model: An exact GP like ``SingleTaskGP``. With a batch shape, either each generator draws
            for one model of the batch or one draws for all.
        generators: The sources of randomness.
        num_features: Number of features of each term of the kernel; even.

    Returns:
        A path that maps ``[b x] q x d`` to ``[b x] q``; see :class:`PathModel` for several
        outputs and ensembles.

    Raises:
        UnsupportedError: If the kernel is not a sum, product or scaled version of RBF, Matern
            and categorical kernels, or a category of the data is no whole number.
    """
    model.eval()
    kernel: Kernel = model.covar_module
    (points,) = get_train_inputs(model, transformed=True)
    categorical = categorical_inputs(kernel, points.shape[-1])
    codes = points[..., categorical]
    if not torch.equal(codes, codes.round()):
        raise UnsupportedError(
            f"Inputs {categorical} are categorical and must hold whole numbers after the model's "
            "input transform; code the categories 0, 1, ... and leave them untransformed."
        )
    draws = _row_draws(generators, points)

    def draw_prior(model: Model, sample_shape: Size) -> SamplePath:
        prior = draw_kernel_feature_paths(
            model,
            sample_shape,
            num_features=num_features * num_terms(kernel, points.shape[-1]),
            # BoTorch counts the inputs before the transform, which may add some.
            map_generator=lambda kernel, num_inputs, num_outputs: fourier_features(
                kernel, points.shape[-1], num_outputs, draws
            ),
            weight_generator=lambda shape: draws.normal(shape[-1]),
        )
        # It is evaluated at the training points, which may hold the dimension of an ensemble.
        prior.set_ensemble_as_batch(points.ndim > 2)
        return prior

    with torch.no_grad():
        path = draw_matheron_paths(
            model,
            Size(),
            prior_sampler=draw_prior,
            update_strategy=partial(_exact_update, draws=draws),
        )
        path.set_ensemble_as_batch(False)
        return deepcopy(_transform_once(path, categorical))


def _row_draws(generators: Sequence[torch.Generator], points: Tensor) -> Draws:
    """Draws for each model of a batch (and each output), by one generator a model or by one."""
    batch = points.shape[:-2]
    rest = Size((batch.numel() // len(generators),))

    def normal(*shape: int) -> Tensor:
        rows = normal_rows(generators, rest + shape, points.dtype, points.device)
        return rows.reshape(batch + shape)

    def uniform(*shape: int) -> Tensor:
        rows = uniform_rows(generators, rest + shape, points.dtype, points.device)
        return rows.reshape(batch + shape)

    return Draws(normal, uniform)


def _exact_update(
    model: Model, sample_values: Tensor, target_values: Tensor, draws: Draws
) -> GeneralizedLinearPath:
    """BoTorch's Gaussian update with the observation noise drawn from our generators."""
    (points,) = get_train_inputs(model, transformed=True)
    kernel: Any = model.covar_module
    likelihood: Any = model.likelihood
    noise = likelihood.noise_covar(shape=points.shape[:-1]).diagonal(dim1=-1, dim2=-2)
    covariance = kernel(points).to_dense() + torch.diag_embed(noise)
    return gaussian_update(
        model,
        sample_values=sample_values + noise.sqrt() * draws.normal(points.shape[-2]),
        target_values=target_values,
        noise_covariance=ZeroLinearOperator(*covariance.shape),
        scale_tril=psd_safe_cholesky(covariance),
    )


class _DenseEvaluation(KernelEvaluationMap):
    """Evaluates the kernel at once: the lazy product fails for batches of an ensemble."""

    def forward(self, x: Tensor) -> Tensor:
        covariance: Tensor = self.kernel(x, self.points).to_dense()
        return covariance


def _transform_once(path: MatheronPath, categorical: list[int]) -> MatheronPath:
    """Move the input transform, which prior and update share, to the front of the path."""
    prior: Any = path["prior_paths"]
    update: Any = path["update_paths"]
    transform = prior.input_transform
    prior.input_transform = None
    update.feature_map = _DenseEvaluation(update.feature_map.kernel, update.feature_map.points)
    path.input_transform = _RoundAfter(transform, categorical) if categorical else transform
    return path


class _RoundAfter(torch.nn.Module):
    """An input transform, then the rounding of some of its outputs."""

    def __init__(self, transform: InputTransform | None, dims: list[int]) -> None:
        super().__init__()
        self.transform = transform
        self.round = Round(integer_indices=dims)

    def forward(self, X: Tensor) -> Tensor:
        rounded: Tensor = self.round(X if self.transform is None else self.transform(X))
        return rounded
