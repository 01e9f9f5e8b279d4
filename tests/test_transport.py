"""What passes from a site to the server, and what never does."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from torch_dpfts import Broadcast, Contribution, FederationSpec
from torch_dpfts.messages import to_wire
from torch_dpfts.protocol import Code, answer
from torch_dpfts.transport import (
    Exchange,
    Status,
    max_answer_bytes,
    max_broadcast_bytes,
    read_answer,
)

SPEC = FederationSpec.fts(bounds=[[0.0], [1.0]], num_agents=3, num_rounds=9, num_features=4)


def message(**changes: object) -> bytes:
    vector = torch.arange(4, dtype=torch.float64)
    fields = {"fingerprint": SPEC.fingerprint, "agent_id": 1, "round": 2, "vector": vector}
    return answer(Code.OK, Contribution(**(fields | changes)).to_bytes())  # type: ignore[arg-type]


def test_a_good_answer_passes() -> None:
    status, found = read_answer(SPEC, 1, 2, message())
    assert status is Status.ANSWERED
    assert found is not None
    assert found.vector.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_every_other_answer_gets_a_status_and_carries_nothing() -> None:
    cases = {
        Status.LISTENING: answer(Code.LISTENING),
        Status.REFUSED: answer(Code.REFUSED),
        Status.FAILED: answer(Code.FAILED),
        Status.WRONG_FEDERATION: message(fingerprint="f00d"),
        Status.WRONG_AGENT: message(agent_id=2),
        Status.WRONG_ROUND: message(round=1),
        Status.OVERSIZED: answer(Code.OK, b"x" * max_answer_bytes(SPEC)),
    }
    for status, data in cases.items():
        assert read_answer(SPEC, 1, 2, data) == (status, None)
    malformed = [
        b"", b"\x09", answer(Code.OK), message()[:-1], message(vector=torch.ones(3)),
        message(vector=torch.tensor([0.0, 1.0, 2.0, float("inf")])),
    ]  # fmt: skip
    for data in malformed:
        assert read_answer(SPEC, 1, 2, data) == (Status.MALFORMED, None)


def test_a_delivery_is_confirmed_by_a_code_alone() -> None:
    assert read_answer(SPEC, 1, None, answer(Code.OK)) == (Status.DELIVERED, None)
    assert read_answer(SPEC, 1, None, message()) == (Status.MALFORMED, None)


@given(st.binary(max_size=300), st.integers(0, 200), st.integers(0, 255))
def test_no_bytes_break_the_reader(noise: bytes, place: int, byte: int) -> None:
    good = message()
    place %= len(good)
    altered = good[:place] + bytes([byte]) + good[place + 1 :]
    for data in (noise, altered, good[:place] + noise):
        status, found = read_answer(SPEC, 1, 2, data)
        assert isinstance(status, Status)
        assert found is None or data == good


def test_the_first_usable_message_counts_and_the_rest_is_counted() -> None:
    exchange = Exchange()
    exchange.settle(1, *read_answer(SPEC, 1, 2, b"junk"))
    exchange.settle(1, *read_answer(SPEC, 1, 2, message()))
    exchange.settle(1, *read_answer(SPEC, 1, 2, message(vector=torch.zeros(4))))
    assert exchange.contributions[1].vector.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert exchange.statuses == {1: Status.ANSWERED}
    assert exchange.refused == {Status.MALFORMED: 1, Status.DUPLICATE: 1}


def test_limits_fit_the_longest_messages() -> None:
    for wire_dtype, size in (("float64", 8), ("float32", 4), ("float16", 2)):
        spec = FederationSpec.fts(
            bounds=[[0.0], [1.0]], num_agents=10**9, num_rounds=10**9, num_features=64,
            wire_dtype=wire_dtype,
        )  # fmt: skip
        vector = to_wire(spec, torch.zeros(64, dtype=torch.float64))
        longest = Contribution(spec.fingerprint, 10**9 - 1, 10**9, vector).to_bytes()
        assert len(answer(Code.OK, longest)) <= max_answer_bytes(spec) <= 64 * size + 1025
        longest = Broadcast(spec.fingerprint, 10**9, vector[None]).to_bytes()
        assert len(longest) <= max_broadcast_bytes(spec) <= 64 * size + 1024
