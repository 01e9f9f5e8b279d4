"""Problems of a reader's own, for the tests of benchmarks."""

from typing import Any

import torch
from torch import Tensor


class Valley:
    """Minus the squared distance from a point of each agent, drawn by seed."""

    name = "valley"

    def __init__(self, num_agents: int = 3, spread: float = 0.1, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.num_agents = num_agents
        self.bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
        middle = torch.rand(2, generator=generator, dtype=torch.float64)
        own = torch.rand(num_agents, 2, generator=generator, dtype=torch.float64)
        self.best = (1 - spread) * middle + spread * own
        self.optimal_values = torch.zeros(num_agents, dtype=torch.float64)

    def __call__(self, X: Tensor, agent_ids: Tensor) -> Tensor:
        return -(X - self.best[agent_ids].unsqueeze(-2)).square().sum(-1, keepdim=True)


class Fixed(Valley):
    """The same for all seeds, with an unknown optimum and kinds of dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.optimal_values: Any = None
        self.spec_fields = {"bounds": self.bounds, "integer_dims": [1]}


class Failing(Valley):
    """Fails at seed 5."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed=seed)
        self.seed = seed

    def __call__(self, X: Tensor, agent_ids: Tensor) -> Tensor:
        if self.seed == 5:
            raise LookupError("no such objective")
        return super().__call__(X, agent_ids)


def nothing() -> object:
    return object()
