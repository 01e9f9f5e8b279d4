"""A site's two calls over a local socket, so that what runs elsewhere cannot read its data.

A request is one letter, ``C`` or ``D``, a length and that many bytes: the number of a round, or
a broadcast. The answer is a length and that many bytes. A connection carries one call.
"""

from __future__ import annotations

import os
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

from torch_dpfts.errors import MessageError, StateError
from torch_dpfts.protocol import Code, SiteCalls, answer

_HEAD = struct.Struct("<cI")
_LENGTH = struct.Struct("<I")
_ROUND = struct.Struct("<Q")
_CALL_SECONDS = 30.0
_RETRY_SECONDS = 0.2


class SocketServer:
    """Serves a site's calls until it is closed.

    Args:
        path: The socket's path; a stale file there is replaced. Its folder decides who may
            connect.
        site: What answers.
        max_bytes: Longest request that is read.

    Raises:
        StateError: If the socket cannot be made, for example since the path is too long.
    """

    def __init__(self, path: str | Path, site: SiteCalls, max_bytes: int) -> None:
        class Handler(socketserver.StreamRequestHandler):
            timeout = _CALL_SECONDS

            def handle(self) -> None:
                try:
                    reply = _serve_one(self.rfile.read, site, max_bytes)
                    self.wfile.write(_LENGTH.pack(len(reply)) + reply)
                except OSError:
                    return  # The caller went away.

        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
        self.path.unlink(missing_ok=True)
        try:
            self._server = _Server(str(self.path), Handler)
            # Those who may enter the folder may call: the SuperNode, in another account.
            os.chmod(self.path, 0o660)
        except OSError as error:
            raise StateError(
                f"No socket can be made at {str(path)!r}: {error}; choose a shorter path in a "
                "folder that exists."
            ) from None
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer no more calls."""
        self._server.shutdown()
        self._server.server_close()
        self.path.unlink(missing_ok=True)


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 16

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: what went wrong may hold data, and standard error is not ours."""


def _serve_one(read: Callable[[int], bytes], site: SiteCalls, max_bytes: int) -> bytes:
    head = read(_HEAD.size)
    if len(head) != _HEAD.size:
        return answer(Code.REFUSED)
    letter, length = _HEAD.unpack(head)
    if length > max_bytes:
        return answer(Code.REFUSED)
    content = read(length)
    if len(content) != length:
        return answer(Code.REFUSED)
    if letter == b"D":
        return site.deliver(content)
    if letter == b"C" and length == _ROUND.size:
        return site.contribution(_ROUND.unpack(content)[0])
    return answer(Code.REFUSED)


class SocketClient:
    """The two calls of a site at the other end of a local socket.

    Both calls may be repeated without harm, so a site that is just being restarted is called
    again until time is up.

    Args:
        path: The socket's path.
        timeout: Seconds for each call.

    Raises:
        OSError: From the calls, if nobody answers in time.
        MessageError: From the calls, if the site broke off each answer.
    """

    def __init__(self, path: str | Path, timeout: float = _CALL_SECONDS) -> None:
        self.path = Path(path)
        self.timeout = timeout

    def contribution(self, round: int) -> bytes:
        """Ask for the site's contribution to a round."""
        return self._call(b"C", _ROUND.pack(round))

    def deliver(self, broadcast: bytes) -> bytes:
        """Hand over a broadcast."""
        return self._call(b"D", broadcast)

    def _call(self, letter: bytes, content: bytes) -> bytes:
        end = time.monotonic() + self.timeout
        while True:
            try:
                return self._try(letter, content, max(end - time.monotonic(), _RETRY_SECONDS))
            except (OSError, MessageError):
                if time.monotonic() + _RETRY_SECONDS >= end:
                    raise
                time.sleep(_RETRY_SECONDS)

    def _try(self, letter: bytes, content: bytes, seconds: float) -> bytes:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(seconds)
            connection.connect(str(self.path))
            connection.sendall(_HEAD.pack(letter, len(content)) + content)
            with connection.makefile("rb") as stream:
                (length,) = _LENGTH.unpack(stream.read(_LENGTH.size).ljust(_LENGTH.size, b"\0"))
                reply: bytes = stream.read(length)
        if not reply or len(reply) != length:
            raise MessageError(f"The site's answer of {len(reply)} bytes is cut; ask again.")
        return reply
