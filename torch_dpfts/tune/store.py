"""A site's trials in an SQLite file. It holds the site's data and stays there."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch_dpfts.errors import StateError
from torch_dpfts.tune.trial import Outcome, Trial, TrialState

_SCHEMA = """
CREATE TABLE IF NOT EXISTS site (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS trials (
    number INTEGER PRIMARY KEY, round INTEGER NOT NULL, config TEXT NOT NULL, x TEXT NOT NULL,
    state TEXT NOT NULL, score REAL, cause TEXT, seconds REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS reports (
    trial INTEGER NOT NULL REFERENCES trials, place INTEGER NOT NULL, step INTEGER NOT NULL,
    value REAL, PRIMARY KEY (trial, place)
);
"""


class TrialStore:
    """The trials of one site.

    Args:
        path: The file, made if there is none; ``None`` keeps the trials in memory.
        identity: What the file must belong to, such as the federation's fingerprint. A new file
            remembers it.

    Raises:
        StateError: If the file is no store or belongs to something else.

    Example:
        >>> store = TrialStore(None, {"agent_id": 3})
        >>> trial = store.add(round=0, config={"lr": 0.1}, x=(0.1,))
        >>> store.finish(trial.number, Outcome(TrialState.COMPLETE, 0.75))
        >>> store.trials()[0].score
        0.75
    """

    def __init__(self, path: str | Path | None, identity: Mapping[str, Any]) -> None:
        self._path = ":memory:" if path is None else str(path)
        try:
            self._database = sqlite3.connect(self._path)
            self._database.executescript(_SCHEMA)
            self._check_identity(identity)
        except sqlite3.Error as error:
            raise StateError(f"{self._path!r} cannot hold trials: {error}.") from None

    def _check_identity(self, identity: Mapping[str, Any]) -> None:
        for key, value in identity.items():
            stored = self.setting(key, value)
            if stored != value:
                raise StateError(
                    f"The trials in {self._path!r} have {key} {stored!r}, not {value!r}; choose "
                    "another directory, or go on with the settings they were made with."
                )

    def setting(self, key: str, default: Any) -> Any:
        """What the file remembers under ``key``; ``default`` from now on if nothing."""
        with self._database:
            self._database.execute(
                "INSERT OR IGNORE INTO site VALUES (?, ?)", (key, json.dumps(default))
            )
        found = self._database.execute("SELECT value FROM site WHERE key = ?", (key,))
        return json.loads(found.fetchone()[0])

    def add(self, round: int, config: Mapping[str, Any], x: tuple[float, ...]) -> Trial:
        """Record a trial that is about to run."""
        number = len(self)
        row = (number, round, json.dumps(config), json.dumps(x), TrialState.RUNNING)
        with self._database:
            self._database.execute("INSERT INTO trials VALUES (?, ?, ?, ?, ?, NULL, NULL, 0)", row)
        return Trial(number, round, dict(config), x)

    def finish(self, number: int, outcome: Outcome) -> None:
        """Record how a trial ended."""
        reports = [(number, i, *report) for i, report in enumerate(outcome.reports)]
        with self._database:
            self._database.execute(
                "UPDATE trials SET state = ?, score = ?, cause = ?, seconds = ? WHERE number = ?",
                (outcome.state, outcome.score, outcome.cause, outcome.seconds, number),
            )
            self._database.executemany("INSERT INTO reports VALUES (?, ?, ?, ?)", reports)

    def trials(self) -> list[Trial]:
        """All trials, in order."""
        curves: dict[int, list[tuple[int, float]]] = {}
        for trial, step, value in self._database.execute(
            "SELECT trial, step, value FROM reports ORDER BY trial, place"
        ):
            # SQLite keeps NaN as NULL.
            curves.setdefault(trial, []).append((step, float("nan") if value is None else value))
        rows = self._database.execute(
            "SELECT number, round, config, x, state, score, cause, seconds FROM trials "
            "ORDER BY number"
        )
        return [
            Trial(
                number,
                round,
                json.loads(config),
                tuple(json.loads(x)),
                Outcome(TrialState(state), score, cause, seconds, tuple(curves.get(number, ()))),
            )
            for number, round, config, x, state, score, cause, seconds in rows
        ]

    def __len__(self) -> int:
        (count,) = self._database.execute("SELECT count(*) FROM trials").fetchone()
        return int(count)

    def close(self) -> None:
        """Close the file."""
        self._database.close()
