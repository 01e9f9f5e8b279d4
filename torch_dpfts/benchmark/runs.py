"""Finished runs, one JSON line each, in a file that a benchmark can go on with."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from torch_dpfts.benchmark.variants import variant_name
from torch_dpfts.errors import StateError

FILE_NAME = "runs.jsonl"


@dataclass(frozen=True, kw_only=True)
class Run:
    """One finished run of one arm.

    Args:
        arm: The arm's name in the settings.
        swept: Its swept values, by field.
        seed: Seed of agents, server and, where it is drawn, problem.
        problem: Name of the problem.
        problem_settings: Its keyword arguments, without the seed.
        num_initial: Initial points of each agent.
        fingerprint: That of ``spec``.
        spec: All fields of the :class:`~torch_dpfts.FederationSpec`.
        score: Name of the problem's score, if it is one from 0 to 1.
        best_values: Best outcome so far, mean over the agents, ``num_rounds + 1``.
        regret: Largest value less the best outcome so far, mean over the agents,
            ``num_rounds + 1``; ``None`` where the largest value is unknown.
        seconds: Time it took; runs of one batch share theirs equally.
        version: Version of torch_dpfts.
    """

    arm: str
    swept: Mapping[str, Any]
    seed: int
    problem: str
    problem_settings: Mapping[str, Any]
    num_initial: int
    fingerprint: str
    spec: Mapping[str, Any]
    score: str | None
    best_values: Sequence[float]
    regret: Sequence[float] | None
    seconds: float
    version: str

    @property
    def name(self) -> str:
        """The arm and its swept values."""
        return variant_name(self.arm, self.swept)

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Run:
        """Read what :meth:`to_json` wrote.

        Raises:
            ValueError: If it is something else.
        """
        content = json.loads(text)
        if not isinstance(content, dict) or content.keys() != {f.name for f in fields(cls)}:
            raise ValueError("not the fields of a run")
        return cls(**content)


class RunsFile:
    """The runs that a folder holds.

    Args:
        folder: Where ``runs.jsonl`` is, or will be.

    Raises:
        StateError: If a line other than an unfinished last one is not a run.
    """

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / FILE_NAME
        data = self.path.read_bytes() if self.path.exists() else b""
        # A process that is killed while it writes leaves a line without an end.
        self._size = data.rfind(b"\n") + 1
        self.runs = [self._read(*item) for item in enumerate(data[: self._size].splitlines(), 1)]

    def _read(self, number: int, line: bytes) -> Run:
        try:
            return Run.from_json(line.decode())
        except ValueError as error:
            raise StateError(
                f"Line {number} of {str(self.path)!r} is not a run: {error}; remove the line, or "
                "choose another folder."
            ) from None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from writing.

        Raises:
            StateError: If another one does.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(self.path.with_suffix(".lock"), timeout=0):
                yield
        except Timeout:
            raise StateError(
                f"Another benchmark is writing to {str(self.path)!r}; wait for it, or choose "
                "another folder."
            ) from None

    def append(self, runs: Sequence[Run]) -> None:
        """Write finished runs; they are on the disk when this returns."""
        data = "".join(f"{run.to_json()}\n" for run in runs).encode()
        with open(self.path, "ab") as file:
            file.truncate(self._size)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        self._size += len(data)
        self.runs += runs
