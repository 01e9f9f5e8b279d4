"""The probability p_t with which an agent trusts its own posterior sample."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch_dpfts import checks

SCHEDULES: dict[str, Callable[[int], float]] = {
    "1-1/t^2": lambda t: 1.0 - 1.0 / t**2,
    "1-1/t": lambda t: 1.0 - 1.0 / t,
    "1-1/sqrt(t)": lambda t: 1.0 - 1.0 / math.sqrt(t),
    "1": lambda t: 1.0,
}


def local_probability(schedule: str, round: int) -> float:
    """Return p_t for the queries that follow broadcast number ``round``.

    The initial points are the algorithm's first iteration, so the queries after broadcast
    ``round`` are iteration ``t = round + 1``: with ``"1-1/t"`` the first of them trusts the
    agent's own posterior with probability 1/2, as in the experiments of the paper.

    Args:
        schedule: A key of ``SCHEDULES``: ``"1-1/t^2"`` (the theory of the paper), ``"1-1/t"``
            (its experiments), ``"1-1/sqrt(t)"`` (shares longer) or ``"1"`` (never shares).
        round: The broadcast's number, from 1.

    Raises:
        InvalidInputError: If the schedule is unknown or the round is below 1.

    Example:
        >>> [local_probability("1-1/t", t) for t in (1, 3)]
        [0.5, 0.75]
    """
    checks.choice("local_probability", schedule, SCHEDULES)
    return SCHEDULES[schedule](checks.integer("round", round, minimum=1) + 1)
