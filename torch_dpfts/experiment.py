"""Runs of several arms on one problem, in several processes, with what they add up to."""

from __future__ import annotations

import math
import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from queue import Empty
from typing import Any

import torch
from torch import Tensor

from torch_dpfts.federation import Objective, run_federation
from torch_dpfts.privacy import epsilon_spent, round_charge
from torch_dpfts.spec import FederationSpec

_ticks: Any = None


@dataclass(frozen=True, eq=False)
class ArmResult:
    """What one arm reached.

    Args:
        spec: The arm's settings.
        best_values: Mean over the agents of the best outcome so far, ``runs x (rounds + 1)``.
        epsilon: Privacy spent by all rounds, by delta; empty for arms without privacy.
    """

    spec: FederationSpec
    best_values: Tensor
    epsilon: dict[float, float] = field(default_factory=dict)

    @property
    def mean(self) -> Tensor:
        """Mean over the runs, ``rounds + 1``."""
        return self.best_values.mean(dim=0)

    @property
    def standard_error(self) -> Tensor:
        """Standard error of the mean over the runs, ``rounds + 1``; NaN for a single run."""
        runs = len(self.best_values)
        if runs == 1:
            return torch.full_like(self.mean, torch.nan)
        return self.best_values.std(dim=0) / math.sqrt(runs)


def run_arms(
    spec: FederationSpec,
    objective: Objective,
    arms: Sequence[str],
    seeds: Sequence[int],
    *,
    num_initial: int = 10,
    deltas: Sequence[float] = (),
    processes: int | None = None,
    on_round: Callable[[str], None] = lambda arm: None,
) -> dict[str, ArmResult]:
    """Run every arm with every seed.

    Args:
        spec: The settings of ``dp-fts-de``, which the arms vary (see ``ARMS``).
        objective: As for :func:`torch_dpfts.run_federation`; it must be picklable.
        arms: Names of arms.
        seeds: One run of each arm for each seed; equal seeds make paired runs.
        num_initial: Initial points of each agent.
        deltas: Where to report epsilon, beside ``spec.delta``.
        processes: Worker processes, one thread each; ``None`` takes one for each core.
        on_round: Called with the arm's name whenever one of its runs has done a round.

    Raises:
        InvalidInputError: If an arm is unknown.
    """
    specs = {arm: spec.arm(arm) for arm in arms}
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager:
        ticks = manager.Queue()
        workers = processes or os.cpu_count() or 1
        with ProcessPoolExecutor(
            workers, context, initializer=_start_worker, initargs=(ticks,)
        ) as pool:
            runs = {
                pool.submit(_one_run, arm, specs[arm], objective, seed, num_initial): (arm, seed)
                for seed in seeds
                for arm in specs
            }
            _watch(set(runs), ticks, on_round)
            curves = {key: future.result() for future, key in runs.items()}
    return {
        arm: ArmResult(
            specs[arm],
            torch.stack([curves[arm, seed] for seed in seeds]),
            planned_epsilon(specs[arm], [spec.delta, *deltas]),
        )
        for arm in specs
    }


def planned_epsilon(spec: FederationSpec, deltas: Sequence[float]) -> dict[float, float]:
    """Epsilon of all rounds of a federation at each delta; empty if it is not private."""
    if not (spec.is_private and spec.shares):
        return {}
    history = [(*round_charge(spec, t), 1) for t in range(1, spec.num_rounds + 1)]
    return {delta: epsilon_spent(history, delta, spec.accountant) for delta in deltas}


def _start_worker(ticks: Any) -> None:
    global _ticks
    _ticks = ticks
    torch.set_num_threads(1)


def _one_run(
    arm: str, spec: FederationSpec, objective: Objective, seed: int, num_initial: int
) -> Tensor:
    result = run_federation(
        spec,
        objective,
        seed,
        num_initial=num_initial,
        progress=lambda round: _ticks.put(arm),
    )
    return result.best_values.mean(dim=-1)


def _watch(pending: set[Future[Tensor]], ticks: Any, on_round: Callable[[str], None]) -> None:
    """Pass on the rounds that workers report until all are done; the first failure is raised."""
    while pending:
        done, pending = wait(pending, timeout=0.1, return_when=FIRST_COMPLETED)
        for future in done:
            if future.exception() is not None:
                for other in pending:
                    other.cancel()
                future.result()
        while True:
            try:
                on_round(ticks.get_nowait())
            except Empty:
                break
