"""The one file of a site: its trials, what it contributed and what it received."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from torch_dpfts.errors import InvalidInputError, StateError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS identity (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS trials (
    number INTEGER PRIMARY KEY,
    point TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('chosen', 'done', 'failed')),
    value REAL,
    CHECK ((state = 'done') = (value IS NOT NULL))
);
CREATE UNIQUE INDEX IF NOT EXISTS one_chosen ON trials (state) WHERE state = 'chosen';
CREATE TABLE IF NOT EXISTS contributions (
    federation TEXT NOT NULL, round INTEGER NOT NULL, message BLOB NOT NULL,
    UNIQUE (federation, round)
);
CREATE TABLE IF NOT EXISTS broadcasts (
    federation TEXT NOT NULL, round INTEGER NOT NULL, message BLOB NOT NULL,
    UNIQUE (federation, round)
);
"""


@dataclass(frozen=True)
class Trial:
    """One point of the site's own search.

    Args:
        number: Its number, from 0.
        point: Where, ``d`` numbers in the user's units.
        state: ``"chosen"`` until there is an outcome, then ``"done"`` or ``"failed"``.
        value: The outcome of a trial that is done.
    """

    number: int
    point: tuple[float, ...]
    state: str
    value: float | None


class SiteStore:
    """Everything a site must not lose, in one SQLite file.

    Each change is on the disk when its method returns. A lock on ``<path>.lock`` keeps a second
    process away. Threads may share a store.

    Args:
        path: The file; created if missing.
        identity: What the file belongs to, such as federation and agent. A new file takes it
            over; one that says otherwise is refused.
        defaults: Values that a new file takes over and an old one keeps, such as a seed.

    Raises:
        StateError: If the file is damaged, belongs to somebody else, or is in use.

    Example:
        >>> import tempfile
        >>> store = SiteStore(Path(tempfile.mkdtemp()) / "site.sqlite", {"agent_id": "3"})
        >>> trial = store.choose([0.5])
        >>> store.finish(trial.number, 1.25)
        >>> store.trials()
        [Trial(number=0, point=(0.5,), state='done', value=1.25)]
        >>> store.close()
    """

    def __init__(
        self, path: str | Path, identity: dict[str, str], defaults: dict[str, str] | None = None
    ) -> None:
        self.path = Path(path)
        self._mutex = threading.RLock()
        self._lock = _acquire(self.path)
        try:
            self._database = sqlite3.connect(
                self.path, check_same_thread=False, isolation_level=None
            )
            self.path.chmod(0o600)
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = FULL")
            self._database.executescript(_SCHEMA)
            self.identity = self._identify(identity, defaults or {})
        except sqlite3.DatabaseError as error:
            self._lock.release()
            raise StateError(f"The site's file {str(path)!r} is damaged: {error}.") from None
        except BaseException:
            self.close()
            raise

    def _identify(self, identity: dict[str, str], defaults: dict[str, str]) -> dict[str, str]:
        with self._mutex, self._database:
            self._database.execute("BEGIN IMMEDIATE")
            found = dict(self._database.execute("SELECT key, value FROM identity"))
            for key, value in identity.items():
                if found and found.get(key) != value:
                    raise StateError(
                        f"{str(self.path)!r} belongs to {key} {found.get(key)!r}, not {value!r}; "
                        "give each federation and agent a file of its own."
                    )
            if not found:
                found = defaults | identity
                self._database.executemany("INSERT INTO identity VALUES (?, ?)", found.items())
        return found

    def close(self) -> None:
        """Close the file and let go of the lock."""
        with self._mutex:
            self._database.close()
            self._lock.release()

    # --- trials -------------------------------------------------------------------------

    def choose(self, point: Sequence[float]) -> Trial:
        """Commit to a point before its evaluation starts.

        Raises:
            StateError: If another chosen point still waits for its outcome.
        """
        values = tuple(float(x) for x in point)
        with self._mutex:
            try:
                number = self._database.execute(
                    "INSERT INTO trials (number, point, state) SELECT COUNT(*), ?, 'chosen' "
                    "FROM trials RETURNING number",
                    (json.dumps(values),),
                ).fetchone()[0]
            except sqlite3.IntegrityError:
                raise StateError(
                    f"Point {values} cannot be chosen while an earlier one has no outcome; "
                    "finish that first."
                ) from None
        return Trial(number, values, "chosen", None)

    def pending(self) -> Trial | None:
        """The chosen point that waits for its outcome, if there is one."""
        return next((trial for trial in self.trials() if trial.state == "chosen"), None)

    def finish(self, number: int, value: float | None) -> None:
        """Record the outcome of the chosen point; ``None`` if the objective failed.

        Raises:
            InvalidInputError: If that trial is not waiting for an outcome.
        """
        with self._mutex:
            changed = self._database.execute(
                "UPDATE trials SET state = ?, value = ? WHERE number = ? AND state = 'chosen'",
                ("failed" if value is None else "done", value, number),
            ).rowcount
        if changed != 1:
            raise InvalidInputError(
                f"Trial {number} is not waiting for an outcome; each is recorded once."
            )

    def trials(self) -> list[Trial]:
        """All trials, oldest first."""
        with self._mutex:
            return _read_trials(self._database)

    # --- messages -----------------------------------------------------------------------

    def contribution(self, federation: str, round: int) -> bytes | None:
        """What was sent for a round, or ``None``."""
        return self._read("contributions", federation, round)

    def keep_contribution(self, federation: str, round: int, message: bytes) -> bytes:
        """Keep what is about to be sent for a round; return what was kept first."""
        return self._keep("contributions", federation, round, message)

    def rounds_contributed(self, federation: str) -> list[int]:
        """The rounds that a contribution was made for."""
        with self._mutex:
            rows = self._database.execute(
                "SELECT round FROM contributions WHERE federation = ? ORDER BY round", (federation,)
            ).fetchall()
        return [round for (round,) in rows]

    def keep_broadcast(self, federation: str, round: int, message: bytes) -> bytes:
        """Keep a broadcast; return the one of that round that was kept first."""
        return self._keep("broadcasts", federation, round, message)

    def last_broadcast(self, federation: str) -> bytes | None:
        """The broadcast of the highest round, or ``None``."""
        with self._mutex:
            row = self._database.execute(
                "SELECT message FROM broadcasts WHERE federation = ? ORDER BY round DESC LIMIT 1",
                (federation,),
            ).fetchone()
        return None if row is None else bytes(row[0])

    def _read(self, table: str, federation: str, round: int) -> bytes | None:
        with self._mutex:
            row = self._database.execute(
                f"SELECT message FROM {table} WHERE federation = ? AND round = ?",
                (federation, round),
            ).fetchone()
        return None if row is None else bytes(row[0])

    def _keep(self, table: str, federation: str, round: int, message: bytes) -> bytes:
        with self._mutex:
            self._database.execute(
                f"INSERT OR IGNORE INTO {table} VALUES (?, ?, ?)", (federation, round, message)
            )
            kept = self._read(table, federation, round)
        return message if kept is None else kept


def read_progress(path: str | Path, federation: str) -> tuple[list[Trial], int, int]:
    """Read a site's file without its lock: trials, rounds contributed to, rounds received.

    Raises:
        StateError: If there is no such file, or it is damaged.
    """
    try:
        database = sqlite3.connect(f"{Path(path).resolve().as_uri()}?mode=ro", uri=True)
        with closing(database):
            counts = [
                database.execute(
                    f"SELECT COUNT(*) FROM {table} WHERE federation = ?", (federation,)
                ).fetchone()[0]
                for table in ("contributions", "broadcasts")
            ]
            return _read_trials(database), counts[0], counts[1]
    except sqlite3.Error as error:
        raise StateError(f"The site's file {str(path)!r} cannot be read: {error}.") from None


def _read_trials(database: sqlite3.Connection) -> list[Trial]:
    rows = database.execute("SELECT number, point, state, value FROM trials ORDER BY number")
    return [Trial(n, tuple(json.loads(point)), state, value) for n, point, state, value in rows]


def _acquire(path: Path) -> FileLock:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = FileLock(path.with_name(path.name + ".lock"), thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise StateError(
            f"The site's file {str(path)!r} is held by another process; stop that one first."
        ) from None
    return lock
