"""Rules that end a trial early, by its reports and those of the site's earlier trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Protocol

from torch_dpfts import checks
from torch_dpfts.tune.trial import Curve


class StoppingRule(Protocol):
    """Decides after each report whether a trial goes on. Larger values are better here."""

    def stops(self, curve: Curve, others: Sequence[Curve]) -> bool:
        """Whether to stop.

        Args:
            curve: Reports of the trial so far.
            others: Reports of the site's earlier trials that did not fail.
        """


@dataclass(frozen=True)
class MedianRule:
    """Stop a trial whose best report is below the median of the others' averages to that step.

    Golovin et al., "Google Vizier: A Service for Black-Box Optimization" (KDD 2017), section
    3.2.1.

    Args:
        min_step: Steps before which no trial is stopped.
        min_trials: Earlier trials needed.

    Example:
        >>> rule = MedianRule(min_step=2, min_trials=2)
        >>> rule.stops(((1, 0.1), (2, 0.2)), [((1, 0.5), (2, 0.7)), ((1, 0.4), (2, 0.6))])
        True
    """

    min_step: int = 5
    min_trials: int = 3

    def __post_init__(self) -> None:
        checks.integer("min_step", self.min_step)
        checks.integer("min_trials", self.min_trials, minimum=1)

    def stops(self, curve: Curve, others: Sequence[Curve]) -> bool:
        """See :meth:`StoppingRule.stops`."""
        step = curve[-1][0]
        seen = [[value for at, value in other if at <= step] for other in others]
        averages = [fmean(values) for values in seen if values]
        if step < self.min_step or len(averages) < self.min_trials:
            return False
        return max(value for _, value in curve) < median(averages)


@dataclass(frozen=True)
class SuccessiveHalving:
    """Let the best ``1 / reduction`` of the trials pass each rung.

    Rungs are the steps ``min_step * reduction ** k``. A trial that reaches one is compared with
    all that reached it before, without waiting for more: Li et al., "A System for Massively
    Parallel Hyperparameter Tuning" (MLSys 2020), the stopping variant.

    Args:
        min_step: The first rung.
        reduction: At least 2.

    Example:
        >>> rule = SuccessiveHalving(min_step=1, reduction=2)
        >>> rule.stops(((1, 0.1),), [((1, 0.5),), ((1, 0.4),)])
        True
    """

    min_step: int = 3
    reduction: int = 3

    def __post_init__(self) -> None:
        checks.integer("min_step", self.min_step, minimum=1)
        checks.integer("reduction", self.reduction, minimum=2)

    def stops(self, curve: Curve, others: Sequence[Curve]) -> bool:
        """See :meth:`StoppingRule.stops`."""
        step, value = curve[-1]
        rung = self.min_step
        while rung < step:
            rung *= self.reduction
        if rung != step:
            return False
        rivals = [v for other in others for at, v in other if at == step]
        places = max(1, (len(rivals) + 1) // self.reduction)
        return sum(rival > value for rival in rivals) >= places
