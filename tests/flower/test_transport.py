"""The core over Flower's Grid and serialisation: every fault, every forgery, and equality."""

from __future__ import annotations

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install -e '.[flower]'")

from collections.abc import Callable
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from torch_dpfts import Agent, Contribution, FederationSpec, Server
from torch_dpfts.flower import compat
from torch_dpfts.flower.grid import InProcessGrid
from torch_dpfts.flower.records import answer_content
from torch_dpfts.flower.roster import Member, Roster, key_fingerprint
from torch_dpfts.flower.transport import FlowerTransport
from torch_dpfts.inprocess import AgentCalls, Fault, InProcessTransport
from torch_dpfts.protocol import Code, answer
from torch_dpfts.serving import serve
from torch_dpfts.transport import Exchange, Status, max_answer_bytes

Connect = Callable[..., FlowerTransport]
MakeSites = Callable[..., dict[int, AgentCalls]]
DEADLINE = 600.0  # of the tests' own clock; Flower's own is the real one


def broadcasts(spec: FederationSpec, transport: Any) -> list[torch.Tensor]:
    seen: list[torch.Tensor] = []
    server = Server(spec, seed=11)
    serve(server, transport, DEADLINE, report=lambda b, e: seen.append(b.vectors))
    return seen


def test_it_equals_the_in_process_transport_bit_for_bit(
    spec: FederationSpec, connect: Connect, make_sites: MakeSites
) -> None:
    expected = broadcasts(spec, InProcessTransport(spec, make_sites()))
    found = broadcasts(spec, connect(make_sites()))
    assert len(found) == spec.num_rounds
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)


def test_equality_holds_under_faults(
    spec: FederationSpec, connect: Connect, make_sites: MakeSites, clock: Any
) -> None:
    plan = {(1, 0): Fault.LOSE, (2, 1): Fault.CORRUPT, (3, 2): Fault.DUPLICATE, (4, 0): Fault.CRASH}
    expected = broadcasts(
        spec, InProcessTransport(spec, make_sites(), faults=lambda t, n: plan.get((t, n)))
    )
    turn = iter([(t, n) for t in range(1, 6) for n in range(3)])
    statuses: list[dict[int, Status]] = []

    def on_wire(name: str, objects: dict[str, bytes]) -> list[tuple[str, dict[str, bytes]]]:
        fault = plan.get(next(turn, (0, 0)))
        if fault in (Fault.LOSE, Fault.CRASH):
            return []
        if fault is Fault.CORRUPT:
            reply = compat.inflate(name, objects)
            data = bytearray(reply.content["dpfts"]["answer"])  # type: ignore[arg-type]
            data[len(data) // 2] ^= 1
            reply.content["dpfts"]["answer"] = bytes(data)  # type: ignore[index]
            return [(compat.set_message_id(reply), compat.deflate(reply))]
        return [(name, objects)] * (2 if fault is Fault.DUPLICATE else 1)

    transport = connect(make_sites(), on_wire=on_wire)
    found: list[torch.Tensor] = []
    refused: list[dict[Status, int]] = []

    def report(broadcast: Any, exchange: Exchange) -> None:
        found.append(broadcast.vectors)
        statuses.append(exchange.statuses)
        refused.append(dict(exchange.refused))

    serve(Server(spec, seed=11), transport, DEADLINE, report=report)
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)
    assert statuses[0][0] is Status.LOST
    assert refused == [{}, {Status.MALFORMED: 1}, {Status.DUPLICATE: 1}, {}, {}]
    # Two rounds had to wait for the deadline; the others did not wait at all.
    assert 2 * DEADLINE <= clock.now < 2 * DEADLINE + 2


def forging_app(content: Callable[[Message], Any]) -> ClientApp:
    app = ClientApp()

    @app.query()
    def query(message: Message, context: Any) -> Message:
        return Message(content(message), reply_to=message)

    return app


def exchange_with(
    spec: FederationSpec, pem: Callable[[int], bytes], clock: Any, app: ClientApp
) -> Exchange:
    roster = Roster([Member(key_fingerprint(pem(1)), 1, 1)], spec)
    transport = FlowerTransport(spec, InProcessGrid({pem(1): app}), roster, clock=clock)
    return transport.exchange(2, None, DEADLINE)


def message_of(spec: FederationSpec, **changes: Any) -> RecordDict:
    vector = torch.ones(spec.num_features, dtype=torch.float64)
    fields = {"fingerprint": spec.fingerprint, "agent_id": 1, "round": 2, "vector": vector}
    data = Contribution(**(fields | changes)).to_bytes()
    return answer_content(answer(Code.OK, data))


FORGED: dict[str, tuple[Callable[[FederationSpec], Any], Status]] = {
    "another agent": (lambda spec: message_of(spec, agent_id=0), Status.WRONG_AGENT),
    "replayed": (lambda spec: message_of(spec, round=1), Status.WRONG_ROUND),
    "another federation": (
        lambda spec: message_of(spec, fingerprint="f00d"), Status.WRONG_FEDERATION,
    ),
    "another shape": (lambda spec: message_of(spec, vector=torch.ones(3)), Status.MALFORMED),
    "not finite": (
        lambda spec: message_of(spec, vector=torch.full((8,), float("nan"))), Status.MALFORMED,
    ),
    "oversized": (
        lambda spec: answer_content(bytes(max_answer_bytes(spec) + 1)), Status.OVERSIZED,
    ),
    "text": (
        lambda spec: RecordDict({"dpfts": ConfigRecord({"answer": "text"})}), Status.MALFORMED,
    ),
    "more": (
        lambda spec: RecordDict({"dpfts": ConfigRecord({"answer": b"\x01", "x": 1})}),
        Status.MALFORMED,
    ),
    "empty": (lambda spec: RecordDict(), Status.MALFORMED),
    "metrics": (lambda spec: RecordDict({"dpfts": MetricRecord({"a": 1.0})}), Status.MALFORMED),
    "arrays": (
        lambda spec: RecordDict({"dpfts": ArrayRecord({"a": Array("f4", (1,), "n", b"1234")})}),
        Status.MALFORMED,
    ),
    "error": (lambda spec: Error(0, "the secret of patient 7"), Status.FAILED),
}  # fmt: skip


@pytest.mark.parametrize("kind", FORGED)
def test_forged_messages_are_refused_and_counted(
    spec: FederationSpec, pem: Callable[[int], bytes], clock: Any, kind: str
) -> None:
    forge, status = FORGED[kind]
    exchange = exchange_with(spec, pem, clock, forging_app(lambda message: forge(spec)))
    assert exchange.statuses == {1: status}
    assert exchange.refused == {status: 1}
    assert exchange.contributions == {}
    # A server that goes on without it counts zero and lives.
    assert Server(spec, seed=0).round(exchange.contributions.values()).round == 1


def test_a_reply_from_another_node_is_refused(
    spec: FederationSpec, pem: Callable[[int], bytes], clock: Any
) -> None:
    def impostor() -> ClientApp:
        app = ClientApp()

        @app.query()
        def query(message: Message, context: Any) -> Message:
            reply = Message(message_of(spec), reply_to=message)
            reply.metadata.__dict__["_src_node_id"] = 99
            return reply

        return app

    exchange = exchange_with(spec, pem, clock, impostor())
    assert exchange.statuses == {1: Status.WRONG_AGENT}


@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=50)
@given(place=st.integers(0, 10**6), noise=st.binary(min_size=1, max_size=40))
def test_fuzzed_bytes_never_harm_the_server(
    spec: FederationSpec,
    connect: Connect,
    make_sites: MakeSites,
    place: int,
    noise: bytes,
) -> None:
    def on_wire(name: str, objects: dict[str, bytes]) -> list[tuple[str, dict[str, bytes]]]:
        broken = dict(objects)
        part = sorted(broken)[place % len(broken)]
        data = broken[part]
        at = place % len(data)
        broken[part] = data[:at] + noise + data[at + len(noise) :]
        return [(name, broken)]

    sites = make_sites()
    exchange = connect(sites, on_wire=on_wire).exchange(1, None, DEADLINE)
    for n, message in exchange.contributions.items():
        # What gets through is intact: noise may hit parts that carry nothing.
        assert torch.equal(message.vector, sites[n].agent.contribute(1).vector)
    assert set(exchange.statuses) == {0, 1, 2}


def test_nodes_that_are_not_on_the_roster_are_not_asked(
    spec: FederationSpec, pem: Callable[[int], bytes], clock: Any
) -> None:
    asked = []

    def stranger(message: Message) -> RecordDict:
        asked.append(message)
        return message_of(spec)

    roster = Roster([Member(key_fingerprint(pem(0)), 0, 0)], spec)
    grid = InProcessGrid({pem(5): forging_app(stranger), b"": forging_app(stranger)})
    exchange = FlowerTransport(spec, grid, roster, clock=clock).exchange(1, None, DEADLINE)
    assert asked == []
    assert exchange.statuses == {0: Status.LOST}
    assert clock.now == pytest.approx(DEADLINE)


def test_listeners_receive_and_are_not_asked(
    spec: FederationSpec, connect: Connect, make_sites: MakeSites
) -> None:
    plain = broadcasts(spec, connect(make_sites()))
    listener = AgentCalls(Agent(spec, 0, seed=5))
    found = broadcasts(spec, connect({**make_sites(), 3: listener}))
    assert all(torch.equal(a, b) for a, b in zip(found, plain, strict=True))
    assert listener._answers == {}
    assert listener.broadcast is not None
    assert torch.equal(listener.broadcast.vectors, found[-1])


def test_messages_live_no_longer_than_the_deadline_and_say_nothing_of_the_cohort(
    spec: FederationSpec, pem: Callable[[int], bytes], clock: Any
) -> None:
    seen: list[Message] = []

    def watch(message: Message) -> RecordDict:
        seen.append(message)
        return message_of(spec, round=1 if len(seen) == 1 else 2)

    roster = Roster([Member(key_fingerprint(pem(1)), 1, 1)], spec)
    transport = FlowerTransport(
        spec, InProcessGrid({pem(1): forging_app(watch)}), roster, clock=clock
    )
    server = Server(spec, seed=0)
    for _ in range(2):
        exchange = transport.exchange(server.next_round, server.last_broadcast, DEADLINE)
        server.round(exchange.contributions.values())
    for message in seen:
        assert 0 < message.metadata.ttl <= DEADLINE
        assert list(message.content) == ["dpfts"]
        assert set(message.content["dpfts"]) <= {"round", "broadcast"}
    assert set(seen[1].content["dpfts"]) == {"round", "broadcast"}
