import hashlib
import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torch_dpfts import FederationSpec
from torch_dpfts.errors import MessageError
from torch_dpfts.messages import _HEADER, _MAGIC, Broadcast, Contribution, to_wire

VECTOR = torch.tensor([0.5, -1.25, 3.0], dtype=torch.float64)


def forged(meta: object, payload: bytes = b"", magic: bytes = _MAGIC) -> bytes:
    text = meta if isinstance(meta, bytes) else json.dumps(meta).encode()
    body = _HEADER.pack(magic, len(text)) + text + payload
    return body + hashlib.sha256(body).digest()


HEAD = {
    "kind": "contribution", "dtype": "float64", "shape": [3],
    "fingerprint": "ab", "agent_id": 1, "round": 2,
}  # fmt: skip
PAYLOAD = VECTOR.numpy().tobytes()
HEAD_BYTES = 202  # header, JSON and digest of a contribution


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", None])
def test_contributions_both_ways(dtype: str | None) -> None:
    again = Contribution.from_bytes(Contribution("ab", 1, 2, VECTOR).to_bytes(dtype))
    assert (again.fingerprint, again.agent_id, again.round) == ("ab", 1, 2)
    assert again.vector.dtype == getattr(torch, dtype or "float64")
    assert torch.equal(again.vector.double(), VECTOR)


def test_broadcasts_both_ways() -> None:
    vectors = torch.randn(4, 6, generator=generator(), dtype=torch.float64)
    again = Broadcast.from_bytes(Broadcast("cd", 7, vectors).to_bytes())
    assert (again.fingerprint, again.round) == ("cd", 7)
    assert torch.equal(again.vectors, vectors)
    empty = Broadcast.from_bytes(Broadcast("cd", 7, vectors[:, :0]).to_bytes())
    assert empty.vectors.shape == (4, 0)


def spec(**changes: str) -> FederationSpec:
    return FederationSpec.fts(bounds=[[0.0], [1.0]], num_agents=2, num_rounds=999, **changes)


@pytest.mark.parametrize("wire_dtype", ["float64", "float32", "float16"])
def test_messages_hold_the_coarser_of_two_dtypes(wire_dtype: str) -> None:
    fine, coarse = VECTOR / 3, (VECTOR / 3).to(getattr(torch, wire_dtype))
    rounded = to_wire(spec(wire_dtype=wire_dtype), fine)
    assert rounded.dtype == coarse.dtype
    assert torch.equal(rounded, coarse)
    half = fine.half()
    assert to_wire(spec(wire_dtype=wire_dtype), half) is half
    assert to_wire(spec(), fine) is fine


def test_numbers_beyond_the_range_of_the_wire_become_its_largest() -> None:
    values = torch.tensor([1e300, -7e4, 65519.0, math.nan], dtype=torch.float64)
    assert to_wire(spec(wire_dtype="float16"), values)[:3].tolist() == [65504.0, -65504.0, 65504.0]
    assert to_wire(spec(wire_dtype="float32"), values)[0] == torch.finfo(torch.float32).max
    assert to_wire(spec(wire_dtype="float16"), values)[3].isnan()


@pytest.mark.parametrize(("wire_dtype", "size"), [("float16", 2), ("float32", 4), ("float64", 8)])
def test_sizes(wire_dtype: str, size: int) -> None:
    public = spec(wire_dtype=wire_dtype)
    values = to_wire(public, torch.randn(4, 64, dtype=torch.float64, generator=generator()))
    up = Contribution(public.fingerprint, 1, 999, values[0]).to_bytes()
    down = Broadcast(public.fingerprint, 999, values).to_bytes()
    assert (len(up) - 64 * size, len(down) - 4 * 64 * size) == (HEAD_BYTES, HEAD_BYTES - 14)
    assert torch.equal(Contribution.from_bytes(up).vector, values[0])
    assert torch.equal(Broadcast.from_bytes(down).vectors, values)


def test_the_forger_of_these_tests_can_make_a_good_message() -> None:
    assert torch.equal(Contribution.from_bytes(forged(HEAD, PAYLOAD)).vector, VECTOR)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "cut or altered"),
        (Contribution("ab", 1, 2, VECTOR).to_bytes()[:-1], "cut or altered"),
        (Broadcast("ab", 1, VECTOR[None]).to_bytes(), "Expected a contribution"),
        (forged(HEAD, PAYLOAD, magic=b"PICKLE"), "starts with"),
        (forged(b"{", PAYLOAD), "cannot be read"),
        (forged(b"[" * 4000, PAYLOAD), "cannot be read"),
        (forged([1], PAYLOAD), "cannot be read"),
        (forged(HEAD | {"dtype": "object"}, PAYLOAD), "cannot be read"),
        (forged(HEAD | {"shape": [3, 1]}, PAYLOAD), "with 1 dimensions"),
        (forged(HEAD | {"shape": [-3]}, PAYLOAD), "with 1 dimensions"),
        (forged(HEAD | {"shape": [3.0]}, PAYLOAD), "with 1 dimensions"),
        (forged(HEAD | {"shape": [10**30]}, PAYLOAD), "needs 8000"),
        (forged(HEAD | {"shape": [2]}, PAYLOAD), "needs 16 bytes, got 24"),
        (forged(HEAD | {"agent_id": -1}, PAYLOAD), "agent_id of a message"),
        (forged(HEAD | {"round": True}, PAYLOAD), "round of a message"),
        (forged(HEAD | {"fingerprint": 5}, PAYLOAD), "fingerprint of a message"),
    ],
)
def test_bad_bytes(data: bytes, message: str) -> None:
    with pytest.raises(MessageError, match=message):
        Contribution.from_bytes(data)


def test_a_huge_head_is_refused_unread() -> None:
    with pytest.raises(MessageError, match="starts with"):
        Contribution.from_bytes(forged(b" " * 5000))


def test_an_unknown_wire_dtype() -> None:
    with pytest.raises(MessageError, match="got 'int8'"):
        Contribution("ab", 1, 2, VECTOR).to_bytes("int8")


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 1000), st.integers(0, 255))
def test_any_altered_byte_is_found(place: int, value: int) -> None:
    data = bytearray(Contribution("ab", 1, 2, VECTOR).to_bytes())
    place %= len(data)
    if data[place] != value:
        data[place] = value
        with pytest.raises(MessageError):
            Contribution.from_bytes(bytes(data))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300), st.binary(max_size=64))
def test_no_bytes_do_harm(head: bytes, payload: bytes) -> None:
    with pytest.raises(MessageError):
        Contribution.from_bytes(forged(head, payload))
