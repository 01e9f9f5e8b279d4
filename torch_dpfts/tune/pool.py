"""Processes that run trials and may be killed by them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from torch_dpfts import checks
from torch_dpfts.tune.trial import Curve, Outcome, TrialState
from torch_dpfts.tune.worker import Task, serve

Key = TypeVar("Key")
_STARTUP_LIMIT = 300.0


class Worker:
    """One process, started when it is first needed and again after it died."""

    def __init__(self, num_threads: int) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._num_threads = num_threads
        self._process: BaseProcess | None = None
        self._task: Task | None = None
        self._reports: list[tuple[int, float]] = []
        self._deadline = 0.0
        self._started = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether a task is running."""
        return self._task is not None

    @property
    def deadline(self) -> float:
        """When the task must be over, on the monotonic clock."""
        return self._deadline

    @property
    def handles(self) -> list[Any]:
        """What to wait for."""
        return [self._connection, self._process.sentinel] if self._process else []

    def start(self, task: Task) -> None:
        """Give the process a task."""
        if self._process is None or not self._process.is_alive():
            self.close()
            self._connection, theirs = self._context.Pipe()
            self._process = self._context.Process(
                target=serve, args=(theirs, self._num_threads), name="dpfts trial"
            )
            self._process.start()
            theirs.close()
        self._task, self._reports = task, []
        self._started = time.monotonic()
        self._deadline = self._started + _STARTUP_LIMIT
        with suppress(OSError):  # it died; poll will say so
            self._connection.send(task)

    def poll(self) -> Outcome | None:
        """The task's outcome, if it has ended; its process is dead if it died or is overdue."""
        outcome = self._read()
        if outcome is None and self._process and not self._process.is_alive():
            outcome = self._read() or self._ended(TrialState.KILLED, self._epitaph())
        if outcome is None and time.monotonic() >= self._deadline:
            self.close()
            limit = self._deadline - self._started
            outcome = self._ended(TrialState.TIMED_OUT, f"Longer than the limit of {limit:g} s.")
        if outcome is not None:
            self._task = None
            if outcome.state == TrialState.OUT_OF_MEMORY:
                self.close()  # a new process starts with all its memory
        return outcome

    def _read(self) -> Outcome | None:
        try:
            while self._connection.poll():
                message = self._connection.recv()
                if isinstance(message, Outcome):
                    return replace(message, reports=self._curve())
                if message is None:
                    self._started = time.monotonic()
                    limit = self._task.time_limit if self._task else None
                    self._deadline = self._started + (float("inf") if limit is None else limit)
                else:
                    self._reports.append(message)
        except (EOFError, OSError):
            # It is ending, or hangs in doing so.
            self._kill(grace=5.0)
        return None

    def _ended(self, state: TrialState, cause: str) -> Outcome:
        seconds = time.monotonic() - self._started
        return Outcome(state, None, cause, seconds, self._curve())

    def _curve(self) -> Curve:
        return tuple(self._reports)

    def _epitaph(self) -> str:
        code = self._process.exitcode if self._process else None
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            hint = "; the system may have run out of memory" if name == "SIGKILL" else ""
            return f"The process was ended by {name}{hint}."
        return f"The process ended with exit status {code}."

    def close(self) -> None:
        """End the process and what it has started."""
        if self._process is not None:
            self._kill()
            self._connection.close()
            self._process = None

    def _kill(self, grace: float = 0.0) -> None:
        process = self._process
        if process is None or process.pid is None:
            return
        process.join(grace)
        if process.is_alive():
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:  # it has not made a session of its own yet
                process.kill()
        process.join()


class TrialPool:
    """Runs tasks in processes of their own, some at a time.

    Args:
        processes: How many; ``None`` takes one for each core. Cores are shared out among them
            as threads.
    """

    def __init__(self, processes: int | None = None) -> None:
        cores = os.cpu_count() or 1
        count = cores if processes is None else checks.integer("processes", processes, minimum=1)
        self._workers = [Worker(max(1, cores // count)) for _ in range(count)]

    def run(self, tasks: Iterable[tuple[Key, Task]]) -> Iterator[tuple[Key, Outcome]]:
        """Run tasks, each named by a key, and yield outcomes as they come.

        A task is taken from ``tasks`` when a process is free for it.
        """
        queue = iter(tasks)
        keys: dict[Worker, Key] = {}
        while True:
            for worker in self._workers:
                if not worker.is_busy and (item := next(queue, None)) is not None:
                    keys[worker], task = item
                    worker.start(task)
            busy = [worker for worker in self._workers if worker.is_busy]
            if not busy:
                return
            first = min(worker.deadline for worker in busy)
            timeout = None if first == float("inf") else max(0.0, first - time.monotonic())
            wait([handle for worker in busy for handle in worker.handles], timeout)
            for worker in busy:
                outcome = worker.poll()
                if outcome is not None:
                    yield keys[worker], outcome

    def close(self) -> None:
        """End all processes."""
        for worker in self._workers:
            worker.close()

    def __enter__(self) -> TrialPool:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
