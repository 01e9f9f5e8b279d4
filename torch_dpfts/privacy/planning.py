"""Choosing noise, cohort and rounds: any one number of a plan from all the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from torch_dpfts import checks
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.privacy.accounting import METHODS, epsilon_spent
from torch_dpfts.privacy.sensitivity import planned_charges
from torch_dpfts.privacy.signal import signal_to_noise
from torch_dpfts.spec import FederationSpec

SOLVABLE = (
    "epsilon",
    "delta",
    "num_agents",
    "num_rounds",
    "num_regions",
    "sample_rate",
    "noise_multiplier",
)
_MAX_ROUNDS = 100_000
_MAX_AGENTS = 1_000_000
_MAX_REGIONS = 64
_MAX_MULTIPLIER = 1e5
_MIN_DELTA = 1e-12


@dataclass(frozen=True, kw_only=True)
class NoisePlan:
    """Settings of a private federation, what they cost and what they carry.

    Args:
        epsilon: Epsilon of the whole run at ``delta``: an upper bound.
        delta: The delta.
        num_agents: N.
        num_rounds: T.
        num_regions: P.
        sample_rate: q.
        noise_multiplier: z.
        num_features: M.
        clip_norm: S.
        message_norm: Norm of a typical vector; ``None`` assumes the clip norm S / sqrt(P).
        sensitivity: ``"exact"`` or ``"paper"``.
        method: The accountant.
        solved_for: The number that :func:`plan_noise` found.
        target_epsilon: The epsilon that was asked for; ``None`` if it was solved for.
    """

    epsilon: float
    delta: float
    num_agents: int
    num_rounds: int
    num_regions: int
    sample_rate: float
    noise_multiplier: float
    num_features: int = 64
    clip_norm: float = 1.0
    message_norm: float | None = None
    sensitivity: str = "exact"
    method: str = "pld"
    solved_for: str = ""
    target_epsilon: float | None = None

    def spec(self, bounds: Any = ((0.0,), (1.0,)), **settings: Any) -> FederationSpec:
        """Return a specification with these numbers; ``settings`` are further fields of it."""
        return FederationSpec.dp_fts_de(
            bounds=bounds,
            num_agents=self.num_agents,
            num_rounds=self.num_rounds,
            num_regions=self.num_regions,
            sample_rate=self.sample_rate,
            noise_multiplier=self.noise_multiplier,
            clip_norm=self.clip_norm,
            **{
                "delta": self.delta,
                "num_features": self.num_features,
                "sensitivity": self.sensitivity,
                "accountant": self.method,
            }
            | settings,
        )

    def signal_to_noise(self, round: int | None = None) -> float:
        """Signal-to-noise ratio of the worst region in a round, by default the last."""
        round = self.num_rounds if round is None else round
        return float(signal_to_noise(self.spec(), round, self.message_norm).min())

    @property
    def verdict(self) -> str:
        """One line for people on what a broadcast of this plan is worth."""
        ratio = self.signal_to_noise()
        if ratio >= 1.0:
            return "signal: a broadcast carries more signal than noise"
        if ratio >= 1.0 / math.sqrt(10):
            return "weak: only the average of about ten broadcasts carries more signal than noise"
        return "noise: even the average of ten broadcasts is mostly noise"

    def alternatives(self) -> Iterator[tuple[str, NoisePlan]]:
        """Yield named changes that keep epsilon, with the noise multiplier found anew."""
        epsilon = self.target_epsilon or self.epsilon
        for name, changes in (
            ("P = 1", {"num_regions": 1}),
            ("M / 4", {"num_features": max(2, self.num_features // 8 * 2)}),
            ("T / 2", {"num_rounds": max(1, self.num_rounds // 2)}),
            ("q = 1", {"sample_rate": 1.0}),
            ("4 N", self._with_agents(4 * self.num_agents)),
            ("16 N", self._with_agents(16 * self.num_agents)),
            ("3 epsilon", {"epsilon": 3 * epsilon}),
        ):
            if all(getattr(self, field) == value for field, value in changes.items()):
                continue
            changed: NoisePlan = replace(self, **({"epsilon": epsilon} | changes))
            try:
                yield name, _noise_multiplier(changed)
            except InvalidInputError:
                continue  # this change cannot keep epsilon

    def _with_agents(self, num_agents: int) -> dict[str, Any]:
        follows = self.delta == default_delta(self.num_agents)
        delta = default_delta(num_agents) if follows else self.delta
        return {"num_agents": num_agents, "delta": delta}


def plan_noise(
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    num_agents: int | None = None,
    num_rounds: int | None = None,
    num_regions: int | None = None,
    sample_rate: float | None = None,
    noise_multiplier: float | None = None,
    num_features: int = 64,
    clip_norm: float = 1.0,
    message_norm: float | None = None,
    target_signal_to_noise: float = 1.0,
    sensitivity: str = "exact",
    method: str = "pld",
) -> NoisePlan:
    r"""Solve for the one number of a private federation that is left out.

    Give all but one of ``epsilon`` to ``noise_multiplier``. What is found:

    - ``epsilon``: the privacy that the others cost;
    - ``delta``: the smallest delta at which they cost no more than ``epsilon``;
    - ``num_rounds``, ``sample_rate``: the largest that ``epsilon`` allows;
    - ``noise_multiplier``: the smallest that keeps ``epsilon``, to four digits;
    - ``num_regions``: the fewest that keep ``epsilon`` (more regions lower the joint sensitivity
      of the early rounds);
    - ``num_agents``: the fewest with whom the last broadcast reaches
      ``target_signal_to_noise``, if ``epsilon`` allows the rest.

    ``delta`` and ``num_regions`` may be left out together with another number: they are then
    ``num_agents ** -1.1`` and 1.

    Args:
        epsilon: Epsilon of the whole run.
        delta: The delta, in (0, 1).
        num_agents: N.
        num_rounds: T.
        num_regions: P.
        sample_rate: q, in (0, 1].
        noise_multiplier: z.
        num_features: M, for the signal-to-noise ratio.
        clip_norm: S, for the signal-to-noise ratio.
        message_norm: Norm of a typical vector, for the signal-to-noise ratio; ``None`` assumes
            the clip norm S / sqrt(P).
        target_signal_to_noise: What ``num_agents`` is solved for.
        sensitivity: ``"exact"`` or ``"paper"``.
        method: The accountant.

    Raises:
        InvalidInputError: If a value is out of range, not exactly one is left out, or no value
            of the missing one will do; the message says why.

    Example:
        >>> plan = plan_noise(epsilon=3.0, num_agents=29, num_rounds=60, num_regions=1,
        ...                   sample_rate=0.35)
        >>> plan.solved_for, plan.epsilon <= 3.0
        ('noise_multiplier', True)
    """
    numbers = {
        "epsilon": epsilon,
        "delta": delta,
        "num_agents": num_agents,
        "num_rounds": num_rounds,
        "num_regions": num_regions,
        "sample_rate": sample_rate,
        "noise_multiplier": noise_multiplier,
    }
    missing = [name for name, value in numbers.items() if value is None]
    for optional in ("delta", "num_regions"):
        if len(missing) > 1 and optional in missing:
            missing.remove(optional)
    if len(missing) != 1:
        raise InvalidInputError(
            f"Exactly one of {', '.join(SOLVABLE)} must be left out (besides, delta and "
            f"num_regions have defaults); missing are {', '.join(missing) or 'none'}."
        )
    options = {
        "num_features": checks.integer("num_features", num_features, minimum=1),
        "clip_norm": checks.real("clip_norm", clip_norm, above=0.0, below=math.inf),
        "message_norm": _positive("message_norm", message_norm),
        "sensitivity": checks.choice("sensitivity", sensitivity, ("exact", "paper")),
        "method": checks.choice("method", method, METHODS),
    }
    solve_for = missing[0]
    plan = NoisePlan(**_placeholders(numbers), **options, solved_for=solve_for)  # type: ignore[arg-type]
    target = checks.real("target_signal_to_noise", target_signal_to_noise, above=0.0)
    if solve_for == "num_agents":
        return _num_agents(plan, target, delta)
    return _SOLVERS[solve_for](plan)


def _positive(name: str, value: float | None) -> float | None:
    return None if value is None else checks.real(name, value, above=0.0, below=math.inf)


def _placeholders(numbers: dict[str, Any]) -> dict[str, Any]:
    """Check the given numbers and put a harmless value where one is missing."""
    counts = {"num_agents": 1, "num_rounds": 1, "num_regions": 1}
    limits: dict[str, dict[str, float]] = {
        "epsilon": {"above": 0.0, "below": math.inf},
        "delta": {"above": 0.0, "below": 1.0},
        "sample_rate": {"above": 0.0, "maximum": 1.0},
        "noise_multiplier": {"above": 0.0, "below": math.inf},
    }
    checked: dict[str, Any] = {}
    for name, value in numbers.items():
        if name in counts:
            checked[name] = 1 if value is None else checks.integer(name, value, minimum=1)
        else:
            checked[name] = 0.5 if value is None else checks.real(name, value, **limits[name])
    if numbers["delta"] is None and numbers["num_agents"] is not None:
        checked["delta"] = default_delta(checked["num_agents"])
    return checked


def default_delta(num_agents: int) -> float:
    """The delta that a federation takes if none is given, ``num_agents ** -1.1``."""
    return float(max(num_agents, 2)) ** -1.1


# --- one solver for each number ---------------------------------------------------------


def _cost(plan: NoisePlan) -> float:
    return epsilon_spent(planned_charges(plan.spec()), plan.delta, plan.method)


def _allowed(plan: NoisePlan, **changes: Any) -> bool:
    return _cost(replace(plan, **changes)) <= plan.epsilon


def _at_frontier(
    plan: NoisePlan, name: str, start: float, good: float, bad: float
) -> NoisePlan | None:
    def cost(value: float) -> float:
        return _cost(replace(plan, **{name: value}))  # type: ignore[arg-type]

    found = _frontier(cost, plan.epsilon, start, good, bad)
    return None if found is None else _finish(plan, **{name: found})


def _finish(plan: NoisePlan, **changes: Any) -> NoisePlan:
    """Put the solution in and replace the target epsilon by what it costs."""
    plan = replace(plan, **changes)
    return replace(plan, epsilon=_cost(plan), target_epsilon=plan.epsilon)


def _impossible(plan: NoisePlan, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"No {plan.solved_for} keeps epsilon={plan.epsilon:.4g} at delta={plan.delta:.3g}: {why}"
    )


def _epsilon(plan: NoisePlan) -> NoisePlan:
    return replace(plan, epsilon=_cost(plan))


def _delta(plan: NoisePlan) -> NoisePlan:
    found = _at_frontier(plan, "delta", start=0.01, good=0.999, bad=_MIN_DELTA)
    if found is None:
        least = _cost(replace(plan, delta=0.999))
        raise _impossible(
            replace(plan, delta=0.999),
            f"the plan costs {least:.4g} even there. Raise noise_multiplier or lower "
            "sample_rate or num_rounds.",
        )
    return found


def _sample_rate(plan: NoisePlan) -> NoisePlan:
    found = _at_frontier(plan, "sample_rate", start=0.3, good=1e-6, bad=1.0)
    if found is None:
        raise _impossible(
            plan,
            f"{plan.num_rounds} rounds with noise_multiplier={plan.noise_multiplier:.4g} cost "
            "more even at a rate of one in a million. Raise noise_multiplier.",
        )
    return found


def _noise_multiplier(plan: NoisePlan) -> NoisePlan:
    start = min(max(plan.noise_multiplier, 1.0), 100.0)
    return _finish(plan, noise_multiplier=noise_within(plan.spec(), plan.epsilon, start))


def noise_within(spec: FederationSpec, epsilon: float, start: float = 1.0) -> float:
    """Return the smallest noise multiplier, to four digits, that keeps a budget for all rounds.

    Args:
        spec: The federation; its own noise multiplier plays no part.
        epsilon: The budget at the federation's delta.
        start: Where to search first.

    Raises:
        InvalidInputError: If no amount of noise keeps it.
    """

    def cost(multiplier: float) -> float:
        charges = planned_charges(replace(spec, noise_multiplier=multiplier))
        return epsilon_spent(charges, spec.delta, spec.accountant)

    found = _frontier(cost, epsilon, start, good=_MAX_MULTIPLIER, bad=0.02)
    if found is None:
        count = "" if spec.clip_quantile is None else " Raise count_noise_multiplier."
        raise InvalidInputError(
            f"No noise_multiplier keeps epsilon={epsilon:.4g} at delta={spec.delta:.3g}: the "
            f"{spec.accountant!r} accountant reports more at any amount of noise.{count}"
        )
    digits = 10.0 ** (3 - math.floor(math.log10(found)))
    return math.ceil(found * digits) / digits


def _num_rounds(plan: NoisePlan) -> NoisePlan:
    if not _allowed(plan, num_rounds=1):
        once = _cost(replace(plan, num_rounds=1))
        raise _impossible(
            plan,
            f"a single round with sample_rate={plan.sample_rate:.4g} and "
            f"noise_multiplier={plan.noise_multiplier:.4g} costs {once:.4g}. Raise "
            "noise_multiplier or lower sample_rate.",
        )
    fits = _largest(lambda rounds: _allowed(plan, num_rounds=rounds), _MAX_ROUNDS)
    return _finish(plan, num_rounds=fits)


def _num_regions(plan: NoisePlan) -> NoisePlan:
    if _allowed(plan, num_regions=1):
        return _finish(plan, num_regions=1)
    most = min(plan.num_agents, _MAX_REGIONS)
    least = _cost(replace(plan, num_regions=most))
    if least > plan.epsilon:
        raise _impossible(
            plan,
            f"with {most} regions it is still {least:.4g}. Regions lower the cost only while "
            "their weights differ, in the early rounds, and only with the exact sensitivity. "
            "Raise noise_multiplier.",
        )
    short = _largest(lambda regions: not _allowed(plan, num_regions=regions), most)
    return _finish(plan, num_regions=short + 1)


def _num_agents(plan: NoisePlan, target: float, delta: float | None) -> NoisePlan:
    def enough(num_agents: int) -> bool:
        return replace(plan, num_agents=num_agents).signal_to_noise() >= target

    short = _largest(lambda count: not enough(count), _MAX_AGENTS) if not enough(1) else 0
    if short == _MAX_AGENTS:
        raise _impossible(
            plan,
            f"not even {_MAX_AGENTS} agents reach a signal-to-noise ratio of {target:.3g}. Lower "
            "num_features, num_regions or noise_multiplier.",
        )
    count = short + 1
    found = replace(
        plan, num_agents=count, delta=default_delta(count) if delta is None else plan.delta
    )
    if not _allowed(found):
        raise _impossible(
            found,
            f"{count} agents reach a signal-to-noise ratio of {target:.3g}, but the plan costs "
            f"{_cost(found):.4g}, whatever their number. Raise noise_multiplier.",
        )
    return _finish(found)


_SOLVERS: dict[str, Callable[[NoisePlan], NoisePlan]] = {
    "epsilon": _epsilon,
    "delta": _delta,
    "num_rounds": _num_rounds,
    "num_regions": _num_regions,
    "sample_rate": _sample_rate,
    "noise_multiplier": _noise_multiplier,
}


def _frontier(
    cost: Callable[[float], float], target: float, start: float, good: float, bad: float
) -> float | None:
    """Find a positive number whose cost is at most ``target``, and within .2% of it.

    ``cost`` is monotone between ``good``, the cheap end, and ``bad``, the dear one. Secant steps
    on logarithms, kept inside the bracket. Returns ``bad`` if that is allowed, and ``None`` if
    not even ``good`` is.
    """
    ends = good, bad
    point, value, slope = start, cost(start), 1.0  # slope: of log cost towards the dear end
    while not 0.998 * target <= value <= target:
        good, bad = (point, bad) if value <= target else (good, point)
        span = math.log(bad / good)
        if abs(span) < 1e-5:
            break
        share = math.log(point / good) / span
        if 0.0 < value < math.inf:
            share += math.log(0.999 * target / value) / (slope * abs(span))
        else:
            share = 0.5
        last, before = point, value
        point = good * math.exp(span * min(max(share, 0.02), 0.98))
        value = cost(point)
        if 0.0 < before < math.inf and 0.0 < value < math.inf:
            distance = math.log(point / last) * math.copysign(1.0, span)
            slope = max(math.log(value / before) / distance, 0.05)
    else:
        return point
    if bad == ends[1] and cost(bad) <= target:
        return bad
    return good if good != ends[0] or cost(good) <= target else None


def _largest(allowed: Callable[[int], bool], limit: int) -> int:
    """Return the largest allowed integer up to ``limit``, given that 1 is allowed."""
    good, bad = 1, 2
    while bad <= limit and allowed(bad):
        good, bad = bad, 2 * bad
    bad = min(bad, limit + 1)
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if allowed(middle) else (good, middle)
    return good
