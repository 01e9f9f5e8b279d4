"""A site's configuration file."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from torch_dpfts import checks
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.spec import FederationSpec


@dataclass(frozen=True, kw_only=True)
class SiteConfig:
    """What ``dpfts site`` needs to know. Paths are relative to the configuration's folder.

    Args:
        spec: File with the federation's specification, as ``FederationSpec.to_json`` wrote it.
        agent_id: Place on the roster. A listener has no place; for it the number only chooses
            the sub-region of its initial points.
        objective: ``"module:function"``, or a command line as a list of strings.
        directory: Where the site keeps its file and the evaluations.
        socket: Where the ClientApp finds it; ``site.sock`` in ``directory`` by default.
        num_initial: Initial points.
        max_trials: Trials after which the site searches no more and only answers; 0 means no
            limit.
        timeout: Seconds after which an evaluation is given up.
        seed: Seed of the site's draws; from the operating system by default.
        listener: Whether the site only receives broadcasts.
        target_epsilon: The site's own budget; see
            :class:`~torch_dpfts.site.calls.StoredSite`.

    Raises:
        InvalidInputError: If a value is out of range.
    """

    spec: Path
    agent_id: int
    objective: str | Sequence[str]
    directory: Path = Path("site")
    socket: Path | None = None
    num_initial: int = 10
    max_trials: int = 0
    timeout: float | None = None
    seed: int | None = None
    listener: bool = False
    target_epsilon: float | None = None

    def __post_init__(self) -> None:
        checks.integer("agent_id", self.agent_id)
        checks.integer("num_initial", self.num_initial, minimum=1)
        checks.integer("max_trials", self.max_trials)
        if self.seed is not None:
            checks.integer("seed", self.seed)
        for name in ("timeout", "target_epsilon"):
            if getattr(self, name) is not None:
                checks.real(name, getattr(self, name), above=0.0)
        if not isinstance(self.listener, bool):
            raise InvalidInputError(f"listener must be true or false, got {self.listener!r}.")
        _check_objective(self.objective)

    @classmethod
    def read(cls, path: str | Path) -> SiteConfig:
        """Read a TOML file.

        Raises:
            InvalidInputError: If it cannot be read, or a key is unknown or missing.
        """
        path = Path(path)
        values = read_toml(path, {field.name for field in fields(cls)})
        missing = sorted({"spec", "agent_id", "objective"} - set(values))
        if missing:
            raise InvalidInputError(f"{str(path)!r} lacks {missing}.")
        folder = path.resolve().parent
        for name in ("spec", "directory", "socket"):
            if name in values or name == "directory":
                values[name] = folder / str(values.get(name, cls.directory))
        return cls(**values)

    @property
    def database(self) -> Path:
        """The site's one file."""
        return self.directory / "site.sqlite"

    @property
    def socket_path(self) -> Path:
        """Where the socket is."""
        return self.socket or self.directory / "site.sock"

    def read_spec(self) -> FederationSpec:
        """Read the federation's specification.

        Raises:
            InvalidInputError: If it cannot be read, or this site does not fit it.
        """
        spec = read_spec(self.spec)
        if self.agent_id >= spec.num_agents:
            raise InvalidInputError(
                f"agent_id must be below num_agents={spec.num_agents}, got {self.agent_id}."
            )
        if self.target_epsilon is not None and not spec.is_private:
            raise InvalidInputError(
                f"target_epsilon={self.target_epsilon} cannot be met: this federation adds no "
                "noise. Take part as a listener."
            )
        return spec


def read_spec(path: str | Path) -> FederationSpec:
    """Read a specification from a file.

    Raises:
        InvalidInputError: If it cannot be read.
    """
    try:
        text = Path(path).read_text()
    except OSError as error:
        raise InvalidInputError(
            f"The specification {str(path)!r} cannot be read: {error.strerror}."
        ) from None
    return FederationSpec.from_json(text)


def read_toml(path: str | Path, known: set[str]) -> dict[str, Any]:
    """Read a configuration whose keys are all among ``known``.

    Raises:
        InvalidInputError: If it cannot be read or holds another key.
    """
    try:
        values = tomllib.loads(Path(path).read_text())
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInputError(
            f"The configuration {str(path)!r} cannot be read: {error}."
        ) from None
    unknown = sorted(set(values) - known)
    if unknown:
        raise InvalidInputError(
            f"{str(path)!r} has unknown keys {unknown}; known: {sorted(known)}."
        )
    return values


def _check_objective(objective: Any) -> None:
    if isinstance(objective, str):
        good = all(part.strip() for part in objective.partition(":"))
    else:
        good = isinstance(objective, list | tuple) and bool(objective)
        good = good and all(isinstance(word, str) for word in objective)
    if not good:
        raise InvalidInputError(
            f"objective must be 'module:function' or a command line as a list of strings, got "
            f"{objective!r}."
        )
