import pytest
import torch
from torch import Tensor

from torch_dpfts.posterior import weight_mean, weight_sample

LAMBDA = 0.05


def problem(n: int, M: int = 12, batch: tuple[int, ...] = ()) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n)
    features = torch.randn(*batch, n, M, generator=generator, dtype=torch.float64) / M**0.5
    y = torch.randn(*batch, n, generator=generator, dtype=torch.float64)
    return features, y


def moments(features: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The textbook formulas, with an explicit inverse."""
    sigma = features.T @ features + LAMBDA * torch.eye(features.shape[1], dtype=torch.float64)
    inverse = torch.linalg.inv(sigma)
    return inverse @ features.T @ y, LAMBDA * inverse


@pytest.mark.parametrize("n", [0, 1, 5, 11, 12, 13, 40])
def test_the_mean_is_that_of_ridge_regression(n: int) -> None:
    features, y = problem(n)
    torch.testing.assert_close(weight_mean(features, y, LAMBDA), moments(features, y)[0])


@pytest.mark.parametrize("n", [0, 5, 12, 40])
def test_draws_have_the_posterior_moments_in_both_branches(n: int) -> None:
    features, y = problem(n)
    mean, covariance = moments(features, y)
    generator = torch.Generator().manual_seed(1)
    count = 40_000
    prior = torch.randn(count, 12, generator=generator, dtype=torch.float64)
    noise = torch.randn(count, n, generator=generator, dtype=torch.float64)
    draws = weight_sample(features.expand(count, n, 12), y.expand(count, n), LAMBDA, prior, noise)
    scale = covariance.diagonal().sqrt()
    # 12 means and 144 covariances, each within 5 standard errors: error probability < 1e-4.
    assert ((draws.mean(0) - mean).abs() < 5 * scale / count**0.5).all()
    bound = 5 * (2 / count) ** 0.5 * scale.outer(scale)
    assert ((draws.T.cov() - covariance).abs() < bound).all()


def test_batches_equal_single_problems() -> None:
    for n in (5, 20):
        features, y = problem(n, batch=(3,))
        prior, noise = torch.ones(3, 12).double(), torch.ones(3, n).double()
        means = weight_mean(features, y, LAMBDA)
        draws = weight_sample(features, y, LAMBDA, prior, noise)
        for i in range(3):
            torch.testing.assert_close(means[i], weight_mean(features[i], y[i], LAMBDA))
            torch.testing.assert_close(
                draws[i], weight_sample(features[i], y[i], LAMBDA, prior[i], noise[i])
            )


def test_repeated_points_are_no_trouble() -> None:
    features, y = problem(1)
    mean = weight_mean(features.repeat(9, 1), y.repeat(9), 1e-6)
    assert (features @ mean - y).abs().max() < 1e-5
