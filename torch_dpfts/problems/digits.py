"""Tuning a network on digits as a fast benchmark: a table, interpolated by Gaussian processes."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torch_dpfts.problems.base import check_query
from torch_dpfts.problems.digits_cnn import BATCH_SIZES, OPTIMIZERS
from torch_dpfts.regions import RegionGrid
from torch_dpfts.space import SearchSpace

NAMES = ("batch_size", "dropout", "lr", "optimizer", "weight_decay", "width")
BOUNDS = (
    (0.0, 0.0, 1e-4, 0.0, 1e-6, 4.0),
    (len(BATCH_SIZES) - 1.0, 0.7, 1.0, len(OPTIMIZERS) - 1.0, 1.0, 32.0),
)
LOG_DIMS = (2, 4, 5)
INTEGER_DIMS = (0, 5)
CATEGORICAL_DIMS = (3,)
NUM_SITES = 10


class DigitsTable:
    """Validation accuracy of :class:`~torch_dpfts.problems.digits_cnn.DigitsCNN` at 10 sites.

    Six hyperparameters (``NAMES``, in this order): batch size and optimiser by number, dropout,
    learning rate, weight decay and width. The values are the posterior means of Gaussian
    processes, one for each site, of networks that ``benchmarks/digits_table.py`` trained at a
    Sobol sequence of configurations. They are deterministic and smoother than the truth.

    Attributes:
        score: What the values are, ``"accuracy"``.
        bounds: Bounds of the hyperparameters, ``2 x 6``, float64.
        spec_fields: What a :class:`~torch_dpfts.FederationSpec` needs to know of the space.

    Example:
        >>> problem = DigitsTable()
        >>> X = torch.tensor([[[2.0, 0.2, 0.005, 0.0, 1e-4, 16.0]]], dtype=torch.float64)
        >>> 0.5 < problem(X, torch.tensor([0])).item() < 1.0
        True
    """

    name = "digits"
    score = "accuracy"
    dim = len(NAMES)
    num_agents = NUM_SITES
    optimal_values: Tensor | None = None

    def __init__(self) -> None:
        self.bounds = torch.tensor(BOUNDS, dtype=torch.float64)
        self.spec_fields: dict[str, Any] = {
            "bounds": BOUNDS,
            "log_dims": LOG_DIMS,
            "integer_dims": INTEGER_DIMS,
            "categorical_dims": CATEGORICAL_DIMS,
        }
        with np.load(files(__package__).joinpath("data/digits.npz").open("rb")) as content:
            table = {name: torch.from_numpy(content[name].astype(float)) for name in content}
        self._points = table["points"]  # K x e
        self._weights = table["weights"]  # num_agents x K
        self._lengthscales = table["lengthscales"]  # num_agents x e
        self._offset, self._scale = table["offset"], table["scale"]  # num_agents

    def __call__(self, X: Tensor, agent_ids: Tensor) -> Tensor:
        """Look up the sites' accuracies.

        Args:
            X: Hyperparameters, ``b x n x 6``; whole-numbered ones are rounded.
            agent_ids: The site of each block, ``b``, int64.

        Returns:
            Accuracies from 0 to 1, ``b x n x 1``, with the dtype and the device of ``X``.

        Raises:
            InvalidInputError: If ``X`` or ``agent_ids`` does not fit the problem.
        """
        check_query(X, agent_ids, self.bounds, self.num_agents)
        site = agent_ids.cpu()
        scale = self._lengthscales[site].unsqueeze(-2)  # b x 1 x e
        distance = torch.cdist(embed(X.cpu().double()) / scale, self._points / scale)  # b x n x K
        kernel = torch.exp(-0.5 * distance.square())
        value = (kernel @ self._weights[site].unsqueeze(-1)).squeeze(-1)  # b x n
        accuracy = self._offset[site].unsqueeze(-1) + self._scale[site].unsqueeze(-1) * value
        return accuracy.clamp(0, 1).unsqueeze(-1).to(X)


def search_space() -> SearchSpace:
    """The space of the hyperparameters."""
    bounds = torch.tensor(BOUNDS, dtype=torch.float64)
    return SearchSpace(bounds, LOG_DIMS, (*INTEGER_DIMS, *CATEGORICAL_DIMS))


def embed(X: Tensor) -> Tensor:
    """Map ``... x 6`` to the coordinates of the Gaussian processes, ``... x 8``.

    Numbers come from the unit cube; optimisers become corners at distance 1 from one another.
    """
    shape = X.shape[:-1]
    unit = search_space().to_unit(X.reshape(-1, len(NAMES)))
    (choice,) = CATEGORICAL_DIMS
    index = X.reshape(-1, len(NAMES))[:, choice].round().long()
    corners = torch.eye(len(OPTIMIZERS), dtype=X.dtype)[index] / 2**0.5
    numbers = [i for i in range(len(NAMES)) if i != choice]
    return torch.cat([unit[:, numbers], corners], dim=-1).reshape(*shape, -1)


def config_at(x: Tensor) -> dict[str, Any]:
    """The configuration at a point ``6``."""
    values = dict(zip(NAMES, search_space().snap(x).tolist(), strict=True))
    return {
        **values,
        "batch_size": BATCH_SIZES[int(values["batch_size"])],
        "optimizer": OPTIMIZERS[int(values["optimizer"])],
        "width": int(values["width"]),
    }


def from_cube(unit: Tensor) -> Tensor:
    """Map uniform points ``n x 6`` of the cube so that every value is equally likely."""
    space = search_space()
    lower, width = space.boxes(RegionGrid([1] * space.dim))
    return space.snap(space.from_unit(lower + unit * width))
