from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from torch_dpfts.errors import InvalidInputError, RunError
from torch_dpfts.parallel import run_jobs

ROOT = Path(__file__).parents[1]
Tick = Callable[[], None]


def work(number: int, tick: Tick) -> dict[str, Any]:
    for _ in range(number):
        tick()
    square = torch.full((2,), number) ** 2
    return {"square": square, "process": os.getpid(), "threads": torch.get_num_threads()}


class Stubborn(Exception):
    def __init__(self, name: str, hook: Callable[[], None]) -> None:
        super().__init__(name)
        self.hook = hook


def fail(number: int, tick: Tick) -> int:
    if number == 1:
        raise Stubborn("cannot be sent", lambda: None)
    return number


def die(number: int, tick: Tick) -> int:
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.parametrize("processes", [1, 2])
def test_results_and_progress_belong_to_their_job(processes: int) -> None:
    ticks: list[str] = []
    jobs = [(f"job {n}", (n,)) for n in range(5)]
    results = dict(run_jobs(work, jobs, processes=processes, on_tick=ticks.append))
    assert results.keys() == {key for key, _ in jobs}
    for key, (number,) in jobs:
        assert results[key]["square"].tolist() == [number**2] * 2
        assert ticks.count(key) == number
    used = {result["process"] for result in results.values()}
    if processes == 1:
        assert used == {os.getpid()}
    else:
        assert os.getpid() not in used
        assert {result["threads"] for result in results.values()} == {1}


def test_no_jobs() -> None:
    assert list(run_jobs(work, [], processes=2)) == []


def test_an_error_that_cannot_be_sent_is_told() -> None:
    with pytest.raises(RunError, match=r"number 1: Stubborn: cannot be sent \(test_para") as caught:
        list(run_jobs(fail, [(1, (1,))] * 2, processes=2, describe=lambda n: f"number {n}"))
    (note,) = caught.value.__cause__.__notes__  # type: ignore[union-attr]
    assert "in fail" in note


def test_a_process_that_dies_is_noticed() -> None:
    with pytest.raises(RunError, match=r"1: its process ended \(SIGKILL; the system may"):
        list(run_jobs(die, [(1, (1,)), (0, (0,))], processes=2))


def test_what_cannot_be_sent_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="cannot go to another process"):
        list(run_jobs(work, [(0, (lambda: 0,)), (1, (1,))], processes=2))


def test_a_number_of_processes_is_positive() -> None:
    with pytest.raises(InvalidInputError, match="processes must be at least 1, got 0"):
        list(run_jobs(work, [], processes=0))


def rest(seconds: float, tick: Tick) -> None:
    tick()
    time.sleep(seconds)


def test_no_process_outlives_one_that_is_killed() -> None:
    code = """
from tests.test_parallel import rest
from torch_dpfts.parallel import run_jobs
jobs = [(n, (600.0,)) for n in range(2)]
list(run_jobs(rest, jobs, processes=2, on_tick=lambda key: print(key, flush=True)))
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    assert {process.stdout.readline() for _ in range(2)} == {"0\n", "1\n"}
    process.kill()
    process.communicate(timeout=60)  # returns when the last process has closed its output
    assert process.returncode == -signal.SIGKILL
