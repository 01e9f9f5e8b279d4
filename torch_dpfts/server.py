"""The trusted server: draws cohorts, aggregates, accounts, and remembers.

A round is recorded in the privacy ledger before its broadcast is computed, and the broadcast
is saved before it is returned. Whatever the moment of a crash, every release is in the ledger,
and a broadcast that may have left is repeated, never drawn anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from torch_dpfts import checks
from torch_dpfts.averaging import averaging_gain
from torch_dpfts.clip_state import ClipState
from torch_dpfts.errors import (
    DPFTSError,
    FingerprintMismatchError,
    PrivacyBudgetExceeded,
    StateError,
)
from torch_dpfts.files import read_state, write_atomically
from torch_dpfts.messages import Broadcast, Contribution, to_wire
from torch_dpfts.privacy.accounting import epsilon_spent
from torch_dpfts.privacy.adaptive_clip import next_clip_norm
from torch_dpfts.privacy.ledger import PrivacyLedger
from torch_dpfts.privacy.mechanism import NoisyRegionAggregator
from torch_dpfts.privacy.noise import NoiseSource, SecureNoise, SeededNoise
from torch_dpfts.privacy.sensitivity import charged_sensitivity, planned_charges, round_charge
from torch_dpfts.spec import FederationSpec
from torch_dpfts.streaming import RoundStream


@dataclass(frozen=True)
class RoundDiagnostics:
    """What the server's owner may know of a round. Not private: never publish it.

    Args:
        round: The round's number.
        statuses: How many messages were ``"accepted"``, ``"lost"``, ``"duplicate"``,
            ``"stale"``, ``"wrong shape"``, ``"non-finite"``, ``"wrong fingerprint"`` or from
            an ``"unknown agent"``.
        refused: The agents whose message counted as zero, with the status of each.
        cohort: The agents drawn.
    """

    round: int
    statuses: dict[str, int]
    refused: tuple[tuple[int, str], ...]
    cohort: tuple[int, ...]

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {status}" for status, count in self.statuses.items())
        return f"not private: round {self.round}: {counts}; cohort of {len(self.cohort)}"


class Server:
    """The server of one federation (algorithm 2 of [Dai2021]_).

    Args:
        spec: The federation.
        seed: ``None`` takes cohorts and noise from the operating system's entropy. A number
            makes them reproducible, for experiments: such a run is not private.
        directory: Where ledger and broadcasts are kept; ``None`` keeps them in memory. A
            directory that already holds a federation is refused: use :meth:`load`.
        device: Where vectors are summed; messages and broadcasts are on the CPU.

    Raises:
        StateError: If the directory already holds a federation.

    Example:
        >>> from torch_dpfts import Agent
        >>> spec = FederationSpec.dp_fts(
        ...     bounds=[[0.0], [1.0]], num_agents=4, num_rounds=2,
        ...     sample_rate=0.5, noise_multiplier=2.0, clip_norm=3.0, delta=1e-5)
        >>> server = Server(spec)
        >>> broadcast = server.round([Agent(spec, n).contribute(round=1) for n in range(4)])
        >>> broadcast.round, tuple(broadcast.vectors.shape), server.epsilon() > 0
        (1, (1, 64), True)
    """

    def __init__(
        self,
        spec: FederationSpec,
        seed: int | None = None,
        directory: str | Path | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        self.spec = spec
        self.seed = None if seed is None else checks.integer("seed", seed)
        self.diagnostics: list[RoundDiagnostics] = []
        self._noise: NoiseSource = SecureNoise() if seed is None else SeededNoise(seed)
        self._aggregator = NoisyRegionAggregator(spec)
        self._device = "cpu" if device is None else device
        self._directory = None if directory is None else Path(directory)
        self._last: Broadcast | None = None
        self._clip = ClipState.first(spec)
        if self._directory is not None:
            if (self._directory / "server.json").exists():
                raise StateError(
                    f"{str(directory)!r} already holds a federation; go on with "
                    "Server.load or choose an empty directory."
                )
            self._directory.mkdir(parents=True, exist_ok=True)
            state = {"spec": json.loads(spec.to_json()), "seed": self.seed}
            self.ledger = PrivacyLedger(self._directory / "ledger.jsonl")
            write_atomically(self._directory / "server.json", json.dumps(state).encode())
        else:
            self.ledger = PrivacyLedger()

    @classmethod
    def load(cls, directory: str | Path, device: torch.device | str | None = None) -> Server:
        """Go on with the federation in a directory, after a stop or a crash.

        Raises:
            StateError: If there is none, or its files are damaged.
            LedgerError: If the ledger was edited or another process holds it.
        """
        path = Path(directory)
        try:
            state = json.loads(read_state(path / "server.json"))
            spec = FederationSpec.from_json(json.dumps(state["spec"]))
            server = cls(spec, state["seed"], device=device)
        except (ValueError, KeyError, TypeError) as error:
            raise StateError(f"The server's state in {str(path)!r} is damaged: {error}.") from None
        server.ledger = PrivacyLedger(path / "ledger.jsonl")
        try:
            server._directory = path
            if (path / "broadcast.bin").exists():
                server._last = Broadcast.from_bytes(read_state(path / "broadcast.bin"))
            if server._clip is not None and (path / "clip.json").exists():
                server._clip = ClipState.from_json(read_state(path / "clip.json"))
            server._check_consistency()
        except DPFTSError:
            server.close()
            raise
        return server

    def _check_consistency(self) -> None:
        """Refuse files that do not belong together, such as parts of different backups."""
        prints = {entry.fingerprint for entry in self.ledger.entries}
        prints |= set() if self._last is None else {self._last.fingerprint}
        for fingerprint in prints - {self.spec.fingerprint}:
            raise FingerprintMismatchError(
                f"The directory's specification has fingerprint {self.spec.fingerprint}, its "
                f"ledger or broadcast {fingerprint}; restore all files of one federation."
            )
        released = self.next_round - 1
        if len(self.ledger) not in (released, released + 1):
            raise StateError(
                f"The ledger has {len(self.ledger)} rounds and {released} were broadcast; restore "
                "ledger.jsonl, ledger.jsonl.head and broadcast.bin together."
            )

    def close(self) -> None:
        """Let go of the ledger's file, so that another process may load the federation."""
        self.ledger.close()

    @property
    def noise_description(self) -> str:
        """Where noise and cohorts come from; ``"seeded: not private"`` if they are seeded."""
        return self._noise.description

    @property
    def last_broadcast(self) -> Broadcast | None:
        """The newest broadcast, for agents that missed it; repeating it costs nothing."""
        return self._last

    @property
    def next_round(self) -> int:
        """Number of the round that :meth:`round` would run."""
        return 1 if self._last is None else self._last.round + 1

    def epsilon(self, delta: float | None = None, method: str | None = None) -> float:
        """Upper bound on the privacy spent so far.

        Args:
            delta: The delta; ``None`` takes the specification's.
            method: The accountant; ``None`` takes the specification's.
        """
        return self.ledger.epsilon(
            self.spec.delta if delta is None else delta,
            self.spec.accountant if method is None else method,
        )

    def round(self, contributions: Iterable[Contribution]) -> Broadcast:
        """Run one round.

        A message that is lost, late, malformed or a duplicate counts as the zero vector and
        changes nothing else; ``diagnostics`` tells the owner. Messages are summed as they come
        and are not kept, so an iterator over any number of agents will do.

        Args:
            contributions: What arrived, at most one message for each agent and this round.

        Returns:
            The broadcast, after it was recorded and saved.

        Raises:
            PrivacyBudgetExceeded: If all rounds are done or the target epsilon would be
                exceeded; nothing is released then.
        """
        stream = self.begin_round()
        stream.add(contributions)
        return self.finish_round(stream)

    def begin_round(self) -> RoundStream:
        """Draw the cohort of the next round, whose contributions may then come in any parts.

        Raises:
            PrivacyBudgetExceeded: As for :meth:`round`.

        Example:
            >>> spec = FederationSpec.dp_fts(
            ...     bounds=[[0.0], [1.0]], num_agents=1000, num_rounds=2,
            ...     sample_rate=0.5, noise_multiplier=2.0, clip_norm=3.0)
            >>> server = Server(spec)
            >>> stream = server.begin_round()
            >>> for ids in torch.arange(1000).split(100):
            ...     stream.add_chunk(ids, torch.ones(100, 64, dtype=torch.float64))
            >>> server.finish_round(stream).vectors.shape
            torch.Size([1, 64])
        """
        self.check_budget()
        number = self.next_round
        cohort = self._noise.coins(number, self.spec.num_agents, self.spec.sample_rate)
        clip_norm = None if self._clip is None else self._clip.of_round(number)
        return RoundStream(self.spec, self._aggregator, number, cohort, self._device, clip_norm)

    def finish_round(self, stream: RoundStream) -> Broadcast:
        """Record the round, add the noise to its sum, save and return the broadcast.

        Raises:
            StateError: If the stream is of another round, for one because it was finished.
            PrivacyBudgetExceeded: As for :meth:`round`.
        """
        number = self.next_round
        if stream.round != number:
            raise StateError(
                f"The stream is of round {stream.round} and the next round is {number}; "
                "begin a new one."
            )
        self.check_budget()
        self._record(number)
        vectors = to_wire(self.spec, self._release(stream))
        broadcast = Broadcast(self.spec.fingerprint, number, vectors)
        self._adapt_clip(stream)
        if self._directory is not None:
            write_atomically(self._directory / "broadcast.bin", broadcast.to_bytes())
        self._last = broadcast
        drawn = tuple(stream.cohort.nonzero().squeeze(-1).tolist())
        self.diagnostics.append(
            RoundDiagnostics(number, stream.statuses, tuple(stream.refused), drawn)
        )
        return broadcast

    def check_budget(self) -> None:
        """Refuse a round that may not be run, before anybody is asked to contribute to it.

        Raises:
            PrivacyBudgetExceeded: If all rounds are done or the target epsilon would be
                exceeded.
        """
        spec, number = self.spec, self.next_round
        if number > spec.num_rounds:
            raise PrivacyBudgetExceeded(
                f"All {spec.num_rounds} planned rounds are done; agents go on with the last "
                "broadcast or alone."
            )
        if spec.target_epsilon is None or number in self.ledger:
            return
        if len(self.ledger) == number - 1 and self._lasts:  # and no other release is recorded
            return
        charge = round_charge(spec, number)
        if self.ledger.would_exceed(charge, spec.target_epsilon, spec.delta, spec.accountant):
            raise PrivacyBudgetExceeded(
                f"Round {number} would exceed target_epsilon={spec.target_epsilon} at "
                f"delta={spec.delta:.3g}; {self.epsilon():.4g} is spent. Agents go on with the "
                "last broadcast or alone."
            )

    @cached_property
    def _lasts(self) -> bool:
        """Whether the budget covers all planned rounds: then no single one need be accounted."""
        spec = self.spec
        spent = epsilon_spent(planned_charges(spec), spec.delta, spec.accountant)
        return spec.target_epsilon is None or spent <= spec.target_epsilon

    # --- pieces of a round --------------------------------------------------------------

    def _record(self, number: int) -> None:
        """Charge the round before it is released; a round that a crash cut off is charged once."""
        if number in self.ledger:
            return
        spec = self.spec
        self.ledger.append(
            round=number,
            sample_rate=spec.sample_rate,
            noise_multiplier=spec.noise_multiplier,
            kappa=charged_sensitivity(spec, number),
            fingerprint=spec.fingerprint,
            count_noise_multiplier=None if self._clip is None else spec.count_noise_multiplier,
        )

    def _release(self, stream: RoundStream) -> Tensor:
        release = self._aggregator.release(
            stream.round, stream.total, self._noise, stream.clip_norm
        )
        return self._averaged(stream.round, release.cpu())

    def _adapt_clip(self, stream: RoundStream) -> None:
        """Settle the next round's clip norm and save it before the broadcast."""
        if stream.clip_norm is None:
            return
        moved = next_clip_norm(self.spec, stream.round, stream.clip_norm, stream.votes, self._noise)
        self._clip = ClipState(stream.round, stream.clip_norm, moved)
        if self._directory is not None:
            write_atomically(self._directory / "clip.json", self._clip.to_json())

    def _averaged(self, number: int, release: Tensor) -> Tensor:
        if self._last is None or not self.spec.averaging:
            return release
        gain = averaging_gain(self._aggregator, number, self.spec.averaging).to(release)
        last = self._last.vectors.to(release)
        return last + gain.unsqueeze(-1) * (release - last)
