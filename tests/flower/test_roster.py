"""The operator's roster."""

from __future__ import annotations

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install -e '.[flower]'")

from collections.abc import Callable
from pathlib import Path

from torch_dpfts import FederationSpec
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.flower.roster import Member, Roster, key_fingerprint, roster_text

A, B = "sha256:" + 64 * "a", "sha256:" + 64 * "b"


def test_it_is_read_as_it_was_written(tmp_path: Path, spec: FederationSpec) -> None:
    members = [Member(A, 2, 0), Member(B)]
    (tmp_path / "roster.toml").write_text(roster_text(members))
    roster = Roster.read(tmp_path / "roster.toml", spec)
    assert roster.members == members
    assert roster.agents == {A: 2}
    assert roster.listeners == [B]


@pytest.mark.parametrize(
    ("members", "match"),
    [
        ([Member(A, 0, 0), Member(A, 1, 1)], "twice"),
        ([Member(A, 0, 0), Member(B, 0, 0)], "twice"),
        ([Member(A, 3, 1)], "from 0 to 2"),
        ([Member(A, -1, 1)], "from 0 to 2"),
        ([Member(A, 1, 0)], "belongs to region 1"),
        ([Member("sha256:x", 1, 1)], "hexadecimal"),
    ],
)
def test_a_roster_that_contradicts_itself_is_refused(
    spec: FederationSpec, members: list[Member], match: str
) -> None:
    with pytest.raises(InvalidInputError, match=match):
        Roster(members, spec)


@pytest.mark.parametrize("text", ["", "[[member]]\nname = 1\n", "[", "member = 3\n"])
def test_a_file_that_is_no_roster_is_refused(
    tmp_path: Path, spec: FederationSpec, text: str
) -> None:
    (tmp_path / "r.toml").write_text(text)
    with pytest.raises(InvalidInputError, match="cannot be read"):
        Roster.read(tmp_path / "r.toml", spec)


def test_fingerprints_do_not_depend_on_the_layout(pem: Callable[[int], bytes]) -> None:
    assert key_fingerprint(pem(1)) == key_fingerprint(pem(1).replace(b"\n", b"\r\n") + b"\n")
    assert key_fingerprint(pem(1)) != key_fingerprint(pem(2))
    for bad in (b"", b"no key", pem(1).replace(b"a", b"*")):
        with pytest.raises(InvalidInputError):
            key_fingerprint(bad)
