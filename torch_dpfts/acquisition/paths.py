r"""The two functions an agent may maximise: its own posterior draw and the broadcast.

Both are BoTorch sample paths: modules that map ``batch_shape x q x d`` to
``batch_shape x q``, in the units of the search space.

.. [Wilson2020] J. Wilson et al. Efficiently Sampling Functions from Gaussian Process
   Posteriors. ICML 2020.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.models.model import Model
from botorch.models.transforms import Normalize
from botorch.sampling.pathwise import draw_kernel_feature_paths, draw_matheron_paths
from botorch.sampling.pathwise.features.maps import KernelFeatureMap
from botorch.sampling.pathwise.paths import GeneralizedLinearPath, SamplePath
from botorch.sampling.pathwise.posterior_samplers import MatheronPath
from botorch.sampling.pathwise.update_strategies import gaussian_update
from botorch.sampling.pathwise.utils import SineCosineTransform, get_train_inputs
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from linear_operator.operators import ZeroLinearOperator
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from torch_dpfts.features import SharedFeatures
from torch_dpfts.messages import Broadcast
from torch_dpfts.regions import RegionGrid
from torch_dpfts.rng import normal_rows
from torch_dpfts.spec import FederationSpec

NUM_PATH_FEATURES = 512


class BroadcastPath(SamplePath):
    r"""The broadcast as a function, :math:`f(x) = \phi(x)^\top \omega^{(i(x))}`.

    It jumps at the borders of the sub-regions (equation 5 of [Dai2021]_).

    Args:
        features: The shared feature map, on the unit cube.
        grid: The sub-regions.
        vectors: Weights of each sub-region, ``batch_shape x P x M``.
        bounds: Bounds of the search space, ``2 x d``; ``None`` if inputs are in the unit cube.
    """

    vectors: Tensor

    def __init__(
        self,
        features: SharedFeatures,
        grid: RegionGrid,
        vectors: Tensor,
        bounds: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.features = features
        self.grid = grid
        self.register_buffer("vectors", vectors)
        self.input_transform = None if bounds is None else Normalize(grid.dim, bounds=bounds)
        self.output_transform = None

    @classmethod
    def from_broadcast(cls, spec: FederationSpec, broadcast: Broadcast) -> BroadcastPath:
        """Build the path of a broadcast on the broadcast's device."""
        device = broadcast.vectors.device
        return cls(
            SharedFeatures.from_spec(spec, device),
            RegionGrid(spec.region_grid, spec.torch_dtype, device),
            broadcast.vectors.to(spec.torch_dtype),
            spec.bounds_tensor(device),
        )

    def forward(self, X: Tensor) -> Tensor:
        """Evaluate at points of the unit cube, ``batch_shape x q x d -> batch_shape x q``."""
        by_region = self.features(X) @ self.vectors.mT  # batch_shape x q x P
        return by_region.gather(-1, self.grid.index(X).unsqueeze(-1)).squeeze(-1)

    def set_ensemble_as_batch(self, ensemble_as_batch: bool) -> None:
        """A broadcast is one function: nothing to set."""


def draw_posterior_path(
    model: Model,
    generators: Sequence[torch.Generator],
    num_features: int = NUM_PATH_FEATURES,
) -> MatheronPath:
    """Draw a function from the posterior of an exact Gaussian process by Matheron's rule.

    The prior is drawn in random Fourier features; the data enter exactly, so that the
    variance does not collapse when observations outnumber features [Wilson2020]_. The path
    is a copy: later changes of the model do not reach it.

    Args:
        model: A single-output exact GP of batch shape ``b`` or none, with an RBF or Matern
            kernel, scaled or not.
        generators: One generator for each model of the batch.
        num_features: Number of features of the prior; even.

    Returns:
        A path that maps ``[b x] q x d`` to ``[b x] q``.

    Raises:
        UnsupportedError: If the kernel has no known spectral density.
    """
    kernel: Kernel = model.covar_module

    def rows(*shape: int) -> Tensor:
        draws = normal_rows(generators, shape, kernel.dtype, kernel.device)
        return draws.reshape(*kernel.batch_shape, *shape)

    with torch.no_grad():
        path = draw_matheron_paths(
            model,
            torch.Size(),
            prior_sampler=partial(
                draw_kernel_feature_paths,
                num_features=num_features,
                map_generator=partial(_fourier_features, rows=rows),
                weight_generator=lambda shape: rows(shape[-1]),
            ),
            update_strategy=partial(_exact_update, rows=rows),
        )
        return deepcopy(path)


def _fourier_features(
    kernel: Kernel, num_inputs: int, num_outputs: int, rows: Callable[..., Tensor]
) -> KernelFeatureMap:
    """Sine-cosine features of the kernel as it is now."""
    base, outputscale = kernel, None
    if isinstance(kernel, ScaleKernel):
        base, outputscale = kernel.base_kernel, kernel.outputscale
    if not isinstance(base, RBFKernel | MaternKernel) or base.active_dims is not None:
        raise UnsupportedError(
            f"Sample paths need an RBF or Matern kernel over all inputs, got {type(base).__name__}."
        )
    frequencies = rows(num_outputs // 2, num_inputs)
    if isinstance(base, MaternKernel):
        # A Student t spectral density: normals over the root of a chi-square by its 2 nu.
        dof = round(2 * base.nu)
        frequencies = (
            frequencies / rows(num_outputs // 2, dof).square().mean(-1, keepdim=True).sqrt()
        )
    scale = torch.as_tensor((2 / num_outputs) ** 0.5, dtype=kernel.dtype, device=kernel.device)
    if outputscale is not None:
        scale = scale * outputscale.sqrt()[..., None, None]
    return KernelFeatureMap(
        kernel=base,
        weight=frequencies / base.lengthscale,
        output_transform=SineCosineTransform(scale),
    )


def _exact_update(
    model: Model, sample_values: Tensor, target_values: Tensor, rows: Callable[..., Tensor]
) -> GeneralizedLinearPath:
    """BoTorch's Gaussian update with the observation noise drawn from our generators."""
    (points,) = get_train_inputs(model, transformed=True)
    kernel: Any = model.covar_module
    likelihood: Any = model.likelihood
    noise = likelihood.noise_covar(shape=points.shape[:-1]).diagonal(dim1=-1, dim2=-2)
    covariance = kernel(points).to_dense() + torch.diag_embed(noise)
    return gaussian_update(
        model,
        sample_values=sample_values + noise.sqrt() * rows(points.shape[-2]),
        target_values=target_values,
        noise_covariance=ZeroLinearOperator(*covariance.shape),
        scale_tril=psd_safe_cholesky(covariance),
    )
