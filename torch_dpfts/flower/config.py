"""The server's configuration file, and the status that it leaves for its owner."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from torch_dpfts import checks
from torch_dpfts.errors import InvalidInputError, StateError
from torch_dpfts.files import read_state, write_atomically
from torch_dpfts.server import Server
from torch_dpfts.site.config import read_spec, read_toml
from torch_dpfts.spec import FederationSpec

RUNNING, FINISHED, FAILED = "running", "finished", "failed"


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """What the ServerApp needs to know. Paths are relative to the configuration's folder.

    Args:
        spec: File with the federation's specification.
        roster: The roster; see :class:`~torch_dpfts.flower.roster.Roster`.
        directory: Where ledger, broadcast and status are kept.
        deadline: Seconds that sites have for an answer; also each message's time to live.
        interval: Seconds between the starts of two rounds.
        diagnostics: Whether to keep ``diagnostics.jsonl`` with what became of each request. It
            is not private: keep it on the server.
        app: Folder of the Flower app that ``flwr run`` submits.
        flower_home: Folder with Flower's ``config.toml``.
        keys: Folder with the SuperNodes' public keys.

    Raises:
        InvalidInputError: If a value is out of range.
    """

    spec: Path
    roster: Path
    directory: Path = Path("state")
    deadline: float = 300.0
    interval: float = 3600.0
    diagnostics: bool = False
    app: Path = Path("app")
    flower_home: Path = Path("flower")
    keys: Path = Path("keys")

    def __post_init__(self) -> None:
        checks.real("deadline", self.deadline, above=0.0, below=math.inf)
        checks.real("interval", self.interval, minimum=0.0, below=math.inf)
        if not isinstance(self.diagnostics, bool):
            raise InvalidInputError(f"diagnostics must be true or false, got {self.diagnostics!r}.")

    @classmethod
    def read(cls, path: str | Path) -> ServerConfig:
        """Read a TOML file.

        Raises:
            InvalidInputError: If it cannot be read, or a key is unknown or missing.
        """
        path = Path(path)
        values = read_toml(path, {field.name for field in fields(cls)})
        missing = sorted({"spec", "roster"} - set(values))
        if missing:
            raise InvalidInputError(f"{str(path)!r} lacks {missing}.")
        folder = path.resolve().parent
        for name in ("spec", "roster", "directory", "app", "flower_home", "keys"):
            values[name] = folder / str(values.get(name, getattr(cls, name, "")))
        return cls(**values)

    def read_spec(self) -> FederationSpec:
        """Read the federation's specification.

        Raises:
            InvalidInputError: If it cannot be read.
        """
        return read_spec(self.spec)


def write_failure(directory: Path, reason: str) -> None:
    """Leave why a server could not go on."""
    try:
        status = read_status(directory)
    except StateError:
        status = {}
    status |= {"state": FAILED, "reason": reason}
    write_atomically(directory / "status.json", json.dumps(status, indent=1).encode())


def write_status(directory: Path, server: Server, state: str, reason: str = "") -> None:
    """Leave what may be known of a federation: nothing in it depends on anybody's data."""
    epsilon = server.epsilon()
    content = {
        "state": state,
        "reason": reason,
        "federation": server.spec.fingerprint,
        "round": server.next_round - 1,
        "num_rounds": server.spec.num_rounds,
        "epsilon": epsilon if math.isfinite(epsilon) else "inf",
        "delta": server.spec.delta,
        "noise": server.noise_description,
    }
    write_atomically(directory / "status.json", json.dumps(content, indent=1).encode())


def read_status(directory: Path) -> dict[str, Any]:
    """Read what :func:`write_status` left.

    Raises:
        StateError: If there is nothing yet.
    """
    try:
        status: dict[str, Any] = json.loads(read_state(directory / "status.json"))
    except ValueError as error:
        raise StateError(f"The status in {str(directory)!r} is damaged: {error}.") from None
    return status


def status_line(status: dict[str, Any]) -> str:
    """One line for people.

    Example:
        >>> status_line({
        ...     "state": "running", "reason": "", "round": 3, "num_rounds": 60, "epsilon": 0.4213,
        ...     "delta": 0.01, "noise": "operating system entropy", "federation": "ab" * 32})
        'running: round 3 of 60, epsilon 0.4213 at delta 0.01 (operating system entropy)'
    """
    if "round" not in status:
        return f"{status['state']}: {status['reason']}"
    line = (
        f"{status['state']}: round {status['round']} of {status['num_rounds']}, epsilon "
        f"{float(status['epsilon']):.4g} at delta {status['delta']:.3g} ({status['noise']})"
    )
    return f"{line}: {status['reason']}" if status["reason"] else line
