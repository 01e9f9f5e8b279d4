from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest

from torch_dpfts.errors import InvalidInputError
from torch_dpfts.problems.idx import read_idx

CONTENT = struct.pack(">4B2I", 0, 0, 8, 2, 2, 3) + bytes([0, 1, 2, 3, 4, 255])


def test_values_are_read_in_c_order(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(CONTENT)
    assert read_idx(tmp_path / "a", 2, "mend").tolist() == [[0, 1, 2], [3, 4, 255]]


def test_a_packed_file_is_read_where_the_plain_one_is_missing(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(CONTENT))
    assert read_idx(tmp_path / "a", 2, "mend").tolist() == [[0, 1, 2], [3, 4, 255]]


def test_an_array_may_be_empty(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(struct.pack(">4B2I", 0, 0, 8, 2, 0, 3))
    assert read_idx(tmp_path / "a", 2, "mend").shape == (0, 3)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("b", CONTENT, r"a' \(or .gz\) is missing; mend it"),
        ("a", b"", "must be an IDX file of unsigned bytes in 2 dimensions, got .* none; mend it"),
        ("a", CONTENT[:8], "must be an IDX file"),
        ("a", b"\x00\x00\x08\x01" + CONTENT[4:], "got the first bytes 00 00 08 01"),
        ("a", b"\x00\x00\x0d\x02" + CONTENT[4:], "got the first bytes 00 00 0d 02"),
        ("a", CONTENT[:-1], r"must hold 2 x 3 = 6 values, got 5: it is cut or damaged; mend it"),
        ("a", CONTENT + b"\x00", r"must hold 2 x 3 = 6 values, got 7"),
        ("a.gz", CONTENT, "cannot read .*a.gz'.*; mend it"),
        ("a.gz", gzip.compress(CONTENT, mtime=0)[:-9], "cannot read .*a.gz'.*; mend it"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidInputError, match=message):
        read_idx(tmp_path / "a", 2, "mend it")
