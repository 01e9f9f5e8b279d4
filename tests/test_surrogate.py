import itertools

import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from torch_dpfts.space import SearchSpace
from torch_dpfts.surrogate import build_model, fit_model, get_hyperparameters, is_refit_due

BOUNDS = torch.tensor([[200.0, -1.0], [8000.0, 1.0]], dtype=torch.float64)


def data(b: int, n: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n)
    unit = torch.rand(b, n, 2, generator=generator, dtype=torch.float64)
    noise = 0.1 * torch.randn(b, n, 1, generator=generator, dtype=torch.float64)
    return BOUNDS[0] + unit * (BOUNDS[1] - BOUNDS[0]), (6 * unit).sin().sum(
        -1, keepdim=True
    ) + noise


def log_likelihood(model: torch.nn.Module) -> Tensor:
    mll = ExactMarginalLogLikelihood(model.likelihood, model).train()
    value = mll(model(*model.train_inputs), model.train_targets).detach()
    model.eval()
    return value


@pytest.mark.parametrize("n", [5, 25])
def test_the_fit_is_as_good_as_botorchs(n: int) -> None:
    X, Y = data(4, n)
    model = build_model(X, Y, SearchSpace(BOUNDS))
    fit_model(model)
    for i in range(4):
        reference = build_model(X[i], Y[i], SearchSpace(BOUNDS))
        fit_gpytorch_mll(ExactMarginalLogLikelihood(reference.likelihood, reference))
        assert float(log_likelihood(model)[i]) > float(log_likelihood(reference)) - 1e-3


def test_a_fit_does_not_depend_on_the_batch() -> None:
    X, Y = data(3, 12)
    together = fit_model(build_model(X, Y, SearchSpace(BOUNDS)))
    for i in range(3):
        alone = fit_model(build_model(X[i : i + 1], Y[i : i + 1], SearchSpace(BOUNDS)))
        for a, b in zip(alone, together, strict=True):
            torch.testing.assert_close(a[0], b[i], rtol=1e-8, atol=1e-10)


def test_hyperparameters_can_be_written_back() -> None:
    X, Y = data(2, 10)
    fitted = build_model(X, Y, SearchSpace(BOUNDS))
    values = fit_model(fitted)
    again = build_model(X, Y, SearchSpace(BOUNDS), values)
    for a, b in zip(values, get_hyperparameters(again), strict=True):
        torch.testing.assert_close(a, b)
    test_X = X[:, :3] + 0.01
    torch.testing.assert_close(fitted.posterior(test_X).mean, again.posterior(test_X).mean)


@pytest.mark.parametrize(
    "Y", [[0.3], [0.3, 0.3, 0.3], [1e6, 1e6 + 1e-9], [0.0, 1e-300, 0.0]], ids=str
)
def test_few_or_equal_outcomes_are_no_trouble(Y: list[float]) -> None:
    X = data(1, len(Y))[0]
    model = build_model(
        X, torch.tensor(Y, dtype=torch.float64).reshape(1, -1, 1), SearchSpace(BOUNDS)
    )
    for value in fit_model(model):
        assert value.isfinite().all()
    assert model.posterior(X).mean.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_near_repeats_are_no_trouble(dtype: torch.dtype) -> None:
    X, Y = (value.to(dtype) for value in data(1, 12))
    X[:, 6:] = X[:, :1] + 1e-7 * torch.arange(6)[None, :, None]
    model = build_model(X, Y, SearchSpace(BOUNDS.to(dtype)))
    for value in fit_model(model):
        assert value.isfinite().all()
    assert model.posterior(X).mean.dtype == dtype


def test_refits_come_when_the_data_have_grown_by_a_fifth() -> None:
    fitted, refits = 0, []
    for n in range(1, 101):
        if is_refit_due(n, fitted):
            fitted = n
            refits.append(n)
    assert refits[:4] == [1, 2, 3, 4]
    assert len(refits) < 25
    assert all(b < 1.2 * a + 1 for a, b in itertools.pairwise(refits))


def test_of_many_observations_an_even_subset_is_fitted() -> None:
    X, Y = data(1, 2001)
    many, few = build_model(X, Y, SearchSpace(BOUNDS)), build_model(X, Y, SearchSpace(BOUNDS))
    few.set_train_data(X[:, ::3], few.train_targets[:, ::3], strict=False)
    few.train_inputs = (many.eval().train_inputs[0][:, ::3],)
    for fitted, expected in zip(
        fit_model(many, max_evals=1), fit_model(few, max_evals=1), strict=True
    ):
        torch.testing.assert_close(fitted, expected)
    assert many.train_inputs[0].shape[-2] == 2001
