"""The names of Flower that are not public, in one place; checked with flwr 1.42."""

from __future__ import annotations

from typing import cast

from flwr.app import Message
from flwr.proto.node_pb2 import NodeInfo
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.logger import log
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

__all__ = ["NodeInfo", "Run", "be_server", "deflate", "inflate", "log", "set_message_id"]

_SERVER_NODE_ID = 1


def be_server(run_id: int) -> None:
    """Let this process create messages as a server does; Flower does so in its own processes."""
    TaskIdentity.run_id = run_id
    TaskIdentity.node_id = _SERVER_NODE_ID
    TaskIdentity.task_id = 1


def set_message_id(message: Message) -> str:
    """Give a message its id, which is a hash of what it holds."""
    name = message.object_id
    message.metadata.__dict__["_message_id"] = name
    return name


def deflate(message: Message) -> dict[str, bytes]:
    """The bytes that Flower sends for a message: its objects by their ids."""
    return {name: part.deflate() for name, part in get_all_nested_objects(message).items()}


def inflate(message_id: str, objects: dict[str, bytes]) -> Message:
    """The message that arrives when ``objects`` do."""
    message = cast(Message, inflate_object_from_contents(message_id, dict(objects)))
    message.metadata.__dict__["_message_id"] = message_id
    return message
