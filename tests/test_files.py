from pathlib import Path

import pytest

from torch_dpfts.errors import StateError
from torch_dpfts.files import read_state, write_atomically


def test_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "state"
    write_atomically(path, b"one")
    write_atomically(path, b"two")
    assert read_state(path) == b"two"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state"
    write_atomically(path, b"old")

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new")
    assert read_state(path) == b"old"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"nowhere.*No such file"):
        read_state(tmp_path / "nowhere")
