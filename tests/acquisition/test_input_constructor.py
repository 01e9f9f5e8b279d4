import importlib
import json

import pytest
import torch
from botorch.acquisition import input_constructors
from botorch.exceptions.errors import UnsupportedError
from botorch.models import SingleTaskGP

from torch_dpfts import Broadcast, FederationSpec
from torch_dpfts.acquisition import (
    FederatedThompsonSampling,
    broadcast_from_text,
    broadcast_to_text,
    input_constructor,
)
from torch_dpfts.errors import MessageError

SPEC = FederationSpec.fts(bounds=[[0.0, 0.0], [1.0, 1.0]], num_agents=2, num_rounds=9)
BROADCAST = Broadcast(SPEC.fingerprint, 4, torch.ones(1, 64, dtype=torch.float64))
X = torch.rand(6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
MODEL = SingleTaskGP(X, X.sum(-1, keepdim=True))


def test_options_in_json_build_the_same_function() -> None:
    options = json.loads(
        json.dumps({"spec": SPEC.to_json(), "broadcast": broadcast_to_text(BROADCAST), "seed": 3})
    )
    construct = input_constructors.get_acqf_input_constructor(FederatedThompsonSampling)
    inputs = construct(
        model=MODEL, training_data=None, X_baseline=X, bounds=[(0.0, 1.0), (0.0, 1.0)],
        X_pending=X[:1], **options,
    )  # fmt: skip
    built = FederatedThompsonSampling(**inputs)
    expected = FederatedThompsonSampling(MODEL, SPEC, BROADCAST, seed=3, X_pending=X[:1])
    torch.testing.assert_close(built(X.unsqueeze(1)), expected(X.unsqueeze(1)))


def test_importing_again_is_safe() -> None:
    importlib.reload(input_constructor)
    construct = input_constructors.get_acqf_input_constructor(FederatedThompsonSampling)
    assert FederatedThompsonSampling(**construct(model=MODEL))(X.unsqueeze(1)).shape == (6,)


def test_outcome_constraints_are_refused() -> None:
    construct = input_constructors.get_acqf_input_constructor(FederatedThompsonSampling)
    with pytest.raises(UnsupportedError, match="cannot weigh outcome constraints"):
        construct(model=MODEL, constraints=[lambda Y: Y[..., 0]])


@pytest.mark.parametrize("text", ["%%", "aGVsbG8="])
def test_damaged_broadcasts_are_refused(text: str) -> None:
    with pytest.raises(MessageError):
        broadcast_from_text(text)
    again = broadcast_from_text(broadcast_to_text(BROADCAST))
    assert torch.equal(again.vectors, BROADCAST.vectors)
