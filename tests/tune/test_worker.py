from multiprocessing import Pipe
from typing import Any

import pytest
import torch

from torch_dpfts.errors import InvalidInputError
from torch_dpfts.tune import SuccessiveHalving
from torch_dpfts.tune.worker import Report, Task, TrialStopped, _is_memory


def report(**options: Any) -> tuple[Report, Any]:
    ours, theirs = Pipe()
    return Report(Task(b"", {}, **options), theirs), ours


def test_reports_are_numbered_and_sent() -> None:
    reporter, received = report()
    reporter(0.5)
    reporter(0.6)
    reporter(torch.tensor(0.75), step=9)
    reporter(0.5)
    assert [received.recv() for _ in range(4)] == [(1, 0.5), (2, 0.6), (9, 0.75), (10, 0.5)]
    assert reporter.last == 0.5


def test_a_step_that_is_no_number_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="step must be an integer"):
        report()[0](0.5, step=0.5)  # type: ignore[arg-type]


def test_the_rule_sees_values_of_which_large_ones_are_good() -> None:
    rule = SuccessiveHalving(min_step=1, reduction=2)
    others = (((1, 0.5),), ((1, 0.6),))
    high, received_high = report(stopping=rule, others=others)
    with pytest.raises(TrialStopped):
        high(0.1)
    low, received_low = report(stopping=rule, others=others, minimize=True)
    low(0.1, step=1)
    with pytest.raises(TrialStopped):
        low(0.9, step=1)
    assert [r.recv() for r in (received_high, received_low)] == [(1, 0.1), (1, 0.1)]


def test_values_that_are_not_finite_stop_nothing() -> None:
    reporter, received = report(stopping=SuccessiveHalving(1, 2), others=(((1, 0.5),),))
    reporter(float("nan"))
    assert received.recv()[0] == 1


def test_what_counts_as_out_of_memory() -> None:
    assert _is_memory(MemoryError())
    assert _is_memory(torch.cuda.OutOfMemoryError("CUDA out of memory"))
    assert _is_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory"))
    assert not _is_memory(RuntimeError("shapes do not match"))
