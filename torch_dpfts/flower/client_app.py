"""The ClientApp: passes a request on to the site's process and its answer back.

It runs in a new process for each message, holds nothing, and can reach nothing but the site's
two calls. Importing it does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from torch_dpfts.flower.records import MESSAGE_TYPE, answer_content, read_request
from torch_dpfts.protocol import Code, SiteCalls, answer, ask
from torch_dpfts.site.local_socket import SocketClient

_SHARE_OF_TTL = 0.7  # the rest is for the way there and back


def build_client_app(site_of: Callable[[Context, float], SiteCalls]) -> ClientApp:
    """Make a ClientApp for sites of any kind.

    Args:
        site_of: Finds the site of a SuperNode; it is also given the seconds left to answer.
    """
    client = ClientApp()

    def handle(message: Message, context: Context) -> Message:
        return Message(answer_content(_answer(message, context)), reply_to=message)

    def _answer(message: Message, context: Context) -> bytes:
        # Flower would send the text of an exception to the server.
        try:
            round, broadcast = read_request(message)
        except Exception:
            return answer(Code.REFUSED)
        try:
            seconds = _SHARE_OF_TTL * message.metadata.ttl
            return ask(site_of(context, seconds), round, broadcast)
        except Exception:  # What ends the process goes through: Flower sends nothing of it.
            return answer(Code.FAILED)

    getattr(client, MESSAGE_TYPE)()(handle)
    return client


def _local_site(context: Context, seconds: float) -> SiteCalls:
    return SocketClient(str(context.node_config["socket"]), seconds)


app = build_client_app(_local_site)
"""For ``flower-supernode --node-config 'socket="..."'``."""
