"""The site's file: nothing is lost, nothing is kept twice."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from torch_dpfts.errors import InvalidInputError, StateError
from torch_dpfts.site.store import SiteStore, Trial, read_progress

ME = {"federation": "f", "agent_id": "1"}


def test_a_reopened_store_knows_everything(tmp_path: Path) -> None:
    store = SiteStore(tmp_path / "s", ME, {"seed": "5"})
    store.choose([0.1, 2.0])
    store.finish(0, -1.5)
    store.choose([0.3, 4.0])
    store.keep_contribution("f", 1, b"sent")
    store.keep_broadcast("f", 2, b"two")
    store.keep_broadcast("f", 1, b"one")
    store.close()
    again = SiteStore(tmp_path / "s", ME, {"seed": "6"})
    assert again.identity["seed"] == "5"
    assert again.trials()[0] == Trial(0, (0.1, 2.0), "done", -1.5)
    assert again.pending() == Trial(1, (0.3, 4.0), "chosen", None)
    assert again.contribution("f", 1) == b"sent"
    assert again.contribution("f", 2) is None
    assert again.contribution("g", 1) is None
    assert again.rounds_contributed("f") == [1]
    assert again.last_broadcast("f") == b"two"
    again.close()


def test_one_point_at_a_time_and_each_outcome_once(tmp_path: Path) -> None:
    store = SiteStore(tmp_path / "s", ME)
    trial = store.choose([0.5])
    with pytest.raises(StateError, match="finish that first"):
        store.choose([0.6])
    store.finish(trial.number, None)
    for number in (trial.number, 7):
        with pytest.raises(InvalidInputError, match="recorded once"):
            store.finish(number, 1.0)
    assert store.trials() == [Trial(0, (0.5,), "failed", None)]
    assert store.choose([0.6]).number == 1
    store.close()


def test_the_first_message_of_a_round_stays(tmp_path: Path) -> None:
    store = SiteStore(tmp_path / "s", ME)
    assert store.keep_contribution("f", 3, b"first") == b"first"
    assert store.keep_contribution("f", 3, b"second") == b"first"
    assert store.keep_broadcast("f", 3, b"first") == b"first"
    assert store.keep_broadcast("f", 3, b"second") == b"first"
    store.close()


def test_a_store_of_somebody_else_is_refused_and_left_free(tmp_path: Path) -> None:
    SiteStore(tmp_path / "s", ME).close()
    with pytest.raises(StateError, match="federation 'f', not 'g'"):
        SiteStore(tmp_path / "s", ME | {"federation": "g"})
    SiteStore(tmp_path / "s", ME).close()


def test_a_store_in_use_is_refused(tmp_path: Path) -> None:
    store = SiteStore(tmp_path / "s", ME)
    with pytest.raises(StateError, match="held by another process"):
        SiteStore(tmp_path / "s", ME)
    store.choose([0.5])
    # Reports need no lock.
    trials, contributed, received = read_progress(tmp_path / "s", "f")
    assert (len(trials), contributed, received) == (1, 0, 0)
    store.close()


def test_damaged_and_missing_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(b"no database" * 100)
    with pytest.raises(StateError, match="damaged"):
        SiteStore(tmp_path / "s", ME)
    with pytest.raises(StateError, match="cannot be read"):
        read_progress(tmp_path / "none", "f")


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    store = SiteStore(tmp_path / "s", ME)
    assert (tmp_path / "s").stat().st_mode & 0o077 == 0
    mode = sqlite3.connect(tmp_path / "s").execute("PRAGMA journal_mode").fetchone()
    assert mode == ("wal",)
    store.close()


def test_what_a_method_returned_from_survives_a_kill(tmp_path: Path) -> None:
    code = f"""
import os
from torch_dpfts.site.store import SiteStore
store = SiteStore({str(tmp_path / "s")!r}, {ME!r})
store.choose([0.25])
store.keep_contribution("f", 1, b"sent")
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", code], check=False)
    store = SiteStore(tmp_path / "s", ME)
    assert store.pending() == Trial(0, (0.25,), "chosen", None)
    assert store.contribution("f", 1) == b"sent"
    store.close()
