"""How far one agent can move a whole broadcast, measured in units of its noise."""

from __future__ import annotations

import math
from collections import Counter

from torch import Tensor

from torch_dpfts import checks
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.privacy import weights
from torch_dpfts.spec import FederationSpec


def joint_sensitivity(region_weights: Tensor) -> float:
    r"""Return kappa, the joint sensitivity of all ``P`` blocks of one broadcast.

    .. math::
        \kappa = \max_n \Bigl(\frac1P \sum_{i=1}^P r_{in}^2\Bigr)^{1/2}, \qquad
        r_{in} = \phi_n^{(i)} / \max_m \phi_m^{(i)}

    A round with noise multiplier z is a (Poisson-subsampled) Gaussian mechanism of noise
    multiplier z / kappa. Charging z, as the paper does, is charging for kappa = 1.

    Proof.
      1. Neighbours differ in one agent n: its vector v, or the zero vector in its place.
      2. Region i receives w v with w = phi_n^i / q, and noise of standard deviation
         sigma_i = z S max_m phi_m^i / q; every clipped v has norm at most C = S / sqrt(P).
      3. Dividing block i by the public number sigma_i loses nothing, makes the noise standard
         normal in all P M coordinates, and moves block i by r_in v / (z S).
      4. The squared distance between the two means is therefore
         ``sum_i r_in^2 |v|^2 / (z S)^2 <= sum_i r_in^2 / (P z^2) = (kappa_n / z)^2``.
      5. By rotation invariance, telling the neighbours apart is telling N(0, 1) from
         N(kappa_n / z, 1): the Gaussian mechanism of noise multiplier z / kappa_n. The bound
         is attained by ``|v| = C``, and it grows with kappa_n.
      6. The coin of agent n is independent of everything else, so sampling mixes the two
         cases with weights q and 1 - q: the Poisson-subsampled Gaussian of z / max_n kappa_n.

    Args:
        region_weights: Weights phi, ``P x N``, non-negative, no row all zero.

    Returns:
        kappa, between ``1 / sqrt(P)`` and 1.

    Raises:
        InvalidInputError: If the weights are no such matrix.

    Example:
        >>> import torch
        >>> joint_sensitivity(torch.eye(4))
        0.5
        >>> joint_sensitivity(torch.ones(4, 10))
        1.0
    """
    if region_weights.ndim != 2 or region_weights.numel() == 0:
        raise InvalidInputError(
            f"region_weights must have shape P x N, got {tuple(region_weights.shape)}."
        )
    checks.finite("region_weights", region_weights)
    if (region_weights < 0).any() or (region_weights.amax(-1) <= 0).any():
        raise InvalidInputError(
            "region_weights must be non-negative with a positive entry in every row; got a "
            f"smallest entry of {float(region_weights.min())} and a smallest row maximum of "
            f"{float(region_weights.amax(-1).min())}."
        )
    ratios = region_weights.double() / region_weights.double().amax(-1, keepdim=True)
    return float(ratios.square_().mean(0).sqrt_().amax().clamp_(max=1.0))


def round_charge(spec: FederationSpec, round: int) -> tuple[float, float]:
    """Return what one broadcast of ``spec`` costs: ``(noise_multiplier, sample_rate)``.

    The noise multiplier is z / kappa_t for ``spec.sensitivity == "exact"`` and z for
    ``"paper"``, joined with that of the count if the clip norm is adaptive; feed it to
    :func:`~torch_dpfts.privacy.epsilon_spent`.

    Raises:
        InvalidInputError: If ``round`` is not an integer of at least 1.
    """
    multiplier = spec.noise_multiplier / charged_sensitivity(spec, round)
    if spec.clip_quantile is not None:
        multiplier = joint_multiplier(multiplier, spec.count_noise_multiplier)
    return multiplier, spec.sample_rate


def charged_sensitivity(spec: FederationSpec, round: int) -> float:
    """Return the kappa_t that ``spec`` charges in ``round``: exact, or the paper's 1.

    Raises:
        InvalidInputError: If ``round`` is not an integer of at least 1.
    """
    checks.integer("round", round, minimum=1)
    if spec.sensitivity == "paper":
        return 1.0
    return joint_sensitivity(weights.region_weights(spec, round))


def joint_multiplier(*multipliers: float) -> float:
    """Noise multiplier of several Gaussian releases about one cohort, taken as one release.

    Whitened side by side, the releases move by at most ``1 / z_j`` each, so together by the root
    of the sum of squares. (They share the cohort's coins, so composing them as if each had coins
    of its own would not be sound.)

    Example:
        >>> joint_multiplier(3.0, 4.0)
        2.4
    """
    if min(multipliers) == 0.0:
        return 0.0
    return 1.0 / math.hypot(*(1.0 / multiplier for multiplier in multipliers))


def planned_charges(spec: FederationSpec) -> list[tuple[float, float, int]]:
    """Return what all ``spec.num_rounds`` broadcasts cost together, equal rounds counted.

    Triples ``(noise_multiplier, sample_rate, num_rounds)`` for
    :func:`~torch_dpfts.privacy.epsilon_spent`.

    Example:
        >>> spec = FederationSpec.dp_fts(bounds=[[0.0], [1.0]], num_agents=5, num_rounds=60,
        ...                              sample_rate=0.5, noise_multiplier=2.0, clip_norm=1.0)
        >>> planned_charges(spec)
        [(2.0, 0.5, 60)]
    """
    scores = Counter(weights.region_score(spec, t) for t in range(1, spec.num_rounds + 1))
    first = {weights.region_score(spec, t): t for t in range(spec.num_rounds, 0, -1)}
    counts: Counter[tuple[float, float]] = Counter()
    for score, rounds in scores.items():  # the weights of a round depend on its score alone
        counts[round_charge(spec, first[score])] += rounds
    return [(multiplier, rate, rounds) for (multiplier, rate), rounds in counts.items()]
