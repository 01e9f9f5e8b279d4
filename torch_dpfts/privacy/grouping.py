"""Merging the charges of long histories into few, each rounded to a costlier one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import TypeAlias

Charge: TypeAlias = tuple[float, float, int]
"""Noise multiplier, sample rate and number of rounds, as in Opacus' accountants."""


def grouped(charges: Iterable[Charge], limit: int) -> tuple[Charge, ...]:
    """Merge ``charges`` into at most ``limit``, multipliers rounded down and rates rounded up.

    Charges are rounded only if there are more than ``limit`` different ones. The grids are
    geometric and each contains the next, so a longer history is never rounded less: epsilon does
    not fall when rounds are added.

    Args:
        charges: Charges with positive multipliers.
        limit: At least 2.

    Example:
        >>> grouped([(1.0, 0.5, 3), (2.0, 0.5, 1), (1.0, 0.5, 4)], limit=2)
        ((1.0, 0.5, 7), (2.0, 0.5, 1))
    """
    counts: Counter[tuple[float, float]] = Counter()
    for multiplier, rate, rounds in charges:
        counts[multiplier, rate] += rounds
    steps = 1024.0  # Grid points for each factor of 2.
    groups = counts
    while len(groups) > limit:
        groups = Counter()
        for (multiplier, rate), rounds in counts.items():
            lower = 2.0 ** (math.floor(math.log2(multiplier) * steps) / steps)
            upper = 2.0 ** (math.ceil(math.log2(rate) * steps) / steps)
            groups[min(lower, multiplier), min(max(upper, rate), 1.0)] += rounds
        steps /= 2
    return tuple(sorted((z, q, rounds) for (z, q), rounds in groups.items()))
