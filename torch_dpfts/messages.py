"""The two messages of a federation, and their byte format.

A message is a fixed header, a JSON object and the vectors as little-endian numbers. Reading
one never executes anything, allocates no more than the bytes that came, and checks a digest.
A vector travels in the dtype it has, to which :func:`to_wire` has rounded it.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torch_dpfts.errors import MessageError
from torch_dpfts.spec import WIRE_DTYPES, FederationSpec

_MAGIC = b"DPFTS\x01"
_HEADER = struct.Struct("<6sI")
_DIGEST_BYTES = 32
_MAX_JSON_BYTES = 4096
_WIRE_DTYPES = {"float16": "<f2", "float32": "<f4", "float64": "<f8"}


@dataclass(frozen=True, eq=False)
class Contribution:
    """What one agent sends for one round.

    Args:
        fingerprint: Fingerprint of the sender's specification.
        agent_id: Place of the sender on the roster, from 0.
        round: Number of the round it is meant for, from 1.
        vector: The weights, shape ``M``.
    """

    fingerprint: str
    agent_id: int
    round: int
    vector: Tensor

    def to_bytes(self, dtype: str | None = None) -> bytes:
        """Encode; ``dtype`` (``"float16"`` to ``"float64"``) is the wire's precision.

        Raises:
            MessageError: If the dtype is unknown.

        Example:
            >>> message = Contribution("ab", 3, 1, torch.tensor([0.5, -1.0]))
            >>> Contribution.from_bytes(message.to_bytes("float16")).vector
            tensor([ 0.5000, -1.0000], dtype=torch.float16)
        """
        meta = {"fingerprint": self.fingerprint, "agent_id": self.agent_id, "round": self.round}
        return _encode("contribution", meta, self.vector, dtype)

    @classmethod
    def from_bytes(cls, data: bytes) -> Contribution:
        """Decode.

        Raises:
            MessageError: If the bytes are cut, altered, or no contribution.
        """
        meta, vector = _decode("contribution", data, ndim=1)
        return cls(
            _text(meta, "fingerprint"), _count(meta, "agent_id"), _count(meta, "round"), vector
        )


@dataclass(frozen=True, eq=False)
class Broadcast:
    """What the server sends to all agents: one noisy weighted sum for each sub-region.

    Args:
        fingerprint: Fingerprint of the server's specification.
        round: Number of the round, from 1.
        vectors: The weights of each sub-region, ``P x M``.
    """

    fingerprint: str
    round: int
    vectors: Tensor

    def to_bytes(self, dtype: str | None = None) -> bytes:
        """Encode; ``dtype`` (``"float16"`` to ``"float64"``) is the wire's precision.

        Raises:
            MessageError: If the dtype is unknown.
        """
        meta = {"fingerprint": self.fingerprint, "round": self.round}
        return _encode("broadcast", meta, self.vectors, dtype)

    @classmethod
    def from_bytes(cls, data: bytes) -> Broadcast:
        """Decode.

        Raises:
            MessageError: If the bytes are cut, altered, or no broadcast.
        """
        meta, vectors = _decode("broadcast", data, ndim=2)
        return cls(_text(meta, "fingerprint"), _count(meta, "round"), vectors)


def to_wire(spec: FederationSpec, vectors: Tensor) -> Tensor:
    """Round what a message will hold to the coarser of its own dtype and ``spec.wire_dtype``.

    A number beyond the range of that dtype becomes its largest one. Clipping and accounting see
    what comes out of this, so rounding costs no privacy.

    Args:
        spec: The federation.
        vectors: Of any shape.

    Example:
        >>> spec = FederationSpec.fts(
        ...     bounds=[[0.0], [1.0]], num_agents=2, num_rounds=3, wire_dtype="float16")
        >>> to_wire(spec, torch.tensor([1.0001, 1e9]))
        tensor([1.0000e+00, 6.5504e+04], dtype=torch.float16)
    """
    dtype = WIRE_DTYPES[spec.wire_dtype]
    if dtype.itemsize >= vectors.dtype.itemsize:
        return vectors
    largest = torch.finfo(dtype).max
    return vectors.clamp(-largest, largest).to(dtype)


def _encode(kind: str, meta: dict[str, Any], values: Tensor, dtype: str | None) -> bytes:
    name = str(values.dtype).removeprefix("torch.") if dtype is None else dtype
    if name not in _WIRE_DTYPES:
        raise MessageError(f"dtype must be one of {sorted(_WIRE_DTYPES)}, got {name!r}.")
    array = values.detach().cpu().numpy().astype(_WIRE_DTYPES[name])
    meta = meta | {"kind": kind, "dtype": name, "shape": list(array.shape)}
    text = json.dumps(meta, sort_keys=True, separators=(",", ":")).encode()
    body = _HEADER.pack(_MAGIC, len(text)) + text + array.tobytes()
    return body + hashlib.sha256(body).digest()


def _decode(kind: str, data: bytes, ndim: int) -> tuple[dict[str, Any], Tensor]:
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if len(body) < _HEADER.size or hashlib.sha256(body).digest() != digest:
        raise MessageError(f"A {kind} of {len(data)} bytes is cut or altered; ask for it again.")
    magic, length = _HEADER.unpack_from(body)
    if magic != _MAGIC or length > _MAX_JSON_BYTES:
        raise MessageError(f"A message starts with {magic!r} where {_MAGIC!r} was expected.")
    end = _HEADER.size + length
    try:
        meta = json.loads(body[_HEADER.size : end])
        dtype, shape, found = _WIRE_DTYPES[meta["dtype"]], meta["shape"], meta["kind"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise MessageError(f"The head of a {kind} cannot be read; the sender is faulty.") from None
    if found != kind or not _is_shape(shape, ndim):
        raise MessageError(f"Expected a {kind} with {ndim} dimensions, got {found!r}, {shape!r}.")
    expected = math.prod(shape) * np.dtype(dtype).itemsize
    if expected != len(body) - end:
        raise MessageError(
            f"A {kind} of shape {shape} needs {expected} bytes, got {len(body) - end}."
        )
    values = np.frombuffer(body, dtype=dtype, offset=end).reshape(shape)
    return meta, torch.from_numpy(values.astype(values.dtype.newbyteorder("=")))


def _is_shape(shape: Any, ndim: int) -> bool:
    return (
        isinstance(shape, list)
        and len(shape) == ndim
        and all(type(size) is int and size >= 0 for size in shape)
    )


def _text(meta: dict[str, Any], key: str) -> str:
    value = meta.get(key)
    if not isinstance(value, str):
        raise MessageError(f"{key} of a message must be a string, got {value!r}.")
    return value


def _count(meta: dict[str, Any], key: str) -> int:
    value = meta.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise MessageError(f"{key} of a message must be a whole number, got {value!r}.")
    return value
