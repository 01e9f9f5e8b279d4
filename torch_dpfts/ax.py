"""Federated Thompson sampling in Ax (``pip install 'torch_dpfts[ax]'``).

Two ways, both stored in Ax's JSON snapshots once this module has been imported. Ax's own models
take :class:`~torch_dpfts.acquisition.FederatedThompsonSampling` as ``botorch_acqf_class``, with
the options ``spec`` and ``broadcast`` as text. Or :class:`FederatedNode` puts a whole agent into
a generation strategy; it also makes the agent's contributions.

Both compare with other sites whatever Ax does to outcomes: messages are standardised by each
site's own mean and standard deviation, and a broadcast is followed for where it is highest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from ax.core.data import Data
from ax.core.experiment import Experiment
from ax.core.parameter import ChoiceParameter, ParameterType, RangeParameter
from ax.core.search_space import SearchSpace as AxSearchSpace
from ax.exceptions.core import UnsupportedError
from ax.generation_strategy.external_generation_node import ExternalGenerationNode
from ax.generation_strategy.transition_criterion import TransitionCriterion
from ax.storage.botorch_modular_registry import register_acquisition_function
from ax.storage.json_store.registry import CORE_DECODER_REGISTRY, CORE_ENCODER_REGISTRY
from torch import Tensor

from torch_dpfts.acquisition import FederatedThompsonSampling, optimize_acqf_per_region
from torch_dpfts.acquisition.broadcast import check_broadcast
from torch_dpfts.acquisition.input_constructor import broadcast_from_text, broadcast_to_text
from torch_dpfts.agent import Agent
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.messages import Broadcast, Contribution
from torch_dpfts.rng import derived_seed, fresh_seed
from torch_dpfts.space import SearchSpace
from torch_dpfts.spec import FederationSpec

# Draws to try for a point that has not been tried before.
_TRIES = 4


def federation_settings(search_space: AxSearchSpace) -> dict[str, Any]:
    """Describe an Ax search space in the terms of :class:`~torch_dpfts.FederationSpec`.

    Dimensions follow the order of the parameters. Ranges keep their units; choices become the
    whole numbers of their places, integers if the choice is ordered and categories else.

    Returns:
        ``bounds``, ``log_dims``, ``integer_dims`` and ``categorical_dims``.

    Raises:
        UnsupportedError: If a parameter is neither a range nor a choice, is on a logit scale, or
            if there are parameter constraints.
    """
    if search_space.parameter_constraints:
        raise UnsupportedError("Parameter constraints are not supported; use Ax's own models.")
    lower, upper = [], []
    kinds: dict[str, list[int]] = {"log_dims": [], "integer_dims": [], "categorical_dims": []}
    for i, (name, parameter) in enumerate(search_space.parameters.items()):
        if isinstance(parameter, RangeParameter) and not parameter.logit_scale:
            lower.append(float(parameter.lower))
            upper.append(float(parameter.upper))
            if parameter.log_scale:
                kinds["log_dims"].append(i)
            if parameter.parameter_type == ParameterType.INT:
                kinds["integer_dims"].append(i)
        elif isinstance(parameter, ChoiceParameter):
            lower.append(0.0)
            upper.append(float(len(parameter.values) - 1))
            kinds["integer_dims" if parameter.is_ordered else "categorical_dims"].append(i)
        else:
            raise UnsupportedError(f"Parameter {name!r} is neither a plain range nor a choice.")
    return {"bounds": (lower, upper), **kinds}


class FederatedNode(ExternalGenerationNode):  # type: ignore[misc]
    """A generation node that is one agent of a federation.

    It starts with points of its own sub-region and then follows, trial by trial, a draw from its
    own posterior or the broadcast. Set :attr:`broadcast` when a new one arrives and send what
    :meth:`contribute` returns.

    Args:
        spec: The federation, or its JSON; its space is that of :func:`federation_settings`.
        agent_id: Place on the roster.
        seed: Seed of the agent's draws; ``None`` takes one from the operating system.
        broadcast: What the server sent last, or its text; ``None`` for nothing yet.
        num_initial: Trials in the own sub-region before the model takes over.
        name: Name of the node.
        transition_criteria: When to go on to another node, as in Ax.

    Raises:
        InvalidInputError: If the agent is not on the roster, or (later) if the experiment's
            search space is not the federation's.
        FingerprintMismatchError: If the broadcast belongs to another specification.
    """

    def __init__(
        self,
        spec: FederationSpec | str,
        agent_id: int,
        seed: int | None = None,
        broadcast: Broadcast | str | None = None,
        num_initial: int = 5,
        name: str = "Federated",
        transition_criteria: Sequence[TransitionCriterion] | None = None,
    ) -> None:
        super().__init__(
            name=name, should_deduplicate=False, transition_criteria=transition_criteria
        )
        self.spec = FederationSpec.from_json(spec) if isinstance(spec, str) else spec
        self.agent_id = agent_id
        self.seed = fresh_seed() if seed is None else seed
        self.num_initial = num_initial
        self._agent = Agent(self.spec, agent_id, seed=self.seed)
        self._choices: dict[str, list[Any] | None] = {}
        self.broadcast = broadcast

    @property
    def broadcast(self) -> Broadcast | None:
        """What the server sent last."""
        return self._broadcast

    @broadcast.setter
    def broadcast(self, broadcast: Broadcast | str | None) -> None:
        if isinstance(broadcast, str):
            broadcast = broadcast_from_text(broadcast)
        if broadcast is not None:
            check_broadcast(self.spec, broadcast)
        self._broadcast = broadcast

    def update_generator_state(self, experiment: Experiment, data: Data) -> None:
        """Read the completed trials; see :class:`ExternalGenerationNode`."""
        settings = federation_settings(experiment.search_space)
        expected = FederationSpec(
            **settings, num_agents=self.spec.num_agents, num_rounds=self.spec.num_rounds
        )
        for name in settings:
            if getattr(expected, name) != getattr(self.spec, name):
                raise InvalidInputError(
                    f"The experiment has {name}={getattr(expected, name)} and the federation "
                    f"{getattr(self.spec, name)}; build the specification of federation_settings."
                )
        self._choices = {
            name: list(parameter.values) if isinstance(parameter, ChoiceParameter) else None
            for name, parameter in experiment.search_space.parameters.items()
        }
        objective = experiment.optimization_config.objective
        if not objective.is_single_objective:
            raise UnsupportedError("A federation has one objective.")
        sign = -1.0 if objective.minimize else 1.0
        (metric,) = objective.metric_names
        table = data.df[data.df["metric_name"] == metric].drop_duplicates("arm_name", keep="last")
        self._agent = Agent(self.spec, self.agent_id, seed=self.seed)
        if len(table):
            X = [self._encode(experiment.arms_by_name[arm].parameters) for arm in table["arm_name"]]
            Y = torch.tensor(table["mean"].to_list(), dtype=torch.float64).unsqueeze(-1)
            self._agent.observe(torch.tensor(X, dtype=torch.float64), sign * Y)

    def get_next_candidate(self, pending_parameters: list[dict[str, Any]]) -> dict[str, Any]:
        """Choose one trial; see :class:`ExternalGenerationNode`."""
        agent, pending = self._agent, len(pending_parameters)
        count = len(agent.X) + pending
        if count < self.num_initial or not len(agent.X):
            return self._decode(agent.initial_points(count + 1)[-1])
        bounds = self.spec.bounds_tensor()
        X_pending = bounds.new_tensor([self._encode(p) for p in pending_parameters])
        X_pending = X_pending.reshape(-1, self.spec.dim)
        space = SearchSpace.from_spec(self.spec)
        seed = derived_seed(self.seed, "suggest", len(agent.X))
        acqf = FederatedThompsonSampling(agent.model, self.spec, self.broadcast, seed=seed)
        for _ in range(_TRIES):
            acqf.set_X_pending(X_pending if len(X_pending) else None)
            x, _ = optimize_acqf_per_region(acqf, bounds, seed=seed)
            if not space.all_but_repeats(x, torch.cat([agent.X, X_pending])):
                break
            # An unchanged broadcast leads to the same point again: on to the next draw.
            X_pending = torch.cat([X_pending, x])
        return self._decode(x[0])

    def contribute(self, round: int) -> Contribution:
        """What this site sends for a round, from the trials read last."""
        return self._agent.contribute(round)

    def _encode(self, parameters: dict[str, Any]) -> list[float]:
        return [
            float(parameters[name] if choices is None else choices.index(parameters[name]))
            for name, choices in self._choices.items()
        ]

    def _decode(self, x: Tensor) -> dict[str, Any]:
        parameters: dict[str, Any] = {}
        for i, (name, choices) in enumerate(self._choices.items()):
            value = float(x[i])
            whole = i in self.spec.integer_dims or i in self.spec.categorical_dims
            parameters[name] = round(value) if whole else value
            if choices is not None:
                parameters[name] = choices[round(value)]
        return parameters

    @classmethod
    def deserialize_init_args(cls, args: dict[str, Any], **registries: Any) -> dict[str, Any]:
        """Arguments of the constructor out of a snapshot."""
        return {name: value for name, value in args.items() if name != "__type"}


def _node_to_dict(node: FederatedNode) -> dict[str, Any]:
    return {
        "__type": "FederatedNode",
        "spec": node.spec.to_json(),
        "agent_id": node.agent_id,
        "seed": node.seed,
        "broadcast": None if node.broadcast is None else broadcast_to_text(node.broadcast),
        "num_initial": node.num_initial,
        "name": node.name,
    }


register_acquisition_function(FederatedThompsonSampling)
CORE_ENCODER_REGISTRY[FederatedNode] = _node_to_dict
CORE_DECODER_REGISTRY["FederatedNode"] = FederatedNode
