"""One request: the broadcast first, then the round; and codes instead of errors."""

from __future__ import annotations

import subprocess
import sys

from torch_dpfts.protocol import Code, answer, ask


class Site:
    def __init__(self, delivered: bytes = b"\x00") -> None:
        self.calls: list[object] = []
        self.delivered = delivered

    def contribution(self, round: int) -> bytes:
        self.calls.append(round)
        return b"\x00message"

    def deliver(self, broadcast: bytes) -> bytes:
        self.calls.append(broadcast)
        return self.delivered


def test_the_broadcast_is_handed_over_before_the_round_is_asked_for() -> None:
    site = Site()
    assert ask(site, 3, b"two") == b"\x00message"
    assert ask(site, 3, None) == b"\x00message"
    assert ask(site, None, b"two") == b"\x00"
    assert site.calls == [b"two", 3, 3, b"two"]


def test_a_site_that_refuses_the_broadcast_is_not_asked() -> None:
    site = Site(delivered=answer(Code.REFUSED))
    assert ask(site, 3, b"two") == answer(Code.REFUSED)
    assert site.calls == [b"two"]


def test_what_is_raised_becomes_a_code() -> None:
    class Broken(Site):
        def contribution(self, round: int) -> bytes:
            raise ValueError("the secret of patient 7")

    assert ask(Broken(), 1, None) == answer(Code.FAILED)


def test_it_loads_without_torch() -> None:
    code = "import sys, torch_dpfts.site.local_socket; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
