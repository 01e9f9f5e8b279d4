"""Paired comparisons of two arms over seeds, with bootstrap intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from torch_dpfts.errors import InvalidInputError
from torch_dpfts.rng import derived_generator

RESAMPLES = 10_000
CONFIDENCE = 0.95


@dataclass(frozen=True, eq=False)
class Estimate:
    """A figure for each of ``k`` rounds, with its uncertainty over the seeds.

    Args:
        value: The figure, ``k``.
        standard_error: Its standard error, ``k``; NaN for a single seed.
        interval: Lower and upper limit of the 95% bootstrap interval, ``2 x k``; NaN for a
            single seed.
    """

    value: Tensor
    standard_error: Tensor
    interval: Tensor


def standard_error(values: Tensor) -> Tensor:
    """Standard error of the mean over the seeds; NaN for a single one.

    Args:
        values: ``seeds x k``.

    Example:
        >>> standard_error(torch.tensor([[1.0], [3.0]]))
        tensor([1.])
    """
    if len(values) == 1:
        return torch.full_like(values[0], torch.nan)
    return values.std(dim=0) / math.sqrt(len(values))


def mean_difference(a: Tensor, b: Tensor, seed: int = 0) -> Estimate:
    """Mean of ``a - b`` over the seeds, paired.

    The interval is that of the percentile bootstrap over seeds. With few seeds it is somewhat
    too short: 92% instead of 95% at ten of them.

    Args:
        a: One arm's values, ``seeds x k``.
        b: The other's, row by row of the same seeds.
        seed: Seed of the resampling.

    Raises:
        InvalidInputError: If the shapes differ or are not ``seeds x k``.

    Example:
        >>> a = torch.tensor([[1.0], [2.0], [4.0]])
        >>> mean_difference(a, a - 1).interval.T
        tensor([[1., 1.]])
    """
    _check(a, b)
    difference = a - b
    resampled = _resampling_weights(difference, seed) @ difference
    return Estimate(
        difference.mean(dim=0), standard_error(difference), _interval(resampled, len(a))
    )


def ratio_of_means(a: Tensor, b: Tensor, seed: int = 0) -> Estimate:
    """Mean of ``a`` over that of ``b``, for regrets; both are resampled by the same seeds.

    Arguments and errors are those of :func:`mean_difference`. NaN where ``b`` has mean 0. The
    standard error is that of the resampled ratios.

    Example:
        >>> ratio_of_means(torch.tensor([[1.0], [3.0]]), torch.tensor([[2.0], [6.0]])).value
        tensor([0.5000])
    """
    _check(a, b)
    weights = _resampling_weights(a, seed)
    resampled = _divide(weights @ a, weights @ b)
    interval = _interval(resampled, len(a))
    error = resampled.std(dim=0) if len(a) > 1 else interval[0]
    return Estimate(_divide(a.mean(dim=0), b.mean(dim=0)), error, interval)


def first_round_reaching(curve: Tensor, level: float) -> int | None:
    """First round at which a curve is at least ``level``; ``None`` if it never is.

    Args:
        curve: Mean of an arm by round, ``num_rounds + 1``, larger is better.
        level: The level, such as another arm's after the last round.

    Example:
        >>> first_round_reaching(torch.tensor([0.1, 0.5, 0.7]), 0.5)
        1
    """
    reached = (curve >= level).nonzero()
    return int(reached[0]) if len(reached) else None


def _check(a: Tensor, b: Tensor) -> None:
    if a.ndim != 2 or a.shape != b.shape or not len(a):
        raise InvalidInputError(
            f"Paired values must have the same shape seeds x k, got {tuple(a.shape)} and "
            f"{tuple(b.shape)}."
        )


def _resampling_weights(values: Tensor, seed: int) -> Tensor:
    """How much of each seed is in each resample, ``RESAMPLES x seeds``; rows sum to 1."""
    n = len(values)
    generator = derived_generator(seed, "bootstrap", n)
    drawn = torch.randint(n, (RESAMPLES, n), generator=generator)
    weights = torch.zeros(RESAMPLES, n, dtype=values.dtype)
    return weights.scatter_add_(1, drawn, torch.full_like(weights, 1 / n))


def _interval(resampled: Tensor, num_seeds: int) -> Tensor:
    if num_seeds == 1:
        return torch.full_like(resampled[:2], torch.nan)
    tail = (1 - CONFIDENCE) / 2
    limits = torch.tensor([tail, 1 - tail], dtype=resampled.dtype)
    return resampled.quantile(limits, dim=0)


def _divide(a: Tensor, b: Tensor) -> Tensor:
    return torch.where(b == 0, torch.nan, a / b)
