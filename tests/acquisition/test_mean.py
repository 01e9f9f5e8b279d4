import pytest
import torch
from botorch.acquisition import LogExpectedImprovement, qLogNoisyExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.optim import optimize_acqf
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from torch_dpfts import Broadcast, FederationSpec
from torch_dpfts.acquisition import BroadcastPath, FederatedMean, FederatedThompsonSampling
from torch_dpfts.errors import FingerprintMismatchError, InvalidInputError
from torch_dpfts.features import SharedFeatures
from torch_dpfts.posterior import weight_mean
from torch_dpfts.space import SearchSpace

BOUNDS = torch.tensor([[-5.0, 0.0], [10.0, 15.0]], dtype=torch.float64)
SPEC = FederationSpec.fts(
    bounds=BOUNDS, num_agents=2, num_rounds=9, num_features=128, lengthscales=0.3
)


def objective(X: Tensor) -> Tensor:
    U = (X - BOUNDS[0]) / (BOUNDS[1] - BOUNDS[0])
    return 50 + 7 * ((6 * U[..., :1]).sin() + (9 * U[..., 1:] ** 2).cos())


def points(n: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    U = torch.rand(n, 2, generator=generator, dtype=torch.float64)
    return BOUNDS[0] + U * (BOUNDS[1] - BOUNDS[0])


def good_broadcast(factor: float = 1.0) -> Broadcast:
    X = points(150, seed=99)
    y = objective(X).squeeze(-1)
    phi = SharedFeatures.from_spec(SPEC)(SearchSpace(BOUNDS).to_unit(X))
    weights = weight_mean(phi, (y - y.mean()) / y.std(), SPEC.noise_variance)
    return Broadcast(SPEC.fingerprint, 1, factor * weights.unsqueeze(0))


def noise_broadcast(seed: int) -> Broadcast:
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(1, 128, generator=generator, dtype=torch.float64)
    return Broadcast(SPEC.fingerprint, 1, 10 * noise)


def fitted(broadcast: Broadcast | None, seed: int = 0, n: int = 10) -> SingleTaskGP:
    X = points(n, seed)
    model = SingleTaskGP(
        X,
        objective(X),
        mean_module=None if broadcast is None else FederatedMean(SPEC, broadcast),
        input_transform=Normalize(2, bounds=BOUNDS),
    )
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


def error(model: SingleTaskGP) -> float:
    X = points(300, seed=5)
    with torch.no_grad():
        return float((model.posterior(X).mean - objective(X)).square().mean().sqrt())


def test_a_good_broadcast_helps_and_a_useless_one_does_no_harm() -> None:
    plain = sum(error(fitted(None, seed=s)) for s in range(5))
    good = [fitted(good_broadcast(), seed=s) for s in range(5)]
    useless = [fitted(noise_broadcast(s), seed=s) for s in range(5)]
    assert sum(map(error, good)) < 0.7 * plain
    assert sum(map(error, useless)) < 1.1 * plain
    assert min(float(model.mean_module.trust) for model in good) > 0.3
    # Half of all useless broadcasts point the wrong way and are left out entirely.
    assert min(float(model.mean_module.trust) for model in useless) == 0.0


def test_the_strength_of_a_broadcast_does_not_matter() -> None:
    weak, strong = (fitted(good_broadcast(factor)) for factor in (1e-3, 1e3))
    torch.testing.assert_close(
        weak.mean_module.trust, strong.mean_module.trust, atol=1e-3, rtol=1e-3
    )
    X = points(9, 0)
    silent = SingleTaskGP(
        X, objective(X), mean_module=FederatedMean(SPEC, good_broadcast(0.0)),
        input_transform=Normalize(2, bounds=BOUNDS),
    )  # fmt: skip
    assert silent.posterior(X).mean.isfinite().all()


def test_it_is_the_constant_and_the_scaled_broadcast() -> None:
    mean = FederatedMean(SPEC, good_broadcast())
    mean.initialize(constant=0.4, trust=0.7)
    X = points(400, seed=3)
    raw = BroadcastPath.from_broadcast(SPEC, good_broadcast())(X)
    with torch.no_grad():
        values = mean(SearchSpace(BOUNDS).to_unit(X))
    scale = ((values - 0.4) / raw).median()
    torch.testing.assert_close(values, 0.4 + scale * raw)
    # The norm is a mean over 512 quasi-random points, here compared with 400 random ones.
    assert float((scale * raw / 0.7).square().mean()) == pytest.approx(1.0, abs=0.2)


def test_acquisition_functions_of_botorch_and_ours_take_it() -> None:
    model = fitted(good_broadcast())
    X = model.train_inputs[0]
    for acqf in (
        LogExpectedImprovement(model, best_f=60.0),
        qLogNoisyExpectedImprovement(model, X_baseline=points(10, 0)),
        FederatedThompsonSampling(model, seed=0),
    ):
        x, _ = optimize_acqf(acqf, BOUNDS, q=1, num_restarts=2, raw_samples=16)
        assert ((BOUNDS[0] <= x) & (x <= BOUNDS[1])).all()
    assert X.shape == (10, 2)


def test_inputs_outside_the_cube_are_refused() -> None:
    X = points(5, 0)
    model = SingleTaskGP(X, objective(X), mean_module=FederatedMean(SPEC, good_broadcast()))
    with pytest.raises(InvalidInputError, match=r"unit cube, got -2.3.* give the model Normalize"):
        model.posterior(X)
    own = FederatedMean(SPEC, good_broadcast(), SearchSpace(BOUNDS).input_transform())
    assert SingleTaskGP(X, objective(X), mean_module=own).posterior(X).mean.shape == (5, 1)


def test_a_foreign_broadcast_is_refused() -> None:
    with pytest.raises(FingerprintMismatchError, match="f00d"):
        FederatedMean(SPEC, Broadcast("f00d", 1, good_broadcast().vectors))
