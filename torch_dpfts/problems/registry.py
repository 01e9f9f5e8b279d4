"""Problems by name: those of this package, and a reader's own as ``"package.module:factory"``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from torch_dpfts.errors import InvalidInputError
from torch_dpfts.problems.base import Problem

PROBLEMS: dict[str, str] = {
    "landmine": "torch_dpfts.problems.landmine:Landmine",
    "digits": "torch_dpfts.problems.digits:DigitsTable",
    "gp-functions": "torch_dpfts.problems.gp_functions:GPFunctions",
    "shifted": "torch_dpfts.problems.shifted:ShiftedFunctions",
    "watch": "torch_dpfts.problems.watch:Watch",
    "uci-har": "torch_dpfts.problems.uci_har:UciHar",
    "emnist": "torch_dpfts.problems.emnist:Emnist",
}
"""Where the problem of each name is defined; imported when it is first asked for."""


def problem_factory(name: str) -> Callable[..., Problem]:
    """Return what makes the problem ``name``.

    Args:
        name: A key of ``PROBLEMS``, or ``"package.module:factory"``.

    Raises:
        InvalidInputError: If there is no such problem, or its module cannot be imported.

    Example:
        >>> problem_factory("landmine")(scorer="decision").num_agents
        29
    """
    if not isinstance(name, str) or (name not in PROBLEMS and ":" not in name):
        known = ", ".join(repr(known) for known in PROBLEMS)
        raise InvalidInputError(
            f"problem must be one of {known}, or 'package.module:factory' for one of your own, "
            f"got {name!r}."
        )
    module, _, attribute = PROBLEMS.get(name, name).partition(":")
    try:
        factory = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInputError(f"problem {name!r} cannot be imported: {error}.") from error
    if not callable(factory):
        raise InvalidInputError(f"problem {name!r} must be callable, got {factory!r}.")
    return factory


def is_drawn_by_seed(name: str) -> bool:
    """Whether the problem's factory takes a ``seed``, so that each run has functions of its own.

    Example:
        >>> is_drawn_by_seed("landmine")
        False
    """
    return "seed" in inspect.signature(problem_factory(name)).parameters


def make_problem(name: str, settings: Mapping[str, Any], seed: int = 0) -> Problem:
    """Make a problem.

    Args:
        name: As for :func:`problem_factory`.
        settings: Keyword arguments of the factory.
        seed: Handed to the factory if it takes one.

    Raises:
        InvalidInputError: If the factory refuses the settings, or does not make a problem.

    Example:
        >>> make_problem("landmine", {"scorer": "probability"}).scorer
        'probability'
    """
    factory = problem_factory(name)
    parameters = inspect.signature(factory).parameters
    is_open = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for key in settings:
        if key == "seed" or (key not in parameters and not is_open):
            known = ", ".join(repr(known) for known in parameters if known != "seed") or "none"
            raise InvalidInputError(
                f"problem_settings of {name!r} must be among {known}, got {key!r}."
            )
    drawn = {"seed": seed} if "seed" in parameters else {}
    try:
        problem = factory(**settings, **drawn)
    except (TypeError, ValueError, OSError, ImportError) as error:
        given = ", ".join(f"{key} = {value!r}" for key, value in settings.items()) or "no settings"
        raise InvalidInputError(
            f"problem {name!r} cannot be made with {given}: {str(error).rstrip('.')}."
        ) from error
    lacking = [what for what in ("name", "bounds", "num_agents") if not hasattr(problem, what)]
    if lacking or not callable(problem):
        raise InvalidInputError(
            f"problem {name!r} must make a torch_dpfts.problems.Problem, got "
            f"{type(problem).__name__}, which lacks {', '.join(lacking) or '__call__'}."
        )
    return problem
