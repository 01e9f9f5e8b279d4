"""How much each agent counts in each sub-region, round by round: public, data-independent."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_dpfts import checks
from torch_dpfts.spec import FederationSpec


def region_score(spec: FederationSpec, round: int) -> float:
    """Score a_t of the agents assigned to a region in ``round``, against 1 for all others.

    It is held at ``spec.region_score`` for ``spec.region_hold`` rounds, then falls linearly and
    is 1 from round ``spec.region_hold + spec.region_decay`` on (distributed exploration,
    [Dai2021]_ section 3.2 and appendix on experiments).

    Raises:
        InvalidInputError: If ``round`` is not an integer of at least 1.
    """
    elapsed = checks.integer("round", round, minimum=1) - spec.region_hold
    remaining = 1.0 - min(max(elapsed / spec.region_decay, 0.0), 1.0)
    return 1.0 + (spec.region_score - 1.0) * remaining


def region_weights(spec: FederationSpec, round: int, dtype: torch.dtype = torch.float64) -> Tensor:
    r"""Return the weights phi of every agent in every sub-region, a ``P x N`` tensor.

    Row ``i`` is the softmax over agents of ``a_t`` for the agents assigned to region ``i``
    (agent ``n`` is assigned to region ``n mod P``) and of 1 for all others; it sums to 1.

    Args:
        spec: The federation.
        round: Number of the round, from 1.
        dtype: A floating dtype.

    Raises:
        InvalidInputError: If ``round`` is not an integer of at least 1.

    Example:
        >>> spec = FederationSpec.fts_de(
        ...     bounds=[[0.0], [1.0]], num_agents=4, num_rounds=40, num_regions=2)
        >>> region_weights(spec, 40)[0].tolist()
        [0.25, 0.25, 0.25, 0.25]
        >>> bool(region_weights(spec, 1)[0, 1] < 1e-6)
        True
    """
    scores = torch.ones(spec.num_regions, spec.num_agents, dtype=dtype)
    agents = torch.arange(spec.num_agents)
    scores[agents % spec.num_regions, agents] = region_score(spec, round)
    return torch.softmax(scores, dim=-1)
