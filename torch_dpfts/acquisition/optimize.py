"""Maximisation cell by cell of functions that jump at the borders of sub-regions.

One search over the whole space can settle in the wrong cell and stop at a jump. Here every
cell is searched by itself, all at once, and the best point of all cells wins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from torch_dpfts.acquisition.functions import Autograd, FunctionBatch
from torch_dpfts.optim import minimize_in_box
from torch_dpfts.regions import RegionGrid
from torch_dpfts.rng import derived_generator, uniform_rows
from torch_dpfts.space import SearchSpace

# A whole-numbered dimension with more values than this is searched near the best one only.
_MAX_VALUES = 64
_SWEEPS = 2
# A cell can have several local maxima, however many cells there are.
_MIN_RESTARTS = 4
_MIN_SAMPLES = 64


class _Limits(NamedTuple):
    """Where a search stops, in units of the function's own spread."""

    max_evals: int
    first_step: float
    gtol: float
    ftol: float


# All starts climb until it shows which is best; that one alone then climbs to the top.
_SCOUT = _Limits(max_evals=10, first_step=0.05, gtol=1e-2, ftol=1e-5)
_POLISH = _Limits(max_evals=20, first_step=0.01, gtol=1e-3, ftol=1e-6)
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
    f: FunctionBatch | Callable[[Tensor], Tensor],
    grid: RegionGrid,
    space: SearchSpace | Tensor,
    seeds: Sequence[int],
    *,
    incumbents: Tensor | None = None,
    raw_samples: int = 128,
    num_restarts: int = 4,
    max_evals: int = 20,
) -> Maximum:
    """Maximise a batch of functions, each over all cells of a grid.

    Args:
        f: Functions of the unit cube; or any function that maps ``b x r x d``, in the user's
            units, to ``b x r``, with gradients.
        grid: The cells, in the unit cube.
        space: The search space, or its bounds, ``2 x d``.
        seeds: For each of the ``b`` functions, the seed of the points where its search starts.
        incumbents: Further points of the unit cube to try, ``b x k x d``, such as the best so far.
        raw_samples: Points tried in all cells together (at least 64 in each).
        num_restarts: Searches with gradients in all cells together (at least 4 in each).
        max_evals: Most evaluations of the last climb to the top.
    """
    if isinstance(space, Tensor):
        space = SearchSpace(space)
    lower, width = space.boxes(grid)
    x, value = maximize_in_boxes(
        f if isinstance(f, FunctionBatch) else Autograd(f, len(seeds), space),
        space,
        lower,
        width,
        seeds,
        incumbents=incumbents,
        raw_samples=raw_samples,
        num_restarts=num_restarts,
        max_evals=max_evals,
    )
    return Maximum(x, value, grid.index(space.to_unit(x)))


def maximize_in_boxes(
    f: FunctionBatch,
    space: SearchSpace,
    lower: Tensor,
    width: Tensor,
    seeds: Sequence[int],
    *,
    incumbents: Tensor | None = None,
    raw_samples: int,
    num_restarts: int,
    max_evals: int = 20,
) -> tuple[Tensor, Tensor]:
    """Maximise a batch of functions, each over the union of boxes of the unit cube.

    Args:
        f: The functions.
        space: The search space.
        lower: Lower corners of the boxes in the unit cube, ``P x d``.
        width: Their widths, ``P x d``; 0 fixes a dimension.
        seeds: For each of the ``b`` functions, the seed of the points where its search starts.
        incumbents: Further points of the unit cube to try, ``b x k x d``, such as the best so far.
        raw_samples: Points tried in all boxes together (at least 64 in each).
        num_restarts: Searches with gradients in all boxes together (at least 4 in each).
        max_evals: Most evaluations of the last climb to the top.

    Returns:
        The best points in the user's units, ``b x d``, whole where the space is, and their
        values, ``b``.
    """
    batch_size, num_boxes = len(seeds), len(lower)
    restarts = max(-(-num_restarts // num_boxes), _MIN_RESTARTS)
    samples = max(-(-raw_samples // num_boxes), _MIN_SAMPLES)
    raw = _raw_points(seeds, samples, lower)  # b x samples x d
    raw = raw.unsqueeze(-3).expand(-1, num_boxes, -1, -1)
    if incumbents is not None:
        raw = torch.cat([raw, _inside(incumbents, lower, width)], dim=-2)
    U = lower.unsqueeze(-2) + raw * width.unsqueeze(-2)  # b x P x samples x d
    with torch.no_grad():
        tried = f.values(U.flatten(1, 2))
    # Searches stop by tolerances, which have to mean the same for functions of any scale.
    spread = tried.std(dim=-1)
    spread = torch.where(spread > 0, spread, torch.ones_like(spread))
    best = tried.unflatten(-1, (num_boxes, -1)).topk(restarts, dim=-1).indices
    start = raw.take_along_dim(best.unsqueeze(-1), dim=-2).flatten(0, 2)  # (b P restarts) x d
    searches = torch.arange(len(start), device=start.device).view(batch_size, num_boxes, restarts)
    of = searches // (num_boxes * restarts)
    of, box = of.flatten(), (searches // restarts % num_boxes).flatten()
    corner, scale = lower[box], width[box]

    def loss_and_grad(u: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        value, grad = f.value_and_grad(corner[rows] + u * scale[rows], of[rows])
        value, grad = value / spread[of[rows]], grad / spread[of[rows]].unsqueeze(-1)
        return -value, -grad * scale[rows]

    def search(start: Tensor, rows: Tensor, limits: _Limits) -> tuple[Tensor, Tensor]:
        return minimize_in_box(
            lambda u, some: loss_and_grad(u, rows[some]),
            start,
            torch.zeros_like(lower[0]),
            torch.ones_like(lower[0]),
            **limits._asdict(),
        )

    u, loss = search(start, searches.flatten(), _SCOUT)
    place = loss.view(batch_size, -1).argmin(dim=-1, keepdim=True)
    winner = searches.view(batch_size, -1).gather(-1, place).squeeze(-1)
    best_u, least = search(u[winner], winner, _POLISH._replace(max_evals=max_evals))
    value = -least * spread
    x = space.snap(space.from_unit(corner[winner] + best_u * scale[winner]))
    if not space.discrete_dims:
        return x, value
    corners = torch.stack([lower.amin(0), (lower + width).amax(0)]).reshape(2, -1)

    def at(X: Tensor) -> Tensor:
        return f.values(space.to_unit(X))

    return _sweep(at, x, space.from_unit(corners), space.discrete_dims)


def _raw_points(seeds: Sequence[int], samples: int, like: Tensor) -> Tensor:
    """Quasi-random points ``b x samples x d``: one Sobol sequence, rotated for each function.

    Functions that resemble each other must not all be searched from the same points, or their
    maximisers resemble each other more than they should (Cranley and Patterson 1976).
    """
    d = like.shape[-1]
    sobol = SobolEngine(d, scramble=True, seed=0).draw(samples, dtype=like.dtype).to(like.device)
    generators = [derived_generator(seed, "raw") for seed in seeds]
    shift = uniform_rows(generators, (1, d), like.dtype, like.device)
    return (sobol + shift) % 1.0


def _inside(points: Tensor, lower: Tensor, width: Tensor) -> Tensor:
    """The points of each box next to ``b x k x d``, in the box's units: ``b x P x k x d``."""
    tiny = torch.finfo(width.dtype).tiny
    distance = points.unsqueeze(-3) - lower.unsqueeze(-2)
    return (distance / width.clamp_min(tiny).unsqueeze(-2)).clamp(0, 1)


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
