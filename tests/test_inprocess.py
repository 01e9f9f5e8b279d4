"""The in-process transport: each fault, and a driver that always ends."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch

from torch_dpfts import Agent, Broadcast, FederationSpec, Server
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.inprocess import AgentCalls, Fault, InProcessTransport
from torch_dpfts.protocol import SiteCalls
from torch_dpfts.serving import serve
from torch_dpfts.transport import Exchange, Status

SPEC = FederationSpec.dp_fts_de(
    bounds=[[0.0], [1.0]], num_agents=3, num_rounds=4, num_regions=2, num_features=8,
    sample_rate=1.0, noise_multiplier=1.0, clip_norm=2.0, delta=1e-3,
)  # fmt: skip
WAIT = 60.0  # far longer than anything here takes


def agents() -> dict[int, AgentCalls]:
    sites = {n: AgentCalls(Agent(SPEC, n, seed=0)) for n in range(3)}
    for site in sites.values():
        X = site.agent.initial_points(3)
        site.agent.observe(X, X.sin())
    return sites


def only(round: int, agent_id: int, fault: Fault) -> Callable[[int, int], Fault | None]:
    return lambda t, n: fault if (t, n) == (round, agent_id) else None


def test_without_faults_everything_arrives() -> None:
    sites = agents()
    exchange = InProcessTransport(SPEC, sites).exchange(1, None, WAIT)
    assert set(exchange.statuses.values()) == {Status.ANSWERED}
    for n, site in sites.items():
        assert torch.equal(exchange.contributions[n].vector, site.agent.contribute(1).vector)


@pytest.mark.parametrize("fault", [Fault.LOSE, Fault.DELAY, Fault.CORRUPT, Fault.CRASH])
def test_a_fault_costs_one_answer(fault: Fault) -> None:
    transport = InProcessTransport(SPEC, agents(), faults=only(1, 2, fault))
    first = transport.exchange(1, None, WAIT)
    assert sorted(first.contributions) == [0, 1]
    second = transport.exchange(2, None, WAIT)
    assert sorted(second.contributions) == [0, 1, 2]
    assert second.contributions[2].round == 2
    # What was delayed comes with the next round and is turned away.
    assert second.refused == ({Status.WRONG_ROUND: 1} if fault is Fault.DELAY else {})


def test_a_duplicate_counts_once() -> None:
    transport = InProcessTransport(SPEC, agents(), faults=only(1, 2, Fault.DUPLICATE))
    exchange = transport.exchange(1, None, WAIT)
    assert sorted(exchange.contributions) == [0, 1, 2]
    assert exchange.refused == {Status.DUPLICATE: 1}


def test_a_crashed_site_is_restarted() -> None:
    sites = agents()
    fresh = AgentCalls(sites[2].agent)
    transport = InProcessTransport(
        SPEC, sites, faults=only(1, 2, Fault.CRASH), restart=lambda n: fresh
    )
    transport.exchange(1, None, WAIT)
    assert transport.sites[2] is fresh


def test_a_site_that_hangs_costs_no_more_than_the_deadline() -> None:
    class Hanging:
        def contribution(self, round: int) -> bytes:
            release.wait(WAIT)
            return b""

        def deliver(self, broadcast: bytes) -> bytes:
            return b""

    release = threading.Event()
    sites: dict[int, SiteCalls] = {**agents(), 1: Hanging()}
    exchange = InProcessTransport(SPEC, sites).exchange(1, None, deadline=2.0)
    assert exchange.statuses[1] is Status.LOST
    assert sorted(exchange.contributions) == [0, 2]
    release.set()


def test_the_driver_runs_all_rounds_and_hands_out_the_last() -> None:
    sites = agents()
    listener = AgentCalls(Agent(SPEC, 0, seed=1))
    transport = InProcessTransport(SPEC, sites, listeners=[listener])
    seen: list[tuple[int, int]] = []

    def report(broadcast: Broadcast, exchange: Exchange) -> None:
        seen.append((broadcast.round, len(exchange.contributions)))

    server = Server(SPEC, seed=3)
    assert serve(server, transport, WAIT, report=report).startswith("All 4 planned rounds")
    assert seen == [(1, 3), (2, 3), (3, 3), (4, 3)]
    for site in sites.values():
        assert site.broadcast is not None
        assert torch.equal(site.broadcast.vectors, server.last_broadcast.vectors)  # type: ignore[union-attr]
    assert listener.broadcast is not None


def test_the_driver_equals_a_loop_of_four_lines() -> None:
    expected, loop = Server(SPEC, seed=3), agents()
    while expected.next_round <= 4:
        t = expected.next_round
        expected.round([site.agent.contribute(t) for site in loop.values()])
    server = Server(SPEC, seed=3)
    serve(server, InProcessTransport(SPEC, agents()), WAIT)
    assert torch.equal(server.last_broadcast.vectors, expected.last_broadcast.vectors)  # type: ignore[union-attr]


def test_a_spent_budget_ends_it_before_anybody_is_asked() -> None:
    server = Server(SPEC, seed=0)
    serve(server, InProcessTransport(SPEC, agents()), WAIT)
    silent = InProcessTransport(SPEC, agents(), faults=lambda t, n: pytest.fail("was asked"))
    assert serve(server, silent, WAIT).startswith("All 4")


@pytest.mark.parametrize("deadline", [0.0, -1.0, float("nan")])
def test_a_deadline_must_be_positive(deadline: float) -> None:
    with pytest.raises(InvalidInputError, match="deadline"):
        serve(Server(SPEC), InProcessTransport(SPEC, agents()), deadline)
