"""Starting evaluations, waiting for them, and finding them again after a crash."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from torch_dpfts.errors import StateError
from torch_dpfts.files import read_state, write_atomically

_POLL_SECONDS = 0.05


class Evaluator:
    """Runs one objective in processes that survive the site's own.

    Args:
        objective: See :func:`~torch_dpfts.site.evaluate.call_objective`.
        directory: Where requests, results and the objective's output are kept.
        working_directory: Where the objective runs, and is imported from.
        timeout: Seconds after which an evaluation is given up; ``None`` for never.
    """

    def __init__(
        self,
        objective: str | Sequence[str],
        directory: str | Path,
        working_directory: str | Path = ".",
        timeout: float | None = None,
    ) -> None:
        self.objective = objective
        self.timeout = timeout
        self._directory = Path(directory)
        self._working_directory = Path(working_directory)
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._child: subprocess.Popen[bytes] | None = None

    def evaluate(self, number: int, point: Sequence[float], stop: threading.Event) -> float | None:
        """Evaluate a trial, or wait for the process that does so already.

        Args:
            number: The trial's number.
            point: Its point, ``d`` numbers.
            stop: Set it to return early.

        Returns:
            The value, or ``None`` if the objective failed.

        Raises:
            InterruptedError: If ``stop`` was set first; the evaluation goes on by itself.
        """
        request = self._directory / f"{number:06d}.json"
        result = request.with_suffix(".result")
        with open(request.with_suffix(".lock"), "ab") as lock:
            while not _take(lock.fileno()):
                self._wait(stop)
            if not result.exists():
                self._start(request, point, lock.fileno())
        while self._child is not None and self._child.poll() is None:
            self._wait(stop)
        self._child = None
        return _read(result) if result.exists() else None

    def _start(self, request: Path, point: Sequence[float], lock: int) -> None:
        content = {"objective": self.objective, "point": list(point), "timeout": self.timeout}
        write_atomically(request, json.dumps(content).encode())
        with open(request.with_suffix(".log"), "ab") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "torch_dpfts.site.evaluate", str(request.resolve())],
                cwd=self._working_directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[lock],
                start_new_session=True,
            )

    def _wait(self, stop: threading.Event) -> None:
        if stop.wait(_POLL_SECONDS):
            raise InterruptedError("The site was asked to stop while an evaluation goes on.")


def _take(lock: int) -> bool:
    """Take the lock if nobody holds it; a child inherits it, and it lasts as long as the child."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(path: Path) -> float | None:
    try:
        value = json.loads(read_state(path))["value"]
        return None if value is None else float(value)
    except (ValueError, KeyError, TypeError) as error:
        raise StateError(f"The result {str(path)!r} is damaged: {error}.") from None
