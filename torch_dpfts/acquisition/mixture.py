"""Posterior draws that take the broadcast as their prior mean, to the share that data support.

See :mod:`torch_dpfts.acquisition.share` for the model. The draws are exact: a share is drawn from
its posterior, and given the share what is left of the outcomes is an ordinary Gaussian process.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.models import SingleTaskGP
from botorch.models.model import Model
from botorch.sampling.pathwise.paths import SamplePath
from botorch.sampling.pathwise.posterior_samplers import MatheronPath
from botorch.sampling.pathwise.utils import get_train_inputs
from botorch.utils.transforms import is_ensemble
from gpytorch.means import Mean
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from torch_dpfts.acquisition.broadcast import BroadcastPath
from torch_dpfts.acquisition.functions import BroadcastFunctions, PosteriorDraws
from torch_dpfts.acquisition.paths import draw_posterior_path
from torch_dpfts.acquisition.share import Share, draw_share, scaled_vectors
from torch_dpfts.covariance import FactoredCovariance
from torch_dpfts.rng import uniform_rows


class MixedDraws:
    """Draws as a batch of functions on the unit cube, up to a constant.

    The same functions, from the same generators, as :func:`draw_mixed_path` draws from BoTorch's
    models, without the models.

    Args:
        covariance: The covariances of the ``b`` models' observations.
        y: Standardised outcomes, ``b x n``.
        broadcast: The scaled broadcasts.
        U: Inputs of the observations in the unit cube, ``b x n x d``.
        generators: The source of randomness of each draw.
    """

    def __init__(
        self,
        covariance: FactoredCovariance,
        y: Tensor,
        broadcast: BroadcastFunctions,
        U: Tensor,
        generators: Sequence[torch.Generator],
    ) -> None:
        mean = covariance.hyperparameters.mean.unsqueeze(-1)
        uniform = uniform_rows(generators, (), y.dtype, y.device)
        mixed = draw_share(covariance.factor, y - mean, broadcast.values(U), uniform)
        self._broadcast = broadcast
        self._own = PosteriorDraws(covariance, mean + mixed.rest, generators)
        self._share, self._scale = mixed.share, mixed.scale

    def values(self, U: Tensor) -> Tensor:
        """Evaluate each function at its own points, ``b x r x d -> b x r``."""
        share, scale = self._share.unsqueeze(-1), self._scale.unsqueeze(-1)
        return share * self._broadcast.values(U) + scale * self._own.values(U)

    def value_and_grad(self, u: Tensor, of: Tensor) -> tuple[Tensor, Tensor]:
        """Evaluate ragged points; see :class:`~torch_dpfts.acquisition.functions.FunctionBatch`."""
        share, scale = self._share[of], self._scale[of]
        others, slope = self._broadcast.value_and_grad(u, of)
        own, own_slope = self._own.value_and_grad(u, of)
        grad = share.unsqueeze(-1) * slope + scale.unsqueeze(-1) * own_slope
        return share * others + scale * own, grad


class MixedPath(SamplePath):
    """A draw as a BoTorch sample path, in the user's units.

    Args:
        own: A path drawn given the share.
        mean: The models' mean.
        broadcast: The scaled broadcast.
        mixed: The share that was drawn; its fields have the models' batch shape.
    """

    share: Tensor
    scale: Tensor
    offset: Tensor

    def __init__(
        self, own: MatheronPath, mean: Mean, broadcast: BroadcastPath, mixed: Share
    ) -> None:
        super().__init__()
        self.own = own
        self.mean = mean
        self.broadcast = broadcast
        self.input_transform = None
        # To the user's units after the mixture, not before.
        self.output_transform = own.output_transform
        own.output_transform = None
        self.register_buffer("share", mixed.share.unsqueeze(-1))
        self.register_buffer("scale", mixed.scale.unsqueeze(-1))
        self.register_buffer("offset", mixed.offset.unsqueeze(-1))

    def forward(self, X: Tensor) -> Tensor:
        """Evaluate in standardised units, ``batch_shape x q x d -> batch_shape x q``."""
        transform: Any = self.own.input_transform
        mean = self.mean(X if transform is None else transform(X))
        own = mean + self.scale * (self.own(X) - mean)
        values: Tensor = self.offset + self.share * self.broadcast(X) + own
        return values

    def set_ensemble_as_batch(self, ensemble_as_batch: bool) -> None:
        """Nothing to set: ensembles are refused."""


def check_mixable(model: Model) -> None:
    """Refuse models whose draws cannot take the broadcast as their prior mean.

    Raises:
        UnsupportedError: If the model is no ``SingleTaskGP`` with one output.
    """
    if not isinstance(model, SingleTaskGP) or model.num_outputs > 1 or is_ensemble(model):
        raise UnsupportedError(
            f"The broadcast can be the prior mean of a SingleTaskGP with one output, not of "
            f"{type(model).__name__} with {model.num_outputs}; use another model, or a federation "
            "with prior_mean=False."
        )


def draw_mixed_path(
    model: Model, broadcast: BroadcastPath, generators: Sequence[torch.Generator]
) -> MixedPath:
    """Draw functions from the posterior with the broadcast as prior mean.

    Args:
        model: A model with one output, of batch shape ``b`` with ``b`` generators, or of none with
            one.
        broadcast: The broadcast; one for each model or one for all.
        generators: The sources of randomness.

    Returns:
        A path that maps ``[b x] q x d`` to ``[b x] q``.

    Raises:
        UnsupportedError: If the model is no ``SingleTaskGP`` with one output, or its kernel has no
            sample paths (see :func:`~torch_dpfts.acquisition.paths.draw_posterior_path`).

    Example:
        >>> from torch_dpfts import Broadcast, FederationSpec
        >>> spec = FederationSpec.fts(bounds=[[0.0], [9.0]], num_agents=2, num_rounds=5)
        >>> vectors = torch.ones(1, 64, dtype=torch.float64)
        >>> broadcast = BroadcastPath.from_broadcast(spec, Broadcast(spec.fingerprint, 1, vectors))
        >>> X = torch.linspace(0, 9, 6, dtype=torch.float64).unsqueeze(-1)
        >>> model = SingleTaskGP(X, X.sin())
        >>> path = draw_mixed_path(model, broadcast, [torch.Generator().manual_seed(0)])
        >>> path(X).shape
        torch.Size([6])
    """
    check_mixable(model)
    exact: Any = deepcopy(model.eval())
    vectors = scaled_vectors(broadcast.features, broadcast.grid, broadcast.vectors)
    scaled = BroadcastPath(broadcast.features, broadcast.grid, vectors, broadcast.input_transform)
    with torch.no_grad():
        (X,) = get_train_inputs(exact, transformed=False)
        (points,) = get_train_inputs(exact, transformed=True)
        noise = exact.likelihood.noise_covar(shape=points.shape[:-1]).diagonal(dim1=-1, dim2=-2)
        mean = exact.mean_module(points)
        batch, n = points.shape[:-2], points.shape[-2]
        mixed = draw_share(
            psd_safe_cholesky(
                exact.covar_module(points).to_dense() + torch.diag_embed(noise)
            ).reshape(-1, n, n),
            (exact.train_targets - mean).reshape(-1, n),
            scaled(X).expand(*batch, n).reshape(-1, n),
            uniform_rows(generators, (), points.dtype, points.device),
        )
        mixed = Share(*(value.reshape(batch + value.shape[1:]) for value in mixed))
        exact.set_train_data(targets=mean + mixed.rest, strict=False)
        return MixedPath(
            draw_posterior_path(exact, generators), deepcopy(exact.mean_module), scaled, mixed
        )
