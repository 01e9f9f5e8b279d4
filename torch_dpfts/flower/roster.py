"""The operator's roster: which SuperNode's key is which agent."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch_dpfts.errors import InvalidInputError
from torch_dpfts.spec import FederationSpec

_FINGERPRINT = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Member:
    """One line of the roster.

    Args:
        key: Fingerprint of the public key, see :func:`key_fingerprint`.
        agent_id: Place among the agents; ``None`` for a listener.
        region: The agent's sub-region, ``agent_id mod num_regions``; ``None`` for a listener.
    """

    key: str
    agent_id: int | None = None
    region: int | None = None


@dataclass(frozen=True)
class Roster:
    """Who may take part. A place that is not on it yet counts as an agent that never answers.

    Args:
        members: The members.
        spec: The federation.

    Raises:
        InvalidInputError: If a key or a place occurs twice, a place does not exist, or a region
            is not that of its place.

    Example:
        >>> spec = FederationSpec.fts(bounds=[[0.0], [1.0]], num_agents=2, num_rounds=1)
        >>> key = "sha256:" + 64 * "a"
        >>> Roster([Member(key, agent_id=1, region=0)], spec).agents
        {'sha256:aaaa...aaaa': 1}
    """

    members: Sequence[Member]
    spec: FederationSpec

    def __post_init__(self) -> None:
        keys, places = set[str](), set[int]()
        for member in self.members:
            key, place = member.key, member.agent_id
            if not isinstance(key, str) or not _FINGERPRINT.fullmatch(key):
                raise InvalidInputError(
                    f"key must be 'sha256:' and 64 hexadecimal digits, got {key!r}."
                )
            if key in keys:
                raise InvalidInputError(f"The key {key} is on the roster twice; remove one.")
            keys.add(key)
            if place is not None:
                self._check_place(place, member.region, places)

    def _check_place(self, place: Any, region: Any, places: set[int]) -> None:
        spec = self.spec
        if type(place) is not int or not 0 <= place < spec.num_agents:
            raise InvalidInputError(
                f"agent_id must be from 0 to {spec.num_agents - 1} (num_agents - 1), got {place!r}."
            )
        if place in places:
            raise InvalidInputError(f"agent_id {place} is on the roster twice; remove one.")
        if region != place % spec.num_regions:
            raise InvalidInputError(
                f"Agent {place} belongs to region {place % spec.num_regions}, got {region!r}."
            )
        places.add(place)

    @property
    def agents(self) -> Mapping[str, int]:
        """The agent of each key."""
        return {m.key: m.agent_id for m in self.members if m.agent_id is not None}

    @property
    def listeners(self) -> Sequence[str]:
        """The keys of the listeners."""
        return [m.key for m in self.members if m.agent_id is None]

    @classmethod
    def read(cls, path: str | Path, spec: FederationSpec) -> Roster:
        """Read a TOML file with a table ``[[member]]`` for each member.

        Raises:
            InvalidInputError: If it cannot be read or does not fit the federation.
        """
        try:
            lines = tomllib.loads(Path(path).read_text())["member"]
            members = [Member(**line) for line in lines]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidInputError(f"The roster {str(path)!r} cannot be read: {error}.") from None
        return cls(members, spec)


def roster_text(members: Sequence[Member]) -> str:
    """The file that :meth:`Roster.read` reads."""
    blocks = []
    for member in members:
        lines = ["[[member]]", f'key = "{member.key}"']
        if member.agent_id is not None:
            lines += [f"agent_id = {member.agent_id}", f"region = {member.region}"]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def key_fingerprint(public_key: bytes) -> str:
    """Fingerprint of a public key in PEM, as Flower hands it over.

    Raises:
        InvalidInputError: If it is no PEM.

    Example:
        >>> lines = [b"-----BEGIN PUBLIC KEY-----", b"AAEC", b"-----END PUBLIC KEY-----"]
        >>> key_fingerprint(bytes([10]).join(lines))[:15]
        'sha256:ae4b3280'
    """
    lines = [line.strip() for line in public_key.strip().splitlines()]
    try:
        if len(lines) < 3 or not lines[0].startswith(b"-----BEGIN"):
            raise ValueError
        content = base64.b64decode(b"".join(lines[1:-1]), validate=True)
    except (ValueError, binascii.Error):
        raise InvalidInputError(f"No public key in PEM: {public_key[:40]!r}.") from None
    return "sha256:" + hashlib.sha256(content).hexdigest()
