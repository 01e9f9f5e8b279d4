"""What a benchmark runs: read from a TOML file and checked before anything runs."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from torch_dpfts import checks
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.presets import PRESETS
from torch_dpfts.problems.registry import problem_factory
from torch_dpfts.spec import ARMS, FederationSpec

_ELSEWHERE = {
    "bounds": "it comes from the problem",
    "num_agents": "it comes from the problem; see [problem_settings]",
    "num_rounds": "it belongs at the top of the file",
}
SPEC_FIELDS = tuple(f.name for f in fields(FederationSpec) if f.name not in _ELSEWHERE)
QUICK_SEEDS, QUICK_ROUNDS = 2, 3


@dataclass(frozen=True, kw_only=True)
class BenchmarkSettings:
    """A benchmark: one problem, several arms, paired seeds.

    Args:
        problem: A name from ``torch_dpfts.problems.registry.PROBLEMS``, or
            ``"package.module:factory"``. A factory that takes a ``seed`` makes new functions
            for each seed, the same for all arms.
        num_rounds: Rounds T of each run.
        arms: The arms by name: ``arm``, a key of :data:`torch_dpfts.ARMS`; fields of
            :class:`~torch_dpfts.FederationSpec` that this arm changes; ``preset`` and
            ``control`` where they differ from those of all arms.
        num_initial: Initial points of each agent.
        seeds: The runs' seeds, or how many there are (from 0).
        rounds_reported: Where tables report; 0 is after the initial points. Five rounds by
            default.
        control: Name of the arm whose gain is not owed to sharing.
        baseline: Name of the arm to beat.
        problem_settings: Keyword arguments of the problem.
        settings: Fields of :class:`~torch_dpfts.FederationSpec` of all arms, or ``preset``, a
            key of :data:`~torch_dpfts.presets.PRESETS`. Bounds and agents come from the
            problem.
        sweep: Values to try for fields of the specification, for ``num_agents``, and for
            ``problem_settings`` (a table of its own), in all combinations. An arm that does
            not depend on a field, because it sets it itself or shares nothing, runs once.
        name: Title, by default the problem's name.

    Raises:
        InvalidInputError: If a key is unknown or a value out of range; the message names both.

    Example:
        >>> settings = BenchmarkSettings(
        ...     problem="landmine", num_rounds=20, seeds=3, control="noise",
        ...     settings={"preset": "recommended"},
        ...     arms={"dp-fts": {"arm": "dp-fts"}, "noise": {"arm": "noise"}})
        >>> settings.seeds, settings.rounds_reported
        ((0, 1, 2), (0, 3, 7, 13, 20))
    """

    problem: str
    num_rounds: int
    arms: Mapping[str, Mapping[str, Any]]
    num_initial: int = 10
    seeds: Any = 20
    rounds_reported: Any = None
    control: str | None = None
    baseline: str | None = None
    problem_settings: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    sweep: Mapping[str, Any] = field(default_factory=dict)
    name: str | None = None

    def __post_init__(self) -> None:
        problem_factory(self.problem)
        checks.integer("num_rounds", self.num_rounds, minimum=1)
        checks.integer("num_initial", self.num_initial, minimum=1)
        object.__setattr__(self, "name", self.name or self.problem)
        object.__setattr__(self, "seeds", _check_seeds(self.seeds))
        object.__setattr__(self, "rounds_reported", self._check_rounds())
        for table in ("arms", "problem_settings", "settings", "sweep"):
            if not isinstance(getattr(self, table), Mapping):
                raise InvalidInputError(f"{table} must be a table, got {getattr(self, table)!r}.")
        _check_fields("settings", self.settings, (*SPEC_FIELDS, "preset"))
        if not self.arms:
            raise InvalidInputError("arms must hold at least one table [arms.NAME], got none.")
        for name, changes in self.arms.items():
            self._check_arm(name, changes)
        for role in ("control", "baseline"):
            if getattr(self, role) is not None:
                checks.choice(role, getattr(self, role), self.arms)
        _check_sweep(self.sweep)
        for content in (self.problem_settings, self.sweep.get("problem_settings", {})):
            try:
                json.dumps(content, allow_nan=False)
            except (TypeError, ValueError) as error:
                raise InvalidInputError(
                    f"problem_settings must hold finite numbers, strings and lists, got "
                    f"{content!r}: "
                    f"{error}."
                ) from None

    def _check_rounds(self) -> tuple[int, ...]:
        rounds = self.rounds_reported
        if rounds is None:
            rounds = {round(self.num_rounds * part / 6) for part in (0, 1, 2, 4, 6)}
        elif isinstance(rounds, str) or not isinstance(rounds, Sequence) or not rounds:
            raise InvalidInputError(f"rounds_reported must be a list of rounds, got {rounds!r}.")
        for t in rounds:
            if checks.integer("rounds_reported", t) > self.num_rounds:
                raise InvalidInputError(
                    f"rounds_reported must be at most num_rounds={self.num_rounds}, got {t}."
                )
        return tuple(sorted(set(rounds)))

    def _check_arm(self, name: str, changes: Any) -> None:
        table = f"arms.{name}"
        if not isinstance(changes, Mapping) or "arm" not in changes:
            raise InvalidInputError(f"{table} must be a table with a key 'arm', got {changes!r}.")
        checks.choice(f"{table}.arm", changes["arm"], ARMS)
        _check_fields(table, changes, (*SPEC_FIELDS, "arm", "preset", "control"))
        if "control" in changes:
            checks.choice(f"{table}.control", changes["control"], self.arms)

    @classmethod
    def load(cls, source: str | Path) -> BenchmarkSettings:
        """Read a TOML file, or the shipped one of that name.

        Args:
            source: Path of a file, or one of :func:`shipped_settings`.

        Raises:
            InvalidInputError: If there is no such file, or it is not TOML or not valid.

        Example:
            >>> BenchmarkSettings.load("landmine").baseline
            'ts'
        """
        name = str(source)
        shipped = files(__package__).joinpath("settings", f"{name}.toml")
        try:
            text = (shipped if name in shipped_settings() else Path(source)).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            known = ", ".join(repr(known) for known in shipped_settings())
            raise InvalidInputError(
                f"settings must be {known}, or a TOML file that can be read, got {name!r}: {error}."
            ) from None
        try:
            return cls.from_toml(text, Path(name).stem)
        except InvalidInputError as error:
            raise InvalidInputError(f"{name}: {error}") from None

    @classmethod
    def from_toml(cls, text: str, name: str | None = None) -> BenchmarkSettings:
        """Read the text of a settings file.

        Args:
            text: The text.
            name: Name where the file gives none.

        Raises:
            InvalidInputError: If it is not TOML or not valid.
        """
        try:
            content = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InvalidInputError(f"The settings are not valid TOML: {error}.") from None
        known = [f.name for f in fields(cls)]
        for key in content:
            checks.choice("A key of the settings", key, known)
        for key in ("problem", "num_rounds", "arms"):
            if key not in content:
                raise InvalidInputError(f"The settings lack {key!r}; add it.")
        return cls(**({"name": name} | content))

    def override(self, *, seeds: Any = None, num_rounds: int | None = None) -> BenchmarkSettings:
        """These settings with other seeds or fewer or more rounds, where given.

        Raises:
            InvalidInputError: If one is out of range.

        Example:
            >>> BenchmarkSettings.load("landmine").override(num_rounds=15).rounds_reported
            (0, 10, 15)
        """
        changes: dict[str, Any] = {}
        if seeds is not None:
            changes["seeds"] = seeds
        if num_rounds is not None:
            checks.integer("num_rounds", num_rounds, minimum=1)
            kept = {t for t in self.rounds_reported if t < num_rounds}
            changes |= {"num_rounds": num_rounds, "rounds_reported": [*kept, num_rounds]}
        return replace(self, **changes)

    def quick(self) -> BenchmarkSettings:
        """These settings with two seeds and three rounds at most, to see whether they work."""
        return self.override(
            seeds=self.seeds[:QUICK_SEEDS], num_rounds=min(QUICK_ROUNDS, self.num_rounds)
        )


def shipped_settings() -> list[str]:
    """Names of the settings files that the package ships.

    Example:
        >>> "landmine" in shipped_settings()
        True
    """
    folder = files(__package__).joinpath("settings")
    names = [entry.name for entry in folder.iterdir()]
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def _check_seeds(seeds: Any) -> tuple[int, ...]:
    if isinstance(seeds, str) or not isinstance(seeds, Sequence):
        return tuple(range(checks.integer("seeds", seeds, minimum=1)))
    numbers = tuple(checks.integer("seeds", seed) for seed in seeds)
    if not numbers or len(set(numbers)) < len(numbers):
        raise InvalidInputError(f"seeds must be different numbers, at least one, got {seeds!r}.")
    return numbers


def _check_fields(table: str, content: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in content:
        if key in _ELSEWHERE:
            raise InvalidInputError(f"{table} must not hold {key!r}: {_ELSEWHERE[key]}.")
        checks.choice(f"A key of {table}", key, known)
    if "preset" in content:
        checks.choice(f"{table}.preset", content["preset"], PRESETS)


def _check_sweep(sweep: Mapping[str, Any]) -> None:
    inner = sweep.get("problem_settings", {})
    if not isinstance(inner, Mapping):
        raise InvalidInputError(f"sweep.problem_settings must be a table, got {inner!r}.")
    known = (*SPEC_FIELDS, "num_agents", "problem_settings")
    for key in sweep:
        checks.choice("A key of sweep", key, known)
    outer = {key: values for key, values in sweep.items() if key != "problem_settings"}
    for key in inner.keys() & {*SPEC_FIELDS, "num_agents"}:
        raise InvalidInputError(f"sweep.problem_settings must not hold {key!r}: put it in [sweep].")
    for key, values in {**outer, **inner}.items():
        if not isinstance(values, list | tuple) or not values:
            raise InvalidInputError(f"sweep.{key} must be a list of values, got {values!r}.")
        if any(values.count(value) > 1 for value in values):
            raise InvalidInputError(f"sweep.{key} must hold different values, got {values!r}.")
