from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from botorch.acquisition.objective import (
    ExpectationPosteriorTransform,
    LinearMCObjective,
    ScalarizedPosteriorTransform,
)
from botorch.exceptions.errors import UnsupportedError
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.optim import optimize_acqf
from botorch.optim.optimize import optimize_acqf_cyclic
from torch import Tensor

from torch_dpfts import Broadcast, FederationSpec
from torch_dpfts.acquisition import (
    BroadcastPath,
    FederatedThompsonSampling,
    draw_posterior,
)
from torch_dpfts.acquisition.mixture import draw_mixed_path
from torch_dpfts.errors import FingerprintMismatchError, InvalidInputError
from torch_dpfts.rng import derived_generator

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


def test_the_best_points_are_starts_beyond_two_dimensions() -> None:
    X = rand(9, 4)
    scaled = Normalize(4, bounds=torch.tensor([[0.0] * 4, [2.0] * 4]).double())
    wide = SingleTaskGP(X, X.sum(-1, keepdim=True), input_transform=scaled)
    best = X[X.sum(-1).topk(2).indices]
    torch.testing.assert_close(FederatedThompsonSampling(wide, seed=0).incumbents(), best)
    minimised = ScalarizedPosteriorTransform(torch.tensor([-1.0]).double())
    for acqf in (
        FederatedThompsonSampling(model(), seed=0),
        FederatedThompsonSampling(wide, seed=0, posterior_transform=minimised),
    ):
        assert acqf.incumbents() is None


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
    with pytest.raises(InvalidInputError, match="spec=NoneType"):
        FederatedThompsonSampling(model(), broadcast=broadcast())
    with pytest.raises(InvalidInputError, match="order model, spec, broadcast"):
        FederatedThompsonSampling(model(), broadcast(), SPEC)  # type: ignore[arg-type]


TWO = SingleTaskGP(
    rand(8, 2), torch.stack([(5 * rand(8, 2)).sin().sum(-1), rand(8, 2).prod(-1)], dim=-1)
)
WEIGHTS = torch.tensor([0.3, -2.0], dtype=torch.float64)


@pytest.mark.parametrize("b", [1, 5])
@pytest.mark.parametrize("q", [1, 3])
def test_scalarisation_of_several_outputs(b: int, q: int) -> None:
    X = rand(b, q, 2, seed=1)
    transform = ScalarizedPosteriorTransform(WEIGHTS, offset=1.0)
    by_transform = FederatedThompsonSampling(TWO, posterior_transform=transform, seed=0)
    by_objective = FederatedThompsonSampling(TWO, objective=LinearMCObjective(WEIGHTS), seed=0)
    assert by_transform(X).shape == (b,)
    torch.testing.assert_close(by_transform(X), by_objective(X) + q)
    draws = [draw_posterior(TWO, derived_generator(0, "path", j)) for j in range(q)]
    expected = sum(draw(X[:, j : j + 1]).squeeze(-2) @ WEIGHTS for j, draw in enumerate(draws))
    torch.testing.assert_close(by_objective(X), expected)


def test_minimisation_arrives_by_a_posterior_transform() -> None:
    """Ax minimises this way; the broadcast is what the federation maximises, and stays."""
    negative = ScalarizedPosteriorTransform(torch.tensor([-1.0]).double())
    X = rand(5, 1, 2, seed=1)
    for seed in range(20):
        up = FederatedThompsonSampling(model(), SPEC, broadcast(round=2), seed=seed)
        down = FederatedThompsonSampling(
            model(), SPEC, broadcast(round=2), posterior_transform=negative, seed=seed
        )
        assert down(X[:1]).shape == (1,)
        sign = 1 if up.follows_broadcast() else -1
        torch.testing.assert_close(down(X), sign * up(X))


def test_several_outputs_need_a_scalarisation() -> None:
    with pytest.raises(UnsupportedError, match="2 outputs needs an objective"):
        FederatedThompsonSampling(TWO)
    keeps_both = ExpectationPosteriorTransform(n_w=2)
    keeps_both.scalarize = False
    with pytest.raises(UnsupportedError, match="2 outputs needs an objective"):
        FederatedThompsonSampling(TWO, posterior_transform=keeps_both)


def test_pending_points_keep_their_draws() -> None:
    acqf = FederatedThompsonSampling(model(), seed=0)
    x = rand(4, 2, seed=3)
    assert acqf.draws(2) == [0, 1]
    acqf.set_X_pending(x[:3])
    assert acqf.draws(2) == [3, 4]
    acqf.set_X_pending(x[1:3])
    assert acqf.draws(2) == [0, 3]
    acqf.set_X_pending(torch.cat([x[1:3], x[3:]]))  # the new one took draw 0
    assert acqf.draws(1) == [3]
    acqf.set_X_pending(x[3:])
    assert acqf.draws(3) == [1, 2, 3]
    acqf.set_X_pending(torch.cat([x[3:], x[3:]]))
    assert acqf.draws(1) == [2]
    acqf.set_X_pending(None)
    assert acqf.draws(2) == [0, 1]


@pytest.mark.parametrize("q", [2, 3])
def test_cyclic_candidates_follow_different_draws(q: int) -> None:
    acqf = FederatedThompsonSampling(model(), seed=0)
    X, _ = optimize_acqf_cyclic(acqf, BOUNDS, q, 4, 64, cyclic_options={"maxiter": 3})
    assert (torch.cdist(X, X) + torch.eye(q).double()).min() > 0.05
    assert acqf.X_pending is None


def test_moving_makes_the_same_draws_anew() -> None:
    acqf = FederatedThompsonSampling(model(), seed=0)
    X = rand(4, 2, 2, seed=1)
    before = acqf(X)
    torch.testing.assert_close(acqf.float()(X.float()).double(), before, atol=1e-2, rtol=1e-2)
    torch.testing.assert_close(acqf.double()(X), before, atol=1e-2, rtol=1e-2)


def test_it_can_be_copied() -> None:
    acqf = FederatedThompsonSampling(model(), SPEC, broadcast(round=3), seed=2)
    X = rand(4, 3, 2, seed=1)
    with torch.no_grad():
        assert torch.equal(deepcopy(acqf)(X), acqf(X))


PRIOR_MEAN = replace(SPEC, prior_mean=True, local_probability="1-1/t^2")


def test_own_draws_take_the_broadcast_as_prior_mean() -> None:
    message = Broadcast(PRIOR_MEAN.fingerprint, 5, rand(4, 16, seed=5) - 0.5)
    acqf = FederatedThompsonSampling(model(), PRIOR_MEAN, message, seed=0)
    assert not acqf.follows_broadcast(0)
    path = BroadcastPath.from_broadcast(PRIOR_MEAN, message)
    draw = draw_mixed_path(model(), path, [derived_generator(0, "path", 0)])
    X = rand(7, 1, 2, seed=3)
    torch.testing.assert_close(acqf(X), draw(X).squeeze(-1))
    plain = FederatedThompsonSampling(model(), seed=0)
    assert not torch.allclose(acqf(X), plain(X))
    grid = acqf.region_grid(0)  # the draws jump where the broadcast does
    assert grid is not None
    assert len(grid) == 4
    assert plain.region_grid(0) is None


def test_a_prior_mean_needs_one_output() -> None:
    several = SingleTaskGP(rand(8, 2), rand(8, 2, seed=1))
    message = Broadcast(PRIOR_MEAN.fingerprint, 5, rand(4, 16, seed=5))
    transform = ScalarizedPosteriorTransform(torch.ones(2, dtype=torch.float64))
    with pytest.raises(UnsupportedError, match="prior_mean=False"):
        FederatedThompsonSampling(several, PRIOR_MEAN, message, posterior_transform=transform)


@pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.InputDataWarning")
@pytest.mark.parametrize("spec", [SPEC, PRIOR_MEAN])
def test_a_model_in_single_precision_keeps_it(spec: FederationSpec) -> None:
    """The federation computes in double precision unless it says otherwise."""
    X = rand(8, 2).float()
    single = SingleTaskGP(X, (5 * X).sin().sum(-1, keepdim=True))
    others = Broadcast(spec.fingerprint, 1, rand(4, 16, seed=5).half())
    acqf = FederatedThompsonSampling(single, spec, others, seed=0)
    assert {acqf.follows_broadcast(i) for i in range(2)} == {True, False}
    values = acqf(X[:6].reshape(3, 2, 2))
    assert values.dtype == torch.float32
    assert values.isfinite().all()
