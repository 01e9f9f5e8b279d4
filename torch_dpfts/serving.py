"""The server's life: round after round over a transport, until the rounds or the budget end."""

from __future__ import annotations

import time
from collections.abc import Callable

from torch_dpfts import checks
from torch_dpfts.errors import PrivacyBudgetExceeded
from torch_dpfts.messages import Broadcast
from torch_dpfts.server import Server
from torch_dpfts.transport import Exchange, Status, Transport

_FINAL_DELIVERIES = 3


def serve(
    server: Server,
    transport: Transport,
    deadline: float,
    *,
    interval: float = 0.0,
    report: Callable[[Broadcast, Exchange], None] | None = None,
) -> str:
    """Run the rounds that are left.

    A round takes at most ``deadline`` seconds however the sites behave: what has not come by
    then counts as zero. The last broadcast is handed out at the end.

    Args:
        server: The server; a resumed one goes on where it stopped.
        transport: The way to the sites.
        deadline: Seconds that sites have for an answer.
        interval: Seconds between the starts of two rounds, so that sites have something new to
            say.
        report: Called after each round. What it is given is not private.

    Returns:
        Why it ended: all rounds are done, or the budget is spent.

    Example:
        >>> from torch_dpfts import Agent, FederationSpec
        >>> from torch_dpfts.inprocess import AgentCalls, InProcessTransport
        >>> spec = FederationSpec.fts(bounds=[[0.0], [1.0]], num_agents=2, num_rounds=3)
        >>> sites = {n: AgentCalls(Agent(spec, n)) for n in range(2)}
        >>> serve(Server(spec), InProcessTransport(spec, sites), deadline=10.0)
        'All 3 planned rounds are done; agents go on with the last broadcast or alone.'
    """
    checks.real("deadline", deadline, above=0.0)
    checks.real("interval", interval, minimum=0.0)
    while True:
        start = time.monotonic()
        try:
            server.check_budget()
        except PrivacyBudgetExceeded as reason:
            _hand_out_last(server, transport, deadline)
            return str(reason)
        exchange = transport.exchange(server.next_round, server.last_broadcast, deadline)
        broadcast = server.round(exchange.contributions.values())
        if report is not None:
            report(broadcast, exchange)
        if broadcast.round < server.spec.num_rounds:
            time.sleep(max(start + interval - time.monotonic(), 0.0))


def _hand_out_last(server: Server, transport: Transport, deadline: float) -> None:
    """Repeating a broadcast costs no privacy, so sites that missed it get another chance."""
    if server.last_broadcast is None:
        return
    for _ in range(_FINAL_DELIVERIES):
        exchange = transport.deliver(server.last_broadcast, deadline)
        if all(status is Status.DELIVERED for status in exchange.statuses.values()):
            return
