"""A Grid within one process: real ClientApps and Flower's own bytes, without a network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from torch_dpfts.flower import compat

Objects = dict[str, bytes]


class InProcessGrid(Grid):
    """Runs each ClientApp when a message is pushed, through Flower's serialisation both ways.

    Args:
        apps: The ClientApp of each public key, in PEM.
        node_config: The configuration of every SuperNode.
        on_wire: Called with the id and the bytes of each answer; returns what arrives of it,
            any number of messages. ``None`` lets all arrive.
    """

    def __init__(
        self,
        apps: Mapping[bytes, ClientApp],
        node_config: Mapping[str, str] | None = None,
        on_wire: Callable[[str, Objects], list[tuple[str, Objects]]] | None = None,
    ) -> None:
        self._apps = dict(enumerate(apps.values(), start=2))
        self._nodes = [
            compat.NodeInfo(node_id=node, public_key=key) for node, key in enumerate(apps, start=2)
        ]
        self._node_config = dict(node_config or {})
        self._on_wire = on_wire or (lambda name, objects: [(name, objects)])
        self._replies: dict[str, list[tuple[str, Objects]]] = {}
        self._run = compat.Run.create_empty(1)
        compat.be_server(self._run.run_id)

    def get_nodes(self) -> list[compat.NodeInfo]:
        """All nodes are online."""
        return list(self._nodes)

    def get_node_ids(self) -> list[int]:
        """All nodes are online."""
        return list(self._apps)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Carry messages to their ClientApps, and keep what comes back."""
        names = []
        for message in messages:
            name = compat.set_message_id(message)
            arrived = compat.inflate(name, compat.deflate(message))
            node = message.metadata.dst_node_id
            context = Context(1, node, dict(self._node_config), RecordDict(), {})
            reply = self._apps[node](arrived, context)
            reply_name = compat.set_message_id(reply)
            self._replies[name] = self._on_wire(reply_name, compat.deflate(reply))
            names.append(name)
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """What has arrived."""
        found = [copy for name in message_ids for copy in self._replies.pop(name, [])]
        return [compat.inflate(name, objects) for name, objects in found]

    # --- what nobody here needs, but a Grid must have --------------------------------------

    def set_run(self, run: compat.Run) -> None:
        """Keep the run."""
        self._run = run

    @property
    def run(self) -> compat.Run:
        """The run."""
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Make a message."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Push and pull at once."""
        return self.pull_messages(self.push_messages(messages))
