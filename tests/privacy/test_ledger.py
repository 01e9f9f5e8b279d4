import json
import math
import os
import subprocess
import sys

import pytest

from torch_dpfts.errors import InvalidInputError, LedgerError
from torch_dpfts.privacy import PrivacyLedger, epsilon_spent, joint_multiplier

DELTA = 1e-3


def fill(ledger, rounds, first=1):
    for round in range(first, first + rounds):
        ledger.append(
            round=round,
            sample_rate=0.35,
            noise_multiplier=2.0,
            kappa=0.5 + round / 100,
            fingerprint="abc",
        )
    return ledger


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.jsonl"


@pytest.fixture
def written(path):
    with fill(PrivacyLedger(path), 5) as ledger:
        return ledger.entries


def test_in_memory():
    ledger = fill(PrivacyLedger(), 3)
    assert [entry.round for entry in ledger] == [1, 2, 3]
    assert len(ledger) == 3
    assert 2 in ledger
    assert 4 not in ledger
    assert ledger[2].kappa == 0.52


def test_history_and_epsilon():
    ledger = fill(PrivacyLedger(), 3)
    history = [(2.0 / (0.5 + t / 100), 0.35, 1) for t in (1, 2, 3)]
    assert ledger.history() == history
    for method in ("pld", "rdp", "prv", "moments"):
        assert ledger.epsilon(DELTA, method) == epsilon_spent(history, DELTA, method)
    assert PrivacyLedger().epsilon(DELTA) == 0.0


def test_a_count_released_beside_the_broadcast_is_charged_with_it():
    ledger = PrivacyLedger()
    entry = ledger.append(
        round=1, sample_rate=0.35, noise_multiplier=2.0, kappa=0.5, count_noise_multiplier=3.0
    )
    assert entry.charge == (joint_multiplier(4.0, 3.0), 0.35, 1)
    assert entry.charge[0] == pytest.approx(2.4)


def test_releases_without_noise_are_recorded_and_cost_everything():
    ledger = PrivacyLedger()
    ledger.append(round=1, sample_rate=1.0, noise_multiplier=0.0)
    assert ledger.epsilon(DELTA) == math.inf


def test_a_round_is_recorded_once():
    ledger = fill(PrivacyLedger(), 3)
    before = ledger.entries
    with pytest.raises(LedgerError, match="Round 2 is already"):
        ledger.append(round=2, sample_rate=0.35, noise_multiplier=2.0)
    assert ledger.entries == before


def test_reopened_ledger_goes_on_as_if_never_closed(path):
    fill(PrivacyLedger(path), 3).close()
    with PrivacyLedger(path) as ledger:
        fill(ledger, 3, first=4)
    with PrivacyLedger(path) as ledger:
        whole = fill(PrivacyLedger(), 6)
        assert ledger.entries == whole.entries
        assert ledger.epsilon(DELTA) == whole.epsilon(DELTA)


def test_line_is_on_the_disk_before_append_returns(path, monkeypatch):
    events = []
    fsync = os.fsync

    def spy(descriptor):
        events.append(path.read_bytes().count(b"\n"))
        fsync(descriptor)

    with PrivacyLedger(path) as ledger:
        monkeypatch.setattr("os.fsync", spy)
        fill(ledger, 1)
    assert events[0] == 1  # the first flush to the disk had the whole line


def test_second_holder_is_refused(path):
    with PrivacyLedger(path) as ledger:
        fill(ledger, 1)
        with pytest.raises(LedgerError, match="held by another"):
            PrivacyLedger(path)
        script = (
            "import sys\n"
            "from torch_dpfts.errors import LedgerError\n"
            "from torch_dpfts.privacy.ledger import PrivacyLedger\n"
            "try:\n"
            "    PrivacyLedger(sys.argv[1])\n"
            "except LedgerError as error:\n"
            "    sys.exit(0 if 'held by another' in str(error) else 1)\n"
            "sys.exit(2)\n"
        )
        assert subprocess.run([sys.executable, "-c", script, str(path)]).returncode == 0
        fill(ledger, 1, first=2)
    PrivacyLedger(path).close()


def test_lock_ends_with_the_ledger(path):
    ledger = fill(PrivacyLedger(path), 1)
    del ledger
    PrivacyLedger(path).close()


def test_closed_ledgers_accept_nothing(path):
    ledger = fill(PrivacyLedger(path), 2)
    ledger.close()
    with pytest.raises(LedgerError, match="closed"):
        fill(ledger, 1, first=3)
    assert ledger.epsilon(DELTA) > 0


def test_read_only_beside_a_running_server(path):
    with PrivacyLedger(path) as ledger:
        fill(ledger, 2)
        reader = PrivacyLedger(path, read_only=True)
        assert reader.entries == ledger.entries
        with pytest.raises(LedgerError, match="read-only"):
            fill(reader, 1, first=3)


def test_read_only_copy_needs_no_head(path, written):
    path.with_name("ledger.jsonl.head").unlink()
    assert PrivacyLedger(path, read_only=True).entries == written
    with pytest.raises(LedgerError, match="head"):
        PrivacyLedger(path)


def test_read_only_needs_a_file(path):
    with pytest.raises(LedgerError, match="cannot be read"):
        PrivacyLedger(path, read_only=True)


def tampered(lines):
    """Each way of changing line 3, or of losing or moving lines, that must be found."""
    cheap = json.loads(lines[2]) | {"noise_multiplier": 20.0}
    yield (
        "cheaper",
        [*lines[:2], json.dumps(cheap, sort_keys=True, separators=(",", ":")), *lines[3:]],
    )
    yield "garbage", [*lines[:2], "{", *lines[3:]]
    yield "not an object", [*lines[:2], "3", *lines[3:]]
    yield "field missing", [*lines[:2], '{"round": 3}', *lines[3:]]
    yield "out of range", [*lines[:2], lines[2].replace("0.35", "3.5"), *lines[3:]]
    yield "line lost", [*lines[:2], *lines[3:]]
    yield "lines swapped", [*lines[:2], lines[3], lines[2], lines[4]]
    yield "line repeated", [*lines[:3], lines[2], *lines[3:]]
    yield "blank line", [*lines[:2], "", *lines[2:]]


def test_edits_are_found_and_their_line_named(path, written):
    lines = path.read_text().splitlines()
    for name, changed in tampered(lines):
        path.write_text("".join(line + "\n" for line in changed))
        with pytest.raises(LedgerError, match=r"Line [34]"):
            PrivacyLedger(path)
        with pytest.raises(LedgerError, match=r"Line [34]"):
            PrivacyLedger(path, read_only=True)
        assert name
    path.write_text("".join(line + "\n" for line in lines))
    with PrivacyLedger(path) as ledger:
        assert ledger.entries == written


def test_a_rewritten_chain_is_found_by_the_head(path, written):
    path.unlink()
    path.with_name("ledger.jsonl.head").rename(path.with_name("kept"))
    with PrivacyLedger(path) as forged:
        fill(forged, 4)
        forged.append(round=5, sample_rate=0.01, noise_multiplier=2.0)
    path.with_name("kept").rename(path.with_name("ledger.jsonl.head"))
    with pytest.raises(LedgerError, match="replaced"):
        PrivacyLedger(path)


@pytest.mark.parametrize("lost", [1, 2, 5])
def test_lost_last_lines_are_found(path, written, lost):
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-lost]))
    for read_only in (True, False):
        with pytest.raises(LedgerError, match="missing"):
            PrivacyLedger(path, read_only=read_only)


def test_a_line_cut_after_its_append_returned_is_found(path, written):
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(LedgerError, match="missing"):
        PrivacyLedger(path)


def test_damaged_head_is_refused(path, written):
    for content in (b"", b"{}", b'{"entries": "x", "hash": ""}', b"[]"):
        path.with_name("ledger.jsonl.head").write_bytes(content)
        with pytest.raises(LedgerError, match="damaged"):
            PrivacyLedger(path)


def test_interrupted_append_at_every_byte(path):
    """Whatever part of a line reached the disk, no append that returned is lost."""
    with PrivacyLedger(path) as ledger:
        fill(ledger, 3)
        before = ledger.entries
    lines, head = path.read_bytes(), path.with_name("ledger.jsonl.head").read_bytes()
    with PrivacyLedger(path) as ledger:
        fill(ledger, 1, first=4)
        after = ledger.entries
    longer = path.read_bytes()
    for length in [*range(len(lines), len(longer), 13), len(longer) - 1, len(longer)]:
        path.write_bytes(longer[:length])
        path.with_name("ledger.jsonl.head").write_bytes(head)
        with PrivacyLedger(path) as ledger:
            assert ledger.entries == (after if length == len(longer) else before)
            fill(ledger, 1, first=9)
        with PrivacyLedger(path) as ledger:
            assert ledger.entries[:3] == before
            assert ledger.entries[-1].round == 9


def test_a_disk_that_refuses(path, monkeypatch):
    ledger = fill(PrivacyLedger(path), 2)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(LedgerError, match="No space left"):
        fill(ledger, 1, first=3)
    assert len(ledger) == 2
    with pytest.raises(LedgerError, match="closed"):
        fill(ledger, 1, first=3)
    monkeypatch.undo()
    with PrivacyLedger(path) as again:
        assert len(again) in (2, 3)
        assert again.entries[:2] == ledger.entries


def test_unwritable_places_are_refused(tmp_path):
    (tmp_path / "ledger.jsonl").mkdir()
    with pytest.raises(LedgerError, match="cannot be read"):
        PrivacyLedger(tmp_path / "ledger.jsonl")
    (tmp_path / "ledger.jsonl").rmdir()
    PrivacyLedger(tmp_path / "ledger.jsonl").close()  # the lock was given back


@pytest.mark.parametrize("method", ["pld", "rdp", "moments"])
def test_budget(method):
    ledger = PrivacyLedger()
    charges = [(2.0 + t / 10, 0.35) for t in range(40)]
    target = epsilon_spent([(z, q, 1) for z, q in charges[:12]], DELTA, method)
    assert ledger.remaining_rounds(charges, target, DELTA, method) == 12
    for round, (multiplier, rate) in enumerate(charges[:12], start=1):
        assert not ledger.would_exceed((multiplier, rate), target, DELTA, method)
        ledger.append(round=round, sample_rate=rate, noise_multiplier=multiplier)
        assert ledger.epsilon(DELTA, method) <= target
    assert ledger.would_exceed(charges[12], target, DELTA, method)
    assert ledger.remaining_rounds(charges[12:], target, DELTA, method) == 0
    assert ledger.remaining_rounds([], target, DELTA, method) == 0


def test_a_release_without_noise_always_exceeds():
    assert PrivacyLedger().would_exceed((0.0, 1.0), 1e6, DELTA)


def test_export():
    ledger = fill(PrivacyLedger(), 2)
    exported = json.loads(ledger.export_json())
    assert [entry["round"] for entry in exported] == [1, 2]
    assert exported[1]["previous"] == exported[0]["hash"] == ledger[1].hash


GOOD = {"round": 1, "sample_rate": 0.5, "noise_multiplier": 1.0, "kappa": 1.0}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("round", 0),
        ("round", 1.5),
        ("sample_rate", 0.0),
        ("sample_rate", 1.5),
        ("sample_rate", math.nan),
        ("noise_multiplier", -1.0),
        ("noise_multiplier", math.inf),
        ("noise_multiplier", math.nan),
        ("kappa", 0.0),
        ("kappa", 1.1),
        ("kappa", math.nan),
        ("count_noise_multiplier", 0.0),
        ("count_noise_multiplier", math.nan),
        ("fingerprint", 3),
    ],
)
def test_bad_entries_are_refused(path, name, value):
    with PrivacyLedger(path) as ledger:
        with pytest.raises(InvalidInputError, match=name):
            ledger.append(**GOOD | {name: value})
        assert len(ledger) == 0
        ledger.append(**GOOD)
    assert len(PrivacyLedger(path, read_only=True)) == 1


@pytest.mark.parametrize("target", [0.0, -1.0, math.nan, math.inf])
def test_bad_budgets_are_refused(target):
    with pytest.raises(InvalidInputError, match="target_epsilon"):
        PrivacyLedger().would_exceed((1.0, 0.5), target, DELTA)
