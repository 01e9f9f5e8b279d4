"""The record of every release: what was charged is on disk before anything leaves."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from filelock import FileLock, Timeout

from torch_dpfts import checks
from torch_dpfts.errors import InvalidInputError, LedgerError
from torch_dpfts.files import sync_directory, write_atomically
from torch_dpfts.privacy.accounting import epsilon_spent
from torch_dpfts.privacy.sensitivity import joint_multiplier

_GENESIS = "0" * 64


@dataclass(frozen=True, kw_only=True)
class LedgerEntry:
    """What one release was charged.

    Args:
        round: Number of the round, from 1; no two entries share one.
        sample_rate: Probability q with which each agent was drawn.
        noise_multiplier: Noise multiplier z of the broadcast; 0 if it had no noise.
        kappa: Joint sensitivity charged (see :func:`~torch_dpfts.privacy.joint_sensitivity`).
        fingerprint: Fingerprint of the federation's specification.
        count_noise_multiplier: Noise multiplier of the count that the adaptive clip norm
            released in the same round; ``None`` if there was none.
        previous: Hash of the entry before this one.
    """

    round: int
    sample_rate: float
    noise_multiplier: float
    kappa: float
    fingerprint: str
    count_noise_multiplier: float | None = None
    previous: str = _GENESIS

    def __post_init__(self) -> None:
        checks.integer("round", self.round, minimum=1)
        checks.real("sample_rate", self.sample_rate, above=0.0, maximum=1.0)
        checks.real("noise_multiplier", self.noise_multiplier, minimum=0.0, below=math.inf)
        checks.real("kappa", self.kappa, above=0.0, maximum=1.0)
        if self.count_noise_multiplier is not None:
            name = "count_noise_multiplier"
            checks.real(name, self.count_noise_multiplier, above=0.0, below=math.inf)
        if not isinstance(self.fingerprint, str) or not isinstance(self.previous, str):
            raise InvalidInputError(
                f"fingerprint and previous must be strings, got {self.fingerprint!r} and "
                f"{self.previous!r}."
            )

    @property
    def charge(self) -> tuple[float, float, int]:
        """The release as ``(noise_multiplier, sample_rate, 1)`` for an accountant."""
        multiplier = self.noise_multiplier / self.kappa
        if self.count_noise_multiplier is not None:
            multiplier = joint_multiplier(multiplier, self.count_noise_multiplier)
        return multiplier, self.sample_rate, 1

    @property
    def hash(self) -> str:
        """Hexadecimal sha256 of the entry; covers the hash of the one before."""
        return hashlib.sha256(_canonical(asdict(self)).encode()).hexdigest()


class PrivacyLedger:
    """An append-only, hash-chained file with one line for each release.

    The server calls :meth:`append` *before* it computes a release; the call returns once the
    line is on the disk. So every release that can have left is in the ledger, whatever the
    moment of a crash, and epsilon is never under-reported. (It may be over-reported by the one
    round that was recorded and never left.)

    Each line holds the hash of the one before, and a file ``<path>.head`` the number of lines
    and the last hash, so an edit and a lost line are both found on loading. A last line without
    its line feed belongs to an ``append`` that never returned, whose release cannot have left:
    it is cut off, unless ``<path>.head`` says that the append did return. An operating system
    lock on ``<path>.lock`` keeps every other ledger off the same file until :meth:`close`.

    Args:
        path: The file; created if missing. ``None`` keeps the ledger in memory.
        read_only: Take no lock, accept no entry, and do without ``<path>.head`` if it is
            missing: for reports, also on a copy and while a server runs.

    Raises:
        LedgerError: If the file was edited or cut (the message names the line), if another
            process holds it, or if it cannot be read.

    Example:
        >>> ledger = PrivacyLedger()
        >>> entry = ledger.append(round=1, sample_rate=0.35, noise_multiplier=2.0, kappa=0.5)
        >>> ledger.epsilon(delta=1e-2) < 2
        True
    """

    def __init__(self, path: str | Path | None = None, *, read_only: bool = False) -> None:
        self.path = None if path is None else Path(path)
        self._entries: dict[int, LedgerEntry] = {}
        self._lock: FileLock | None = None
        self._file: IO[bytes] | None = None
        self._open = not read_only
        if self.path is None:
            return
        if not read_only:
            self._lock = _acquire(self.path)
        try:
            length = self._load(self.path, read_only)
            if not read_only:
                self._file = _open_at(self.path, length)
        except BaseException:
            self.close()
            raise

    # --- writing ------------------------------------------------------------------------

    def append(
        self,
        *,
        round: int,
        sample_rate: float,
        noise_multiplier: float,
        kappa: float = 1.0,
        fingerprint: str = "",
        count_noise_multiplier: float | None = None,
    ) -> LedgerEntry:
        """Record a release; returns when it is on the disk.

        See :class:`LedgerEntry` for the arguments.

        Raises:
            InvalidInputError: If a value is out of range.
            LedgerError: If the round is already recorded, the ledger is closed or read-only, or
                the disk refuses. Nothing may be released then.
        """
        if not self._open:
            raise LedgerError("The ledger is closed or read-only; open it for writing first.")
        entry = LedgerEntry(
            round=round,
            sample_rate=float(sample_rate),
            noise_multiplier=float(noise_multiplier),
            kappa=float(kappa),
            fingerprint=fingerprint,
            count_noise_multiplier=count_noise_multiplier,
            previous=next((e.hash for e in reversed(self._entries.values())), _GENESIS),
        )
        if round in self:
            raise LedgerError(
                f"Round {round} is already in the ledger; a round is released once and charged "
                "once."
            )
        if self.path is not None:
            self._write(entry)
        self._entries[round] = entry
        return entry

    def _write(self, entry: LedgerEntry) -> None:
        try:
            file, path = self._file, self.path
            if file is None or path is None:
                raise OSError("the file is not open")
            file.write(_canonical(asdict(entry) | {"hash": entry.hash}).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
            head = {"entries": len(self._entries) + 1, "hash": entry.hash}
            write_atomically(_beside(path, ".head"), _canonical(head).encode())
        except OSError as error:
            self.close()  # What is on the disk is now unknown; loading will find out.
            raise LedgerError(
                f"Round {entry.round} could not be recorded in {str(self.path)!r} ({error}); "
                "nothing may be released. Free the disk and open the ledger again."
            ) from error

    def close(self) -> None:
        """Release the file and its lock; figures can still be asked for."""
        self._open = False
        if self._file is not None:
            self._file.close()
        if self._lock is not None:
            self._lock.release()
        self._file = self._lock = None

    def __enter__(self) -> PrivacyLedger:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- reading ------------------------------------------------------------------------

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """All entries, oldest first."""
        return tuple(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[LedgerEntry]:
        return iter(self.entries)

    def __contains__(self, round: object) -> bool:
        return round in self._entries

    def __getitem__(self, round: int) -> LedgerEntry:
        """The entry of one round; ``KeyError`` if there is none."""
        return self._entries[round]

    def history(self) -> list[tuple[float, float, int]]:
        """Triples ``(noise_multiplier, sample_rate, 1)``, as in Opacus' accountants."""
        return [entry.charge for entry in self]

    def epsilon(self, delta: float, method: str = "pld") -> float:
        """Upper bound on the epsilon of all releases; see :func:`epsilon_spent`."""
        return epsilon_spent(self.history(), delta, method)

    def would_exceed(
        self,
        charge: tuple[float, float],
        target_epsilon: float,
        delta: float,
        method: str = "pld",
    ) -> bool:
        """Whether one more release of ``(noise_multiplier, sample_rate)`` would exceed a budget.

        Raises:
            InvalidInputError: If a value is out of range.
        """
        return self.remaining_rounds([charge], target_epsilon, delta, method) == 0

    def remaining_rounds(
        self,
        charges: Sequence[tuple[float, float]],
        target_epsilon: float,
        delta: float,
        method: str = "pld",
    ) -> int:
        """How many of the releases planned next stay within a budget.

        Args:
            charges: ``(noise_multiplier, sample_rate)`` of the rounds to come, in order; see
                :func:`~torch_dpfts.privacy.round_charge`.
            target_epsilon: The budget.
            delta: The delta at which it holds.
            method: The accountant.

        Raises:
            InvalidInputError: If a value is out of range.
        """
        target = checks.real("target_epsilon", target_epsilon, above=0.0, below=math.inf)
        planned = [(multiplier, rate, 1) for multiplier, rate in charges]
        fits, exceeds = 0, len(planned) + 1
        while exceeds - fits > 1:
            middle = (fits + exceeds) // 2
            if epsilon_spent(self.history() + planned[:middle], delta, method) <= target:
                fits = middle
            else:
                exceeds = middle
        return fits

    def export_json(self) -> str:
        """Return all entries with their hashes as a JSON list, for other programs."""
        listed = [asdict(entry) | {"hash": entry.hash} for entry in self]
        return json.dumps(listed, indent=2, sort_keys=True, allow_nan=False)

    def _load(self, path: Path, read_only: bool) -> int:
        """Read and verify the file; return the length of its complete lines in bytes."""
        head = _read_head(path)  # before the lines: a server may be adding some just now
        try:
            content = path.read_bytes() if read_only or path.exists() else b""
        except OSError as error:
            raise LedgerError(
                f"The ledger {str(path)!r} cannot be read: {error.strerror}."
            ) from None
        complete, _, rest = content.rpartition(b"\n")
        entries = list(_verified(complete.split(b"\n") if complete else [], path))
        if head is not None or not read_only:
            _check_head(path, entries, *(head or (0, _GENESIS)))
        self._entries = {entry.round: entry for entry in entries}
        return len(content) - len(rest)


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _acquire(path: Path) -> FileLock:
    lock = FileLock(_beside(path, ".lock"), thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise LedgerError(
            f"The ledger {str(path)!r} is held by another process or another ledger of this one; "
            "stop that server first."
        ) from None
    except OSError as error:
        raise LedgerError(f"The ledger {str(path)!r} cannot be locked: {error}.") from None
    return lock


def _open_at(path: Path, length: int) -> IO[bytes]:
    """Open the file for appending and cut what follows the complete lines."""
    try:
        file = open(path, "ab")  # noqa: SIM115
        file.truncate(length)
        os.fsync(file.fileno())
        sync_directory(path.parent)
    except OSError as error:
        raise LedgerError(f"The ledger {str(path)!r} cannot be written: {error}.") from None
    return file


def _verified(lines: Iterable[bytes], path: Path) -> Iterator[LedgerEntry]:
    previous, rounds = _GENESIS, set[int]()
    for number, line in enumerate(lines, start=1):
        where = f"Line {number} of the ledger {str(path)!r}"
        try:
            fields = json.loads(line)
            claimed = fields.pop("hash")
            entry = LedgerEntry(**fields)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise LedgerError(f"{where} is damaged; restore the file from a backup.") from None
        if entry.previous != previous or entry.hash != claimed or entry.round in rounds:
            raise LedgerError(
                f"{where} was changed, or lines before it are missing; restore the file from a "
                "backup."
            )
        previous = claimed
        rounds.add(entry.round)
        yield entry


def _read_head(path: Path) -> tuple[int, str] | None:
    head = _beside(path, ".head")
    try:
        recorded = json.loads(head.read_bytes())
        return int(recorded["entries"]), str(recorded["hash"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError):
        raise LedgerError(f"{str(head)!r} is damaged; restore it from a backup.") from None


def _check_head(path: Path, entries: Sequence[LedgerEntry], count: int, last: str) -> None:
    """Refuse a ledger that has lost lines which were once completely written."""
    found = entries[count - 1].hash if 0 < count <= len(entries) else _GENESIS
    # An append may have been interrupted between the line and the head.
    if len(entries) - count not in (0, 1) or found != last:
        raise LedgerError(
            f"The ledger {str(path)!r} has {len(entries)} complete lines where "
            f"{str(_beside(path, '.head'))!r} says {count}: lines after line {len(entries)} are "
            "missing, or one of the two files was replaced. Restore both from a backup."
        )
