from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from torch_dpfts.cli import app
from torch_dpfts.errors import InvalidInputError

SETTINGS = """
problem = "{problem}"
num_rounds = 2
num_initial = 2
seeds = 2
control = "noise"
baseline = "ts"
[settings]
preset = "recommended"
[arms.ts]
arm = "ts"
[arms.dp-fts]
arm = "dp-fts"
[arms.noise]
arm = "noise"
"""
OWN = """
import time
import torch

class Mine:
    name = "mine"
    num_agents = 2
    bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64)

    def __init__(self, seed=0):
        self.seed = seed

    def __call__(self, X, agent_ids):
        if self.seed == 5:
            time.sleep(600)
        return -X.square().sum(-1, keepdim=True)
"""
# A test run in the background may have told its children to ignore Ctrl-C.
CODE = """
import signal
from torch_dpfts.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)
main()
"""
MAIN = [sys.executable, "-c", CODE, "benchmark"]


def write(tmp_path: Path, problem: str, extra: str = "") -> str:
    path = tmp_path / "mine.toml"
    path.write_text(SETTINGS.format(problem=problem) + extra)
    return str(path)


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["benchmark", *arguments, "--processes", "1"])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0
    return result.stdout


def test_json_and_files_then_tables_of_the_same_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = write(tmp_path, "landmine")
    summary = json.loads(invoke(path, "--json"))
    assert list(summary["arms"]) == ["ts", "dp-fts", "noise"]
    assert summary["privacy"] == "seeded: not private"
    assert summary["measure"].startswith("1 - AUC")
    folder = tmp_path / "dpfts-benchmark" / "mine"
    written = {file.name for file in folder.iterdir()} - {"runs.lock"}
    assert written == {"runs.jsonl", "table.md", "convergence.png"}
    runs = (folder / "runs.jsonl").read_bytes()
    printed = invoke(path)
    assert (folder / "runs.jsonl").read_bytes() == runs
    assert "Against the control, noise" in printed
    assert "seeded: not private" in printed
    assert max(map(len, printed.splitlines())) <= 80


def test_options_change_seeds_and_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    path, out = write(tmp_path, "landmine"), str(tmp_path / "out")
    summary = json.loads(invoke(path, "--seeds", "4,9", "--rounds", "1", "--out", out, "--json"))
    assert summary["settings"]["seeds"] == [4, 9]
    assert summary["rounds_reported"] == [0, 1]
    summary = json.loads(invoke(path, "--seeds", "1", "--rounds", "1", "--out", out, "--json"))
    assert summary["settings"]["seeds"] == [0]


def test_a_sweep_has_its_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path, "landmine", "[sweep]\nnoise_multiplier = [1.0, 2.0]\n")
    summary = json.loads(invoke(path, "--quick", "--json"))
    assert len(summary["arms"]) == 1 + 2 + 2
    folder = tmp_path / "dpfts-benchmark" / "mine-quick"
    for name in ("privacy_utility.png", "sharing_gain.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")


def test_list() -> None:
    printed = invoke("--list")
    assert re.search(r"settings: .*landmine", printed)
    assert re.search(r"problems: landmine, .*gp-functions", printed)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "settings must be given; dpfts benchmark --list"),
        (["none.toml"], "settings must be 'gp-ablation', .*got 'none.toml'"),
        (["landmine", "--seeds", "few"], "seeds must be a count, or numbers .*got 'few'"),
        (["landmine", "--seeds", "0"], "seeds must be at least 1, got 0"),
        (["landmine", "--seeds", "3,3"], "seeds must be different numbers"),
    ],
)
def test_bad_options_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(InvalidInputError, match=message):
        invoke(*arguments)
    assert list(tmp_path.iterdir()) == []


def test_an_error_is_one_line(tmp_path: Path) -> None:
    path = write(tmp_path, "no_such_module:Mine")
    run = subprocess.run([*MAIN, path], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert run.returncode == 2
    assert run.stderr.startswith(f"dpfts: {path}: problem 'no_such_module:Mine' cannot be imported")


def test_ctrl_c_leaves_what_is_done(tmp_path: Path) -> None:
    # The batches of five seeds end; those of the sixth would take ten minutes.
    (tmp_path / "mine.py").write_text(OWN)
    command = [*MAIN, write(tmp_path, "mine:Mine"), "--seeds", "6", "--processes"]
    process = subprocess.Popen(
        [*command, "2"], cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    runs = tmp_path / "dpfts-benchmark" / "mine" / "runs.jsonl"
    deadline = time.monotonic() + 120
    while not runs.exists() or runs.read_bytes().count(b"\n") < 15:
        assert time.monotonic() < deadline, "no runs in time"
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Stopped; the same command goes on" in " ".join(said.split())
    assert "Traceback" not in said
    seeds = [json.loads(line)["seed"] for line in runs.read_text().splitlines()]
    assert sorted(seeds) == sorted(3 * [0, 1, 2, 3, 4])
    (tmp_path / "mine.py").write_text(OWN.replace("600", "0"))
    again = subprocess.run(
        [*command, "1"], cwd=tmp_path, capture_output=True, timeout=120, check=True
    )
    assert b"Against the control" in again.stdout
    assert len(runs.read_text().splitlines()) == 18
