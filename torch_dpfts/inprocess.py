"""A transport within one process, with faults to order: for simulations and tests."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import partial

from torch_dpfts import checks
from torch_dpfts.agent import Agent
from torch_dpfts.messages import Broadcast
from torch_dpfts.protocol import Code, SiteCalls, answer, ask
from torch_dpfts.spec import FederationSpec
from torch_dpfts.transport import Exchange, Status, read_answer


class Fault(StrEnum):
    """What can befall one answer."""

    LOSE = "lose"
    """The site answers and the answer is lost."""
    DELAY = "delay"
    """The answer comes in the next exchange."""
    DUPLICATE = "duplicate"
    """The answer comes twice."""
    CORRUPT = "corrupt"
    """A bit is flipped on the way."""
    CRASH = "crash"
    """The site dies after the call and is restarted; nothing is answered."""


class AgentCalls:
    """The two calls of a site over an agent in memory.

    Args:
        agent: The agent.
    """

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.broadcast: Broadcast | None = None
        self._answers: dict[int, bytes] = {}

    def contribution(self, round: int) -> bytes:
        """The agent's message; asked again, the same one."""
        if round not in self._answers:
            self._answers[round] = answer(Code.OK, self.agent.contribute(round).to_bytes())
        return self._answers[round]

    def deliver(self, broadcast: bytes) -> bytes:
        """Keep the broadcast for the agent's next suggestion."""
        self.broadcast = Broadcast.from_bytes(broadcast)
        return answer(Code.OK)


class InProcessTransport:
    """Calls each site in a thread of its own.

    Args:
        spec: The federation.
        sites: The site of each agent.
        listeners: Sites that only receive broadcasts.
        faults: Maps round and agent to what befalls the answer; ``None`` for no faults.
        restart: Called with the agent's number after a crash; returns the new site.

    Example:
        >>> from torch_dpfts import Agent
        >>> spec = FederationSpec.fts(bounds=[[0.0], [1.0]], num_agents=2, num_rounds=1)
        >>> transport = InProcessTransport(
        ...     spec, {0: AgentCalls(Agent(spec, 0)), 1: AgentCalls(Agent(spec, 1))},
        ...     faults=lambda round, agent_id: Fault.CORRUPT if agent_id else None)
        >>> exchange = transport.exchange(1, None, deadline=10.0)
        >>> sorted(exchange.contributions), str(exchange.statuses[1])
        ([0], 'malformed')
    """

    def __init__(
        self,
        spec: FederationSpec,
        sites: Mapping[int, SiteCalls],
        listeners: Iterable[SiteCalls] = (),
        faults: Callable[[int, int], Fault | None] | None = None,
        restart: Callable[[int], SiteCalls] | None = None,
    ) -> None:
        self.spec = spec
        self.sites = dict(sites)
        self.listeners = list(listeners)
        self._faults = faults or (lambda round, agent_id: None)
        self._restart = restart
        self._late: list[tuple[int, bytes]] = []

    def exchange(self, round: int, broadcast: Broadcast | None, deadline: float) -> Exchange:
        """See :class:`~torch_dpfts.transport.Transport`."""
        exchange = Exchange()
        late, self._late = self._late, []
        for agent_id, data in late:
            exchange.settle(agent_id, *read_answer(self.spec, agent_id, round, data))
        self._collect(exchange, round, broadcast, deadline)
        return exchange

    def deliver(self, broadcast: Broadcast, deadline: float) -> Exchange:
        """See :class:`~torch_dpfts.transport.Transport`."""
        exchange = Exchange()
        self._collect(exchange, None, broadcast, deadline)
        return exchange

    def _collect(
        self, exchange: Exchange, round: int | None, broadcast: Broadcast | None, deadline: float
    ) -> None:
        end = time.monotonic() + checks.real("deadline", deadline, above=0.0)
        sent = None if broadcast is None else broadcast.to_bytes()
        arrived: queue.SimpleQueue[tuple[int, bytes]] = queue.SimpleQueue()
        # Daemons: a site that hangs must not keep the process alive.
        for listener in self.listeners if sent is not None else ():
            threading.Thread(target=ask, args=(listener, None, sent), daemon=True).start()
        for agent_id, site in self.sites.items():

            def call(agent_id: int, site: SiteCalls) -> None:
                arrived.put((agent_id, ask(site, round, sent)))

            threading.Thread(target=partial(call, agent_id, site), daemon=True).start()
        exchange.statuses.update(dict.fromkeys(self.sites, Status.LOST))
        for _ in self.sites:
            try:
                agent_id, data = arrived.get(timeout=max(end - time.monotonic(), 0.0))
            except queue.Empty:
                return
            for copy in self._befall(round, agent_id, data):
                exchange.settle(agent_id, *read_answer(self.spec, agent_id, round, copy))

    def _befall(self, round: int | None, agent_id: int, data: bytes) -> list[bytes]:
        """What arrives of an answer."""
        fault = None if round is None else self._faults(round, agent_id)
        if fault is Fault.CRASH and self._restart is not None:
            self.sites[agent_id] = self._restart(agent_id)
        if fault is Fault.DELAY:
            self._late.append((agent_id, data))
        if fault in (Fault.LOSE, Fault.DELAY, Fault.CRASH):
            return []
        if fault is Fault.CORRUPT:
            middle = len(data) // 2
            data = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        return [data] * (2 if fault is Fault.DUPLICATE else 1)
