"""The transport over Flower's Grid, with a deadline of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Protocol

from flwr.app import Message
from flwr.serverapp import Grid

from torch_dpfts import checks
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.flower.records import MESSAGE_TYPE, read_answer_bytes, request_content
from torch_dpfts.flower.roster import Roster, key_fingerprint
from torch_dpfts.messages import Broadcast
from torch_dpfts.spec import FederationSpec
from torch_dpfts.transport import Exchange, Status, read_answer


class Clock(Protocol):
    """What the transport needs to know of time; the module :mod:`time` will do."""

    def monotonic(self) -> float:
        """Seconds since any fixed moment."""

    def sleep(self, seconds: float, /) -> None:
        """Wait."""


class FlowerTransport:
    """Asks the whole roster by messages whose time to live is the deadline.

    A SuperNode that comes back before the deadline is asked then. What is sent says neither who
    is drawn nor who answered; a failure carries no text. Answers are those of the SuperNode that
    Flower authenticated: a message that claims another agent is turned away.

    Args:
        spec: The federation.
        grid: Flower's Grid.
        roster: Whose key is which agent.
        poll: Seconds between two looks for answers.
        clock: For tests.
    """

    def __init__(
        self,
        spec: FederationSpec,
        grid: Grid,
        roster: Roster,
        poll: float = 0.2,
        clock: Clock = time,
    ) -> None:
        self.spec = spec
        self.roster = roster
        self._grid = grid
        self._poll = checks.real("poll", poll, above=0.0)
        self._clock = clock

    def exchange(self, round: int, broadcast: Broadcast | None, deadline: float) -> Exchange:
        """See :class:`~torch_dpfts.transport.Transport`."""
        return self._collect(round, broadcast, deadline)

    def deliver(self, broadcast: Broadcast, deadline: float) -> Exchange:
        """See :class:`~torch_dpfts.transport.Transport`."""
        return self._collect(None, broadcast, deadline)

    def _collect(self, round: int | None, broadcast: Broadcast | None, deadline: float) -> Exchange:
        end = self._clock.monotonic() + checks.real("deadline", deadline, above=0.0)
        sent = None if broadcast is None else broadcast.to_bytes()
        exchange = Exchange()
        waiting = dict(self.roster.agents)
        exchange.statuses.update(dict.fromkeys(waiting.values(), Status.LOST))
        listeners = set(self.roster.listeners) if sent is not None else set[str]()
        asked: dict[str, tuple[int, int]] = {}  # agent and node, by the id of the message
        while True:
            left = end - self._clock.monotonic()
            if left > 0 and (waiting or listeners):
                for key, node in self._online():
                    if key in waiting:
                        name = self._push(node, round, sent, left)
                        if name is not None:
                            asked[name] = (waiting.pop(key), node)
                    elif key in listeners and self._push(node, None, sent, left) is not None:
                        listeners.remove(key)
            for name in list(asked):
                if self._settle(exchange, round, name, *asked[name]):
                    del asked[name]
            if left <= 0 or not (asked or waiting):
                return exchange
            self._clock.sleep(min(self._poll, max(left, 0.0)))

    def _online(self) -> Iterator[tuple[str, int]]:
        """Key and node of everybody who can be asked now."""
        for node in self._grid.get_nodes():
            try:
                yield key_fingerprint(node.public_key), node.node_id
            except InvalidInputError:
                continue  # A node without authentication is nobody's.

    def _push(
        self, node: int, round: int | None, broadcast: bytes | None, ttl: float
    ) -> str | None:
        message = Message(
            request_content(round, broadcast),
            node,
            MESSAGE_TYPE,
            ttl=ttl,
            group_id="" if round is None else str(round),
        )
        return next(iter(self._grid.push_messages([message])), None)

    def _settle(
        self, exchange: Exchange, round: int | None, name: str, agent_id: int, node: int
    ) -> bool:
        """Take in what came for one request; one at a time, so that none can spoil another."""
        try:
            replies = list(self._grid.pull_messages([name]))
        except Exception:
            exchange.settle(agent_id, Status.MALFORMED, None)
            return True
        for reply in replies:
            if reply.metadata.src_node_id != node or reply.metadata.reply_to_message_id != name:
                exchange.settle(agent_id, Status.WRONG_AGENT, None)
            elif reply.has_error():
                exchange.settle(agent_id, Status.FAILED, None)
            else:
                try:
                    data = read_answer_bytes(reply)
                except ValueError:
                    exchange.settle(agent_id, Status.MALFORMED, None)
                    continue
                exchange.settle(agent_id, *read_answer(self.spec, agent_id, round, data))
        return bool(replies)
