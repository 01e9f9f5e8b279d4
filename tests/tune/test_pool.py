import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import torch

from torch_dpfts.errors import InvalidInputError
from torch_dpfts.tune import MedianRule, Outcome, TrialState
from torch_dpfts.tune.pool import TrialPool, Worker
from torch_dpfts.tune.worker import Task


def task(train_fn: Callable[..., Any], **options: Any) -> Task:
    return Task(cloudpickle.dumps(train_fn), {"x": 1}, **options)


def raises(config: dict[str, Any], report: Any) -> float:
    raise ValueError("a secret of the site")


def is_killed(config: dict[str, Any], report: Any) -> float:
    report(0.25)
    os.kill(os.getpid(), signal.SIGKILL)
    return 0.0


def swallows(config: dict[str, Any], report: Any) -> float:
    """Is to be stopped, though it catches exceptions."""
    for _ in range(10):
        try:
            report(0.1)
        except Exception:
            return 1.0
    return 0.9


def is_slow(config: dict[str, Any], report: Any) -> float:
    report(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid)
    time.sleep(600)
    return 0.0


def reports_nan(config: dict[str, Any], report: Any) -> float:
    report(float("nan"))
    report(0.5, step=7)
    return 0.5


TASKS: dict[str, Task] = {
    "good": task(lambda config, report: config["x"] + 0.5),
    "raises": task(raises),
    "nan": task(lambda config, report: float("nan")),
    "none": task(lambda config, report: None),
    "tensor": task(lambda config, report: torch.tensor(0.25)),
    "killed": task(is_killed),
    "exits": task(lambda config, report: os._exit(3)),
    "sys.exit": task(lambda config, report: sys.exit(3)),
    "slow": task(is_slow, time_limit=5.0),
    "allocator": task(lambda config, report: torch.empty(2**60).sum()),
    "no bytes": Task(b"nonsense", {}),
    "stopped": task(swallows, stopping=MedianRule(1, 1), others=(((1, 0.5),),)),
    "low is good": task(swallows, stopping=MedianRule(1, 1), others=(((1, 0.5),),), minimize=True),
    "nan report": task(reports_nan),
    "after all": task(lambda config, report: 2.0),
}


@pytest.fixture(scope="module")
def outcomes() -> Iterator[dict[str, Outcome]]:
    with TrialPool(processes=2) as pool:
        yield dict(pool.run(TASKS.items()))


def test_every_task_has_an_outcome(outcomes: dict[str, Outcome]) -> None:
    assert set(outcomes) == set(TASKS)


@pytest.mark.parametrize(
    ("name", "state", "score", "cause"),
    [
        ("good", TrialState.COMPLETE, 1.5, None),
        ("tensor", TrialState.COMPLETE, 0.25, None),
        ("after all", TrialState.COMPLETE, 2.0, None),
        ("low is good", TrialState.COMPLETE, 0.9, None),
        ("raises", TrialState.FAILED, None, "ValueError: a secret of the site"),
        ("none", TrialState.FAILED, None, "TypeError"),
        ("sys.exit", TrialState.FAILED, None, "SystemExit: 3"),
        ("no bytes", TrialState.FAILED, None, "UnpicklingError"),
        ("nan", TrialState.NOT_FINITE, None, "returned nan"),
        ("killed", TrialState.KILLED, None, "ended by SIGKILL"),
        ("exits", TrialState.KILLED, None, "exit status 3"),
        ("slow", TrialState.TIMED_OUT, None, "limit of 5 s"),
        ("allocator", TrialState.OUT_OF_MEMORY, None, "allocate memory"),
        ("stopped", TrialState.STOPPED, 0.1, None),
    ],
)
def test_how_trials_end(
    outcomes: dict[str, Outcome], name: str, state: TrialState, score: float, cause: str | None
) -> None:
    outcome = outcomes[name]
    assert outcome.state == state
    assert outcome.score == score
    assert (outcome.cause is None) if cause is None else (cause in (outcome.cause or ""))
    assert outcome.state.has_score == (score is not None)


def test_reports_are_kept_however_a_trial_ends(outcomes: dict[str, Outcome]) -> None:
    assert outcomes["killed"].reports == ((1, 0.25),)
    assert outcomes["stopped"].reports == ((1, 0.1),)
    assert [step for step, _ in outcomes["nan report"].reports] == [1, 7]


def test_what_a_trial_has_started_ends_with_it() -> None:
    worker = Worker(num_threads=1)
    worker.start(task(is_slow, time_limit=1e6))
    while not worker._reports:
        wait(worker.handles)
        assert worker.poll() is None
    worker._deadline = 0.0
    outcome = worker.poll()
    assert outcome is not None
    assert outcome.state == TrialState.TIMED_OUT
    ((_, child),) = outcome.reports
    status = Path(f"/proc/{int(child)}/status")
    assert not status.exists() or "Z (zombie)" in status.read_text()


def test_no_process_is_left(outcomes: dict[str, Outcome]) -> None:
    with TrialPool(processes=1) as pool:
        ((_, outcome),) = pool.run([(0, task(lambda config, report: os.getpid()))])
    with pytest.raises(ProcessLookupError):
        os.kill(int(outcome.score or 0), 0)


def test_no_process_is_started_for_nothing() -> None:
    with TrialPool(processes=2) as pool:
        assert list(pool.run([])) == []


def test_bad_numbers_of_processes() -> None:
    with pytest.raises(InvalidInputError, match="processes must be at least 1, got 0"):
        TrialPool(0)
