"""The local socket has two calls and survives callers of every kind."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from torch_dpfts.errors import MessageError, StateError
from torch_dpfts.protocol import Code, answer
from torch_dpfts.site.local_socket import SocketClient, SocketServer


class Echo:
    def contribution(self, round: int) -> bytes:
        if round == 13:
            raise ValueError("the secret of patient 7")
        return answer(Code.OK, str(round).encode())

    def deliver(self, broadcast: bytes) -> bytes:
        return answer(Code.OK, broadcast[::-1])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SocketServer]:
    server = SocketServer(tmp_path / "s", Echo(), max_bytes=100)
    yield server
    server.close()


def test_both_calls_arrive(server: SocketServer) -> None:
    client = SocketClient(server.path, timeout=10.0)
    assert client.contribution(2**60) == answer(Code.OK, str(2**60).encode())
    assert client.deliver(b"abc") == answer(Code.OK, b"cba")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"",
        b"C",
        struct.pack("<cI", b"C", 8) + b"123",
        struct.pack("<cI", b"C", 3) + b"123",
        struct.pack("<cI", b"X", 8) + b"12345678",
        struct.pack("<cI", b"D", 2**32 - 1),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_anything_else_is_refused_and_the_server_lives(
    server: SocketServer, request_bytes: bytes
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.settimeout(10.0)
        caller.connect(str(server.path))
        caller.sendall(request_bytes)
        caller.shutdown(socket.SHUT_WR)
        assert caller.recv(100)[4:] == answer(Code.REFUSED)
    assert SocketClient(server.path, 10.0).contribution(5) == answer(Code.OK, b"5")


def test_what_is_raised_stays_inside(
    server: SocketServer, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(MessageError, match="0 bytes"):
        SocketClient(server.path, timeout=0.1).contribution(13)
    assert "secret" not in "".join(capfd.readouterr())
    assert SocketClient(server.path, 10.0).contribution(5) == answer(Code.OK, b"5")


def test_others_on_the_machine_may_not_call(server: SocketServer) -> None:
    assert server.path.stat().st_mode & 0o007 == 0


def test_a_stale_socket_is_replaced_and_a_bad_path_refused(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("left over")
    SocketServer(tmp_path / "s", Echo(), 100).close()
    assert not (tmp_path / "s").exists()
    with pytest.raises(StateError, match="shorter path"):
        SocketServer(tmp_path / ("s" * 120), Echo(), 100)


def test_nobody_there_is_an_error_when_time_is_up(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        SocketClient(tmp_path / "none", timeout=0.1).contribution(1)


def test_a_site_that_comes_back_is_called_again(tmp_path: Path) -> None:
    answers: list[bytes] = []
    caller = threading.Thread(
        target=lambda: answers.append(SocketClient(tmp_path / "s", timeout=60.0).contribution(4))
    )
    caller.start()
    server = SocketServer(tmp_path / "s", Echo(), max_bytes=100)
    caller.join(60)
    assert answers == [answer(Code.OK, b"4")]
    server.close()
