"""One function drawn from the posterior of whatever model BoTorch users have."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.models import SingleTaskGP
from botorch.models.deterministic import DeterministicModel
from botorch.models.fully_bayesian import AbstractFullyBayesianSingleTaskGP
from botorch.models.gpytorch import GPyTorchModel
from botorch.models.model import Model, ModelList
from botorch.utils.transforms import is_ensemble
from torch import Tensor

from torch_dpfts.acquisition.joint import JointDraw
from torch_dpfts.acquisition.paths import PathModel, draw_posterior_path


@singledispatch
def draw_posterior(model: Model, generator: torch.Generator) -> DeterministicModel:
    """Draw a function from a model's posterior.

    Exact GPs whose kernel is built of RBF, Matern and categorical kernels by sums, products and
    scales give a sample path (:func:`draw_posterior_path`). Of a fully Bayesian ensemble one
    member is drawn, then its path. A list of models gives a list of draws. Any other model with
    a Gaussian posterior gives an exact draw revealed point by point (:class:`JointDraw`), which
    is slower.

    Args:
        model: A BoTorch model.
        generator: The source of randomness.

    Returns:
        A deterministic model, ``batch_shape x q x d -> batch_shape x q x m``.

    Raises:
        UnsupportedError: If the model is an ensemble without sample paths or has no Gaussian
            posterior.

    Example:
        >>> X = torch.rand(6, 2, dtype=torch.double, generator=torch.Generator().manual_seed(0))
        >>> model = SingleTaskGP(X, torch.cat([X.sum(-1, True), X.prod(-1, True)], dim=-1))
        >>> draw_posterior(model, torch.Generator().manual_seed(0))(X).shape
        torch.Size([6, 2])
    """
    raise UnsupportedError(
        f"{type(model).__name__} has no posterior that functions can be drawn from; use a GP."
    )


@draw_posterior.register
def _(model: GPyTorchModel, generator: torch.Generator) -> DeterministicModel:
    if is_ensemble(model):
        raise UnsupportedError(
            f"{type(model).__name__} is an ensemble without sample paths; use "
            "SaasFullyBayesianSingleTaskGP or a single GP."
        )
    return JointDraw(model, _integer(2**62, generator))


@draw_posterior.register(SingleTaskGP)
@draw_posterior.register(AbstractFullyBayesianSingleTaskGP)
def _(
    model: SingleTaskGP | AbstractFullyBayesianSingleTaskGP, generator: torch.Generator
) -> DeterministicModel:
    try:
        path = draw_posterior_path(model, [generator])
    except UnsupportedError:
        return draw_posterior.dispatch(GPyTorchModel)(model, generator)
    member = _integer(model.batch_shape[0], generator) if is_ensemble(model) else None
    return PathModel(path, model.num_outputs, member)


@draw_posterior.register
def _(model: ModelList, generator: torch.Generator) -> DeterministicModel:
    members: Any = model.models
    return _DrawList([draw_posterior(member, generator) for member in members])


def _integer(below: int, generator: torch.Generator) -> int:
    return int(torch.randint(below, (), generator=generator))


class _DrawList(DeterministicModel):
    """Independent draws, their outputs side by side."""

    def __init__(self, draws: list[DeterministicModel]) -> None:
        super().__init__()
        self.draws = torch.nn.ModuleList(draws)
        self._num_outputs = sum(draw.num_outputs for draw in draws)

    def forward(self, X: Tensor) -> Tensor:
        return torch.cat([draw(X) for draw in self.draws], dim=-1)
