"""Tuning at several sites, which are processes of one machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from torch_dpfts import checks
from torch_dpfts.errors import InvalidInputError, PrivacyBudgetExceeded, StateError
from torch_dpfts.federation import NO_SHARING
from torch_dpfts.messages import Broadcast
from torch_dpfts.server import Server
from torch_dpfts.spec import FederationSpec
from torch_dpfts.tune.pool import TrialPool
from torch_dpfts.tune.result import TuneResult
from torch_dpfts.tune.site import Site, Tuner
from torch_dpfts.tune.trial import Trial, TrialState
from torch_dpfts.tune.worker import Task

OnTrial = Callable[[int, Trial], None]


def tune_across_sites(
    sites: Sequence[Site],
    spec: FederationSpec,
    *,
    num_initial: int = 3,
    directory: str | Path | None = None,
    seed: int | None = None,
    processes: int | None = None,
    progress: bool | OnTrial = True,
) -> TuneResult:
    """Tune the hyperparameters of all sites together.

    Each site first tries ``num_initial`` configurations of its own sub-region. Then, in each
    round, the sites contribute, the server broadcasts, and every site tries one configuration.
    Trials run in processes of their own, and what happens to one of them ends nothing else: a
    trial without a score is recorded with its cause, and the site goes on. A site that has
    tried all configurations of a finite space keeps contributing.

    The processes are started afresh (``spawn``), so a script calls this under
    ``if __name__ == "__main__":``.

    Args:
        sites: The sites, each with a place of its own on the roster; missing agents count as
            silent.
        spec: The federation, made with ``**space.spec_fields()``.
        num_initial: Initial trials of each site.
        directory: Where trials, budget and broadcasts are kept: a run that was interrupted goes
            on from there, without paying for a broadcast twice. ``None`` keeps them in memory.
        seed: Seed of agents and server, for experiments: a seeded run is not private. ``None``
            takes all draws from the operating system's entropy.
        processes: Trials at a time; ``None`` takes one for each core.
        progress: Whether to show a progress bar, or a function called after each trial with the
            agent's id and the trial.

    Returns:
        The trials of all sites and the privacy spent.

    Raises:
        InvalidInputError: If sites disagree on space or direction, share a place on the roster,
            or the specification was made for another space.
        StateError: If the directory belongs to another run.
    """
    _check_sites(sites, spec)
    checks.integer("num_initial", num_initial, minimum=1)
    with ExitStack() as stack:
        pool = stack.enter_context(TrialPool(processes))
        server = _open_server(spec, seed, directory) if spec.shares else None
        if server is not None:
            stack.callback(server.close)
        tuners = [_open_tuner(site, spec, seed, directory) for site in sites]
        for tuner in tuners:
            stack.callback(tuner.close)
        ended = sum(t.state != TrialState.RUNNING for tuner in tuners for t in tuner.trials)
        total = len(sites) * (num_initial + spec.num_rounds) - ended
        on_trial = stack.enter_context(_reporter(progress, total))
        first = [(t, trial) for t in tuners for trial in t.initial_trials(num_initial)]
        _run(pool, first, on_trial)
        stopped = False
        for round in range(1, spec.num_rounds + 1):
            try:
                broadcast = _broadcast(server, tuners, round)
            except PrivacyBudgetExceeded:
                stopped = True
                break
            _run(pool, _proposals(tuners, round, broadcast), on_trial)
        return TuneResult(
            spec=spec,
            space=sites[0].space,
            minimize=sites[0].minimize,
            trials={tuner.site.agent_id: tuner.trials for tuner in tuners},
            epsilon=server.epsilon() if server else 0.0,
            privacy=server.noise_description if server else NO_SHARING,
            charges=server.ledger.history() if server else [],
            stopped_by_budget=stopped,
        )


def _check_sites(sites: Sequence[Site], spec: FederationSpec) -> None:
    if not sites:
        raise InvalidInputError("sites must hold at least one site, got none.")
    ids = [site.agent_id for site in sites]
    if len(set(ids)) < len(ids) or max(ids) >= spec.num_agents:
        raise InvalidInputError(
            f"The sites' agent_id must differ and be below num_agents={spec.num_agents}, got {ids}."
        )
    if len({site.minimize for site in sites}) > 1:
        raise InvalidInputError("Some sites minimise and some maximise; make them agree.")


def _open_server(spec: FederationSpec, seed: int | None, directory: str | Path | None) -> Server:
    if directory is None:
        return Server(spec, seed)
    path = Path(directory) / "server"
    if not (path / "server.json").exists():
        return Server(spec, seed, path)
    server = Server.load(path)
    if (server.spec.fingerprint, server.seed) != (spec.fingerprint, seed):
        server.close()
        raise StateError(
            f"{str(path)!r} holds a federation with fingerprint {server.spec.fingerprint} and "
            f"seed {server.seed}, not {spec.fingerprint} and {seed}; choose another directory, or "
            "go on with its settings."
        )
    return server


def _open_tuner(
    site: Site, spec: FederationSpec, seed: int | None, directory: str | Path | None
) -> Tuner:
    if directory is None:
        return Tuner(site, spec, None, seed)
    Path(directory).mkdir(parents=True, exist_ok=True)
    return Tuner(site, spec, Path(directory) / f"site-{site.agent_id:03d}.sqlite", seed)


def _broadcast(server: Server | None, tuners: Sequence[Tuner], round: int) -> Broadcast | None:
    """The broadcast of a round, which a run that was interrupted may have received already."""
    if server is None:
        return None
    if server.next_round == round:
        return server.round([tuner.contribute(round) for tuner in tuners])
    last = server.last_broadcast
    return last if last is not None and last.round == round else None


def _proposals(
    tuners: Sequence[Tuner], round: int, broadcast: Broadcast | None
) -> Iterator[tuple[Tuner, Trial]]:
    for tuner in tuners:
        trial = tuner.next_trial(round, broadcast)
        if trial is not None:
            yield tuner, trial


def _run(
    pool: TrialPool,
    trials: Sequence[tuple[Tuner, Trial]] | Iterator[tuple[Tuner, Trial]],
    on_trial: OnTrial,
) -> None:
    def tasks() -> Iterator[tuple[tuple[Tuner, int], Task]]:
        for tuner, trial in trials:
            yield (tuner, trial.number), tuner.task(trial)

    for (tuner, number), outcome in pool.run(tasks()):
        tuner.record(number, outcome)
        on_trial(tuner.site.agent_id, tuner.trials[number])


@contextmanager
def _reporter(progress: bool | OnTrial, total: int) -> Iterator[OnTrial]:
    if callable(progress):
        yield progress
    elif progress:
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True)) as bar:
            task = bar.add_task("trials", total=total)

            def advance(agent_id: int, trial: Trial) -> None:
                bar.update(task, advance=1, description=f"trials, round {trial.round}")

            yield advance
    else:
        yield lambda agent_id, trial: None
