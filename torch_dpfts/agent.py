"""One site of a federation: ask, tell, contribute."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from botorch.models import SingleTaskGP
from torch import Tensor

from torch_dpfts import checks
from torch_dpfts.acquisition.broadcast import check_broadcast
from torch_dpfts.errors import InvalidInputError, StateError
from torch_dpfts.files import read_state, write_atomically
from torch_dpfts.fleet import Fleet, agent_seed
from torch_dpfts.messages import Broadcast, Contribution, to_wire
from torch_dpfts.rng import fresh_seed
from torch_dpfts.spec import FederationSpec
from torch_dpfts.surrogate import Hyperparameters

_TOLERANCE = 1e-6


class Agent:
    """An agent that tunes its own function and shares what it learns (algorithm 1 of [Dai2021]_).

    Only :meth:`contribute` produces anything that leaves the site. A suggestion depends on
    the observations, the broadcast and the seed, so asking twice gives the same point.

    Args:
        spec: The federation.
        agent_id: Place on the roster, from 0.
        seed: Seed of the agent's draws; ``None`` takes one from the operating system.
        device: Where the agent computes.

    Raises:
        InvalidInputError: If the agent is not on the roster.

    Example:
        >>> import torch
        >>> spec = FederationSpec.fts(
        ...     bounds=[[0.0, 0.0], [1.0, 1.0]], num_agents=2, num_rounds=5)
        >>> agent = Agent(spec, agent_id=0, seed=0)
        >>> X = agent.initial_points(3)
        >>> agent.observe(X, X.sum(dim=-1, keepdim=True))
        >>> agent.suggest().shape
        torch.Size([1, 2])
        >>> agent.contribute(round=1).vector.shape
        torch.Size([64])
    """

    def __init__(
        self,
        spec: FederationSpec,
        agent_id: int,
        seed: int | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        checks.integer("agent_id", agent_id)
        if agent_id >= spec.num_agents:
            raise InvalidInputError(
                f"agent_id must be below num_agents={spec.num_agents}, got {agent_id}."
            )
        self.spec = spec
        self.agent_id = agent_id
        root = fresh_seed() if seed is None else checks.integer("seed", seed)
        self._fleet = Fleet(spec, [agent_id], [agent_seed(root, agent_id)], device)

    @property
    def X(self) -> Tensor:
        """Inputs observed so far, ``n x d``."""
        return self._fleet.X.squeeze(0)

    @property
    def Y(self) -> Tensor:
        """Outcomes observed so far, ``n x 1``."""
        return self._fleet.Y.squeeze(0)

    @property
    def model(self) -> SingleTaskGP:
        """The agent's Gaussian process, of batch shape 1.

        Raises:
            InvalidInputError: If there are no observations yet.
        """
        if not len(self.X):
            raise InvalidInputError("The model needs at least 1 observation, got 0; observe first.")
        return self._fleet.model()

    def initial_points(self, n: int) -> Tensor:
        """Draw ``n`` points uniformly in the agent's own sub-region, ``n x d``."""
        return self._fleet.initial_points(checks.integer("n", n, minimum=1)).squeeze(0)

    def observe(self, X: Tensor, Y: Tensor) -> None:
        """Record outcomes, to be maximised.

        Args:
            X: Inputs in the user's units, ``n x d``, inside the bounds.
            Y: Outcomes, ``n x 1``.

        Raises:
            InvalidInputError: If a shape is wrong, a value is not finite, or a point lies
                outside the bounds; nothing is recorded then.
        """
        X, Y = self._tensor("X", X, self.spec.dim), self._tensor("Y", Y, 1)
        if len(X) != len(Y):
            raise InvalidInputError(
                f"X and Y must have equally many rows, got {len(X)} and {len(Y)}."
            )
        lower, upper = self._fleet.bounds
        slack = _TOLERANCE * (upper - lower)
        outside = ((X < lower - slack) | (X > upper + slack)).nonzero()
        if len(outside):
            row, column = outside[0].tolist()
            raise InvalidInputError(
                f"X[{row}, {column}] = {float(X[row, column])} lies outside the bounds "
                f"[{float(lower[column])}, {float(upper[column])}]; drop it or widen the bounds "
                "of the federation."
            )
        if len(X):
            self._fleet.observe(X.unsqueeze(0), Y.unsqueeze(0))

    def _tensor(self, name: str, value: Tensor, columns: int) -> Tensor:
        if not isinstance(value, Tensor) or value.ndim != 2 or value.shape[-1] != columns:
            shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise InvalidInputError(f"{name} must be a tensor of shape n x {columns}, got {shape}.")
        return checks.finite(name, value.detach().to(self._fleet.X))

    def suggest(self, broadcast: Broadcast | None = None) -> Tensor:
        """Choose the next point to evaluate.

        Args:
            broadcast: The newest broadcast, or ``None`` before the first or after the last.

        Returns:
            A ``1 x d`` tensor in the user's units.

        Raises:
            FingerprintMismatchError: If the broadcast belongs to another specification.
            MessageError: If its vectors do not fit the specification.
        """
        if broadcast is None:
            return self._fleet.suggest().squeeze(0)
        check_broadcast(self.spec, broadcast)
        vectors = broadcast.vectors.to(self._fleet.X)
        return self._fleet.suggest(vectors.unsqueeze(0), broadcast.round).squeeze(0)

    def contribute(self, round: int) -> Contribution:
        """Make the message for a round; the only thing that leaves the site."""
        checks.integer("round", round, minimum=1)
        vector = to_wire(self.spec, self._fleet.contribute(round).squeeze(0))
        return Contribution(self.spec.fingerprint, self.agent_id, round, vector)

    # --- state --------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the whole state to one JSON file, atomically. It holds the site's data."""
        fleet = self._fleet
        values = fleet.hyperparameters
        state = {
            "spec": json.loads(self.spec.to_json()),
            "agent_id": self.agent_id,
            "seed": fleet.seeds[0],
            "X": self.X.tolist(),
            "Y": self.Y.tolist(),
            "num_fitted": fleet.num_fitted,
            "hyperparameters": values and {k: v.tolist() for k, v in values._asdict().items()},
        }
        write_atomically(path, json.dumps(state).encode())

    @classmethod
    def load(cls, path: str | Path, device: torch.device | str | None = None) -> Agent:
        """Read what :meth:`save` wrote; the agent goes on as if it had never stopped.

        Raises:
            StateError: If the file is missing or damaged.
        """
        data = read_state(path)
        try:
            state: Mapping[str, Any] = json.loads(data)
            spec = FederationSpec.from_json(json.dumps(state["spec"]))
            agent = cls(spec, state["agent_id"], device=device)
            fleet, n = agent._fleet, len(state["X"])
            fleet.seeds = [int(state["seed"])]
            fleet.X = fleet.X.new_tensor(state["X"]).reshape(1, n, spec.dim)
            fleet.Y = fleet.Y.new_tensor(state["Y"]).reshape(1, n, 1)
            fleet.num_fitted = int(state["num_fitted"])
            if state["hyperparameters"] is not None:
                saved = state["hyperparameters"]
                values = (fleet.X.new_tensor(saved[k]) for k in Hyperparameters._fields)
                fleet.hyperparameters = Hyperparameters(*values)
        except (ValueError, KeyError, TypeError, RuntimeError) as error:
            raise StateError(f"The agent's state in {str(path)!r} is damaged: {error}.") from None
        return agent
