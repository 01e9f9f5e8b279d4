"""Requests and answers as Flower's records: one record, known keys, plain bytes."""

from __future__ import annotations

from flwr.app import ConfigRecord, Message, RecordDict

_NAME = "dpfts"
MESSAGE_TYPE = "query"


def request_content(round: int | None, broadcast: bytes | None) -> RecordDict:
    """What the server asks; a part that is ``None`` is left out."""
    record = ConfigRecord()
    if round is not None:
        record["round"] = round
    if broadcast is not None:
        record["broadcast"] = broadcast
    return RecordDict({_NAME: record})


def read_request(message: Message) -> tuple[int | None, bytes | None]:
    """What a site is asked.

    Raises:
        ValueError: If the message is no request.
    """
    record = _only_record(message, {"round", "broadcast"})
    round, broadcast = record.get("round"), record.get("broadcast")
    if not (round is None or type(round) is int):
        raise ValueError("The round of a request must be a whole number.")
    if not (broadcast is None or type(broadcast) is bytes):
        raise ValueError("The broadcast of a request must be bytes.")
    return round, broadcast


def answer_content(answer: bytes) -> RecordDict:
    """What a site answers."""
    return RecordDict({_NAME: ConfigRecord({"answer": answer})})


def read_answer_bytes(message: Message) -> bytes:
    """The answer in a message.

    Raises:
        ValueError: If the message holds anything else.
    """
    found = _only_record(message, {"answer"}).get("answer")
    if type(found) is not bytes:
        raise ValueError("An answer must be bytes.")
    return found


def _only_record(message: Message, known: set[str]) -> ConfigRecord:
    if not message.has_content() or list(message.content) != [_NAME]:
        raise ValueError("A message must hold exactly one record.")
    record = message.content[_NAME]
    if not isinstance(record, ConfigRecord) or not set(record) <= known:
        raise ValueError("A message holds a record of another kind.")
    return record
