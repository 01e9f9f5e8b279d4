"""Epsilon of a history of Poisson-subsampled Gaussian releases: always an upper bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from torch_dpfts import checks
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.privacy import accountants
from torch_dpfts.privacy.grouping import Charge, grouped

METHODS: dict[str, Callable[[tuple[Charge, ...], float], float]] = {
    "pld": accountants.pld_epsilon,
    "rdp": accountants.rdp_epsilon,
    "prv": accountants.prv_epsilon,
    "moments": accountants.moments_epsilon,
}
_MAX_GROUPS = 32
_MIN_MULTIPLIER = 1e-100  # Below this its square underflows; no bound would be finite anyway.


def epsilon_spent(
    history: Iterable[tuple[float, float, int]], delta: float, method: str = "pld"
) -> float:
    r"""Return an epsilon for which the releases in ``history`` are (epsilon, delta)-DP together.

    Neighbours differ in the data of one agent; every release draws agents by independent coins
    (``sample_rate=1`` draws all of them). Releases may depend on earlier ones.

    ``"pld"`` (privacy loss distributions [Doroshenko2022]_, by Google's ``dp-accounting``) is the
    tightest. ``"rdp"`` (Renyi DP [Mironov2019]_ with the conversion of [Balle2020]_, by Opacus)
    and ``"prv"`` ([Gopi2021]_, by Opacus) are there for comparison; ``"moments"`` is the moments
    accountant [Abadi2016]_ with integer orders 2 to 64, by which the figures of [Dai2021]_ were
    computed. Each is an upper bound. Where ``"pld"`` or ``"prv"`` cannot be evaluated in
    seconds (a multiplier so small or rounds so many that its grid would be too large, a delta
    below the precision of its Fourier transforms) the bound is that of ``"rdp"`` or ``"pld"``.
    Histories of very many different releases are grouped, with multipliers rounded down and
    sample rates rounded up. The central-limit accountant of Gaussian DP is no upper bound and
    not offered.

    .. [Doroshenko2022] V. Doroshenko, B. Ghazi, P. Kamath, R. Kumar and P. Manurangsi. Connect the
       dots: tighter discrete approximations of privacy loss distributions. PoPETs 2022.
    .. [Mironov2019] I. Mironov, K. Talwar and L. Zhang. Renyi differential privacy of the sampled
       Gaussian mechanism. arXiv:1908.10530.
    .. [Balle2020] B. Balle, G. Barthe, M. Gaboardi, J. Hsu and T. Sato. Hypothesis testing
       interpretations and Renyi differential privacy. AISTATS 2020, theorem 21.
    .. [Gopi2021] S. Gopi, Y. T. Lee and L. Wutschitz. Numerical composition of differential
       privacy. NeurIPS 2021.
    .. [Abadi2016] M. Abadi et al. Deep learning with differential privacy. CCS 2016.

    Args:
        history: Triples ``(noise_multiplier, sample_rate, num_rounds)``, as in Opacus'
            accountants; see :func:`round_charge` for those of a federation.
        delta: The delta of (epsilon, delta)-DP, in (0, 1).
        method: ``"pld"``, ``"rdp"``, ``"prv"`` or ``"moments"``.

    Returns:
        Epsilon, at least 0: 0 for an empty history, ``inf`` if a release had no noise.

    Raises:
        InvalidInputError: If a value is out of range.

    Example:
        >>> epsilon_spent([(1.0, 0.35, 60)], delta=29**-1.1, method="moments")
        15.17
        >>> epsilon_spent([(2.0, 0.35, 10), (1.0, 0.35, 50)], delta=29**-1.1) < 10
        True
        >>> epsilon_spent([], delta=1e-5)
        0.0
    """
    delta = checks.real("delta", delta, above=0.0, below=1.0)
    checks.choice("method", method, METHODS)
    charges = [_check_charge(entry) for entry in history]
    if any(multiplier < _MIN_MULTIPLIER and rounds for multiplier, _, rounds in charges):
        return math.inf
    groups = grouped((charge for charge in charges if charge[2]), _MAX_GROUPS)
    return max(0.0, METHODS[method](groups, delta)) if groups else 0.0


def _check_charge(entry: tuple[float, float, int]) -> Charge:
    try:
        multiplier, rate, rounds = entry
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"history must hold triples (noise_multiplier, sample_rate, num_rounds), got {entry!r}."
        ) from None
    return (
        checks.real("noise_multiplier", multiplier, minimum=0.0, below=math.inf),
        checks.real("sample_rate", rate, above=0.0, maximum=1.0),
        checks.integer("num_rounds", rounds),
    )
