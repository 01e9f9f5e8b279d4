"""The long-lived process of a site: choose, evaluate, record, on its own schedule."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_dpfts.agent import Agent
from torch_dpfts.messages import Broadcast
from torch_dpfts.rng import fresh_seed
from torch_dpfts.site.calls import StoredSite
from torch_dpfts.site.config import SiteConfig
from torch_dpfts.site.evaluator import Evaluator
from torch_dpfts.site.local_socket import SocketServer
from torch_dpfts.site.store import SiteStore, Trial, read_progress
from torch_dpfts.spec import FederationSpec
from torch_dpfts.transport import max_broadcast_bytes

_MAX_FAILURES = 10
_IDLE_SECONDS = 1.0


class Searcher:
    """Chooses the site's points from its store.

    The agent is rebuilt from the trials in the order in which they ended, so that a restarted
    site chooses what it would have chosen anyway.

    Args:
        spec: The federation.
        agent_id: Place on the roster.
        seed: Root seed of the site's draws.
        store: The site's store.
        num_initial: Initial points.
    """

    def __init__(
        self, spec: FederationSpec, agent_id: int, seed: int, store: SiteStore, num_initial: int
    ) -> None:
        self.spec = spec
        self.num_initial = num_initial
        self._agent = Agent(spec, agent_id, seed)
        self._store = store
        self._observed = 0

    def choose(self) -> Sequence[float]:
        """The next point, ``d`` numbers in the user's units."""
        trials = self._store.trials()
        self._observe(trials)
        number = len(trials)
        if number < self.num_initial:
            return self._agent.initial_points(self.num_initial)[number].tolist()
        if trials and trials[-1].state == "failed":
            # The agent has learnt nothing from it and would choose the same point again.
            return self._agent.initial_points(self.num_initial + number)[0].tolist()
        data = self._store.last_broadcast(self.spec.fingerprint)
        broadcast = None if data is None else Broadcast.from_bytes(data)
        return self._agent.suggest(broadcast).squeeze(0).tolist()

    def _observe(self, trials: Sequence[Trial]) -> None:
        for trial in trials[self._observed :]:
            if trial.value is not None:
                X = torch.tensor([trial.point], dtype=self.spec.torch_dtype)
                self._agent.observe(X, torch.tensor([[trial.value]], dtype=self.spec.torch_dtype))
        self._observed = len(trials)


class Site:
    """Everything that ``dpfts site`` runs.

    Args:
        config: The site's configuration.
        working_directory: Where the objective runs, and is imported from.
        say: Called with a line for the site's own log. It may hold outcomes: keep it here.

    Raises:
        StateError: If the site's file is damaged, in use or belongs to another federation.
        InvalidInputError: If the configuration does not fit the specification.
    """

    def __init__(
        self,
        config: SiteConfig,
        working_directory: str = ".",
        say: Callable[[str], Any] = lambda line: None,
    ) -> None:
        self.config = config
        self.spec = spec = config.read_spec()
        self.stop = threading.Event()
        self._say = say
        identity = {
            "federation": spec.fingerprint,
            "agent_id": str(config.agent_id),
            "listener": str(config.listener),
        }
        seed = fresh_seed() if config.seed is None else config.seed
        self.store = SiteStore(config.database, identity, {"seed": str(seed)})
        try:
            seed = int(self.store.identity["seed"])
            self.calls = StoredSite(
                spec, config.agent_id, self.store, seed, config.listener, config.target_epsilon
            )
            self._searcher = Searcher(spec, config.agent_id, seed, self.store, config.num_initial)
            self._evaluator = Evaluator(
                config.objective, config.directory / "trials", working_directory, config.timeout
            )
            self._socket = SocketServer(config.socket_path, self.calls, max_broadcast_bytes(spec))
        except BaseException:
            self.store.close()
            raise

    def run(self) -> None:
        """Search and answer until ``stop`` is set.

        A site whose objective fails again and again stops searching and goes on answering.
        """
        try:
            failures = 0
            while not self.stop.is_set():
                trial = self._next_trial() if failures < _MAX_FAILURES else None
                if trial is None:
                    self.stop.wait(_IDLE_SECONDS)
                    continue
                failures = 0 if self._evaluate(trial) else failures + 1
                if failures == _MAX_FAILURES:
                    self._say(
                        f"the objective failed {failures} times in a row; see "
                        f"{self.config.directory / 'trials'}, mend it and restart"
                    )
        except InterruptedError:
            self._say("stopping; the evaluation under way goes on and is found again")
        finally:
            self._socket.close()
            self.store.close()

    def _next_trial(self) -> Trial | None:
        trial = self.store.pending()
        if trial is not None:
            return trial
        limit = self.config.max_trials
        if limit and len(self.store.trials()) >= limit:
            return None
        return self.store.choose(self._searcher.choose())

    def _evaluate(self, trial: Trial) -> bool:
        self._say(f"trial {trial.number}: {list(trial.point)}")
        value = self._evaluator.evaluate(trial.number, trial.point, self.stop)
        self.store.finish(trial.number, value)
        self._say(f"trial {trial.number}: {'failed' if value is None else value}")
        return value is not None


def summary(config: SiteConfig) -> str:
    """One line on how far a site is, also while it runs. For the site's owner only.

    Raises:
        StateError: If the site has not been started yet.
    """
    spec = config.read_spec()
    trials, rounds, received = read_progress(config.database, spec.fingerprint)
    values = [trial.value for trial in trials if trial.value is not None]
    best = f", best {max(values):.6g}" if values else ""
    return (
        f"{len(values)} of {len(trials)} trials done{best}; contributed to {rounds} rounds, "
        f"received {received} broadcasts of {spec.num_rounds}"
    )
