"""What a site and the world outside say to each other; light enough to import for one message.

A site offers two calls, :class:`SiteCalls`, and answers with bytes: one byte of a fixed
:class:`Code` and, if it contributes, the message. Whatever goes wrong at a site becomes a code;
no text, figure or trace of an exception can travel in an answer.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol


class Code(IntEnum):
    """What a site says beside its contribution; nothing else is ever said."""

    OK = 0
    LISTENING = 1
    """The site takes part without contributing: a late joiner, or its budget is spent."""
    REFUSED = 2
    """The request is malformed or belongs to another federation."""
    FAILED = 3
    """Anything else."""


class SiteCalls(Protocol):
    """The two calls that a site offers to the world outside; both return an answer."""

    def contribution(self, round: int) -> bytes:
        """Ask for the site's contribution to a round; asked again, the same bytes come back."""

    def deliver(self, broadcast: bytes) -> bytes:
        """Hand over a broadcast, as :meth:`Broadcast.to_bytes` wrote it."""


def answer(code: Code, message: bytes = b"") -> bytes:
    """Encode what a site says.

    Example:
        >>> list(answer(Code.LISTENING))
        [1]
    """
    return bytes([code]) + message


def ask(site: SiteCalls, round: int | None, broadcast: bytes | None) -> bytes:
    """Make the calls of one request: hand over the broadcast, then ask for the round.

    A broadcast that the site does not take ends the request, and so does anything raised; the
    answer is a code then.
    """
    try:
        reply = answer(Code.OK)
        if broadcast is not None:
            reply = site.deliver(broadcast)
        if round is not None and reply[:1] == answer(Code.OK):
            reply = site.contribution(round)
        return reply
    except Exception:
        return answer(Code.FAILED)
