"""How much of a broadcast is signal: known before any run, from public numbers alone."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torch_dpfts import checks
from torch_dpfts.privacy.weights import region_weights
from torch_dpfts.spec import FederationSpec


def signal_to_noise(spec: FederationSpec, round: int, message_norm: float | None = None) -> Tensor:
    r"""Return the expected signal-to-noise ratio of one broadcast in every region.

    .. math::
        \mathrm{SNR}_i = \frac{m}{\sqrt{M}\,\sigma_i}, \qquad
        m = \min(\text{message norm}, S / \sqrt{P}), \quad
        \sigma_i = \frac{z S}{q} \max_n \phi_n^{(i)}

    The signal is the expectation of the weighted sum when all agents agree: a vector of norm m,
    since weights sum to 1. Agents that disagree, and the chance of the cohort, only lower it. The
    noise is that of privacy alone, of norm about :math:`\sqrt M \sigma_i`. Averaging broadcasts
    of R rounds multiplies the ratio by up to :math:`\sqrt R`. Below 1 a broadcast is mostly noise.

    Args:
        spec: The federation.
        round: Number of the round, from 1.
        message_norm: Norm of a typical vector before clipping; ``None`` assumes the clip norm.

    Returns:
        A tensor of ``P`` ratios; ``inf`` without noise.

    Raises:
        InvalidInputError: If ``round`` or ``message_norm`` is out of range.

    Example:
        >>> spec = FederationSpec.dp_fts(bounds=[[0.0], [1.0]], num_agents=29, num_rounds=60,
        ...     sample_rate=0.35, noise_multiplier=1.0, clip_norm=4.0, num_features=64)
        >>> float(signal_to_noise(spec, 60)[0])
        1.27
    """
    clip = spec.clip_norm / math.sqrt(spec.num_regions)
    if message_norm is not None:
        clip = min(clip, checks.real("message_norm", message_norm, above=0.0, below=math.inf))
    largest = region_weights(spec, round).amax(-1)
    if not spec.is_private:
        return torch.full_like(largest, math.inf)
    noise = spec.noise_multiplier * spec.clip_norm / spec.sample_rate * largest
    return clip / (math.sqrt(spec.num_features) * noise)


def averaged_signal_to_noise(spec: FederationSpec, round: int, agreement: float = 0.3) -> Tensor:
    r"""Return the expected signal-to-noise ratio of the average that is broadcast in a round.

    The average of :mod:`torch_dpfts.averaging` with discount :math:`\gamma` keeps the signal and
    lowers the noise by the square root of its effective number of rounds,
    :math:`(\sum_s \gamma^s)^2 / \sum_s \gamma^{2s}`. The signal is taken to be ``agreement``
    times the clip norm, since messages of agents whose functions differ cancel in part.

    Args:
        spec: The federation.
        round: Number of the round, from 1.
        agreement: Norm of the mean message, as a fraction of what it would be if all were equal.
            On the landmine problem .25 to .45 was measured, the more the later.

    Returns:
        A tensor of ``P`` ratios; ``inf`` without noise.

    Example:
        >>> spec = FederationSpec.recommended(
        ...     bounds=[[0.0, 0.0], [1.0, 1.0]], num_agents=29, num_rounds=60)
        >>> round(float(averaged_signal_to_noise(spec, 10)), 2)
        0.58
    """
    if not spec.is_private:
        return signal_to_noise(spec, round)
    norm = agreement * spec.clip_norm / math.sqrt(spec.num_regions)
    weights = spec.averaging ** torch.arange(checks.integer("round", round, minimum=1)).double()
    rounds = float(weights.sum() ** 2 / weights.square().sum())
    return math.sqrt(rounds) * signal_to_noise(spec, round, norm)
