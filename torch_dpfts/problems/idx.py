"""Files in the IDX format of the MNIST data sets, plain or packed by gzip."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import torch
from torch import Tensor

from torch_dpfts.errors import InvalidInputError

_UNSIGNED_BYTES = 0x08


def read_idx(path: Path, ndim: int, mend: str) -> Tensor:
    """Read an array of unsigned bytes from ``path`` or, where that is missing, ``path``.gz.

    The format: two zero bytes, one for the type, one for the number of dimensions, then the
    size of each as a big-endian integer of four bytes, then the values in C order.

    Args:
        path: The file without ``.gz``.
        ndim: Number of dimensions expected.
        mend: What the reader of an error can do, for its message.

    Returns:
        The array, uint8.

    Raises:
        InvalidInputError: If neither file is there, or it is not such an array.
    """
    packed = path.with_name(f"{path.name}.gz")
    if path.is_file():
        content = path.read_bytes()
    elif packed.is_file():
        try:
            content = gzip.decompress(packed.read_bytes())
        except (OSError, EOFError, zlib.error) as error:
            raise InvalidInputError(f"cannot read {str(packed)!r}: {error}; {mend}.") from None
    else:
        raise InvalidInputError(f"the file {str(path)!r} (or .gz) is missing; {mend}.")
    header = 4 * (ndim + 1)
    if len(content) < header or content[:4] != bytes([0, 0, _UNSIGNED_BYTES, ndim]):
        raise InvalidInputError(
            f"{str(path)!r} must be an IDX file of unsigned bytes in {ndim} dimensions, got "
            f"the first bytes {content[:4].hex(' ') or 'none'}; {mend}."
        )
    shape = [int.from_bytes(content[at : at + 4], "big") for at in range(4, header, 4)]
    values = torch.frombuffer(bytearray(content), dtype=torch.uint8)[header:]
    expected = torch.Size(shape).numel()
    if len(values) != expected:
        raise InvalidInputError(
            f"{str(path)!r} must hold {' x '.join(map(str, shape))} = {expected} values, got "
            f"{len(values)}: it is cut or damaged; {mend}."
        )
    return values.reshape(shape)
