r"""Samples of the normal distribution, exact to the last bit, from the operating system's entropy.

A textbook sampler (Box-Muller, ziggurat, inverse CDF) works in floating point: some doubles can
never come out, others come out too often, and where the holes lie depends on the value that the
noise was added to. That is enough to undo the privacy of a release [Mironov2012]_,
[Holohan2021]_. This module has no floating point in it. It draws :math:`\lfloor 2^b X \rfloor`
for a true real-valued :math:`X \sim N(0, 1)` by von Neumann's and Karney's method
[Karney2016]_: a uniform number is known by its first 64 bits and only ever *compared* with
others, so that every decision, and hence every output bit, has the right probability.

Two uniform numbers that agree in all 64 bits (probability :math:`2^{-64}`) are ordered by a fair
coin, which is right unless one of them is ever tied again; so a whole draw is wrong with
probability below :math:`2^{-100}`, less than what one grants the operating system's generator.

.. [Mironov2012] I. Mironov. On significance of the least significant bits for differential
   privacy. ACM CCS 2012.
.. [Holohan2021] N. Holohan and S. Braghin. Secure random sampling in differential privacy.
   ESORICS 2021.
.. [Karney2016] C. F. F. Karney. Sampling exactly from the normal distribution. ACM Transactions
   on Mathematical Software 42(1), 2016.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
Flags = NDArray[np.bool_]


def words(count: int) -> Words:
    """Return ``count`` independent uniform 64-bit words from the operating system."""
    return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


def floored_normal(count: int, bits: int) -> NDArray[np.int64]:
    r"""Return ``count`` independent draws of :math:`\lfloor 2^{bits} X \rfloor`, X standard normal.

    Since :math:`\lfloor x \rfloor + n = \lfloor x + n \rfloor` for every integer n, adding such
    a draw to an integer is the same as rounding down the sum of that integer and real noise: a
    post-processing of the ideal Gaussian mechanism.

    Args:
        count: Number of draws.
        bits: Fractional bits of a draw, at most 56.
    """
    result = np.empty(count, dtype=np.int64)
    filled = 0
    while filled < count:
        batch = _candidates(2 * (count - filled) + 64, bits)[: count - filled]
        result[filled : filled + batch.size] = batch
        filled += batch.size
    return result


def _candidates(count: int, bits: int) -> NDArray[np.int64]:
    """Return the draws that survive of ``count`` candidates (about half of them)."""
    whole = _whole_parts(count)
    fraction = words(whole.size)
    keep = np.flatnonzero(_accepts(whole, fraction))
    size = (whole[keep] << bits) + (fraction[keep] >> np.uint64(64 - bits)).astype(np.int64)
    return np.where(_coins(size.size), size, -size - 1)


def _whole_parts(count: int) -> NDArray[np.int64]:
    """Return integers k >= 0 with probability proportional to exp(-k^2 / 2)."""
    whole = np.zeros(count, dtype=np.int64)
    running = np.arange(count)
    while running.size:  # k successes in a row: exp(-k / 2)
        running = running[_exp_minus(running.size, _coins_at)]
        whole[running] += 1
    trials = whole * (whole - 1)
    running = np.flatnonzero(trials)
    while running.size:  # k (k - 1) more: exp(-k (k - 1) / 2)
        success = _exp_minus(running.size, _coins_at)
        whole[running[~success]] = -1
        running = running[success]
        trials[running] -= 1
        running = running[trials[running] > 0]
    return whole[whole >= 0]


def _accepts(whole: NDArray[np.int64], fraction: Words) -> Flags:
    """Return True with probability exp(-x (2 k + x) / 2), k the whole part and x the fraction."""

    def half_square(at: NDArray[np.intp]) -> Flags:
        x = fraction[at]
        return _below(words(at.size), x) & _below(words(at.size), x) & _coins(at.size)

    accepted = _exp_minus(whole.size, half_square)
    running = np.flatnonzero(accepted & (whole > 0))
    trials = whole.copy()
    while running.size:  # k times exp(-x)
        x = fraction[running]
        success = _exp_minus(running.size, partial(_below_at, x))
        accepted[running[~success]] = False
        running = running[success]
        trials[running] -= 1
        running = running[trials[running] > 0]
    return accepted


def _exp_minus(count: int, event: Callable[[NDArray[np.intp]], Flags]) -> Flags:
    r"""Return True with probability exp(-g), where ``event`` is True with probability g.

    A run of uniforms u_1 > u_2 > ... > u_j together with j events has probability g^j / j!, so
    the longest run has even length with probability sum_j (-g)^j / j!.
    """
    even = np.ones(count, dtype=np.bool_)
    running = np.flatnonzero(event(np.arange(count)))
    last = words(running.size)
    even[running] = False
    while running.size:
        drawn = words(running.size)
        success = _below(drawn, last) & event(running)
        running, last = running[success], drawn[success]
        even[running] ^= True
    return even


def _below(left: Words, right: Words) -> Flags:
    """Compare two uniform real numbers by their first 64 bits, ties by a fair coin."""
    result: Flags = left < right
    ties = np.flatnonzero(left == right)
    result[ties] = _coins(ties.size)
    return result


def _coins(count: int) -> Flags:
    drawn = np.frombuffer(os.urandom(-(-count // 8)), dtype=np.uint8)
    return np.unpackbits(drawn, count=count).astype(np.bool_)


def _below_at(right: Words, at: NDArray[np.intp]) -> Flags:
    return _below(words(at.size), right[at])


def _coins_at(at: NDArray[np.intp]) -> Flags:
    return _coins(at.size)
