"""A clip norm that follows a quantile of the messages' norms, at a privacy cost of its own."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torch_dpfts import checks
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.privacy.noise import GRID_BITS, NoiseSource
from torch_dpfts.spec import FederationSpec

LEARNING_RATE = 0.2
_MAX_FACTOR = 1000.0  # The clip norm stays within this factor of where it began.


def clip_votes(spec: FederationSpec, clip_norm: float, vectors: Tensor) -> int:
    """Return how many vectors are within the bound S / sqrt(P), less those beyond: *not private*.

    Votes of disjoint parts of a cohort add up to those of all of it.

    Args:
        spec: The federation.
        clip_norm: S in this round.
        vectors: Vectors of drawn agents, before clipping, ``N_c x M``.

    Raises:
        InvalidInputError: If an argument is out of range.

    Example:
        >>> spec = FederationSpec.fts(bounds=[[0.0], [1.0]], num_agents=9, num_rounds=1)
        >>> clip_votes(spec, 1.0, torch.tensor([[0.5, 0.5], [2.0, 0.0], [3.0, 3.0]]))
        -1
    """
    checks.real("clip_norm", clip_norm, above=0.0, below=math.inf)
    if vectors.ndim != 2:
        raise InvalidInputError(f"vectors must have shape N_c x M, got {tuple(vectors.shape)}.")
    norms = torch.linalg.vector_norm(vectors.double(), dim=-1)
    within = int((norms <= clip_norm / math.sqrt(spec.num_regions)).sum())
    return 2 * within - len(norms)


def next_clip_norm(
    spec: FederationSpec, round: int, clip_norm: float, votes: int, noise: NoiseSource
) -> float:
    r"""Return the clip norm S of the round after ``round`` (algorithm 1 of [Andrew2021]_).

    The server counts how many of the cohort's messages were not clipped, adds noise, and moves S
    by a geometric step towards the target quantile :math:`\gamma`:

    .. math::
        S \leftarrow S \exp(-0.2 (\tilde b - \gamma)), \qquad
        \tilde b = \frac12 + \frac{1}{2 q N} \Bigl(\sum_n \pm 1 + \mathcal N(0, z_c^2)\Bigr),

    +1 for a message within its bound S / sqrt(P) and -1 for one beyond it. An agent that is
    missing counts as neither, so the sum moves by at most 1 when an agent is replaced by
    nothing: the count is a Gaussian mechanism of noise multiplier
    :math:`z_c` = ``spec.count_noise_multiplier``. It looks at the same cohort as the broadcast
    and is charged with it as one release
    (:func:`~torch_dpfts.privacy.joint_multiplier`). The sum is taken in integer arithmetic on
    the grid of the noise, as the broadcast's is.

    .. [Andrew2021] G. Andrew, O. Thakkar, B. McMahan and S. Ramaswamy. Differentially private
       learning with adaptive clipping. NeurIPS 2021.

    Args:
        spec: A federation with ``clip_quantile`` set.
        round: Number of the round whose messages are counted, from 1.
        clip_norm: The S with which that round was clipped.
        votes: :func:`clip_votes` of the whole cohort.
        noise: Source of the noise; the same as the broadcast's, for another purpose.

    Raises:
        InvalidInputError: If the federation's clip norm is fixed or an argument is out of range.

    Example:
        >>> from torch_dpfts.privacy import SeededNoise
        >>> spec = FederationSpec.dp_fts(
        ...     bounds=[[0.0], [1.0]], num_agents=100, num_rounds=9, sample_rate=1.0,
        ...     noise_multiplier=1.0, clip_norm=1.0, clip_quantile=0.5)
        >>> next_clip_norm(spec, 1, 1.0, -100, SeededNoise(0)) > 1.0
        True
    """
    if spec.clip_quantile is None:
        raise InvalidInputError(
            "clip_quantile must be set for an adaptive clip norm, got None; the federation's clip "
            "norm is fixed."
        )
    checks.real("clip_norm", clip_norm, above=0.0, below=math.inf)
    checks.integer("votes", votes, minimum=-spec.num_agents)
    unit = 2.0**-GRID_BITS * spec.count_noise_multiplier
    step = math.floor(1.0 / unit)  # a vote on the noise's grid, rounded towards zero
    drawn = float(noise.normal(round, (1,), dtype=torch.float64, purpose="clip norm")[0])
    noisy = step * votes + math.floor(drawn * 2.0**GRID_BITS)
    fraction = 0.5 + noisy * unit / (2 * spec.sample_rate * spec.num_agents)
    moved = clip_norm * math.exp(-LEARNING_RATE * (fraction - spec.clip_quantile))
    return min(max(moved, spec.clip_norm / _MAX_FACTOR), spec.clip_norm * _MAX_FACTOR)
