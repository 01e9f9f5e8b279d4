"""The accountants behind :func:`~torch_dpfts.privacy.epsilon_spent`, one function each.

Each takes checked groups ``(noise_multiplier, sample_rate, num_rounds)`` and returns an upper
bound on epsilon. ``opacus`` and ``dp_accounting`` are imported on first use.
"""

from __future__ import annotations

import math
import warnings
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from torch_dpfts.privacy.grouping import Charge, grouped

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

# Orders up to 64 one by one, then about 8 for each factor of 2. Opacus' binomial coefficients
# overflow beyond 1024; larger orders matter only for an epsilon below about .01.
MOMENTS_ORDERS = tuple(range(2, 65))
RDP_ORDERS = MOMENTS_ORDERS + tuple(round(64 * 2 ** (k / 8)) for k in range(1, 33))
WIDE_ORDERS = tuple(round(1024 * 2 ** (k / 2)) for k in range(1, 15))
QUICK_ORDERS = (2, 3, 4, 5, 6, 8, 11, 16, 23, 32, 64, 128, 256, 1024, 4096)

_PLD_MAX_EPSILON = 500.0
_PLD_MAX_ROUNDS = 200_000  # Self-composition of dp_accounting takes minutes for millions.
_MIN_DELTA = 1e-12  # Fourier transforms of doubles resolve nothing smaller.
# Opacus' PRV accountant takes seconds to minutes, and gigabytes, outside these.
_PRV_MIN_EPSILON = 0.05
_PRV_MAX_ROUNDS = 20_000
_PRV_MAX_POINTS = 1_000_000
_PRV_MAX_GROUPS = 6


def moments_epsilon(groups: tuple[Charge, ...], delta: float) -> float:
    """Moments accountant: ``min over a of RDP(a) + log(1 / delta) / (a - 1)``, a = 2..64."""
    orders = np.array(MOMENTS_ORDERS, dtype=float)
    spent = _total_rdp(groups, MOMENTS_ORDERS)
    return float(np.min(spent + math.log(1 / delta) / (orders - 1)))


def rdp_epsilon(groups: tuple[Charge, ...], delta: float) -> float:
    """Renyi DP at integer orders, converted by theorem 21 of Balle et al. (2020)."""
    epsilon, order = _best_order(groups, delta, RDP_ORDERS)
    if order == RDP_ORDERS[-1]:
        epsilon = min(epsilon, _best_order(groups, delta, WIDE_ORDERS)[0])
    return epsilon


@lru_cache(maxsize=1024)  # Simulated servers of many seeds ask for the same histories.
def pld_epsilon(groups: tuple[Charge, ...], delta: float) -> float:
    """Privacy loss distributions, discretised pessimistically by connecting the dots."""
    bound = _quick_bound(groups, delta)
    rounds = sum(count for _, rate, count in groups if rate < 1.0)
    feasible = 0.0 < bound < _PLD_MAX_EPSILON and delta >= _MIN_DELTA and rounds <= _PLD_MAX_ROUNDS
    if not feasible:
        return rdp_epsilon(groups, delta)
    fineness = max(1000.0, 40.0 * math.sqrt(rounds))
    interval = 2.0 ** math.floor(math.log2(bound / fineness))  # a power of 2: cached more often
    # Multipliers shrink as a federation goes on: with the smallest last, the composition of the
    # others is found in the cache.
    total = _composed(tuple(reversed(groups)), interval)
    return min(bound, float(total.get_epsilon_for_delta(delta)))


def prv_epsilon(groups: tuple[Charge, ...], delta: float) -> float:
    """Privacy random variables: the upper end of Opacus' interval, or else the PLD bound."""
    from opacus.accountants import PRVAccountant

    bound = pld_epsilon(groups, delta)
    rounds = sum(count for _, _, count in groups)
    feasible = _PRV_MIN_EPSILON < bound < _PLD_MAX_EPSILON and delta >= _MIN_DELTA
    if not feasible or rounds > _PRV_MAX_ROUNDS or any(rate == 1.0 for _, rate, _ in groups):
        return bound
    error = max(min(0.01, bound / 200), bound / 1000)  # the interval's half width
    span = 4.0 * (bound + math.log(4000.0 / delta) / 60.0)  # about what Opacus' grid will span
    if span / error * math.sqrt(rounds * math.log(12000.0 / delta) / 2) > _PRV_MAX_POINTS:
        return bound
    accountant = PRVAccountant()
    accountant.history = list(grouped(groups, _PRV_MAX_GROUPS))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            epsilon = float(accountant.get_epsilon(delta, eps_error=error))
        except (ArithmeticError, RuntimeError, ValueError):
            return bound
    return epsilon if math.isfinite(epsilon) else bound


# --- Renyi DP ---------------------------------------------------------------------------


def _quick_bound(groups: tuple[Charge, ...], delta: float) -> float:
    """A rough ``rdp_epsilon`` in a fraction of its time, to set the scale of a grid."""
    return max(0.0, _best_order(groups, delta, QUICK_ORDERS)[0])


def _best_order(
    groups: tuple[Charge, ...], delta: float, orders: tuple[int, ...]
) -> tuple[float, int]:
    alpha = np.array(orders, dtype=float)
    spent = _total_rdp(groups, orders)
    epsilon = spent + np.log1p(-1 / alpha) - np.log(delta * alpha) / (alpha - 1)
    best = int(np.argmin(epsilon))
    return float(epsilon[best]), orders[best]


def _total_rdp(groups: tuple[Charge, ...], orders: tuple[int, ...]) -> NDArray[np.float64]:
    spent = [rounds * _rdp(multiplier, rate, orders) for multiplier, rate, rounds in groups]
    return np.asarray(np.sum(spent, axis=0))


@lru_cache(maxsize=1024)
def _rdp(multiplier: float, rate: float, orders: tuple[int, ...]) -> NDArray[np.float64]:
    """RDP of one round at each order (Mironov, Talwar and Zhang 2019, section 3.3)."""
    if rate == 1.0:
        return np.array(orders) / (2 * multiplier**2)
    if orders in (MOMENTS_ORDERS, RDP_ORDERS):
        from opacus.accountants.analysis.rdp import compute_rdp

        rdp = compute_rdp(q=rate, noise_multiplier=multiplier, steps=1, orders=list(orders))
        return np.asarray(rdp, dtype=np.float64)
    return np.array([_log_moment(multiplier, rate, a) / (a - 1) for a in orders])


def _log_moment(multiplier: float, rate: float, order: int) -> float:
    """Logarithm of the moment of integer ``order``, without overflow at large orders."""
    from scipy.special import gammaln, logsumexp

    i = np.arange(order + 1.0)
    binomial = gammaln(order + 1) - gammaln(i + 1) - gammaln(order - i + 1)
    sampled = i * math.log(rate) + (order - i) * math.log1p(-rate)
    return float(logsumexp(binomial + sampled + (i * i - i) / (2 * multiplier**2)))


# --- privacy loss distributions ---------------------------------------------------------


@lru_cache(maxsize=256)
def _composed(groups: tuple[Charge, ...], interval: float) -> PrivacyLossDistribution:
    multiplier, rate, rounds = groups[-1]
    if rate == 1.0:  # n Gaussian releases are one of n times the precision
        multiplier, rounds = multiplier / math.sqrt(rounds), 1
    last = _single(multiplier, rate, interval).self_compose(rounds)
    return last if len(groups) == 1 else _composed(groups[:-1], interval).compose(last)


@lru_cache(maxsize=256)
def _single(multiplier: float, rate: float, interval: float) -> PrivacyLossDistribution:
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution.from_gaussian_mechanism(
        multiplier,
        sampling_prob=rate,
        value_discretization_interval=interval,
        use_connect_dots=True,
        pessimistic_estimate=True,
    )
