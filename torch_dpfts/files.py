"""Writing files so that a crash leaves the old content or the new, never half of it."""

from __future__ import annotations

import os
from pathlib import Path

from torch_dpfts.errors import StateError


def write_atomically(path: str | Path, data: bytes) -> None:
    """Write ``data`` beside ``path``, flush it to the disk, then move it into place."""
    path = Path(path)
    beside = path.with_name(path.name + ".new")
    with open(beside, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
    sync_directory(path.parent)


def sync_directory(path: str | Path) -> None:
    """Flush a directory, so that a file just created or moved in it survives a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_state(path: str | Path) -> bytes:
    """Read a state file.

    Raises:
        StateError: If there is no such file.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise StateError(
            f"No saved state can be read at {str(path)!r}: {error.strerror}."
        ) from None
