r"""Averages of the releases so far, which cost no privacy.

Each release is the signal of its round plus noise of known variance. While the signal changes
slowly, a discounted average that weighs every release by its precision,

.. math:: \bar\omega_t = \frac{\sum_{s \le t} \gamma^{t-s} \sigma_s^{-2} \omega_s}
   {\sum_{s \le t} \gamma^{t-s} \sigma_s^{-2}},

keeps more of the signal than of the noise. It is a function of what was released and of public
values, hence post-processing. It needs no memory beyond the last average.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_dpfts.privacy.mechanism import NoisyRegionAggregator


def averaging_gain(aggregator: NoisyRegionAggregator, round: int, averaging: float) -> Tensor:
    """Return the weight of the newest release in the average, ``P``, between 0 and 1.

    Args:
        aggregator: Knows the noise scales of every round.
        round: The newest round, from 1.
        averaging: The discount gamma, in ``[0, 1)``.

    Example:
        >>> from torch_dpfts import FederationSpec
        >>> spec = FederationSpec.fts(bounds=[[0.0], [1.0]], num_agents=2, num_rounds=9)
        >>> [float(averaging_gain(NoisyRegionAggregator(spec), t, 0.5)) for t in (1, 2)]
        [1.0, 0.6666666666666666]
    """
    scales = torch.stack([aggregator.noise_scales(s) for s in range(1, round + 1)])  # t x P
    precision = torch.where(scales > 0, scales.square().reciprocal(), 1.0)
    age = torch.arange(round - 1, -1, -1, dtype=precision.dtype).unsqueeze(-1)
    return precision[-1] / (averaging**age * precision).sum(dim=0)
