"""How a server reaches its sites: the interface of every transport, and what it lets through."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from torch_dpfts.errors import MessageError
from torch_dpfts.messages import Broadcast, Contribution
from torch_dpfts.protocol import Code
from torch_dpfts.spec import WIRE_DTYPES, FederationSpec

_OVERHEAD_BYTES = 1024  # header, JSON and digest of a message


class Status(StrEnum):
    """How the request to one agent ended. Not private: for the server's owner only."""

    ANSWERED = "answered"
    DELIVERED = "delivered"
    LISTENING = "listening"
    REFUSED = "refused"
    FAILED = "failed"
    LOST = "lost"
    OVERSIZED = "oversized"
    MALFORMED = "malformed"
    WRONG_FEDERATION = "wrong federation"
    WRONG_AGENT = "wrong agent"
    WRONG_ROUND = "wrong round"
    DUPLICATE = "duplicate"


_STATUS_OF_CODE = {
    Code.LISTENING: Status.LISTENING,
    Code.REFUSED: Status.REFUSED,
    Code.FAILED: Status.FAILED,
}


@dataclass(frozen=True, eq=False)
class Exchange:
    """What came of one exchange with the sites. Not private: never publish it.

    Args:
        contributions: The usable message of each agent that sent one, by agent.
        statuses: How it ended with each agent that was asked.
        refused: How many messages were turned away, for each reason; one agent can cause many.
    """

    contributions: dict[int, Contribution] = field(default_factory=dict)
    statuses: dict[int, Status] = field(default_factory=dict)
    refused: Counter[Status] = field(default_factory=Counter)

    def settle(self, agent_id: int, status: Status, contribution: Contribution | None) -> None:
        """Enter what one agent sent; the first usable message of an agent counts."""
        if agent_id in self.contributions:
            status = Status.DUPLICATE
        elif contribution is not None:
            self.contributions[agent_id] = contribution
        if status not in (Status.ANSWERED, Status.DELIVERED, Status.LISTENING):
            self.refused[status] += 1
        if status is not Status.DUPLICATE:
            self.statuses[agent_id] = status


class Transport(Protocol):
    """Carries messages between the server and the sites of a roster.

    Nothing that a site sends, and no site that hangs, may make a call fail or last longer than
    its deadline.
    """

    def exchange(self, round: int, broadcast: Broadcast | None, deadline: float) -> Exchange:
        """Hand out the newest broadcast, and ask the whole roster for ``round``.

        Args:
            round: Number of the round that contributions are asked for, from 1.
            broadcast: The broadcast of the round before; ``None`` before the first.
            deadline: Seconds to wait for answers.
        """

    def deliver(self, broadcast: Broadcast, deadline: float) -> Exchange:
        """Hand out a broadcast and ask for nothing: after the last round, and to listeners."""


def max_answer_bytes(spec: FederationSpec) -> int:
    """Length of the longest answer that can be valid; read no more than that."""
    return 1 + _OVERHEAD_BYTES + _number_bytes(spec) * spec.num_features


def max_broadcast_bytes(spec: FederationSpec) -> int:
    """Length of the longest broadcast that can be valid; read no more than that."""
    return _OVERHEAD_BYTES + _number_bytes(spec) * spec.num_features * spec.num_regions


def _number_bytes(spec: FederationSpec) -> int:
    return WIRE_DTYPES[spec.wire_dtype].itemsize


def read_answer(
    spec: FederationSpec, agent_id: int, round: int | None, data: bytes
) -> tuple[Status, Contribution | None]:
    """Judge what an agent sent; only a contribution that fits in every respect passes.

    Args:
        spec: The federation.
        agent_id: Whom the transport identified as the sender.
        round: The round that was asked for; ``None`` if only a broadcast was delivered.
        data: The answer.
    """
    if len(data) > max_answer_bytes(spec):
        return Status.OVERSIZED, None
    try:
        code = Code(data[0])
    except (IndexError, ValueError):
        return Status.MALFORMED, None
    if code is not Code.OK:
        return _STATUS_OF_CODE[code], None
    if round is None:
        return (Status.DELIVERED if len(data) == 1 else Status.MALFORMED), None
    try:
        message = Contribution.from_bytes(data[1:])
    except MessageError:
        return Status.MALFORMED, None
    if message.fingerprint != spec.fingerprint:
        return Status.WRONG_FEDERATION, None
    if message.agent_id != agent_id:
        return Status.WRONG_AGENT, None
    if message.round != round:
        return Status.WRONG_ROUND, None
    if message.vector.shape != (spec.num_features,) or not message.vector.isfinite().all():
        return Status.MALFORMED, None
    return Status.ANSWERED, message
