"""Search spaces with names, over ConfigSpace."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from heapq import heappop, heappush
from typing import Any

import torch
from ConfigSpace import (
    CategoricalHyperparameter,
    ConfigurationSpace,
    OrdinalHyperparameter,
    UniformFloatHyperparameter,
    UniformIntegerHyperparameter,
)
from ConfigSpace.util import deactivate_inactive_hyperparameters
from torch import Tensor

from torch_dpfts import checks
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.regions import RegionGrid
from torch_dpfts.space import SearchSpace
from torch_dpfts.tune.parameters import (
    check_parameter,
    checked_code,
    code_of,
    num_values,
    range_of,
    value_at,
)

Config = dict[str, Any]
_STEP = 1 / 20
_PUBLIC = ("name", "type", "lower", "upper", "log", "choices", "sequence", "default_value")


class ParameterSpace:
    """Hyperparameters by name, and their place in the space that all sites share.

    Each parameter is one dimension of the federation: a float or an integer as itself, on a
    logarithmic scale if it says so; a choice as its number, ``0, 1, ..., k - 1``. A parameter
    that a condition switches off is missing from the configuration and takes its default's
    place in the space. Dimensions are in the order of ``names``, which is ConfigSpace's and
    does not depend on the order in which the parameters were added.

    Args:
        parameters: A ``ConfigSpace.ConfigurationSpace``, or the dictionary that its
            constructor accepts. Floats, integers, and ordered and unordered choices among
            strings, numbers and truth values; conditions, but no forbidden combinations.

    Raises:
        InvalidInputError: If the space is empty or holds something else.

    Example:
        >>> from ConfigSpace import Float
        >>> space = ParameterSpace({
        ...     "lr": Float("lr", (1e-4, 1e-1), log=True), "width": (4, 32),
        ...     "optimizer": ["sgd", "adam", "rmsprop"]})
        >>> x = space.encode({"lr": 0.001, "width": 8, "optimizer": "adam"})
        >>> x.tolist()
        [0.001, 1.0, 8.0]
        >>> space.decode(x)
        {'lr': 0.001, 'optimizer': 'adam', 'width': 8}
        >>> from torch_dpfts import FederationSpec
        >>> FederationSpec.ts(**space.spec_fields(), num_agents=2, num_rounds=9).integer_dims
        (2,)
    """

    def __init__(self, parameters: ConfigurationSpace | Mapping[str, Any]) -> None:
        if not isinstance(parameters, ConfigurationSpace):
            parameters = ConfigurationSpace(space=dict(parameters))
        self.config_space = parameters
        self._parameters: list[Any] = [parameters[name] for name in parameters]
        if not self._parameters:
            raise InvalidInputError("parameters must name at least one parameter, got none.")
        if parameters.forbidden_clauses:
            raise InvalidInputError(
                f"parameters has forbidden combinations, {parameters.forbidden_clauses[0]!r}; "
                "let train_fn refuse them, or use a condition."
            )
        for parameter in self._parameters:
            check_parameter(parameter)
        self._inactive = [code_of(p, p.default_value) for p in self._parameters]
        self._search = SearchSpace(
            torch.tensor(self._bounds(), dtype=torch.float64),
            self._dims(lambda p: getattr(p, "log", False)),
            self._dims(lambda p: not isinstance(p, UniformFloatHyperparameter)),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters in the order of the dimensions."""
        return tuple(p.name for p in self._parameters)

    @property
    def dim(self) -> int:
        """Number d of dimensions."""
        return len(self._parameters)

    @property
    def size(self) -> float:
        """How many configurations there are, not counting conditions; infinite with floats."""
        return math.prod(num_values(p) for p in self._parameters)

    # --- the public part ----------------------------------------------------------------

    def to_json(self) -> str:
        """Names, kinds, ranges, choices and conditions as canonical JSON."""
        content = self.config_space.to_serialized_dict()
        public = {
            "parameters": [
                {key: p[key] for key in _PUBLIC if key in p} for p in content["hyperparameters"]
            ],
            "conditions": content["conditions"],
        }
        return json.dumps(public, sort_keys=True, separators=(",", ":"))

    def spec_fields(self) -> dict[str, Any]:
        """The fields of :class:`~torch_dpfts.FederationSpec` that describe this space."""
        return {
            "bounds": self._bounds(),
            "log_dims": self._dims(lambda p: getattr(p, "log", False)),
            "integer_dims": self._dims(
                lambda p: isinstance(p, (UniformIntegerHyperparameter, OrdinalHyperparameter))
            ),
            "categorical_dims": self._dims(lambda p: isinstance(p, CategoricalHyperparameter)),
            "space": self.to_json(),
        }

    def _bounds(self) -> list[list[float]]:
        return [[range_of(p)[side] for p in self._parameters] for side in (0, 1)]

    def _dims(self, condition: Any) -> list[int]:
        return [i for i, p in enumerate(self._parameters) if condition(p)]

    # --- configurations and points ------------------------------------------------------

    def encode(self, config: Mapping[str, Any]) -> Tensor:
        """The point of a configuration, ``d``, float64; :meth:`decode` gives it back exactly.

        Raises:
            InvalidInputError: If a parameter is missing, unknown, switched off by a condition,
                or its value is outside its range.
        """
        unknown = sorted(set(config) - set(self.names))
        if unknown:
            raise InvalidInputError(
                f"The configuration has unknown parameters {unknown}; the space has "
                f"{list(self.names)}."
            )
        code = [
            checked_code(p, config[p.name]) if p.name in config else default
            for p, default in zip(self._parameters, self._inactive, strict=True)
        ]
        active = self._active(code)
        for name in self.names:
            if (name in active) != (name in config):
                fault = "lacks" if name in active else "must not give"
                raise InvalidInputError(
                    f"The configuration {fault} {name!r}, which its other values switch "
                    f"{'on' if name in active else 'off'}."
                )
        return torch.tensor(code, dtype=torch.float64)

    def decode(self, x: Tensor) -> Config:
        """The configuration at a point ``d``; whole-numbered dimensions are rounded.

        Raises:
            InvalidInputError: If ``x`` has another shape or is not finite.
        """
        if not isinstance(x, Tensor) or x.shape != (self.dim,):
            shape = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
            raise InvalidInputError(f"x must be a tensor of shape {self.dim}, got {shape}.")
        x = self._search.snap(checks.finite("x", x.detach().to(self._search.bounds)))
        code = x.tolist()
        active = self._active(code)
        return {p.name: active[p.name] for p in self._parameters if p.name in active}

    def snap(self, x: Tensor) -> Tensor:
        """The point of the configuration at ``x``, ``d``."""
        return self.encode(self.decode(x))

    def _active(self, code: list[float]) -> Config:
        """The values at a point without those that are switched off."""
        values = {p.name: value_at(p, c) for p, c in zip(self._parameters, code, strict=True)}
        if not self.config_space.conditions:
            return values
        active = deactivate_inactive_hyperparameters(values, self.config_space)
        return {name: value for name, value in values.items() if name in active}

    def sample(self, n: int, generator: torch.Generator) -> list[Config]:
        """Draw ``n`` configurations uniformly from the unit cube."""
        lower, width = self._search.boxes(RegionGrid([1] * self.dim))
        unit = torch.rand(n, self.dim, generator=generator, dtype=torch.float64)
        return [self.decode(x) for x in self._search.from_unit(lower + unit * width)]

    def to_unit(self, X: Tensor) -> Tensor:
        """Map points ``... x d`` to the unit cube that all sites share."""
        return self._search.to_unit(X.reshape(-1, self.dim)).reshape(X.shape)

    def nearest_untried(self, x: Tensor, tried: Collection[tuple[float, ...]]) -> Tensor | None:
        """The point of the configuration nearest to ``x`` in the cube that was not tried.

        Floats move in steps of a twentieth of the cube. Repeats would otherwise be common at
        the corners, where the maximisers of sample paths like to lie.

        Args:
            x: A point, ``d``.
            tried: Points of the configurations tried, as tuples.

        Returns:
            A point, ``d``, or ``None`` if all configurations were tried.
        """
        x = self.snap(x)
        if tuple(x.tolist()) not in tried:
            return x
        levels = [self._nearest_levels(i, x, len(tried) + 1) for i in range(self.dim)]
        # Best first: each combination of levels leads to those with one level further away.
        heap = [(0.0, (0,) * self.dim)]
        seen = {heap[0][1]}
        while heap:
            _, ranks = heappop(heap)
            point = self.snap(x.new_tensor([levels[i][r][1] for i, r in enumerate(ranks)]))
            if tuple(point.tolist()) not in tried:
                return point
            for i, r in enumerate(ranks):
                further = (*ranks[:i], r + 1, *ranks[i + 1 :])
                if r + 1 < len(levels[i]) and further not in seen:
                    seen.add(further)
                    cost = sum(levels[j][s][0] for j, s in enumerate(further))
                    heappush(heap, (cost, further))
        return None

    def _nearest_levels(self, i: int, x: Tensor, count: int) -> list[tuple[float, float]]:
        """Squared distances and values of the levels of dimension ``i``, nearest first."""
        low, high = range_of(self._parameters[i])
        center, place = float(x[i]), float(self.to_unit(x)[i])
        if isinstance(self._parameters[i], CategoricalHyperparameter):
            levels = [float(v) for v in range(int(high) + 1)]
            return sorted((float(v != center), v) for v in levels)
        if isinstance(self._parameters[i], UniformFloatHyperparameter):
            steps = [place + k * _STEP for k in range(-count, count + 1) if k]
            inside = [place, *(u for u in steps if 0 <= u <= 1)]
            U = x.new_full((len(inside), self.dim), 0.5)
            U[:, i] = x.new_tensor(inside)
            values = self._search.from_unit(U)[:, i]
            values[0] = center
        else:
            # So many tries cannot use up more levels than this on either side.
            first, last = max(low, center - count), min(high, center + count)
            values = torch.arange(first, last + 1, dtype=torch.float64)
        X = x.repeat(len(values), 1)
        X[:, i] = values
        distance = (self.to_unit(X)[:, i] - place).square()
        return sorted(zip(distance.tolist(), values.tolist(), strict=True))
