from typing import Any

import pytest

from torch_dpfts.errors import InvalidInputError
from torch_dpfts.tune import MedianRule, SuccessiveHalving


def curve(*values: float) -> tuple[tuple[int, float], ...]:
    return tuple(enumerate(values, start=1))


OTHERS = [curve(0.2, 0.4, 0.6), curve(0.3, 0.5, 0.7), curve(0.1, 0.2, 0.3)]


def test_median_rule_compares_the_best_with_the_median_of_averages() -> None:
    rule = MedianRule(min_step=2, min_trials=3)
    # Averages to step 2: 0.3, 0.4, 0.15, of which the median is 0.3.
    assert rule.stops(curve(0.1, 0.29), OTHERS)
    assert not rule.stops(curve(0.1, 0.31), OTHERS)
    assert not rule.stops(curve(0.9, 0.0), OTHERS)


def test_median_rule_waits_for_steps_and_trials() -> None:
    assert not MedianRule(min_step=2, min_trials=3).stops(curve(0.0), OTHERS)
    assert not MedianRule(min_step=1, min_trials=4).stops(curve(0.0, 0.0), OTHERS)
    assert not MedianRule(min_step=1, min_trials=1).stops(curve(0.0), [])


def test_median_rule_counts_only_trials_that_came_so_far() -> None:
    late = [((5, 0.9),)] * 3
    assert not MedianRule(min_step=1, min_trials=3).stops(curve(0.0), late)


def test_halving_lets_the_best_third_pass_each_rung() -> None:
    rule = SuccessiveHalving(min_step=1, reduction=3)
    rivals = [curve(v) for v in (0.1, 0.2, 0.3, 0.4, 0.5)]
    # Six at the rung, of whom two pass.
    assert not rule.stops(curve(0.45), rivals)
    assert rule.stops(curve(0.35), rivals)
    assert not rule.stops(curve(0.0), [])


def test_halving_acts_at_rungs_only() -> None:
    rule = SuccessiveHalving(min_step=1, reduction=3)
    assert not rule.stops(curve(0.5, 0.0), OTHERS)
    assert rule.stops(curve(0.5, 0.0, 0.0), OTHERS)


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (MedianRule, {"min_step": -1}, "min_step must be at least 0"),
        (MedianRule, {"min_trials": 0}, "min_trials must be at least 1"),
        (SuccessiveHalving, {"min_step": 0}, "min_step must be at least 1"),
        (SuccessiveHalving, {"reduction": 1}, "reduction must be at least 2"),
    ],
)
def test_bad_settings(kind: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        kind(**settings)
