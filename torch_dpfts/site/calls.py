"""What a site answers to the world outside: exactly two calls."""

from __future__ import annotations

import torch

from torch_dpfts.errors import MessageError
from torch_dpfts.fleet import Fleet, agent_seed
from torch_dpfts.messages import Broadcast, Contribution, to_wire
from torch_dpfts.privacy.accounting import epsilon_spent
from torch_dpfts.privacy.sensitivity import round_charge
from torch_dpfts.protocol import Code, answer
from torch_dpfts.site.store import SiteStore
from torch_dpfts.spec import FederationSpec


class StoredSite:
    """The two calls of a site, answered from its store.

    A contribution is made from the trials that are done, kept, and only then handed out; a
    round asked again gets the same bytes. Neither call waits for the objective or for the
    site's own search. No exception leaves: it becomes a code.

    Args:
        spec: The federation.
        agent_id: Place on the roster.
        store: The site's store.
        seed: Root seed of the site's draws.
        listener: Whether the site only receives.
        target_epsilon: What the site itself is willing to spend, at the federation's delta,
            over the rounds it contributed to; then it listens. ``None`` for no limit of its
            own.
    """

    def __init__(
        self,
        spec: FederationSpec,
        agent_id: int,
        store: SiteStore,
        seed: int,
        listener: bool = False,
        target_epsilon: float | None = None,
    ) -> None:
        self.spec = spec
        self.agent_id = agent_id
        self.listener = listener
        self.target_epsilon = target_epsilon
        self._store = store
        self._seed = seed

    def contribution(self, round: int) -> bytes:
        """The site's message for a round, or a code."""
        try:
            return self._contribution(round)
        except Exception:
            return answer(Code.FAILED)

    def deliver(self, broadcast: bytes) -> bytes:
        """Keep a broadcast; another one for the same round is refused."""
        try:
            message = Broadcast.from_bytes(broadcast)
            if not self._fits(message):
                return answer(Code.REFUSED)
            kept = self._store.keep_broadcast(self.spec.fingerprint, message.round, broadcast)
        except MessageError:
            return answer(Code.REFUSED)
        except Exception:
            return answer(Code.FAILED)
        return answer(Code.OK if kept == broadcast else Code.REFUSED)

    def epsilon(self) -> float:
        """What the site has spent over the rounds it contributed to."""
        return self._epsilon(self._store.rounds_contributed(self.spec.fingerprint))

    def _epsilon(self, rounds: list[int]) -> float:
        history = [(*round_charge(self.spec, t), 1) for t in rounds]
        return epsilon_spent(history, self.spec.delta, self.spec.accountant)

    def _contribution(self, round: int) -> bytes:
        spec = self.spec
        if isinstance(round, bool) or not 1 <= round <= spec.num_rounds:
            return answer(Code.REFUSED)
        kept = self._store.contribution(spec.fingerprint, round)
        if kept is not None:
            return answer(Code.OK, kept)
        if self.listener or not self._can_afford(round):
            return answer(Code.LISTENING)
        made = self._make(round).to_bytes()
        return answer(Code.OK, self._store.keep_contribution(spec.fingerprint, round, made))

    def _can_afford(self, round: int) -> bool:
        if self.target_epsilon is None:
            return True
        rounds = self._store.rounds_contributed(self.spec.fingerprint)
        return self._epsilon([*rounds, round]) <= self.target_epsilon

    def _make(self, round: int) -> Contribution:
        # A fleet of its own: the one that searches may be busy, and waiting would take time
        # that tells the server what the site is doing.
        fleet = Fleet(self.spec, [self.agent_id], [agent_seed(self._seed, self.agent_id)])
        done = [trial for trial in self._store.trials() if trial.value is not None]
        fleet.X = fleet.X.new_tensor([trial.point for trial in done]).reshape(1, -1, self.spec.dim)
        fleet.Y = fleet.Y.new_tensor([trial.value for trial in done]).reshape(1, -1, 1)
        vector = to_wire(self.spec, fleet.contribute(round).squeeze(0))
        return Contribution(self.spec.fingerprint, self.agent_id, round, vector)

    def _fits(self, message: Broadcast) -> bool:
        spec = self.spec
        return (
            message.fingerprint == spec.fingerprint
            and 1 <= message.round <= spec.num_rounds
            and message.vectors.shape == (spec.num_regions, spec.num_features)
            and bool(torch.isfinite(message.vectors).all())
        )
