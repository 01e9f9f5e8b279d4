"""Measuring privacy from outside: a lower bound on epsilon from many runs of the real server."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor

from torch_dpfts import checks
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.privacy.accounting import epsilon_spent
from torch_dpfts.privacy.mechanism import NoisyRegionAggregator
from torch_dpfts.privacy.sensitivity import round_charge
from torch_dpfts.privacy.weights import region_weights
from torch_dpfts.spec import FederationSpec

RunRounds: TypeAlias = Callable[[Sequence[Mapping[int, Tensor]], int], Tensor]
"""Runs a fresh server: messages of each round by agent, and the trial's number, to broadcasts
of shape ``rounds x P x M``."""

_TARGET = 0  # The agent whose presence is to be guessed.
_COMPANY = (1, 2)  # Others, who send zero vectors in the second setting.
_SETTINGS: dict[str, tuple[int, ...]] = {"alone": (), "in company": _COMPANY}
_THRESHOLDS = 200


@dataclass(frozen=True, kw_only=True)
class AuditResult:
    """What an audit found.

    Args:
        claim: Epsilon that the accountant claims for the audited rounds.
        bound: Lower bound on the true epsilon, right with probability ``confidence``.
        delta: The delta of both.
        confidence: Probability with which the bound holds, over the audit's randomness.
        trials: Runs with and runs without the agent, in each setting.
        setting: The setting in which the bound was found: ``"alone"`` or ``"in company"``.
        statistic: What told the runs apart: ``"likelihood ratio"`` or ``"energy"``.
        noise_multiplier: The audited z.
        sample_rate: The audited q.
    """

    claim: float
    bound: float
    delta: float
    confidence: float
    trials: int
    setting: str
    statistic: str
    noise_multiplier: float
    sample_rate: float

    @property
    def passed(self) -> bool:
        """Whether the measurement is compatible with the claim."""
        return self.bound <= self.claim


def audit_privacy(
    spec: FederationSpec,
    run_rounds: RunRounds,
    *,
    trials: int = 4000,
    num_rounds: int = 2,
    delta: float | None = None,
    confidence: float = 0.999,
    on_trial: Callable[[], None] | None = None,
) -> AuditResult:
    r"""Try to tell from a server's broadcasts whether one agent took part.

    The agent does its worst: vectors far longer than the clip norm, with a sign that changes
    from round to round. The other agents are missing in one setting, and send zero vectors in the
    other. Broadcasts are judged by two statistics, each in units of the *claimed* noise: the
    likelihood ratio that is optimal against an honest server, and their energy, which shows noise
    of a wrong scale or kind. The first quarter of the trials chooses setting, statistic, threshold
    and direction; on the others, with true and false positive rates p and p' bounded by Clopper
    and Pearson's intervals, (epsilon, delta)-DP implies

    .. math:: \varepsilon \ge \log\frac{p_{\text{low}} - \delta}{p'_{\text{high}}},

    a bound that needs no assumption on the mechanism [Jagielski2020]_. An honest server passes
    with probability at least ``confidence``; a bound above the claim means that there is a fault.

    .. [Jagielski2020] M. Jagielski, J. Ullman and A. Oprea. Auditing differentially private
       machine learning: how private is private SGD? NeurIPS 2020.

    Args:
        spec: A private federation with at least 3 agents.
        run_rounds: Runs the code under test (see :data:`RunRounds`): a fresh server for each
            call, whose randomness differs from trial to trial.
        trials: Runs with and runs without the agent, in each of the two settings. No bound above
            ``log(trials / 10)`` can come out.
        num_rounds: Rounds of each run.
        delta: The delta; ``None`` takes the specification's.
        confidence: Probability with which the bound is to hold.
        on_trial: Called after every run, for a progress bar.

    Raises:
        InvalidInputError: If an argument is out of range, or ``run_rounds`` returns broadcasts
            of a wrong shape.
    """
    if not spec.is_private or spec.num_agents <= len(_COMPANY):
        raise InvalidInputError(
            f"An audit needs noise_multiplier > 0 and at least {len(_COMPANY) + 1} agents, got "
            f"{spec.noise_multiplier} and {spec.num_agents}."
        )
    trials = checks.integer("trials", trials, minimum=100)
    num_rounds = checks.integer("num_rounds", num_rounds, minimum=1)
    delta = spec.delta if delta is None else delta
    delta = checks.real("delta", delta, above=0.0, below=1.0)
    confidence = checks.real("confidence", confidence, minimum=0.5, below=1.0)
    charges = [(*round_charge(spec, t), 1) for t in range(1, num_rounds + 1)]
    pairs = [
        pair
        for setting, company in _SETTINGS.items()
        for pair in _run_setting(spec, run_rounds, setting, company, trials, num_rounds, on_trial)
    ]
    chosen = trials // 4
    scored = [pair.best_threshold(chosen, delta, confidence) for pair in pairs]
    best = max(range(len(pairs)), key=lambda i: scored[i][0])
    bound = pairs[best].rest(chosen).lower_bound(scored[best][1], delta, confidence)
    return AuditResult(
        claim=epsilon_spent(charges, delta),
        bound=max(0.0, bound),
        delta=delta,
        confidence=confidence,
        trials=trials,
        setting=pairs[best].setting,
        statistic=pairs[best].statistic,
        noise_multiplier=spec.noise_multiplier,
        sample_rate=spec.sample_rate,
    )


def plot_audits(results: Sequence[AuditResult]) -> bytes:
    """Return a PNG of claims and measured bounds against the noise multiplier."""
    from matplotlib.figure import Figure

    ordered = sorted(results, key=lambda result: result.noise_multiplier)
    multipliers = [result.noise_multiplier for result in ordered]
    figure = Figure(figsize=(6.0, 3.8), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    axes.plot(multipliers, [result.claim for result in ordered], "o-", label="claim (upper bound)")
    axes.plot(
        multipliers,
        [result.bound for result in ordered],
        "s--",
        label=f"measured ({ordered[0].confidence:.1%} lower bound)",
    )
    axes.set(xlabel="noise multiplier", ylabel=f"epsilon (delta = {ordered[0].delta:.3g})")
    axes.set_ylim(bottom=0.0)
    axes.grid(alpha=0.3)
    axes.legend()
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


# --- the runs ---------------------------------------------------------------------------


def _worst_vectors(spec: FederationSpec, num_rounds: int) -> Iterator[Tensor]:
    """Vectors of shape ``M`` of alternating sign, far longer than the clip norm."""
    vector = torch.zeros(spec.num_features, dtype=torch.float64)
    vector[0] = 1e3 * spec.clip_norm
    for t in range(num_rounds):
        yield vector if t % 2 == 0 else -vector


def _run_setting(
    spec: FederationSpec,
    run_rounds: RunRounds,
    setting: str,
    company: Sequence[int],
    trials: int,
    num_rounds: int,
    on_trial: Callable[[], None] | None,
) -> Iterator[_Pair]:
    """Run with and without the agent; yield every way of telling the two apart."""
    zero = torch.zeros(spec.num_features, dtype=torch.float64)
    others = dict.fromkeys(company, zero)
    without = [others] * num_rounds
    present = [others | {_TARGET: vector} for vector in _worst_vectors(spec, num_rounds)]
    first = _scores(spec, run_rounds, present, trials, on_trial)
    second = _scores(spec, run_rounds, without, trials, on_trial)
    for statistic in first:
        for sign in (1.0, -1.0):
            scores = sign * first[statistic], sign * second[statistic]
            yield _Pair(setting, statistic, *scores)
            yield _Pair(setting, statistic, *reversed(scores))


def _scores(
    spec: FederationSpec,
    run_rounds: RunRounds,
    messages: Sequence[Mapping[int, Tensor]],
    trials: int,
    on_trial: Callable[[], None] | None,
) -> dict[str, Tensor]:
    """Run all trials; return each statistic, a tensor of ``trials`` numbers."""
    shape = (len(messages), spec.num_regions, spec.num_features)
    scales, shifts = _claimed(spec, len(messages))
    ratios, energies = [], []
    for trial in range(trials):
        released = run_rounds(messages, trial)
        if tuple(released.shape) != shape:
            raise InvalidInputError(
                f"run_rounds must return broadcasts of shape {shape}, got {tuple(released.shape)}."
            )
        whitened = released.double() / scales
        exponent = (whitened * shifts).sum((-2, -1)) - shifts.square().sum((-2, -1)) / 2
        rate = torch.tensor(spec.sample_rate, dtype=torch.float64)
        ratios.append(torch.logaddexp((1 - rate).log(), rate.log() + exponent).sum())
        energies.append(whitened.square().sum())
        if on_trial is not None:
            on_trial()
    return {"likelihood ratio": torch.stack(ratios), "energy": torch.stack(energies)}


def _claimed(spec: FederationSpec, num_rounds: int) -> tuple[Tensor, Tensor]:
    """Noise scales, ``T x P x 1``, and the agent's shift in their units, ``T x P x M``."""
    aggregator = NoisyRegionAggregator(spec)
    rounds = range(1, num_rounds + 1)
    scales = torch.stack([aggregator.noise_scales(t) for t in rounds]).unsqueeze(-1)
    weights = torch.stack([region_weights(spec, t)[:, _TARGET] for t in rounds]).unsqueeze(-1)
    clip = spec.clip_norm / math.sqrt(spec.num_regions)
    directions = torch.stack(list(_worst_vectors(spec, num_rounds))).sign().unsqueeze(-2)
    return scales, weights / spec.sample_rate * clip * directions / scales


# --- statistics -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Pair:
    """A statistic under two neighbours, each a tensor of one number for each trial."""

    setting: str
    statistic: str
    positive: Tensor
    negative: Tensor

    def rest(self, first: int) -> _Pair:
        return replace(self, positive=self.positive[first:], negative=self.negative[first:])

    def best_threshold(self, first: int, delta: float, confidence: float) -> tuple[float, float]:
        """Best bound on the first trials, and its threshold."""
        pair = replace(self, positive=self.positive[:first], negative=self.negative[:first])
        levels = torch.linspace(0.0, 1.0, _THRESHOLDS, dtype=torch.float64)
        values = torch.quantile(torch.cat([pair.positive, pair.negative]), levels).tolist()
        return max((pair.lower_bound(value, delta, confidence), value) for value in values)

    def lower_bound(self, threshold: float, delta: float, confidence: float) -> float:
        """Bound on epsilon from how often each statistic exceeds a threshold."""
        error = (1.0 - confidence) / 2
        true, false = (int((scores > threshold).sum()) for scores in (self.positive, self.negative))
        low, _ = _clopper_pearson(true, len(self.positive), error)
        _, high = _clopper_pearson(false, len(self.negative), error)
        return math.log((low - delta) / high) if low > delta else -math.inf


def _clopper_pearson(successes: int, count: int, error: float) -> tuple[float, float]:
    """Lower and upper bound on a probability, each wrong with probability ``error`` at most."""
    from scipy.special import betaincinv

    lower = betaincinv(successes, count - successes + 1, error) if successes else 0.0
    upper = betaincinv(successes + 1, count - successes, 1.0 - error) if successes < count else 1.0
    return float(lower), float(upper)
