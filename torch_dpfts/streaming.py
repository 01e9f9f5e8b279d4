"""A round's sum, taken in as contributions arrive.

The server holds the sum, one chunk and a mark for each agent, whatever the number of agents.
Parts of a cohort may be summed in other processes: see :meth:`RoundStream.add_sum`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import torch
from torch import Tensor

from torch_dpfts.errors import InvalidInputError
from torch_dpfts.messages import Contribution
from torch_dpfts.privacy.adaptive_clip import clip_votes
from torch_dpfts.privacy.mechanism import NoisyRegionAggregator
from torch_dpfts.spec import FederationSpec

_CHUNK = 1024  # Messages that are held before they are summed.


class RoundStream:
    """A round that has begun; :meth:`torch_dpfts.Server.begin_round` makes it.

    Nothing here is private before :meth:`torch_dpfts.Server.finish_round` has added the noise.

    Args:
        spec: The federation.
        aggregator: What sums the vectors.
        round: The round's number.
        cohort: Which agents were drawn, ``N`` bools.
        device: Where vectors are summed.
        clip_norm: S in this round if the federation adapts it; else ``None``.

    Attributes:
        round: The round's number.
        cohort: Which agents were drawn.
        statuses: How many messages were accepted or refused, and why.
        refused: The agents whose message counts as zero, with the reason.
        total: The sum so far, ``P x M``.
        votes: With an adaptive clip norm, how many vectors so far were within their bound, less
            those beyond it.
    """

    def __init__(
        self,
        spec: FederationSpec,
        aggregator: NoisyRegionAggregator,
        round: int,
        cohort: Tensor,
        device: torch.device | str = "cpu",
        clip_norm: float | None = None,
    ) -> None:
        self.spec = spec
        self.clip_norm = clip_norm
        self.votes = 0
        self.round = round
        self.cohort = cohort
        self.refused: list[tuple[int, str]] = []
        self.total = aggregator.partial_sum(round, [], clip_norm).to(device)
        self._aggregator = aggregator
        self._device = device
        self._accepted = torch.zeros(spec.num_agents, dtype=torch.bool)

    @property
    def statuses(self) -> dict[str, int]:
        """Messages by status; ``"lost"`` are those that have not come."""
        accepted = int(self._accepted.sum())
        counts = Counter(accepted=accepted, lost=self.spec.num_agents - accepted)
        counts.update(status for _, status in self.refused)
        return dict(counts)

    def add(self, contributions: Iterable[Contribution]) -> None:
        """Take in messages; those that are malformed, stale or repeated count as zero."""
        ids: list[int] = []
        vectors: list[Tensor] = []
        for message in contributions:
            status = self._fault(message)
            if status is not None:
                self.refused.append((message.agent_id, status))
                continue
            self._accepted[message.agent_id] = True
            if self.cohort[message.agent_id]:
                ids.append(message.agent_id)
                vectors.append(message.vector.detach().to(self._device, self.spec.torch_dtype))
            if len(ids) == _CHUNK:
                self._sum(torch.tensor(ids), torch.stack(vectors))
                ids, vectors = [], []
        if ids:
            self._sum(torch.tensor(ids), torch.stack(vectors))

    def add_chunk(self, agent_ids: Tensor, vectors: Tensor) -> None:
        """Take in the vectors of many agents at once, as a transport that checks them has them.

        Vectors of agents that were not drawn are passed over; one that is not finite or of an
        agent that has already sent counts as zero.

        Args:
            agent_ids: ``n`` integers.
            vectors: ``n x M``.

        Raises:
            InvalidInputError: If a shape or an id is wrong; the sum is as before then.
        """
        spec = self.spec
        if vectors.ndim != 2 or vectors.shape != (len(agent_ids), spec.num_features):
            raise InvalidInputError(
                f"vectors must have shape {(len(agent_ids), spec.num_features)}, got "
                f"{tuple(vectors.shape)}."
            )
        ids = agent_ids.detach().to("cpu", torch.int64)
        outside = ids[(ids < 0) | (ids >= spec.num_agents)]
        if len(outside):
            raise InvalidInputError(
                f"agent_ids must lie in 0..{spec.num_agents - 1}, got {int(outside[0])}."
            )
        ordered, order = ids.sort(stable=True)
        repeated = self._accepted[ids]
        repeated[order[1:]] |= ordered[1:] == ordered[:-1]
        # A sum is finite if all its terms are, and is much quicker to look at.
        finite = vectors.sum(-1).isfinite().cpu()
        finite[~finite] = vectors[~finite.to(vectors.device)].isfinite().all(-1).cpu()
        for status, wrong in (("duplicate", repeated), ("non-finite", ~repeated & ~finite)):
            self.refused += [(n, status) for n in ids[wrong].tolist()]
        good = finite & ~repeated
        self._accepted[ids[good]] = True
        good &= self.cohort[ids]
        if not good.all():
            ids, vectors = ids[good], vectors[good.to(vectors.device)]
        self._sum(ids, vectors.detach().to(self._device))

    def add_sum(self, total: Tensor, agent_ids: Tensor, votes: int | None = None) -> None:
        """Take in the sum of a part of the cohort that another process has made.

        That process calls ``NoisyRegionAggregator(spec).partial_sum(round, chunks)`` with the
        vectors of drawn agents. Sums are exact integers if the federation is private, so that
        the release is the same bit for bit however the work was divided, and the noise is
        added once, to the whole.

        Args:
            total: What ``partial_sum`` returned, ``P x M``.
            agent_ids: Whose vectors it holds, ``n`` distinct integers.
            votes: What :func:`~torch_dpfts.privacy.clip_votes` returned for them; needed if and
                only if the clip norm is adaptive.

        Raises:
            InvalidInputError: If the sum is of another kind, or an agent was not drawn or has
                been counted already.
        """
        if total.shape != self.total.shape or total.dtype != self.total.dtype:
            raise InvalidInputError(
                f"total must be a result of partial_sum of shape {tuple(self.total.shape)}, got "
                f"{tuple(total.shape)} and {total.dtype}."
            )
        if (votes is None) is not (self.clip_norm is None):
            raise InvalidInputError(
                f"votes must be given if and only if the clip norm is adaptive, got {votes}."
            )
        ids = agent_ids.detach().to("cpu", torch.int64)
        if len(ids.unique()) < len(ids) or self._accepted[ids].any():
            raise InvalidInputError("agent_ids must name agents that have not been counted yet.")
        if not self.cohort[ids].all():
            raise InvalidInputError("agent_ids must name agents of the round's cohort only.")
        self._accepted[ids] = True
        self.total += total.to(self.total.device)
        self.votes += votes or 0

    def _sum(self, ids: Tensor, vectors: Tensor) -> None:
        if len(ids):
            self.total += self._aggregator.partial_sum(self.round, [(ids, vectors)], self.clip_norm)
            if self.clip_norm is not None:
                self.votes += clip_votes(self.spec, self.clip_norm, vectors)

    def _fault(self, message: Contribution) -> str | None:
        spec = self.spec
        if message.fingerprint != spec.fingerprint:
            return "wrong fingerprint"
        if not 0 <= message.agent_id < spec.num_agents:
            return "unknown agent"
        if message.round != self.round:
            return "stale"
        if message.vector.shape != (spec.num_features,):
            return "wrong shape"
        if not message.vector.isfinite().all():
            return "non-finite"
        return "duplicate" if self._accepted[message.agent_id] else None
