"""What the runs of a benchmark add up to."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from torch_dpfts.benchmark.configuration import BenchmarkSettings
from torch_dpfts.benchmark.runs import Run
from torch_dpfts.benchmark.statistics import (
    Estimate,
    first_round_reaching,
    mean_difference,
    ratio_of_means,
    standard_error,
)
from torch_dpfts.benchmark.variants import variant_name
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.experiment import planned_epsilon
from torch_dpfts.spec import FederationSpec

PRIVACY = "seeded: not private"


@dataclass(frozen=True, eq=False)
class Comparison:
    """An arm against another one, by the same seeds, at the rounds reported.

    Args:
        other: Name of the other arm, with its swept values.
        gain: How much better the best value is; positive is better.
        regret_ratio: Mean regret over that of the other; ``None`` where regret is unknown.
        reached_at: First round at which the mean is at least the other's mean after the last
            round; ``None`` if there is none.
    """

    other: str
    gain: Estimate
    regret_ratio: Estimate | None
    reached_at: int | None


@dataclass(frozen=True, eq=False)
class ArmSummary:
    """The runs of one arm with one combination of swept values.

    Args:
        arm: Its name in the settings.
        swept: Its swept values, by field.
        spec: Its specification.
        epsilon: Privacy of all rounds at ``spec.delta`` if the noise were unseeded: 0 where
            nothing is shared, infinite without noise.
        best_values: Best outcome so far, mean over the agents, ``seeds x (num_rounds + 1)``.
        regret: The same for the regret, or ``None`` where it is unknown.
        control: Comparison with the control.
        baseline: Comparison with the baseline.
    """

    arm: str
    swept: Mapping[str, Any]
    spec: FederationSpec
    epsilon: float
    best_values: Tensor
    regret: Tensor | None
    control: Comparison | None
    baseline: Comparison | None

    @property
    def name(self) -> str:
        """The arm and its swept values."""
        return variant_name(self.arm, self.swept)

    @property
    def is_private(self) -> bool:
        """Whether something is shared, with noise."""
        return self.spec.shares and self.spec.is_private

    @property
    def epsilon_bound(self) -> float:
        """Epsilon for print: an upper bound stays one when it is rounded upwards."""
        return math.ceil(self.epsilon * 100) / 100


@dataclass(frozen=True, eq=False)
class Summary:
    """A benchmark's results.

    Args:
        settings: The benchmark.
        arms: The arms in the order of the settings.
        score: Name of the problem's score, if it is one from 0 to 1.
        seconds: Time of all runs together.
        versions: Versions of torch_dpfts that made them.
    """

    settings: BenchmarkSettings
    arms: Sequence[ArmSummary]
    score: str | None
    seconds: float
    versions: Sequence[str]

    @property
    def measure(self) -> str:
        """What tables and figures show of an arm."""
        if self.score is not None:
            return f"1 - {self.score}"
        known = all(arm.regret is not None for arm in self.arms)
        return "simple regret" if known else "best value"

    def shown(self, arm: ArmSummary) -> Tensor:
        """The measure of each run by round, ``seeds x (num_rounds + 1)``."""
        if self.score is not None:
            return 1 - arm.best_values
        if self.measure == "simple regret" and arm.regret is not None:
            return arm.regret
        return arm.best_values

    def to_dict(self) -> dict[str, Any]:
        """Plain content for JSON; what a single seed does not tell is ``None``."""
        return {
            "name": self.settings.name,
            "settings": json.loads(json.dumps(asdict(self.settings), default=str)),
            "privacy": PRIVACY,
            "measure": f"{self.measure}, best so far, mean over agents",
            "rounds_reported": list(self.settings.rounds_reported),
            "seconds": round(self.seconds, 1),
            "versions": list(self.versions),
            "arms": {arm.name: self._arm_dict(arm) for arm in self.arms},
        }

    def _arm_dict(self, arm: ArmSummary) -> dict[str, Any]:
        shown = self.shown(arm)
        return {
            "arm": arm.arm,
            "swept": {key: _plain(value) for key, value in arm.swept.items()},
            "epsilon": _plain(arm.epsilon),
            "delta": arm.spec.delta,
            "mean": shown.mean(dim=0).tolist(),
            "se": _plain(standard_error(shown).tolist()),
            "control": _comparison_dict(arm.control),
            "baseline": _comparison_dict(arm.baseline),
        }


def summarise(settings: BenchmarkSettings, runs: Sequence[Run]) -> Summary:
    """Add up runs.

    Args:
        settings: The benchmark.
        runs: What :func:`run_benchmark` returned for it; each arm needs a run of every seed.

    Raises:
        InvalidInputError: If a run is missing.

    Example:
        >>> from torch_dpfts.benchmark import run_benchmark
        >>> settings = BenchmarkSettings(
        ...     problem="landmine", num_rounds=1, num_initial=2, seeds=2, baseline="alone",
        ...     settings={"preset": "recommended"},
        ...     arms={"alone": {"arm": "ts"}, "shared": {"arm": "fts"}})
        >>> summary = summarise(settings, run_benchmark(settings, processes=1, progress=False))
        >>> summary.measure, [arm.epsilon for arm in summary.arms]
        ('1 - AUC', [0.0, inf])
        >>> summary.arms[1].baseline.gain.value.shape
        torch.Size([2])
    """
    if not runs:
        raise InvalidInputError("runs must hold at least one run, got none.")
    groups: dict[str, dict[int, Run]] = {}
    for run in runs:
        groups.setdefault(run.name, {})[run.seed] = run
    chosen = {}
    for name, by_seed in groups.items():
        missing = [seed for seed in settings.seeds if seed not in by_seed]
        if missing:
            raise InvalidInputError(f"runs must hold every seed, {name!r} lacks {missing}.")
        chosen[name] = [by_seed[seed] for seed in settings.seeds]
    return Summary(
        settings=settings,
        arms=[_summarise_arm(settings, name, chosen) for name in chosen],
        score=runs[0].score,
        seconds=sum(run.seconds for group in chosen.values() for run in group),
        versions=sorted({run.version for group in chosen.values() for run in group}),
    )


def _summarise_arm(
    settings: BenchmarkSettings, name: str, groups: Mapping[str, Sequence[Run]]
) -> ArmSummary:
    run = groups[name][0]
    spec = FederationSpec.from_json(json.dumps(run.spec))
    control = settings.arms[run.arm].get("control", settings.control)
    return ArmSummary(
        arm=run.arm,
        swept=run.swept,
        spec=spec,
        epsilon=_epsilon(spec),
        best_values=_best(groups[name]),
        regret=_regret(groups[name]),
        control=_compare(settings, name, control, groups),
        baseline=_compare(settings, name, settings.baseline, groups),
    )


def _epsilon(spec: FederationSpec) -> float:
    planned = planned_epsilon(spec, [spec.delta])
    return planned.get(spec.delta, math.inf if spec.shares else 0.0)


def _compare(
    settings: BenchmarkSettings,
    name: str,
    other_arm: str | None,
    groups: Mapping[str, Sequence[Run]],
) -> Comparison | None:
    """Compare with the variant of another arm that has the same swept values, if there is one."""
    run = groups[name][0]
    if other_arm is None or other_arm == run.arm:
        return None
    others = [
        other
        for other, (first, *_) in groups.items()
        if first.arm == other_arm and first.swept.items() <= run.swept.items()
    ]
    if not others:
        return None
    (other,) = others
    rounds = list(settings.rounds_reported)
    best, level = _best(groups[name]), _best(groups[other])
    regret, reference = _regret(groups[name]), _regret(groups[other])
    ratio = None
    if regret is not None and reference is not None:
        ratio = ratio_of_means(regret[:, rounds], reference[:, rounds])
    return Comparison(
        other=other,
        gain=mean_difference(best[:, rounds], level[:, rounds]),
        regret_ratio=ratio,
        reached_at=first_round_reaching(best.mean(dim=0), float(level.mean(dim=0)[-1])),
    )


def _best(runs: Sequence[Run]) -> Tensor:
    return torch.tensor([run.best_values for run in runs], dtype=torch.float64)


def _regret(runs: Sequence[Run]) -> Tensor | None:
    curves = [run.regret for run in runs if run.regret is not None]
    return torch.tensor(curves, dtype=torch.float64) if len(curves) == len(runs) else None


def _comparison_dict(comparison: Comparison | None) -> dict[str, Any] | None:
    if comparison is None:
        return None
    gain, ratio = comparison.gain, comparison.regret_ratio
    content: dict[str, Any] = {
        "arm": comparison.other,
        "gain": gain.value.tolist(),
        "se": _plain(gain.standard_error.tolist()),
        "interval": _plain(gain.interval.T.tolist()),
        "reaches_final_level_at": comparison.reached_at,
    }
    if ratio is not None:
        content["regret_ratio"] = _plain(ratio.value.tolist())
        content["regret_ratio_interval"] = _plain(ratio.interval.T.tolist())
    return content


def _plain(value: Any) -> Any:
    """Strict JSON: no NaN, infinity as a word."""
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and math.isnan(value):
        return None
    return "inf" if value == math.inf else value
