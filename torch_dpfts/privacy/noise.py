"""Where the noise of a release and the coins of a cohort come from."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from torch_dpfts import checks
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.privacy import exact_gaussian

GRID_BITS = 48
"""Draws of :class:`SecureNoise` are multiples of ``2 ** -GRID_BITS``."""


@runtime_checkable
class NoiseSource(Protocol):
    """What the server needs of a source of randomness."""

    @property
    def description(self) -> str:
        """One line for people: where the randomness comes from."""

    def normal(
        self,
        round: int,
        shape: Sequence[int],
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
        purpose: str = "broadcast",
    ) -> Tensor:
        """Return independent standard normal draws for ``round``, a tensor of ``shape``."""

    def coins(self, round: int, num_agents: int, sample_rate: float) -> Tensor:
        """Return the cohort of ``round``: ``N`` independent coins, a bool tensor."""


class SeededNoise:
    """Reproducible randomness for experiments: *not private*, whoever has the seed has the data.

    Every draw is a function of the seed, the round and the purpose alone, so that a resumed
    server continues the sequence of one that was never stopped. Draws are made on the CPU and
    are the same on every device. Global generators are left alone.

    Args:
        seed: Any integer of at least 0.

    Raises:
        InvalidInputError: If the seed is no such integer.

    Example:
        >>> noise = SeededNoise(7)
        >>> bool((noise.normal(3, (2, 4)) == SeededNoise(7).normal(3, (2, 4))).all())
        True
    """

    description = "seeded: not private"

    def __init__(self, seed: int) -> None:
        self.seed = checks.integer("seed", seed)

    def normal(
        self,
        round: int,
        shape: Sequence[int],
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
        purpose: str = "broadcast",
    ) -> Tensor:
        """Return standard normal draws, a tensor of ``shape``; drawn in float64, then cast."""
        drawn = torch.randn(
            tuple(shape), dtype=torch.float64, generator=self._generator(round, purpose)
        )
        return drawn.to(dtype=dtype, device=device)

    def coins(self, round: int, num_agents: int, sample_rate: float) -> Tensor:
        """Return ``N`` coins that are True with probability ``sample_rate``, a bool tensor."""
        rate = _check_coins(num_agents, sample_rate)
        generator = self._generator(round, "cohort")
        return torch.rand(num_agents, dtype=torch.float64, generator=generator) < rate

    def _generator(self, round: int, purpose: str) -> torch.Generator:
        name = f"{self.seed}/{checks.integer('round', round, minimum=1)}/{purpose}"
        digest = hashlib.sha256(name.encode()).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


class SecureNoise:
    """Randomness of the operating system, safe against attacks on floating-point noise.

    Normal draws are rounded down to multiples of ``2 ** -48`` from exact real-valued ones
    (:mod:`~torch_dpfts.privacy.exact_gaussian`); :class:`NoisyRegionAggregator` adds them to
    sums on the same grid in integer arithmetic. Nothing can be reproduced, on purpose.
    """

    description = "operating system entropy, exact Gaussian sampler"

    def normal(
        self,
        round: int,
        shape: Sequence[int],
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
        purpose: str = "broadcast",
    ) -> Tensor:
        """Return standard normal draws on the grid, a tensor of ``shape``.

        Raises:
            InvalidInputError: If ``dtype`` is not float64: a shorter type would round the draws
                off the grid, which is what this source exists to avoid.
        """
        checks.integer("round", round, minimum=1)
        if dtype != torch.float64:
            raise InvalidInputError(
                f"dtype must be torch.float64, got {dtype}; draw in float64 and cast the "
                "finished release."
            )
        drawn = exact_gaussian.floored_normal(math.prod(shape), GRID_BITS)
        values = torch.from_numpy(drawn).double().mul_(2.0**-GRID_BITS)
        return values.reshape(tuple(shape)).to(device)

    def coins(self, round: int, num_agents: int, sample_rate: float) -> Tensor:
        """Return ``N`` coins, each True with ``sample_rate`` rounded down to 64 bits."""
        checks.integer("round", round, minimum=1)
        rate = _check_coins(num_agents, sample_rate)
        threshold = math.floor(Fraction(rate) * 2**64)
        if threshold == 2**64:
            return torch.ones(num_agents, dtype=torch.bool)
        return torch.from_numpy(exact_gaussian.words(num_agents) < threshold)


def _check_coins(num_agents: int, sample_rate: float) -> float:
    checks.integer("num_agents", num_agents, minimum=1)
    return checks.real("sample_rate", sample_rate, above=0.0, maximum=1.0)
