"""Maximisation cell by cell of functions that jump at the borders of sub-regions.

One search over the whole space can settle in the wrong cell and stop at a jump. Here every
cell is searched by itself, all at once, and the best point of all cells wins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor
from torch.quasirandom import SobolEngine

from torch_dpfts import checks
from torch_dpfts.optim import minimize_in_box
from torch_dpfts.regions import RegionGrid
from torch_dpfts.rng import derived_seed
from torch_dpfts.space import SearchSpace


class Maximum(NamedTuple):
    """The best point of a batch of functions.

    Args:
        x: ``b x d``.
        value: ``b``.
        region: ``b``, the number of the winning cell.
    """

    x: Tensor
    value: Tensor
    region: Tensor


def maximize_per_region(
    f: Callable[[Tensor], Tensor],
    batch_size: int,
    grid: RegionGrid,
    space: SearchSpace | Tensor,
    seed: int,
    *,
    raw_samples: int = 128,
    num_restarts: int = 4,
    max_iter: int = 30,
) -> Maximum:
    """Maximise a batch of functions, each over all cells of a grid.

    Args:
        f: Maps ``b x r x d`` to ``b x r``, in the user's units, with gradients.
        batch_size: The number ``b`` of functions.
        grid: The cells, in the unit cube.
        space: The search space, or its bounds, ``2 x d``.
        seed: Seed of the quasi-random points from which the search starts.
        raw_samples: Points tried in all cells together (at least ``num_restarts`` in each).
        num_restarts: Searches with gradients in all cells together (at least one in each).
        max_iter: Most iterations of a search.
    """
    if isinstance(space, Tensor):
        space = SearchSpace(space)
    lower, width = (box.unsqueeze(-2) for box in space.boxes(grid))  # P x 1 x d
    num_regions, device = len(grid), lower.device
    restarts = -(-num_restarts // num_regions)
    samples = max(-(-raw_samples // num_regions), restarts)
    sobol = SobolEngine(grid.dim, scramble=True, seed=derived_seed(seed, "raw"))
    raw = sobol.draw(samples, dtype=lower.dtype).to(device)

    def value(u: Tensor) -> Tensor:  # b x P x r x d -> b x P x r
        X = space.from_unit(lower + u * width)
        return f(X.flatten(-3, -2)).unflatten(-1, (num_regions, -1))

    def value_and_grad(u: Tensor) -> tuple[Tensor, Tensor]:
        u = u.detach().requires_grad_()
        loss = -value(u)
        (grad,) = torch.autograd.grad(loss.sum(), u)
        return loss.detach(), grad

    with torch.no_grad():
        tried = value(raw.expand(batch_size, num_regions, *raw.shape))
    start = raw[tried.topk(restarts, dim=-1).indices]  # b x P x restarts x d
    zero, one = torch.zeros_like(lower[0, 0]), torch.ones_like(lower[0, 0])
    u, loss = minimize_in_box(value_and_grad, start, zero, one, max_iter=max_iter, first_step=0.05)
    best = loss.flatten(-2).argmin(dim=-1)  # b
    X = space.snap(space.from_unit(lower + u * width)).flatten(-3, -2)
    x = X.gather(-2, best[:, None, None].expand(-1, 1, grid.dim)).squeeze(-2)
    return Maximum(x, -loss.flatten(-2).gather(-1, best[:, None]).squeeze(-1), best // restarts)


def optimize_acqf_per_region(
    acq_function: AcquisitionFunction,
    bounds: Tensor,
    grid: RegionGrid,
    *,
    seed: int,
    raw_samples: int = 128,
    num_restarts: int = 4,
) -> tuple[Tensor, Tensor]:
    """Maximise an acquisition function of one candidate over every cell of a grid.

    Args:
        acq_function: Maps ``b x 1 x d`` to ``b``.
        bounds: Bounds of the search space, ``2 x d``.
        grid: The cells.
        seed: Seed of the points from which the search starts.
        raw_samples: Points tried in all cells together.
        num_restarts: Searches with gradients in all cells together.

    Returns:
        The candidate, ``1 x d``, and its acquisition value, a scalar.

    Example:
        >>> from botorch.acquisition import PosteriorMean
        >>> from botorch.models import SingleTaskGP
        >>> X = torch.rand(8, 2, dtype=torch.double, generator=torch.Generator().manual_seed(0))
        >>> acqf = PosteriorMean(SingleTaskGP(X, X.sum(-1, keepdim=True)))
        >>> bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.double)
        >>> candidate, value = optimize_acqf_per_region(acqf, bounds, RegionGrid((2, 2)), seed=0)
        >>> candidate.shape, value.shape
        (torch.Size([1, 2]), torch.Size([]))
    """
    checks.finite("bounds", bounds)

    def f(X: Tensor) -> Tensor:  # 1 x r x d -> 1 x r
        values: Tensor = acq_function(X.squeeze(0).unsqueeze(-2))
        return values.unsqueeze(0)

    best = maximize_per_region(
        f, 1, grid, bounds, seed, raw_samples=raw_samples, num_restarts=num_restarts
    )
    return best.x, best.value.squeeze(0)
