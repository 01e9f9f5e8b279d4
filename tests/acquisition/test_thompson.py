import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from torch import Tensor

from torch_dpfts import Broadcast, FederationSpec
from torch_dpfts.acquisition import FederatedThompsonSampling
from torch_dpfts.errors import FingerprintMismatchError, InvalidInputError

BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
SPEC = FederationSpec.fts_de(
    bounds=BOUNDS, num_agents=4, num_rounds=9, num_features=16, local_probability="1-1/t"
)


def rand(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


def model() -> SingleTaskGP:
    X = rand(8, 2)
    return SingleTaskGP(X, (5 * X).sin().sum(-1, keepdim=True))


def broadcast(round: int = 1) -> Broadcast:
    return Broadcast(SPEC.fingerprint, round, rand(4, 16, seed=5) - 0.5)


@pytest.mark.parametrize("q", [1, 3])
@pytest.mark.parametrize("b", [1, 5])
def test_shapes_repeats_and_independent_rows(b: int, q: int) -> None:
    acqf = FederatedThompsonSampling(model(), SPEC, broadcast(), seed=0)
    X = rand(b, q, 2, seed=1)
    values = acqf(X)
    assert values.shape == (b,)
    assert torch.equal(values, acqf(X))
    assert acqf(X[:, :1]).shape == (b,)
    for i in range(b):
        torch.testing.assert_close(values[i : i + 1], acqf(X[i : i + 1]))


def test_each_candidate_follows_its_own_draw() -> None:
    acqf = FederatedThompsonSampling(model(), seed=0)
    X = rand(6, 1, 2, seed=1)
    both = acqf(torch.cat([X, X], dim=-2))
    first = acqf(X)
    acqf.set_X_pending(X[0])
    second = acqf(X)
    torch.testing.assert_close(both, first + second)
    assert not torch.allclose(first, second)
    acqf.set_X_pending(None)
    assert torch.equal(acqf(X), first)


def test_the_coin_has_the_probability_of_the_schedule() -> None:
    followed = [
        FederatedThompsonSampling(model(), SPEC, broadcast(round=3), seed=s).follows_broadcast()
        for s in range(400)
    ]
    # Binomial(400, 1/4): beyond five standard deviations with probability below 1e-6.
    assert abs(sum(followed) - 100) < 5 * (400 * 0.25 * 0.75) ** 0.5


def test_the_broadcast_is_what_is_followed() -> None:
    acqf = next(
        acqf
        for s in range(50)
        if (
            acqf := FederatedThompsonSampling(model(), SPEC, broadcast(), seed=s)
        ).follows_broadcast()
    )
    X = rand(4, 1, 2, seed=1)
    torch.testing.assert_close(acqf(X), acqf.broadcast_path(X).squeeze(-1))


def test_botorchs_optimiser_takes_it() -> None:
    acqf = FederatedThompsonSampling(model(), seed=0)
    candidates, _ = optimize_acqf(
        acqf, BOUNDS, q=3, num_restarts=2, raw_samples=16, sequential=True
    )
    assert candidates.shape == (3, 2)
    assert len({tuple(c) for c in candidates.tolist()}) == 3
    assert acqf.X_pending is None


def test_seeds() -> None:
    X = rand(4, 1, 2, seed=1)
    state = torch.random.get_rng_state()
    one, again, other = (FederatedThompsonSampling(model(), seed=s)(X) for s in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    fresh = [FederatedThompsonSampling(model())(X) for _ in range(2)]
    assert not torch.equal(*fresh)
    assert torch.equal(state, torch.random.get_rng_state())


def test_a_foreign_broadcast_is_refused_with_both_fingerprints() -> None:
    foreign = Broadcast("f00d", 1, broadcast().vectors)
    with pytest.raises(FingerprintMismatchError, match=f"f00d.*{SPEC.fingerprint}"):
        FederatedThompsonSampling(model(), SPEC, foreign)
    with pytest.raises(InvalidInputError, match="spec=None"):
        FederatedThompsonSampling(model(), broadcast=broadcast())
