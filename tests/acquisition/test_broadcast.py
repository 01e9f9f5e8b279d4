import pytest
import torch
from botorch.acquisition import PosteriorMean
from botorch.models.deterministic import DeterministicModel
from botorch.utils.sampling import optimize_posterior_samples
from torch import Tensor

from torch_dpfts import Broadcast, FederationSpec
from torch_dpfts.acquisition import BroadcastPath
from torch_dpfts.errors import FingerprintMismatchError, InvalidInputError, MessageError
from torch_dpfts.space import SearchSpace

SPEC = FederationSpec.fts_de(
    bounds=[[1e-4, 1.0], [1.0, 7.0]], num_agents=4, num_rounds=3, num_features=16,
    log_dims=[0], integer_dims=[1],
)  # fmt: skip
VECTORS = torch.randn(4, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
PATH = BroadcastPath.from_broadcast(SPEC, Broadcast(SPEC.fingerprint, 1, VECTORS))


def points(*shape: int) -> Tensor:
    U = torch.rand(*shape, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return SearchSpace.from_spec(SPEC).from_unit(U)


def test_it_is_a_deterministic_model() -> None:
    model = PATH.as_model()
    assert isinstance(model, DeterministicModel)
    X = points(3, 5)
    assert model(X).shape == (3, 5, 1)
    torch.testing.assert_close(model.posterior(X).mean.squeeze(-1), PATH(X))
    torch.testing.assert_close(PosteriorMean(model)(X[:, :1]), PATH(X[:, :1]).squeeze(-1))


def test_optimize_posterior_samples_takes_it() -> None:
    X, Y = optimize_posterior_samples(PATH.as_model(), SPEC.bounds_tensor(), 256, 4)
    torch.testing.assert_close(PATH(X.unsqueeze(0)), Y)
    with torch.no_grad():
        # A search over all cells at once may end in the wrong one, but not below most points.
        assert float(Y) > float(PATH(points(500)).quantile(0.9))


def test_rescaled_inputs_lie_on_the_cube_evenly() -> None:
    """Another library has taken the logarithm already, and counts the integers from 0."""
    bounds = torch.tensor([[-4.0, 0.0], [0.0, 6.0]], dtype=torch.float64)
    rescaled = BroadcastPath.from_broadcast(
        SPEC, Broadcast(SPEC.fingerprint, 1, VECTORS), bounds=bounds
    )
    X = points(40)
    theirs = torch.stack([X[:, 0].log10(), X[:, 1] - 1], dim=-1)
    torch.testing.assert_close(rescaled(theirs), PATH(X))
    with pytest.raises(InvalidInputError, match=r"shape \(2, 2\) .* got \(2, 3\)"):
        BroadcastPath.from_broadcast(
            SPEC, Broadcast(SPEC.fingerprint, 1, VECTORS), bounds=torch.zeros(2, 3)
        )


def test_a_foreign_broadcast_is_refused() -> None:
    with pytest.raises(FingerprintMismatchError, match=f"f00d.*{SPEC.fingerprint}"):
        BroadcastPath.from_broadcast(SPEC, Broadcast("f00d", 1, VECTORS))


@pytest.mark.parametrize("vectors", [VECTORS[:3], VECTORS[:, :8], VECTORS / 0.0])
def test_a_faulty_broadcast_is_refused(vectors: Tensor) -> None:
    with pytest.raises(MessageError, match=r"finite vectors of shape \(4, 16\)"):
        BroadcastPath.from_broadcast(SPEC, Broadcast(SPEC.fingerprint, 1, vectors))


def test_inputs_of_another_dtype_keep_it() -> None:
    X = points(40)
    values = PATH(X.float())
    assert values.dtype == torch.float32
    torch.testing.assert_close(values.double(), PATH(X), rtol=1e-3, atol=1e-3)
