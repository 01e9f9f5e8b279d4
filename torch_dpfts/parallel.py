"""Jobs in several processes, one thread each, with progress; the first failure ends them all."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TypeVar

import torch

from torch_dpfts import checks
from torch_dpfts.errors import InvalidInputError, RunError

Key = TypeVar("Key")
_TICK, _DONE, _FAILED = "tick", "done", "failed"


def run_jobs(
    function: Callable[..., Any],
    jobs: Sequence[tuple[Key, tuple[Any, ...]]],
    *,
    processes: int | None = None,
    on_tick: Callable[[Key], None] = lambda key: None,
    describe: Callable[[Key], str] = str,
) -> Iterator[tuple[Key, Any]]:
    """Call ``function(*arguments, tick)`` for each job and yield results as they come.

    Args:
        function: What to call; it, the arguments and the result must be picklable. It calls
            ``tick()`` whenever it has got on.
        jobs: Keys, and the arguments of each.
        processes: How many processes; ``None`` takes one for each core, and 1 works in this
            process.
        on_tick: Called with the key of a job that got on.
        describe: How errors name a job.

    Raises:
        RunError: If a job raises, or its process dies; the message names the job.
    """
    cores = os.cpu_count() or 1
    count = cores if processes is None else checks.integer("processes", processes, minimum=1)
    if count == 1:
        yield from _run_here(function, jobs, on_tick, describe)
        return
    waiting = deque(jobs)
    workers: list[_Worker] = []
    try:
        workers += [_Worker(function) for _ in range(min(count, len(waiting)))]
        for worker in workers:
            worker.start(*waiting.popleft())
        while busy := [worker for worker in workers if worker.is_busy]:
            wait([handle for worker in busy for handle in worker.handles])
            for worker in busy:
                for kind, content in worker.read():
                    key = worker.key
                    if kind == _TICK:
                        on_tick(key)
                        continue
                    if kind == _FAILED:
                        name, where, cause = content
                        raise RunError(f"{describe(key)}: {name} ({where}).") from cause
                    if waiting:
                        worker.start(*waiting.popleft())
                    else:
                        worker.is_busy = False
                    yield key, content
    finally:
        for worker in workers:
            worker.close()


def _run_here(
    function: Callable[..., Any],
    jobs: Sequence[tuple[Key, tuple[Any, ...]]],
    on_tick: Callable[[Key], None],
    describe: Callable[[Key], str],
) -> Iterator[tuple[Key, Any]]:
    for key, arguments in jobs:
        try:
            result = function(*arguments, lambda key=key: on_tick(key))
        except Exception as error:
            name, where = _describe(error)
            raise RunError(f"{describe(key)}: {name} ({where}).") from error
        yield key, result


class _Worker:
    """One process and the job that it has."""

    def __init__(self, function: Callable[..., Any]) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, function), daemon=True)
        self._process.start()
        theirs.close()
        self.handles: list[Any] = [self._connection, self._process.sentinel]
        self.key: Any = None
        self.is_busy = False

    def start(self, key: Any, arguments: tuple[Any, ...]) -> None:
        try:
            # Not the connection's own pickling, by which torch shares memory with the sender.
            content = pickle.dumps(arguments)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise InvalidInputError(
                f"What a job works on cannot go to another process: {error}; define functions at "
                "the top of a module, or use processes=1."
            ) from None
        self.key, self.is_busy = key, True
        with suppress(BrokenPipeError):  # it died; read will say so
            self._connection.send_bytes(content)

    def read(self) -> Iterator[tuple[str, Any]]:
        """What has arrived: ticks, then the job's end, or that of the process."""
        try:
            while self._connection.poll():
                message = pickle.loads(self._connection.recv_bytes())  # noqa: S301 - our child
                yield message
                if message[0] != _TICK:
                    return
        except (EOFError, OSError):
            pass
        else:
            if self._process.is_alive() or self._connection.poll():
                return
        self._process.join()
        code = self._process.exitcode or 0
        name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        hint = "; the system may have run out of memory" if name == "SIGKILL" else ""
        yield _FAILED, ("its process ended", f"{name}{hint}", None)

    def close(self) -> None:
        # Nothing that a job has at hand needs a farewell.
        self._process.kill()
        self._process.join()
        self._connection.close()


def _serve(connection: Connection, function: Callable[..., Any]) -> None:
    # Ctrl-C reaches every process of the terminal; the first one ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def send(kind: str, content: Any = None) -> None:
        connection.send_bytes(pickle.dumps((kind, content)))

    with suppress(EOFError, OSError):  # the other side is gone
        while True:
            content = connection.recv_bytes()
            try:
                arguments = pickle.loads(content)  # noqa: S301 - our parent
                send(_DONE, function(*arguments, lambda: send(_TICK)))
            except Exception as error:
                send(_FAILED, (*_describe(error), _portable(error)))


def _end_with_parent() -> None:
    # A parent that is killed cannot end its children, and a job may take hours to its next tick.
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _describe(error: Exception) -> tuple[str, str]:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    what = f"{type(error).__name__}: {error}".rstrip(".")
    return what, f"{Path(frame.filename).name}, line {frame.lineno}"


def _portable(error: Exception) -> Exception:
    """The error with its traceback as a note, in a form that survives the way to this process."""
    text = "".join(traceback.format_exception(error))
    error.add_note(text)
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - what it has just written itself
    except Exception:
        error = RuntimeError(repr(error))
        error.add_note(text)
    return error
