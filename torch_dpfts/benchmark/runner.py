"""Running a benchmark: arms and seeds over processes, from where an earlier command stopped."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from torch_dpfts import __version__
from torch_dpfts.benchmark.configuration import BenchmarkSettings
from torch_dpfts.benchmark.runs import Run, RunsFile
from torch_dpfts.benchmark.variants import Variant, expand
from torch_dpfts.errors import StateError
from torch_dpfts.federation import run_federations
from torch_dpfts.parallel import run_jobs
from torch_dpfts.problems.base import Problem
from torch_dpfts.problems.registry import is_drawn_by_seed, make_problem

# Runs advance together as one batch, but what a killed process loses stays small.
_SEEDS_TOGETHER = 5


def run_benchmark(
    settings: BenchmarkSettings,
    out: str | Path | None = None,
    *,
    processes: int | None = None,
    progress: bool = True,
) -> list[Run]:
    """Run every arm with every seed; the same call again goes on where it stopped.

    Runs are seeded, hence not private. At each seed all arms have the same functions, where the
    problem is drawn, and arms with the same sub-regions have the same initial points.

    Args:
        settings: The benchmark.
        out: Folder whose ``runs.jsonl`` takes each run as it ends; runs that it holds are not
            repeated. ``None`` keeps them in memory alone.
        processes: Worker processes, one thread each; ``None`` takes one for each core, and 1
            works in this process.
        progress: Whether to show a progress bar.

    Returns:
        The runs by arm, then seed.

    Raises:
        InvalidInputError: If the settings are not valid; nothing has run then.
        StateError: If ``out`` holds runs of an arm of the same name with other settings.
        RunError: If a run fails; the message names arm and seed.

    Example:
        >>> settings = BenchmarkSettings(
        ...     problem="landmine", num_rounds=1, num_initial=2, seeds=2,
        ...     arms={"alone": {"arm": "ts"}})
        >>> runs = run_benchmark(settings, processes=1, progress=False)
        >>> [(run.arm, run.seed, len(run.best_values)) for run in runs]
        [('alone', 0, 2), ('alone', 1, 2)]
    """
    variants = expand(settings)
    if out is None:
        done: dict[tuple[str, int], Run] = {}
        for runs in _finished(settings, variants, done, processes, progress):
            done |= _by_key(runs)
    else:
        with RunsFile(out).locked():
            file = RunsFile(out)
            _check_same(settings, variants, file)
            for runs in _finished(settings, variants, _by_key(file.runs), processes, progress):
                file.append(runs)
            done = _by_key(file.runs)
    return [done[variant.name, seed] for variant in variants for seed in settings.seeds]


def _by_key(runs: Sequence[Run]) -> dict[tuple[str, int], Run]:
    return {(run.name, run.seed): run for run in runs}


def _check_same(settings: BenchmarkSettings, variants: Sequence[Variant], file: RunsFile) -> None:
    expected = {variant.name: _identity(settings, variant) for variant in variants}
    for run in file.runs:
        for key, value in expected.get(run.name, {"problem": settings.problem}).items():
            found = getattr(run, key)
            if found != value:
                if key == "spec":
                    differ = [field for field in value if found.get(field) != value[field]]
                    key = ", ".join(differ)
                    found, value = (
                        [spec.get(field) for field in differ] for spec in (found, value)
                    )
                raise StateError(
                    f"{str(file.path)!r} holds runs of {run.name!r} with {key} {found!r}, not "
                    f"{value!r}; choose another folder, or go on with the settings that they were "
                    "made with."
                )


def _identity(settings: BenchmarkSettings, variant: Variant) -> dict[str, Any]:
    """What makes two runs of one seed the same; plain JSON."""
    return {
        "problem": settings.problem,
        "problem_settings": dict(variant.problem_settings),
        "num_initial": settings.num_initial,
        "spec": json.loads(variant.spec.to_json()),
        "fingerprint": variant.spec.fingerprint,
    }


def _finished(
    settings: BenchmarkSettings,
    variants: Sequence[Variant],
    done: Mapping[tuple[str, int], Run],
    processes: int | None,
    progress: bool,
) -> Iterator[list[Run]]:
    """Do what is not done yet and yield the runs of each batch as it ends."""
    jobs = []
    for first in range(0, len(settings.seeds), _SEEDS_TOGETHER):
        for variant in variants:
            seeds = settings.seeds[first : first + _SEEDS_TOGETHER]
            seeds = tuple(seed for seed in seeds if (variant.name, seed) not in done)
            if seeds:
                jobs.append(((variant, seeds), (settings, variant, seeds)))
    with _progress(settings, [key for key, _ in jobs], progress) as advance:
        finished = run_jobs(
            _run, jobs, processes=processes, on_tick=advance, describe=_describe_job
        )
        for _, runs in finished:
            yield runs


def _describe_job(key: tuple[Variant, tuple[int, ...]]) -> str:
    variant, seeds = key
    return f"arm {variant.name}, seed {', '.join(map(str, seeds))}"


@contextmanager
def _progress(
    settings: BenchmarkSettings, keys: Sequence[tuple[Variant, tuple[int, ...]]], show: bool
) -> Iterator[Callable[[tuple[Variant, tuple[int, ...]]], None]]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn(),
        TextColumn("rounds"), TimeElapsedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not show) as bar:
        totals: dict[str, int] = {}
        for variant, seeds in keys:
            rounds = len(seeds) * settings.num_rounds
            totals[variant.arm] = totals.get(variant.arm, 0) + rounds
        tasks = {arm: bar.add_task(arm, total=total) for arm, total in totals.items()}
        yield lambda key: bar.advance(tasks[key[0].arm], len(key[1]))


@lru_cache(maxsize=2 * _SEEDS_TOGETHER)
def _problem(name: str, settings: str, seed: int) -> Problem:
    # The runs of a process mostly share theirs, and data sets take seconds to load.
    return make_problem(name, json.loads(settings), seed)


def _plain(value: Any) -> Any:
    """A value that strict JSON has; infinity as the specification writes it."""
    return "inf" if value == math.inf else value


def _run(
    settings: BenchmarkSettings,
    variant: Variant,
    seeds: tuple[int, ...],
    tick: Callable[[], None],
) -> list[Run]:
    started = time.perf_counter()
    drawn = is_drawn_by_seed(settings.problem)
    own = json.dumps(variant.problem_settings)
    problems = [_problem(settings.problem, own, seed if drawn else 0) for seed in seeds]
    results = run_federations(
        variant.spec,
        problems,
        seeds,
        num_initial=settings.num_initial,
        progress=lambda round: tick(),
    )
    seconds = (time.perf_counter() - started) / len(seeds)
    runs = []
    for problem, result in zip(problems, results, strict=True):
        optimum = getattr(problem, "optimal_values", None)
        best = result.best_values
        regret = None if optimum is None else (optimum.to(best) - best).mean(-1).tolist()
        runs.append(
            Run(
                arm=variant.arm,
                swept={key: _plain(value) for key, value in variant.swept.items()},
                seed=result.seed,
                score=variant.score,
                best_values=best.mean(-1).tolist(),
                regret=regret,
                seconds=round(seconds, 3),
                version=__version__,
                **_identity(settings, variant),
            )
        )
    return runs
