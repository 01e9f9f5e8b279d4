"""What runs in a worker process: a training function, its reports and its end."""

from __future__ import annotations

import math
import os
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
import torch

from torch_dpfts import checks
from torch_dpfts.tune.stopping import StoppingRule
from torch_dpfts.tune.trial import Curve, Outcome, TrialState

TrainFn = Callable[[dict[str, Any], "Report"], float]
_MAX_CAUSE = 10_000


@dataclass(frozen=True)
class Task:
    """A trial to run.

    Args:
        train_fn: The training function as cloudpickle's bytes.
        config: The configuration.
        minimize: Whether small values are good.
        stopping: The stopping rule.
        others: Reports of earlier trials.
        time_limit: Seconds that the training function may take.
    """

    train_fn: bytes
    config: Mapping[str, Any]
    minimize: bool = False
    stopping: StoppingRule | None = None
    others: tuple[Curve, ...] = ()
    time_limit: float | None = None


class TrialStopped(BaseException):
    """Raised by a report to end the training.

    No ``Exception``, so that a training function that catches those still ends.
    """


class Report:
    """The second argument of a training function, for intermediate results."""

    def __init__(self, task: Task, connection: Connection) -> None:
        self._task, self._connection = task, connection
        self._sign = -1.0 if task.minimize else 1.0
        self._others = [self._signed(curve) for curve in task.others]
        self._curve: list[tuple[int, float]] = []

    def __call__(self, value: float, step: int | None = None) -> None:
        """Report how the training stands; it ends here if the stopping rule says so.

        Args:
            value: The score so far.
            step: Number of the epoch or the like; one more than the last by default.

        Raises:
            InvalidInputError: If ``step`` is not a whole number.
        """
        last = self._curve[-1][0] if self._curve else 0
        at = last + 1 if step is None else checks.integer("step", step)
        self._curve.append((at, float(value)))
        self._connection.send(self._curve[-1])
        rule = self._task.stopping
        if rule is not None and math.isfinite(value):
            finite = tuple((s, v) for s, v in self._curve if math.isfinite(v))
            if rule.stops(self._signed(finite), self._others):
                raise TrialStopped

    def _signed(self, curve: Curve) -> Curve:
        return tuple((step, self._sign * value) for step, value in curve if math.isfinite(value))

    @property
    def last(self) -> float:
        """The last value reported."""
        return self._curve[-1][1]


def serve(connection: Connection, num_threads: int) -> None:
    """Run tasks from the connection until the other end closes it."""
    # A session of its own: what the training starts can be ended with it.
    os.setsid()
    torch.set_num_threads(num_threads)
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        connection.send(None)  # the clock starts
        start = time.monotonic()
        state, score, cause = _train(task, connection)
        seconds = time.monotonic() - start
        try:
            connection.send(Outcome(state, score, cause, seconds))
        except OSError:  # nobody is waiting any more
            return


def _train(task: Task, connection: Connection) -> tuple[TrialState, float | None, str | None]:
    report = Report(task, connection)
    try:
        score = float(cloudpickle.loads(task.train_fn)(dict(task.config), report))
    except TrialStopped:
        return TrialState.STOPPED, report.last, None
    except BaseException as error:
        state = TrialState.OUT_OF_MEMORY if _is_memory(error) else TrialState.FAILED
        return state, None, traceback.format_exc()[-_MAX_CAUSE:]
    if not math.isfinite(score):
        return TrialState.NOT_FINITE, None, f"The training function returned {score}."
    return TrialState.COMPLETE, score, None


def _is_memory(error: BaseException) -> bool:
    # torch's CPU allocator raises a RuntimeError with this text.
    kinds = (MemoryError, torch.cuda.OutOfMemoryError)
    return isinstance(error, kinds) or "can't allocate memory" in str(error)
