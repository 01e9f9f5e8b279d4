"""The arms of a benchmark in every combination of the swept values, as specifications."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from torch_dpfts.benchmark.configuration import BenchmarkSettings
from torch_dpfts.errors import DPFTSWarning, InvalidInputError
from torch_dpfts.experiment import planned_epsilon
from torch_dpfts.presets import preset_spec
from torch_dpfts.problems.base import Problem
from torch_dpfts.problems.registry import make_problem
from torch_dpfts.spec import ARMS, FederationSpec


@dataclass(frozen=True, eq=False)
class Variant:
    """One arm with one combination of the swept values it depends on.

    Args:
        arm: The arm's name in the settings.
        swept: The combination, by field.
        spec: What it runs.
        problem_settings: Keyword arguments of its problem.
        score: Name of the problem's score, a number from 0 to 1, if it has one.
    """

    arm: str
    swept: Mapping[str, Any]
    spec: FederationSpec
    problem_settings: Mapping[str, Any]
    score: str | None

    @property
    def name(self) -> str:
        """The arm and its values, ``"dp-fts [noise_multiplier=2]"``."""
        return variant_name(self.arm, self.swept)


def variant_name(arm: str, swept: Mapping[str, Any]) -> str:
    """Name of an arm with swept values."""
    values = ", ".join(f"{key}={_short(value)}" for key, value in swept.items())
    return f"{arm} [{values}]" if swept else arm


def expand(settings: BenchmarkSettings) -> list[Variant]:
    """All variants, in the order of the file.

    Raises:
        InvalidInputError: If a problem cannot be made or a specification is not valid.
    """
    problems: dict[str, Problem] = {}
    variants = []
    for arm, changes in settings.arms.items():
        for swept in combinations(settings, changes):
            where = f"arms.{variant_name(arm, swept)}"
            own = _problem_settings(settings, swept)
            key = json.dumps(own, sort_keys=True)
            if key not in problems:
                problems[key] = make_problem(settings.problem, own, settings.seeds[0])
            try:
                spec = _spec(settings, changes, swept, problems[key])
                _check_budget(spec)
            except InvalidInputError as error:
                raise InvalidInputError(f"{where}: {error}") from None
            score = getattr(problems[key], "score", None)
            variants.append(Variant(arm, swept, spec, own, score))
    return variants


def combinations(settings: BenchmarkSettings, changes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The combinations of swept values that an arm depends on."""
    sweep = dict(settings.sweep)
    inner = sweep.pop("problem_settings", {})
    pinned = ARMS[changes["arm"]].keys() | changes.keys()
    message = (ARMS[changes["arm"]] | dict(changes)).get("message")
    # Of an arm that shares nothing, only the number type is left of the specification.
    live = {
        key: values
        for key, values in sweep.items()
        if key == "num_agents" or (key not in pinned and (message != "none" or key == "dtype"))
    } | dict(inner)
    return [dict(zip(live, values, strict=True)) for values in product(*live.values())]


def _problem_settings(settings: BenchmarkSettings, swept: Mapping[str, Any]) -> dict[str, Any]:
    inner = {"num_agents", *settings.sweep.get("problem_settings", {})}
    return {**settings.problem_settings, **{k: v for k, v in swept.items() if k in inner}}


def _spec(
    settings: BenchmarkSettings,
    changes: Mapping[str, Any],
    swept: Mapping[str, Any],
    problem: Problem,
) -> FederationSpec:
    inner = {"num_agents", *settings.sweep.get("problem_settings", {})}
    shared = dict(settings.settings) | {k: v for k, v in swept.items() if k not in inner}
    own = {key: value for key, value in changes.items() if key not in ("arm", "control")}
    preset = own.pop("preset", shared.get("preset"))
    shared.pop("preset", None)
    own = ARMS[changes["arm"]] | own
    if "num_regions" in own:
        shared.pop("region_grid", None)
    fields: dict[str, Any] = {"bounds": problem.bounds} | getattr(problem, "spec_fields", {})
    fields |= {"num_agents": problem.num_agents, "num_rounds": settings.num_rounds}
    fields |= shared | own
    if preset is None:
        return FederationSpec(**fields)
    with warnings.catch_warnings():
        # What the noise-only control does is what a benchmark is there to show.
        warnings.simplefilter("ignore", DPFTSWarning)
        return preset_spec(preset, **fields)


def _check_budget(spec: FederationSpec) -> None:
    if spec.target_epsilon is None:
        return
    (spent,) = planned_epsilon(spec, [spec.delta]).values() or (0.0,)
    if spent > spec.target_epsilon:
        raise InvalidInputError(
            f"target_epsilon={spec.target_epsilon:g} does not last for num_rounds="
            f"{spec.num_rounds}, which cost {spent:.3g}; give a larger noise_multiplier."
        )


def _short(value: Any) -> str:
    """The value in six digits, or in as many as tell it from others."""
    short = f"{value:g}" if isinstance(value, float) else str(value)
    return short if not isinstance(value, float) or float(short) == value else repr(value)
