"""A site: its training function, its trials and its agent."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cloudpickle
import torch

from torch_dpfts import checks
from torch_dpfts.agent import Agent
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.fleet import agent_seed
from torch_dpfts.messages import Broadcast, Contribution
from torch_dpfts.rng import fresh_seed
from torch_dpfts.spec import FederationSpec
from torch_dpfts.tune.space import ParameterSpace
from torch_dpfts.tune.stopping import StoppingRule
from torch_dpfts.tune.store import TrialStore
from torch_dpfts.tune.trial import Outcome, Trial, TrialState
from torch_dpfts.tune.worker import Task, TrainFn


class Site:
    """What one site brings to a federation: a search space and a training function.

    ``train_fn(config, report)`` trains with the configuration, a dictionary, and returns the
    score. It may call ``report(value)`` after each epoch, so that a stopping rule can end the
    trial. It runs in a process of its own: whatever it raises, returns or does to that process,
    the site goes on. Functions of a notebook and lambdas are fine.

    Args:
        space: The hyperparameters; equal at all sites.
        train_fn: The training function.
        agent_id: The site's place on the roster, from 0.
        minimize: Whether small scores are good, as for a loss.
        time_limit: Seconds after which a trial is ended.
        stopping: When to end a trial early: :class:`MedianRule`, :class:`SuccessiveHalving`, or
            anything with their method.

    Raises:
        InvalidInputError: If an argument is of the wrong kind or cannot go to a process.

    Example:
        >>> space = ParameterSpace({"lr": (0.0, 1.0)})
        >>> site = Site(space, lambda config, report: config["lr"], agent_id=0)
        >>> site.agent_id
        0
    """

    def __init__(
        self,
        space: ParameterSpace,
        train_fn: TrainFn,
        agent_id: int,
        *,
        minimize: bool = False,
        time_limit: float | None = None,
        stopping: StoppingRule | None = None,
    ) -> None:
        if not isinstance(space, ParameterSpace):
            raise InvalidInputError(f"space must be a ParameterSpace, got {space!r}.")
        if not callable(train_fn):
            raise InvalidInputError(f"train_fn must be callable, got {train_fn!r}.")
        self.space = space
        self.agent_id = checks.integer("agent_id", agent_id)
        self.minimize = bool(minimize)
        self.time_limit = time_limit and checks.real("time_limit", time_limit, above=0.0)
        self.stopping = stopping
        try:
            self._train_fn = cloudpickle.dumps(train_fn)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise InvalidInputError(
                f"train_fn of agent {agent_id} cannot be sent to a process ({error}); open files, "
                "locks and connections inside it."
            ) from None

    def task(self, config: Mapping[str, Any], earlier: list[Trial]) -> Task:
        """What a process needs to run a configuration."""
        curves = tuple(t.outcome.reports for t in earlier if t.state.has_score)
        return Task(self._train_fn, config, self.minimize, self.stopping, curves, self.time_limit)


class Tuner:
    """A site at work in a federation: proposes trials, records them and makes messages.

    All it knows is in the store, so that it goes on after a crash as if it had never stopped.

    Args:
        site: The site.
        spec: The federation.
        path: File of the trials, made if there is none; ``None`` keeps them in memory.
        seed: Seed of the federation's run; ``None`` takes one from the operating system.

    Raises:
        InvalidInputError: If the specification was made for another space.
        StateError: If the file belongs to another site, federation or seed.
    """

    def __init__(
        self,
        site: Site,
        spec: FederationSpec,
        path: str | Path | None = None,
        seed: int | None = None,
    ) -> None:
        if spec.space != site.space.to_json():
            raise InvalidInputError(
                f"spec.space is {spec.space!r} and the space of agent {site.agent_id} is "
                f"{site.space.to_json()!r}; make the specification with **space.spec_fields()."
            )
        self.site, self.spec = site, spec
        identity = {
            "fingerprint": spec.fingerprint,
            "agent_id": site.agent_id,
            "minimize": site.minimize,
        }
        if seed is not None:
            identity["seed"] = agent_seed(seed, site.agent_id)
        self._store = TrialStore(path, identity)
        self._seed = self._store.setting("seed", fresh_seed())
        self._agent: Agent | None = None

    @property
    def trials(self) -> list[Trial]:
        """The site's trials, in order."""
        return self._store.trials()

    def initial_trials(self, n: int) -> list[Trial]:
        """The trials before the first broadcast that have no outcome yet; made when first asked.

        Fewer than ``n`` if the space has no more configurations.
        """
        trials = [trial for trial in self.trials if trial.round == 0]
        if not trials:
            points = Agent(self.spec, self.site.agent_id, self._seed).initial_points(n)
            for x in points:
                trial = self._propose(0, x)
                trials += [] if trial is None else [trial]
        return [trial for trial in trials if trial.state == TrialState.RUNNING]

    def next_trial(self, round: int, broadcast: Broadcast | None = None) -> Trial | None:
        """The trial of a round, or ``None`` if it has an outcome or nothing is left to try."""
        for trial in self.trials:
            if trial.round == round:
                return trial if trial.state == TrialState.RUNNING else None
        return self._propose(round, self.agent().suggest(broadcast).squeeze(0))

    def _propose(self, round: int, x: torch.Tensor) -> Trial | None:
        tried = {trial.x for trial in self.trials}
        point = self.site.space.nearest_untried(x, tried)
        if point is None:
            return None
        return self._store.add(round, self.site.space.decode(point), tuple(point.tolist()))

    def task(self, trial: Trial) -> Task:
        """What a process needs to run a trial."""
        return self.site.task(trial.config, self.trials)

    def record(self, number: int, outcome: Outcome) -> None:
        """Record how a trial ended."""
        self._store.finish(number, outcome)
        self._agent = None

    def contribute(self, round: int) -> Contribution:
        """The message for a round, the only thing that leaves the site."""
        return self.agent().contribute(round)

    def agent(self) -> Agent:
        """The agent, with all trials that ended.

        One without a score counts like the worst that has one, so that its surroundings are
        avoided. That may change what earlier trials count for, hence the agent is made anew.
        """
        if self._agent is None:
            self._agent = Agent(self.spec, self.site.agent_id, self._seed)
            ended = [trial for trial in self.trials if trial.state != TrialState.RUNNING]
            sign = -1.0 if self.site.minimize else 1.0
            scores = [None if t.score is None else sign * t.score for t in ended]
            worst = min((score for score in scores if score is not None), default=0.0)
            Y = [worst if score is None else score for score in scores]
            X = torch.tensor([t.x for t in ended], dtype=torch.float64)
            self._agent.observe(
                X.reshape(-1, self.spec.dim), torch.tensor(Y, dtype=torch.float64).unsqueeze(-1)
            )
        return self._agent

    def close(self) -> None:
        """Close the store."""
        self._store.close()
