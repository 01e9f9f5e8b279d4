from collections.abc import Callable

import pytest
import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.models import (
    KroneckerMultiTaskGP,
    MixedSingleTaskGP,
    ModelListGP,
    MultiTaskGP,
    SingleTaskGP,
    SingleTaskVariationalGP,
)
from botorch.models import fully_bayesian as fb
from botorch.models.deterministic import GenericDeterministicModel
from botorch.models.map_saas import EnsembleMapSaasSingleTaskGP
from botorch.models.model import Model
from botorch.models.transforms import Log, Normalize, Standardize
from botorch.models.transforms.input import ChainedInputTransform, Log10, Round, Warp
from gpytorch.kernels import MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel
from torch import Size, Tensor

from torch_dpfts.acquisition import draw_posterior, draw_posterior_path
from torch_dpfts.rng import derived_generator

DRAWS = 4096


def rand(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


def outcomes(X: Tensor) -> Tensor:
    return 100 + 20 * (4 * X).sin().sum(-1, keepdim=True)


def chain(d: int) -> ChainedInputTransform:
    bounds = torch.tensor([[0.0] * d, [20.0] + [0.0] * (d - 1)], dtype=torch.float64)
    bounds[1, 1:] = 1.0
    bounds[:, -1] = torch.tensor([0.1, 1.1], dtype=torch.float64).log10()
    return ChainedInputTransform(
        round=Round(integer_indices=[0]), log=Log10(indices=[d - 1]),
        normalize=Normalize(d, bounds=bounds),
    )  # fmt: skip


def warp(d: int) -> Warp:
    transform = Warp(d, indices=list(range(d)), bounds=torch.tensor([[0.0] * d, [1.0] * d]))
    transform.concentration0.data.fill_(1.6)
    transform.concentration1.data.fill_(0.7)
    return transform


TRANSFORMS: dict[str, Callable[[int], dict[str, object]]] = {
    "standardize": lambda d: {},
    "none": lambda d: {"outcome_transform": None},
    "normalize, learnt": lambda d: {"input_transform": Normalize(d)},
    "round, log10, normalize": lambda d: {"input_transform": chain(d)},
    "warp": lambda d: {"input_transform": warp(d)},
    "log of outcomes": lambda d: {"outcome_transform": Log()},
}


@pytest.mark.parametrize(
    ("name", "d", "n"),
    [(name, d, 25) for name in TRANSFORMS for d in (2, 6)] + [("standardize", 6, 200)],
)
def test_draws_follow_the_exact_posterior_through_every_transform(
    name: str, d: int, n: int
) -> None:
    scale = torch.ones(d, dtype=torch.float64)
    shift = torch.zeros(d, dtype=torch.float64)
    if name.startswith("round"):
        scale[0], shift[-1] = 20.0, 0.1
    X, Y = rand(n, d) * scale + shift, outcomes(rand(n, d))
    if name == "none":
        Y = (Y - Y.mean()) / Y.std()
    test_X = rand(10, d, seed=1) * scale + shift
    exact_model = SingleTaskGP(X, Y, **TRANSFORMS[name](d)).eval()
    exact_model.covar_module.lengthscale = 0.4 * d**0.5
    size = 512 if n < 100 else 128
    arguments = TRANSFORMS[name](d)
    if name != "none" and name != "log of outcomes":
        arguments["outcome_transform"] = Standardize(1, batch_shape=Size([size]))
    model = SingleTaskGP(X.repeat(size, 1, 1), Y.repeat(size, 1, 1), **arguments).eval()
    model.covar_module.lengthscale = 0.4 * d**0.5
    draws = torch.cat([
        draw_posterior_path(model, [derived_generator(i)], 64)(test_X.repeat(size, 1, 1)).detach()
        for i in range(DRAWS // size)
    ])  # fmt: skip
    with torch.no_grad():
        if name == "log of outcomes":
            del exact_model.outcome_transform
            draws = draws.log()
        exact = exact_model.posterior(test_X)
    assert_moments(draws, exact.mean.squeeze(-1), exact.variance.squeeze(-1))


def assert_moments(draws: Tensor, mean: Tensor, variance: Tensor) -> None:
    """Standard errors of 4,096 draws are 1/64 sd of a mean and 1/90 of an sd: six of them."""
    sd = variance.sqrt()
    assert len(draws) == DRAWS
    assert ((draws.mean(0) - mean).abs() < 0.1 * sd).all()
    assert ((draws.std(0) / sd - 1).abs() < 0.1).all()


def test_categorical_draws_follow_the_exact_posterior() -> None:
    X = rand(25, 3)
    X[:, 2] = (3 * X[:, 2]).floor()
    test_X = rand(10, 3, seed=1)
    test_X[:, 2] = (3 * test_X[:, 2]).floor()
    Y = outcomes(X / 2)
    with torch.no_grad():
        exact = MixedSingleTaskGP(X, Y, cat_dims=[2]).posterior(test_X)
    size = 512
    model = MixedSingleTaskGP(
        X.repeat(size, 1, 1), Y.repeat(size, 1, 1), cat_dims=[2],
        outcome_transform=Standardize(1, batch_shape=Size([size])),
    )  # fmt: skip
    draws = torch.cat([
        draw_posterior_path(model, [derived_generator(i)], 64)(test_X.repeat(size, 1, 1)).detach()
        for i in range(DRAWS // size)
    ])  # fmt: skip
    assert_moments(draws, exact.mean.squeeze(-1), exact.variance.squeeze(-1))
    path = draw_posterior_path(MixedSingleTaskGP(X, Y, cat_dims=[2]), [derived_generator(0)])
    near = test_X + 0.3 * torch.tensor([0.0, 0.0, 1.0]).double()
    assert torch.equal(path(near), path(test_X))


def with_task(X: Tensor) -> Tensor:
    return torch.cat([X, (torch.arange(len(X)) % 2).to(X).unsqueeze(-1)], dim=-1)


X12 = rand(12, 2)
Y12 = outcomes(X12)
TWO = torch.cat([Y12, X12.prod(-1, keepdim=True)], dim=-1)
CODED = torch.cat([X12[:, :1], (3 * X12[:, 1:]).floor()], dim=-1)

MODELS: dict[str, Callable[[], Model]] = {
    "several outputs": lambda: SingleTaskGP(X12, TWO),
    "fixed noise": lambda: SingleTaskGP(X12, Y12, torch.full_like(Y12, 0.1)),
    "mixed, several outputs": lambda: MixedSingleTaskGP(CODED, TWO, cat_dims=[1]),
    "categories that are no codes": lambda: MixedSingleTaskGP(X12, Y12, cat_dims=[1]),
    "additive": lambda: SingleTaskGP(
        X12, Y12, covar_module=ScaleKernel(MaternKernel(2.5)) + RBFKernel(active_dims=[1])
    ),
    "list": lambda: ModelListGP(SingleTaskGP(X12, Y12), SingleTaskGP(X12, -Y12)),
    "periodic": lambda: SingleTaskGP(X12, TWO, covar_module=PeriodicKernel()),
    "tasks": lambda: MultiTaskGP(with_task(X12), Y12, task_feature=-1),
    "kronecker": lambda: KroneckerMultiTaskGP(X12, TWO),
    "variational": lambda: SingleTaskVariationalGP(X12, Y12),
}


@pytest.mark.parametrize("name", MODELS)
def test_any_gaussian_model(name: str) -> None:
    model = MODELS[name]()
    test_X = torch.cat([rand(3, 1, seed=1), torch.tensor([[0.0], [1.0], [2.0]]).double()], dim=-1)
    count = 120
    model.posterior(test_X)  # a variational model finishes its initialisation here
    state = torch.random.get_rng_state()
    with torch.no_grad():
        draws = torch.stack(
            [draw_posterior(model, derived_generator(i))(test_X) for i in range(count)]
        )
        exact = model.posterior(test_X)
    assert torch.equal(state, torch.random.get_rng_state())
    assert draws.shape == (count, 3, model.num_outputs)
    # Beyond five standard errors with probability below 1e-6 a number.
    sd = exact.variance.sqrt()
    assert ((draws.mean(0) - exact.mean).abs() < 5 / count**0.5 * sd).all()
    assert ((draws.std(0) / sd).log().abs() < 5 / (2 * count) ** 0.5).all()
    draw = draw_posterior(model, derived_generator(0))
    values = draw(test_X)
    assert torch.equal(draw(test_X), values)
    torch.testing.assert_close(draw(test_X[1:2]), values[1:2])
    X = test_X.clone().requires_grad_()
    draw(X).sum().backward()
    assert X.grad is not None
    assert X.grad.isfinite().all()


def fully_bayesian(monkeypatch: pytest.MonkeyPatch) -> Model:
    """A model with given samples; only drawing them would need JAX."""
    monkeypatch.setattr(fb, "_check_jax_available", lambda: None)
    monkeypatch.setattr(fb, "jnp", type("jnp", (), {"array": staticmethod(lambda x: x)}), False)
    model = fb.SaasFullyBayesianSingleTaskGP(X12, Y12)
    model.load_mcmc_samples({
        "mean": torch.tensor([0.0, 0.5, -0.5]).double(),
        "noise": torch.full((3, 1), 0.01).double(),
        "outputscale": torch.tensor([1.0, 2.0, 0.5]).double(),
        "lengthscale": torch.tensor([0.3, 0.6, 1.0]).double().reshape(3, 1, 1).expand(3, 1, 2),
    })  # fmt: skip
    return model


def map_ensemble(monkeypatch: pytest.MonkeyPatch) -> Model:
    taus = torch.tensor([0.1, 0.5, 1.0]).double()
    return EnsembleMapSaasSingleTaskGP(X12, Y12, num_taus=3, taus=taus)


@pytest.mark.parametrize("build", [fully_bayesian, map_ensemble])
def test_of_an_ensemble_one_member_is_drawn(
    build: Callable[[pytest.MonkeyPatch], Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build(monkeypatch)
    test_X = rand(5, 1, 2, seed=1)
    draws = [draw_posterior(model, derived_generator(i)) for i in range(300)]
    members = torch.tensor([draw.member for draw in draws])
    # Multinomial(300, 1/3): beyond five standard deviations with probability below 1e-6.
    assert ((members.bincount(minlength=3) - 100).abs() < 5 * (300 * 2 / 9) ** 0.5).all()
    with torch.no_grad():
        values = torch.stack([draw(test_X) for draw in draws])
        exact = model.posterior(test_X)
    assert values.shape == (300, 5, 1, 1)
    error = (values.mean(0) - exact.mixture_mean).abs()
    assert (error < 5 * (exact.mixture_variance / 300).sqrt()).all()


def test_gradients_of_a_joint_draw_are_those_of_a_function() -> None:
    """With values close by known, the gradient agrees with finite differences."""
    model = SingleTaskGP(X12[:, :1], Y12, covar_module=PeriodicKernel())
    draw = draw_posterior(model, derived_generator(0))
    grid = torch.linspace(0.2, 0.3, 21, dtype=torch.float64).unsqueeze(-1)
    values = draw(grid).squeeze(-1)
    X = grid[10:11].clone().requires_grad_()
    draw(X).sum().backward()
    slope = (values[12] - values[8]) / (grid[12, 0] - grid[8, 0])
    assert X.grad is not None
    assert float(X.grad) == pytest.approx(float(slope), rel=0.05)


def test_a_joint_draw_does_not_depend_on_how_points_are_grouped_later() -> None:
    draws = [
        draw_posterior(SingleTaskGP(X12, Y12, covar_module=PeriodicKernel()), derived_generator(0))
        for _ in range(2)
    ]
    X = rand(6, 4, 2, seed=2)
    one, other = (draw(X) for draw in draws)
    assert torch.equal(one, other)
    assert torch.equal(draws[0](X[3, 2:3]), one[3, 2:3])
    assert torch.equal(draws[0](torch.cat([X[5], X[5]])), torch.cat([one[5], one[5]]))


def test_what_cannot_be_drawn_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator()
    with pytest.raises(UnsupportedError, match="GenericDeterministicModel has no posterior"):
        draw_posterior(GenericDeterministicModel(lambda X: X), generator)
    batch = SingleTaskGP(X12.repeat(2, 1, 1), Y12.repeat(2, 1, 1), covar_module=PeriodicKernel())
    with pytest.raises(UnsupportedError, match=r"got batch_shape=\(2,\)"):
        draw_posterior(batch, generator)
    ensemble = map_ensemble(monkeypatch)
    ensemble.covar_module = PeriodicKernel(batch_shape=Size([3]))
    with pytest.raises(UnsupportedError, match="is an ensemble without sample paths"):
        draw_posterior(ensemble, generator)
