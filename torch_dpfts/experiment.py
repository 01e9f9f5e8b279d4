"""Runs of several arms on one problem, in several processes, with what they add up to."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from torch_dpfts.federation import Objective, run_federation
from torch_dpfts.parallel import run_jobs
from torch_dpfts.privacy import epsilon_spent, round_charge
from torch_dpfts.spec import FederationSpec


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
        processes: Worker processes, one thread each; ``None`` takes one for each core, and 1
            works in this process.
        on_round: Called with the arm's name whenever one of its runs has done a round.

    Raises:
        InvalidInputError: If an arm is unknown.
        RunError: If a run fails; the message names arm and seed.
    """
    specs = {arm: spec.arm(arm) for arm in arms}
    jobs = [
        ((arm, seed), (specs[arm], objective, seed, num_initial)) for seed in seeds for arm in specs
    ]
    finished = run_jobs(
        _one_run,
        jobs,
        processes=processes,
        on_tick=lambda key: on_round(key[0]),
        describe=lambda key: f"arm {key[0]}, seed {key[1]}",
    )
    curves = dict(finished)
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


def _one_run(
    spec: FederationSpec,
    objective: Objective,
    seed: int,
    num_initial: int,
    tick: Callable[[], None],
) -> Tensor:
    result = run_federation(
        spec, objective, seed, num_initial=num_initial, progress=lambda round: tick()
    )
    return result.best_values.mean(dim=-1)
