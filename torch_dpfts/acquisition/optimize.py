"""Maximisation cell by cell of functions that jump at the borders of sub-regions.

One search over the whole space can settle in the wrong cell and stop at a jump. Here every
cell is searched by itself, all at once, and the best point of all cells wins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from torch_dpfts.optim import minimize_in_box
from torch_dpfts.regions import RegionGrid
from torch_dpfts.rng import derived_seed
from torch_dpfts.space import SearchSpace

# A whole-numbered dimension with more values than this is searched near the best one only.
_MAX_VALUES = 64
_SWEEPS = 2
_SLACK = 1e-5


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
    lower, width = space.boxes(grid)
    x, value = maximize_in_boxes(
        f,
        batch_size,
        space,
        lower,
        width,
        seed,
        raw_samples=raw_samples,
        num_restarts=num_restarts,
        max_iter=max_iter,
    )
    return Maximum(x, value, grid.index(space.to_unit(x)))


def maximize_in_boxes(
    f: Callable[[Tensor], Tensor],
    batch_size: int,
    space: SearchSpace,
    lower: Tensor,
    width: Tensor,
    seed: int,
    *,
    raw_samples: int,
    num_restarts: int,
    max_iter: int = 30,
) -> tuple[Tensor, Tensor]:
    """Maximise a batch of functions, each over the union of boxes of the unit cube.

    Args:
        f: Maps ``b x r x d`` to ``b x r``, in the user's units, with gradients.
        batch_size: The number ``b`` of functions.
        space: The search space.
        lower: Lower corners of the boxes in the unit cube, ``P x d``.
        width: Their widths, ``P x d``; 0 fixes a dimension.
        seed: Seed of the quasi-random points from which the search starts.
        raw_samples: Points tried in all boxes together (at least ``num_restarts`` in each).
        num_restarts: Searches with gradients in all boxes together (at least one in each).
        max_iter: Most iterations of a search.

    Returns:
        The best points, ``b x d``, whole where the space is, and their values, ``b``.
    """
    num_boxes, dim = lower.shape
    lower, width = lower.unsqueeze(-2), width.unsqueeze(-2)  # P x 1 x d
    restarts = -(-num_restarts // num_boxes)
    samples = max(-(-raw_samples // num_boxes), restarts)
    sobol = SobolEngine(dim, scramble=True, seed=derived_seed(seed, "raw"))
    raw = sobol.draw(samples, dtype=lower.dtype).to(lower.device)

    def value(u: Tensor) -> Tensor:  # b x P x r x d -> b x P x r
        X = space.from_unit(lower + u * width)
        return f(X.flatten(-3, -2)).unflatten(-1, (num_boxes, -1))

    def value_and_grad(u: Tensor) -> tuple[Tensor, Tensor]:
        u = u.detach().requires_grad_()
        loss = -value(u)
        (grad,) = torch.autograd.grad(loss.sum(), u)
        return loss.detach(), grad

    with torch.no_grad():
        tried = value(raw.expand(batch_size, num_boxes, *raw.shape))
    start = raw[tried.topk(restarts, dim=-1).indices]  # b x P x restarts x d
    zero, one = torch.zeros_like(lower[0, 0]), torch.ones_like(lower[0, 0])
    u, loss = minimize_in_box(value_and_grad, start, zero, one, max_iter=max_iter, first_step=0.05)
    best, index = loss.flatten(-2).min(dim=-1)  # b
    X = space.snap(space.from_unit(lower + u * width)).flatten(-3, -2)
    x = X.gather(-2, index[:, None, None].expand(-1, 1, dim)).squeeze(-2)
    if not space.discrete_dims:
        return x, -best
    corners = torch.stack([lower.amin(0), (lower + width).amax(0)]).reshape(2, -1)
    return _sweep(f, x, space.from_unit(corners), space.discrete_dims)


@torch.no_grad()
def _sweep(
    f: Callable[[Tensor], Tensor], x: Tensor, corners: Tensor, dims: list[int]
) -> tuple[Tensor, Tensor]:
    """Try every value of each whole-numbered dimension in turn, the others held.

    Args:
        f: Maps ``b x r x d`` to ``b x r``.
        x: Where to start, ``b x d``.
        corners: Limits of the values, ``2 x d``; whole numbers between them are tried.
        dims: The whole-numbered dimensions.
    """
    first, last = (corners[0] - _SLACK).ceil(), (corners[1] + _SLACK).floor()
    best = f(x.unsqueeze(-2)).squeeze(-1)  # b
    for i in dims * _SWEEPS:
        count = min(int(last[i] - first[i]) + 1, _MAX_VALUES)
        start = (x[:, i] - count // 2).clamp(first[i], last[i] - count + 1)  # b
        trial = x.unsqueeze(-2).repeat(1, count, 1)
        trial[..., i] = start.unsqueeze(-1) + torch.arange(count, device=x.device)
        values, index = f(trial).max(dim=-1)
        moved = trial.gather(-2, index[:, None, None].expand(-1, 1, x.shape[-1])).squeeze(-2)
        x = torch.where((values > best).unsqueeze(-1), moved, x)
        best = torch.maximum(values, best)
    return x, best
