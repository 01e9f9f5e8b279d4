"""The server's step: a clipped, weighted, noisy sum of the agents' vectors for each region."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TypeAlias

import torch
from torch import Tensor

from torch_dpfts import checks
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.privacy.noise import GRID_BITS, NoiseSource
from torch_dpfts.privacy.weights import region_weights
from torch_dpfts.spec import FederationSpec

Chunks: TypeAlias = Iterable[tuple[Tensor, Tensor]]

_ROWS = 128  # Vectors that are summed at a time: they fit into the cache.
_SLACK = 2.0**-30  # Vectors are clipped this much shorter, to make up for rounding errors.


class NoisyRegionAggregator:
    r"""Turns the vectors of a round's cohort into the broadcast, one vector for each sub-region.

    For every sub-region i, with C = S / sqrt(P),

    .. math::
        \omega^{(i)} = \frac1q \sum_{n \in \text{cohort}} \phi_n^{(i)} \,\mathrm{clip}(\omega_n, C)
        + \mathcal N(0, \sigma_i^2 I), \qquad
        \sigma_i = \frac{z S}{q} \max_m \phi_m^{(i)}.

    The denominator q and the weights are fixed in advance: an agent that is missing counts as the
    zero vector, and an empty cohort releases noise alone. With z = 0 there is no noise, with
    S = inf no clipping.

    *Why the guarantee survives the computer's arithmetic.* Privacy proofs are about real numbers;
    a sum of floats reveals more than its value (see :mod:`~torch_dpfts.privacy.exact_gaussian`).
    Here, with noise, everything up to the release is integer arithmetic:

    1. Block i is held in units of sigma_i, where agent n contributes r_in v_n / (z S), r_in its
       weight over the region's largest. Weights and vectors are each rounded *towards zero* to
       multiples of a power of two, which makes no contribution longer, so that the joint
       sensitivity kappa of :func:`~torch_dpfts.privacy.joint_sensitivity` still bounds it.
    2. Products and sums of these integers are exact (they fit the 53 bits of a double, then the
       63 of an int64). So neighbouring sums differ by exactly one agent's contribution, and the
       result is the same bit for bit whatever the order, chunks or machines of the summation.
    3. The noise is a real normal number rounded down to the same grid. Rounding down commutes
       with adding integers, so the sum is the rounded release of the ideal mechanism, and all
       that follows (scaling by sigma_i, casting) is post-processing of it.

    Epsilon is therefore that of the ideal Gaussian mechanism, with no correction. The price is an
    error of about ``2 ** -23`` of the largest weight times C for each agent, far below the noise.

    Args:
        spec: The federation.

    Raises:
        InvalidInputError: If z S is so small or large that the noise scale is no normal double.

    Example:
        >>> from torch_dpfts.privacy import SeededNoise
        >>> spec = FederationSpec.fts(bounds=[[0.0], [1.0]], num_agents=2, num_rounds=3,
        ...                           num_features=2)
        >>> aggregator = NoisyRegionAggregator(spec)
        >>> vectors = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
        >>> aggregator.aggregate(1, vectors, torch.tensor([0, 1]), SeededNoise(0)).tolist()
        [[2.0, 3.0]]
    """

    def __init__(self, spec: FederationSpec) -> None:
        self.spec = spec
        self._last_weights: tuple[int, Tensor, Tensor] | None = None
        if spec.is_private:
            self._check_scale(spec.clip_norm)
            self._choose_grid()

    def _choose_grid(self) -> None:
        spec = self.spec
        rows = min(spec.num_agents, _ROWS)
        # A chunk's sum of products must fit a double, the sum over all agents an int64.
        bits = min(53 - _log2_ceil(rows), 62 - _log2_ceil(spec.num_agents))
        self._weight_bits = bits // 2
        largest = 1.0 / (spec.noise_multiplier * math.sqrt(spec.num_regions))  # C / (z S)
        self._vector_bits = min(
            bits - self._weight_bits - math.ceil(math.log2(largest)),
            GRID_BITS - self._weight_bits,
        )
        self._grid = math.ldexp(1.0, -self._weight_bits - self._vector_bits)

    # --- what is public -----------------------------------------------------------------

    def noise_scales(self, round: int, clip_norm: float | None = None) -> Tensor:
        """Return the standard deviation sigma_i of the noise in each region, a tensor of ``P``.

        Args:
            round: Number of the round, from 1.
            clip_norm: S in this round, if the federation adapts it; else ``None``.
        """
        spec = self.spec
        largest = self._round_weights(round)[1]
        if not spec.is_private:
            return torch.zeros_like(largest)
        return largest * (spec.noise_multiplier * self._bound(clip_norm) / spec.sample_rate)

    # --- the round ----------------------------------------------------------------------

    def aggregate(
        self,
        round: int,
        vectors: Tensor | Chunks,
        agent_ids: Tensor | None = None,
        noise: NoiseSource | None = None,
        clip_norm: float | None = None,
    ) -> Tensor:
        """Return the broadcast of ``round``.

        The caller has flipped the coins of the cohort and has left out messages that are lost or
        malformed.

        Args:
            round: Number of the round, from 1.
            vectors: The cohort's vectors, ``N_c x M``; or, with ``agent_ids`` left out, an
                iterable of chunks ``(agent_ids, vectors)``, of which one at a time is held.
            agent_ids: The agents they come from, a tensor of ``N_c`` distinct integers.
            noise: Source of the noise; may be ``None`` only if the federation is not private.
            clip_norm: S in this round, if the federation adapts it
                (:func:`~torch_dpfts.privacy.next_clip_norm`); else ``None``.

        Returns:
            The vectors of the sub-regions, ``P x M``, in the federation's dtype, on the device
            of the vectors.

        Raises:
            InvalidInputError: If a shape, an id or a value is wrong. Nothing is released.
        """
        chunks: Chunks = [(agent_ids, vectors)] if isinstance(vectors, Tensor) else vectors  # type: ignore[list-item]
        return self.release(round, self.partial_sum(round, chunks, clip_norm), noise, clip_norm)

    def partial_sum(self, round: int, chunks: Chunks, clip_norm: float | None = None) -> Tensor:
        """Return the weighted sum of some of the cohort's vectors, ``P x M``; *not private*.

        Sums over disjoint parts of the cohort, added up, are the sum over all of it: exactly
        (int64, in units of the noise's grid) if the federation is private, else in float64.

        Args:
            round: Number of the round, from 1.
            chunks: Pairs ``(agent_ids, vectors)`` of shapes ``N_c`` and ``N_c x M``.
            clip_norm: S in this round, if the federation adapts it; else ``None``.

        Raises:
            InvalidInputError: If a shape, an id or a value is wrong.
        """
        spec = self.spec
        bound, weights = self._bound(clip_norm), self._round_weights(round)[0]
        seen = torch.zeros(spec.num_agents, dtype=torch.bool)
        total: Tensor | None = None
        for agent_ids, vectors in chunks:
            ids = self._check_chunk(agent_ids, vectors, seen)
            if total is None:
                weights = weights.to(vectors.device)
                total = self._zero(vectors.device)
            if not spec.is_private:  # sums of floats depend on their order, those of integers not
                order = ids.argsort()
                ids, vectors = ids[order], vectors[order.to(vectors.device)]
            for agents, rows in zip(ids.split(_ROWS), vectors.split(_ROWS), strict=True):
                agents = agents.to(vectors.device)
                scaled = self._scaled(rows.double(), agents, bound)
                total += (weights[:, agents] @ scaled).to(total.dtype)
        return self._zero("cpu") if total is None else total

    def release(
        self,
        round: int,
        total: Tensor,
        noise: NoiseSource | None,
        clip_norm: float | None = None,
    ) -> Tensor:
        """Add the round's noise to the sum over the whole cohort: the broadcast, ``P x M``.

        Args:
            round: Number of the round, from 1.
            total: The result of :meth:`partial_sum`, or a sum of several.
            noise: Source of the noise; may be ``None`` only if the federation is not private.
            clip_norm: S in this round, if the federation adapts it; else ``None``.

        Raises:
            InvalidInputError: If the noise is missing or ``total`` is not of the right kind.
        """
        spec = self.spec
        shape = (spec.num_regions, spec.num_features)
        if tuple(total.shape) != shape or total.dtype != self._zero("cpu").dtype:
            raise InvalidInputError(
                f"total must be a result of partial_sum of shape {shape}, got "
                f"{tuple(total.shape)} and {total.dtype}."
            )
        if not spec.is_private:
            return total.to(spec.torch_dtype)
        if noise is None:
            raise InvalidInputError(
                "noise must be given, got None: the federation has noise_multiplier="
                f"{spec.noise_multiplier}; pass SecureNoise() or SeededNoise(seed)."
            )
        drawn = noise.normal(round, shape, dtype=torch.float64, device=total.device)
        whitened = (total + (drawn / self._grid).floor().long()).double() * self._grid
        scales = self.noise_scales(round, clip_norm).to(total.device)
        return (scales.unsqueeze(-1) * whitened).to(spec.torch_dtype)

    # --- pieces -------------------------------------------------------------------------

    def _bound(self, clip_norm: float | None) -> float:
        """Return S: the federation's, or the round's if the federation adapts it."""
        if (clip_norm is None) is not (self.spec.clip_quantile is None):
            raise InvalidInputError(
                "clip_norm must be given if and only if the federation has a clip_quantile, got "
                f"{clip_norm} with clip_quantile={self.spec.clip_quantile}."
            )
        if clip_norm is None:
            return self.spec.clip_norm
        self._check_scale(checks.real("clip_norm", clip_norm, above=0.0, below=math.inf))
        return clip_norm

    def _check_scale(self, clip_norm: float) -> None:
        product = self.spec.noise_multiplier * clip_norm
        if not 1e-150 < product < 1e150:
            raise InvalidInputError(
                f"noise_multiplier * clip_norm must lie in (1e-150, 1e150), got {product}; "
                "rescale the clip norm."
            )

    def _zero(self, device: torch.device | str) -> Tensor:
        dtype = torch.int64 if self.spec.is_private else torch.float64
        shape = (self.spec.num_regions, self.spec.num_features)
        return torch.zeros(shape, dtype=dtype, device=device)

    def _round_weights(self, round: int) -> tuple[Tensor, Tensor]:
        """The weights of a round as they are summed with, ``P x N``, and the largest phi, ``P``.

        The former are phi / q, or integers in proportion to phi over its largest value. Those of
        the last round are kept, since a round may be summed in many parts.
        """
        if self._last_weights is None or self._last_weights[0] != round:
            weights = region_weights(self.spec, round)
            largest = weights.amax(-1)
            if self.spec.is_private:
                weights.div_(largest.unsqueeze(-1)).mul_(2.0**self._weight_bits).trunc_()
            else:
                weights.div_(self.spec.sample_rate)
            self._last_weights = round, weights, largest
        return self._last_weights[1:]

    def _scaled(self, vectors: Tensor, agents: Tensor, bound: float) -> Tensor:
        """Clip ``n x M`` vectors to S / sqrt(P) and, if there is noise, round them to its grid."""
        spec = self.spec
        norms = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
        for row in (~norms.isfinite()).nonzero()[:, 0]:  # rare: the norm may have overflowed
            checks.finite(f"the vector of agent {int(agents[row])}", vectors[row])
        clip = bound / math.sqrt(spec.num_regions)
        if not spec.is_private:
            return vectors if math.isinf(clip) else vectors * (clip / norms).clamp_(max=1.0)
        factors = (clip * (1.0 - _SLACK) / norms).clamp_(max=1.0)
        unit = spec.noise_multiplier * bound
        scaled = vectors * (factors * (2.0**self._vector_bits / unit))
        return scaled.copy_(scaled.to(torch.int32))  # a cast rounds towards zero, and fast

    def _check_chunk(self, agent_ids: Tensor, vectors: Tensor, seen: Tensor) -> Tensor:
        """Return the ids on the CPU, marked as seen, or refuse the chunk."""
        spec = self.spec
        if not isinstance(vectors, Tensor) or not isinstance(agent_ids, Tensor):
            raise InvalidInputError(
                "vectors and agent_ids must be tensors, got "
                f"{type(vectors).__name__} and {type(agent_ids).__name__}."
            )
        if vectors.ndim != 2 or vectors.shape[1] != spec.num_features:
            raise InvalidInputError(
                f"vectors must have shape N_c x {spec.num_features}, got {tuple(vectors.shape)}."
            )
        if not vectors.is_floating_point():
            raise InvalidInputError(f"vectors must have a floating dtype, got {vectors.dtype}.")
        integers = not agent_ids.is_floating_point() or agent_ids.numel() == 0
        if agent_ids.shape != vectors.shape[:1] or not integers:
            raise InvalidInputError(
                f"agent_ids must be {vectors.shape[0]} integers, one for each vector, got shape "
                f"{tuple(agent_ids.shape)} and {agent_ids.dtype}."
            )
        ids = agent_ids.detach().to(device="cpu", dtype=torch.int64)
        outside = ids[(ids < 0) | (ids >= spec.num_agents)]
        if outside.numel():
            raise InvalidInputError(
                f"agent_ids must lie in 0..{spec.num_agents - 1}, got {int(outside[0])}."
            )
        distinct, counts = ids.unique(return_counts=True)
        repeated = distinct[(counts > 1) | seen[distinct]]
        if repeated.numel():
            raise InvalidInputError(
                f"agent_ids must be distinct, got {int(repeated[0])} more than once; keep one "
                "message for each agent."
            )
        seen[ids] = True
        return ids


def _log2_ceil(count: int) -> int:
    return (count - 1).bit_length()
