"""How BoTorch's registry builds the acquisition function, which Ax goes through.

Options stay in their JSON forms, so that a generation strategy that holds them can be stored.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from botorch.acquisition.input_constructors import (
    ACQF_INPUT_CONSTRUCTOR_REGISTRY,
    allow_only_specific_variable_kwargs,
)
from botorch.acquisition.objective import MCAcquisitionObjective, PosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models.model import Model
from torch import Tensor

from torch_dpfts.acquisition.thompson import FederatedThompsonSampling
from torch_dpfts.errors import MessageError
from torch_dpfts.messages import Broadcast
from torch_dpfts.spec import FederationSpec


def broadcast_to_text(broadcast: Broadcast) -> str:
    """Encode a broadcast as a string that JSON can hold.

    Example:
        >>> import torch
        >>> text = broadcast_to_text(Broadcast("ab", 1, torch.ones(1, 2)))
        >>> broadcast_from_text(text).vectors
        tensor([[1., 1.]])
    """
    return base64.b64encode(broadcast.to_bytes()).decode()


def broadcast_from_text(text: str) -> Broadcast:
    """Decode what :func:`broadcast_to_text` encoded.

    Raises:
        MessageError: If the text is cut, altered, or no broadcast.
    """
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise MessageError("A broadcast is not valid base64; ask for it again.") from None
    return Broadcast.from_bytes(data)


def construct_inputs(
    model: Model,
    posterior_transform: PosteriorTransform | None = None,
    objective: MCAcquisitionObjective | None = None,
    constraints: Any = None,
    X_pending: Tensor | None = None,
    bounds: Any = None,
    spec: str | FederationSpec | None = None,
    broadcast: str | Broadcast | None = None,
    seed: int | None = None,
) -> dict[str, Any]:
    """Make the arguments of :class:`FederatedThompsonSampling` from what Ax hands over.

    Args:
        model: The model.
        posterior_transform: As of the acquisition function.
        objective: As of the acquisition function.
        constraints: Outcome constraints, which one draw cannot weigh; refused.
        X_pending: As of the acquisition function.
        bounds: Bounds of the model's inputs, a pair for each dimension or ``2 x d``.
        spec: The federation, or its JSON.
        broadcast: The broadcast, or its text (:func:`broadcast_to_text`).
        seed: As of the acquisition function.

    Raises:
        UnsupportedError: If there are outcome constraints.
    """
    if constraints is not None:
        raise UnsupportedError(
            "Thompson sampling draws one function and cannot weigh outcome constraints; drop "
            "them or use qLogNoisyExpectedImprovement."
        )
    like = model.train_targets if hasattr(model, "train_targets") else None
    if bounds is not None and not isinstance(bounds, Tensor) and isinstance(like, Tensor):
        bounds = like.new_tensor(bounds).mT
    return {
        "model": model,
        "spec": FederationSpec.from_json(spec) if isinstance(spec, str) else spec,
        "broadcast": broadcast_from_text(broadcast) if isinstance(broadcast, str) else broadcast,
        "objective": objective,
        "posterior_transform": posterior_transform,
        "bounds": None if broadcast is None else bounds,
        "X_pending": X_pending,
        "seed": seed,
    }


# Assigned rather than registered by the decorator, which fails when a module is imported again.
ACQF_INPUT_CONSTRUCTOR_REGISTRY[FederatedThompsonSampling] = allow_only_specific_variable_kwargs(
    construct_inputs
)
