"""Aggregators that are broken on purpose: each is a mistake that was made, and an audit's target.

None of them gives the privacy that it claims. They exist so that anybody can see
:func:`~torch_dpfts.privacy.audit_privacy` find them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from torch_dpfts.privacy.mechanism import Chunks, NoisyRegionAggregator
from torch_dpfts.privacy.noise import NoiseSource
from torch_dpfts.privacy.weights import region_weights
from torch_dpfts.spec import FederationSpec


class _Fixed:
    """A source that always gives the same values: zeros, or draws that were used before."""

    description = "fixed values"

    def __init__(self, values: Tensor) -> None:
        self.values = values

    def normal(
        self,
        round: int,
        shape: Sequence[int],
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
        purpose: str = "broadcast",
    ) -> Tensor:
        return self.values.expand(tuple(shape)).to(dtype=dtype, device=device)

    def coins(self, round: int, num_agents: int, sample_rate: float) -> Tensor:
        return torch.ones(num_agents, dtype=torch.bool)


_SILENCE = _Fixed(torch.zeros(()))


class _CountingAggregator(NoisyRegionAggregator):
    """Knows how many vectors went into the sum of a round, which a sound one does not need."""

    _answers = 0

    def partial_sum(self, round: int, chunks: Chunks, clip_norm: float | None = None) -> Tensor:
        """Count the vectors and sum them."""
        chunks = list(chunks)
        self._answers += sum(len(agent_ids) for agent_ids, _ in chunks)
        return super().partial_sum(round, chunks, clip_norm)

    def release(
        self,
        round: int,
        total: Tensor,
        noise: NoiseSource | None,
        clip_norm: float | None = None,
    ) -> Tensor:
        """Add the noise, spoil the result, and start counting again."""
        spoilt = self._spoil(round, total, noise, clip_norm)
        self._answers = 0
        return spoilt

    def _spoil(
        self, round: int, total: Tensor, noise: NoiseSource | None, clip_norm: float | None
    ) -> Tensor:
        raise NotImplementedError


class _RescaledNoise(_CountingAggregator):
    """Multiplies the noise of each region by a factor that it should not have."""

    def _spoil(
        self, round: int, total: Tensor, noise: NoiseSource | None, clip_norm: float | None
    ) -> Tensor:
        signal = NoisyRegionAggregator.release(self, round, total, _SILENCE, clip_norm)
        noisy = NoisyRegionAggregator.release(self, round, total, noise, clip_norm)
        return signal + self._factor(round, self._answers) * (noisy - signal)

    def _factor(self, round: int, answers: int) -> Tensor:
        raise NotImplementedError


class NoiseByAnswers(_RescaledNoise):
    """Divides the noise by the number of answers, as for a mean over those who answered."""

    def _factor(self, round: int, answers: int) -> Tensor:
        return torch.tensor(1.0 / max(answers, 1), dtype=torch.float64)


class MeanWeightNoise(_RescaledNoise):
    """Takes the noise of a region from the mean of its weights, not the largest."""

    def _factor(self, round: int, answers: int) -> Tensor:
        weights = region_weights(self.spec, round)
        return (weights.mean(-1) / weights.amax(-1)).unsqueeze(-1)


class ClipPerRegion(NoisyRegionAggregator):
    """Clips each vector to S, not to S / sqrt(P): the stack of P vectors is longer than S."""

    def __init__(self, spec: FederationSpec) -> None:
        root = math.sqrt(spec.num_regions)
        clip, multiplier = root * spec.clip_norm, spec.noise_multiplier / root
        super().__init__(replace(spec, clip_norm=clip, noise_multiplier=multiplier))


class UniformIfEmpty(_CountingAggregator):
    """Broadcasts a uniform random vector when nobody was drawn or nobody answered."""

    def _spoil(
        self, round: int, total: Tensor, noise: NoiseSource | None, clip_norm: float | None
    ) -> Tensor:
        released = NoisyRegionAggregator.release(self, round, total, noise, clip_norm)
        if self._answers:
            return released
        normal = released / self.noise_scales(round, clip_norm).unsqueeze(-1)
        return torch.special.ndtr(normal)


class ReusedNoise(NoisyRegionAggregator):
    """Draws noise once and adds it to every broadcast."""

    _first: _Fixed | None = None

    def release(
        self,
        round: int,
        total: Tensor,
        noise: NoiseSource | None,
        clip_norm: float | None = None,
    ) -> Tensor:
        """Add the noise of the first release to the sum."""
        if self._first is None and noise is not None:
            self._first = _Fixed(noise.normal(round, total.shape))
        return super().release(round, total, self._first, clip_norm)


FAULTS: dict[str, type[NoisyRegionAggregator]] = {
    "noise-by-answers": NoiseByAnswers,
    "clip-per-region": ClipPerRegion,
    "uniform-if-empty": UniformIfEmpty,
    "reused-noise": ReusedNoise,
    "mean-weight-noise": MeanWeightNoise,
}
"""The faults by name."""
