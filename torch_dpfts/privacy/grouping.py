"""Merging the charges of long histories into few, each rounded to a costlier one."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TypeAlias

Charge: TypeAlias = tuple[float, float, int]
"""Noise multiplier, sample rate and number of rounds, as in Opacus' accountants."""

_FINEST = 4096.0  # Buckets for each factor of 2: multipliers within .02% are taken for equal.


def grouped(charges: Iterable[Charge], limit: int) -> tuple[Charge, ...]:
    """Merge ``charges`` into at most ``limit``, multipliers rounded down and rates rounded up.

    Charges are put into buckets on a geometric grid, and each bucket takes its smallest
    multiplier and largest rate. Buckets are doubled in width until there are few enough; wider
    ones are unions of narrower ones. So a longer history is never rounded less, and epsilon does
    not fall when rounds are added.

    Args:
        charges: Charges with positive multipliers.
        limit: At least 2.

    Example:
        >>> grouped([(1.0, 0.5, 3), (2.0, 0.5, 1), (1.0, 0.5, 4), (1.00001, 0.5, 1)], limit=2)
        ((1.0, 0.5, 8), (2.0, 0.5, 1))
    """
    charges = list(charges)
    steps = _FINEST
    while True:
        groups: dict[tuple[int, int], Charge] = {}
        for multiplier, rate, rounds in charges:
            bucket = (
                math.floor(math.log2(multiplier) * steps),
                math.ceil(math.log2(rate) * steps),
            )
            least, most, count = groups.get(bucket, (multiplier, rate, 0))
            groups[bucket] = min(least, multiplier), max(most, rate), count + rounds
        if len(groups) <= limit:
            return tuple(sorted(groups.values()))
        steps /= 2
