"""Simulation of whole federations in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from torch_dpfts import checks
from torch_dpfts.errors import InvalidInputError, PrivacyBudgetExceeded
from torch_dpfts.fleet import Fleet, agent_seed
from torch_dpfts.messages import Contribution, to_wire
from torch_dpfts.server import Server
from torch_dpfts.spec import FederationSpec

Objective = Callable[[Tensor, Tensor], Tensor]
NO_SHARING = "nothing shared"
# Agents worked on together: enough to hide Python's overhead, few enough for the cache ...
_FLEET_SIZE = 512
# ... and at most so many numbers in their covariances.
_FLEET_NUMBERS = 2**23


@dataclass(frozen=True, eq=False)
class FederationResult:
    """One simulated run.

    Args:
        spec: The federation.
        seed: The run's seed.
        num_initial: Initial points of each agent.
        X: All queries, ``N x n x d``.
        Y: Their outcomes, ``N x n x 1``.
        epsilon: Privacy spent at ``spec.delta``: 0 without sharing, infinite without noise.
        privacy: ``"seeded: not private"``, or that nothing was shared.
        stopped_by_budget: Whether the privacy budget ended the run before ``num_rounds``.
    """

    spec: FederationSpec
    seed: int
    num_initial: int
    X: Tensor
    Y: Tensor
    epsilon: float
    privacy: str
    stopped_by_budget: bool

    @property
    def best_values(self) -> Tensor:
        """Best outcome of each agent after each round, ``(rounds + 1) x N``, round 0 first."""
        best = self.Y.squeeze(-1).cummax(dim=-1).values
        return best[:, self.num_initial - 1 :].mT


def run_federation(
    spec: FederationSpec,
    objective: Objective,
    seed: int = 0,
    *,
    num_initial: int = 10,
    progress: bool | Callable[[int], None] = True,
    device: torch.device | str | None = None,
) -> FederationResult:
    """Simulate one run of a federation.

    Each round, the agents contribute, the server broadcasts, and every agent queries one
    point. Simulations are seeded and hence not private.

    Args:
        spec: The federation.
        objective: Maps inputs ``b x n x d`` and agent ids ``b`` to outcomes ``b x n x 1``, to
            be maximised; see :class:`torch_dpfts.problems.PerAgent` for a list of functions.
        seed: Seed of agents and server.
        num_initial: Initial points of each agent, in its own sub-region.
        progress: Whether to show a progress bar, or a function called after each round with
            its number.
        device: Where agents and server compute.

    Raises:
        InvalidInputError: If an argument is out of range or the objective returns outcomes of
            another shape, or outcomes that are not finite.

    Example:
        >>> spec = FederationSpec.fts(
        ...     bounds=[[0.0, 0.0], [1.0, 1.0]], num_agents=3, num_rounds=2)
        >>> result = run_federation(
        ...     spec, lambda X, agent_ids: -X.square().sum(-1, keepdim=True), progress=False)
        >>> result.best_values.shape
        torch.Size([3, 3])
    """
    return run_federations(
        spec, objective, [seed], num_initial=num_initial, progress=progress, device=device
    )[0]


def run_federations(
    spec: FederationSpec,
    objective: Objective | Sequence[Objective],
    seeds: Sequence[int],
    *,
    num_initial: int = 10,
    progress: bool | Callable[[int], None] = True,
    device: torch.device | str | None = None,
) -> list[FederationResult]:
    """Simulate one run for each seed, all advancing together as one batch of agents.

    Arguments and errors are those of :func:`run_federation`, but for ``objective``: one for all
    seeds, or one for each. An objective sees at most a few hundred agents in a call: large batches
    are worked on in parts, so that memory grows with the observations alone.
    """
    checks.integer("num_initial", num_initial, minimum=1)
    seeds = [checks.integer("seed", seed) for seed in seeds]
    objectives = [objective] * len(seeds) if callable(objective) else list(objective)
    if len(objectives) != len(seeds):
        raise InvalidInputError(
            f"objective must be one function or one for each of {len(seeds)} seeds, got "
            f"{len(objectives)}."
        )
    fleets = _fleets(spec, seeds, num_initial + spec.num_rounds, device)
    servers = [Server(spec, seed, device=device) for seed in seeds]
    runs = torch.arange(len(seeds)).repeat_interleave(spec.num_agents)
    parts = list(zip(fleets, runs.split([len(fleet) for fleet in fleets]), strict=True))
    for fleet, run in parts:
        X = fleet.initial_points(num_initial)
        fleet.observe(X, _evaluate(objectives, run, X, fleet.agent_ids))
    stopped = False
    with _reporter(progress, spec.num_rounds) as report:
        for round in range(1, spec.num_rounds + 1):
            try:
                vectors = _exchange(spec, fleets, servers, round) if spec.shares else None
            except PrivacyBudgetExceeded:
                stopped = True
                break
            for fleet, run in parts:
                X = fleet.suggest(None if vectors is None else vectors[run], round)
                fleet.observe(X, _evaluate(objectives, run, X, fleet.agent_ids))
            report(round)
    X = torch.cat([fleet.X for fleet in fleets])
    Y = torch.cat([fleet.Y for fleet in fleets])
    outcomes = zip(seeds, servers, X.chunk(len(seeds)), Y.chunk(len(seeds)), strict=True)
    return [
        FederationResult(
            spec=spec,
            seed=seed,
            num_initial=num_initial,
            X=X,
            Y=Y,
            epsilon=server.epsilon(),
            privacy=server.noise_description if spec.shares else NO_SHARING,
            stopped_by_budget=stopped,
        )
        for seed, server, X, Y in outcomes
    ]


def _fleets(
    spec: FederationSpec,
    seeds: Sequence[int],
    num_observations: int,
    device: torch.device | str | None,
) -> list[Fleet]:
    """All agents of all runs, in fleets small enough that memory stays bounded."""
    size = max(min(_FLEET_SIZE, _FLEET_NUMBERS // num_observations**2), 1)
    places = [(n, agent_seed(seed, n)) for seed in seeds for n in range(spec.num_agents)]
    parts = [places[i : i + size] for i in range(0, len(places), size)]
    return [Fleet(spec, [n for n, _ in part], [seed for _, seed in part], device) for part in parts]


def _exchange(
    spec: FederationSpec, fleets: Sequence[Fleet], servers: Sequence[Server], round: int
) -> Tensor:
    """One round of messages in every run; the broadcasts, ``runs x P x M``."""
    vectors = torch.cat([fleet.contribute(round) for fleet in fleets])
    stacks = to_wire(spec, vectors).chunk(len(servers))
    broadcasts = [
        server.round(
            Contribution(spec.fingerprint, n, round, vector) for n, vector in enumerate(stack)
        )
        for server, stack in zip(servers, stacks, strict=True)
    ]
    return torch.stack([broadcast.vectors for broadcast in broadcasts]).to(vectors)


def _evaluate(objectives: Sequence[Objective], run: Tensor, X: Tensor, agent_ids: Tensor) -> Tensor:
    """Evaluate the points of a fleet's agents, each with the objective of its run."""
    if all(objective is objectives[0] for objective in objectives):
        return _checked(objectives[0](X, agent_ids), X)
    rows = [run == i for i in run.unique().tolist()]
    outcomes = [
        _checked(objectives[int(run[mine][0])](X[mine], agent_ids[mine]), X[mine]) for mine in rows
    ]
    return torch.cat(outcomes)  # a fleet holds its runs one after the other


def _checked(Y: Tensor, X: Tensor) -> Tensor:
    expected = (*X.shape[:-1], 1)
    if not isinstance(Y, Tensor) or Y.shape != expected:
        shape = tuple(Y.shape) if isinstance(Y, Tensor) else type(Y).__name__
        raise InvalidInputError(
            f"The objective must return a tensor of shape {expected}, got {shape}."
        )
    return checks.finite("The objective's outcomes", Y.detach().to(X))


@contextmanager
def _reporter(
    progress: bool | Callable[[int], None], num_rounds: int
) -> Iterator[Callable[[int], None]]:
    if callable(progress):
        yield progress
    elif progress:
        from rich.progress import Progress

        with Progress() as bar:
            task = bar.add_task("rounds", total=num_rounds)
            yield lambda round: bar.update(task, completed=round)
    else:
        yield lambda round: None
