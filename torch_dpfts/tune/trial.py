"""One training run and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Curve = tuple[tuple[int, float], ...]
"""Reports of a trial, ``(step, value)`` in the order in which they came."""


class TrialState(StrEnum):
    """How a trial stands."""

    RUNNING = "running"
    COMPLETE = "complete"
    STOPPED = "stopped"
    """Ended by the stopping rule; the last report is the score."""
    FAILED = "failed"
    """The training function raised, or returned something that is no number."""
    NOT_FINITE = "not finite"
    OUT_OF_MEMORY = "out of memory"
    TIMED_OUT = "timed out"
    KILLED = "killed"
    """The process died."""

    @property
    def has_score(self) -> bool:
        """Whether trials in this state have a score."""
        return self in (TrialState.COMPLETE, TrialState.STOPPED)


@dataclass(frozen=True)
class Outcome:
    """What came of running a training function.

    Args:
        state: Any state but ``RUNNING``.
        score: Its score, in the states that have one.
        cause: Why there is none: traceback, signal or limit. It may hold data of the site and
            stays there.
        seconds: Wall time.
        reports: Intermediate reports.
    """

    state: TrialState
    score: float | None = None
    cause: str | None = None
    seconds: float = 0.0
    reports: Curve = ()


@dataclass(frozen=True)
class Trial:
    """A configuration that a site tries.

    Args:
        number: Number at the site, from 0.
        round: The broadcast it followed; 0 for initial trials.
        config: The configuration.
        x: Its point in the space of the federation.
        outcome: How it ended; its state is ``RUNNING`` before.
    """

    number: int
    round: int
    config: dict[str, Any]
    x: tuple[float, ...]
    outcome: Outcome = Outcome(TrialState.RUNNING)

    @property
    def state(self) -> TrialState:
        """How the trial stands."""
        return self.outcome.state

    @property
    def score(self) -> float | None:
        """What the training function returned, if it did."""
        return self.outcome.score
