"""BoTorch's ``optimize_acqf``, cell by cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor
from torch.quasirandom import SobolEngine

from torch_dpfts import checks
from torch_dpfts.acquisition.cell_search import (
    CellSearch,
    Constraints,
    LinearConstraints,
    NonlinearConstraints,
)
from torch_dpfts.acquisition.thompson import FederatedThompsonSampling
from torch_dpfts.optim import minimize_in_box, on_whole_batch
from torch_dpfts.regions import RegionGrid
from torch_dpfts.rng import derived_seed
from torch_dpfts.space import SearchSpace

_MAX_CYCLES = 3
_TOLERANCE = 1e-6
_POLISH_EVALS = 60

Postprocess = Callable[[Tensor], Tensor]


def optimize_acqf_per_region(
    acq_function: AcquisitionFunction,
    bounds: Tensor,
    q: int = 1,
    num_restarts: int = 4,
    raw_samples: int = 128,
    options: dict[str, Any] | None = None,
    inequality_constraints: LinearConstraints | None = None,
    equality_constraints: LinearConstraints | None = None,
    nonlinear_inequality_constraints: NonlinearConstraints | None = None,
    fixed_features: Mapping[int, float] | None = None,
    post_processing_func: Postprocess | None = None,
    sequential: bool = False,
    *,
    grid: RegionGrid | None = None,
    seed: int = 0,
    return_regions: bool = False,
) -> Any:
    """Maximise an acquisition function over every cell of a grid and take the best.

    The arguments are those of :func:`botorch.optim.optimize_acqf` and a grid, so that it can take
    its place. Without constraints all cells are searched together in one batch; with constraints
    each cell that holds a feasible point is searched by ``optimize_acqf``. Several joint
    candidates are found one at a time, the others held, until none moves, and then (without
    constraints) polished together, each in its cell.

    Args:
        acq_function: Maps ``b x q x d`` to ``b``.
        bounds: Bounds of the search space, ``2 x d``.
        q: Number of candidates.
        num_restarts: Searches with gradients in all cells together (at least one in each).
        raw_samples: Points tried in all cells together.
        options: Options of BoTorch's optimiser, which works where there are constraints.
        inequality_constraints: As in ``optimize_acqf``, of single points.
        equality_constraints: As in ``optimize_acqf``, of single points.
        nonlinear_inequality_constraints: As in ``optimize_acqf``, of single points; starting
            points are found by rejection.
        fixed_features: Dimensions held at a value.
        post_processing_func: Applied to the candidates, ``... x d``; values are then recomputed.
        sequential: Choose one candidate after the other, each pending for the next ones.
        grid: The cells, on the unit cube. ``None`` takes those at whose borders the draw of a
            :class:`FederatedThompsonSampling` jumps, and else one cell.
        seed: Seed of the points from which the search starts.
        return_regions: Whether to say which cells won.

    Returns:
        The candidates, ``q x d``, and their value: a scalar, or ``q`` values if sequential and
        q > 1. With ``return_regions`` also the numbers of the candidates' cells, ``q``.

    Raises:
        InvalidInputError: If an argument is out of range.
        UnsupportedError: If a constraint joins several candidates.
        CandidateGenerationError: If no cell holds a feasible point.

    Example:
        >>> from botorch.acquisition import PosteriorMean
        >>> from botorch.models import SingleTaskGP
        >>> X = torch.rand(8, 2, dtype=torch.double, generator=torch.Generator().manual_seed(0))
        >>> acqf = PosteriorMean(SingleTaskGP(X, X.sum(-1, keepdim=True)))
        >>> bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.double)
        >>> candidate, value, region = optimize_acqf_per_region(
        ...     acqf, bounds, grid=RegionGrid((2, 2)), return_regions=True)
        >>> candidate.shape, value.shape, region
        (torch.Size([1, 2]), torch.Size([]), tensor([3]))
    """
    d = checks.finite("bounds", bounds).shape[-1]
    search = CellSearch(
        space=_space(acq_function, bounds),
        bounds=bounds,
        fixed={i % d: float(value) for i, value in (fixed_features or {}).items()},
        constraints=Constraints(
            inequality=inequality_constraints,
            equality=equality_constraints,
            nonlinear=nonlinear_inequality_constraints,
        ),
        num_restarts=checks.integer("num_restarts", num_restarts, minimum=1),
        raw_samples=checks.integer("raw_samples", raw_samples, minimum=1),
        options=options or {},
        seed=seed,
    )
    checks.integer("q", q, minimum=1)
    if sequential or q == 1:
        X, value, regions = _sequential(search, acq_function, q, grid, post_processing_func)
    else:
        X, value, regions = _joint(search, acq_function, q, grid, post_processing_func)
    return (X, value, regions) if return_regions else (X, value)


def _space(acqf: AcquisitionFunction, bounds: Tensor) -> SearchSpace:
    """The space whose unit cube the cells divide."""
    if isinstance(acqf, FederatedThompsonSampling) and acqf.spec is not None:
        spec = acqf.spec
        whole = spec.bounds_tensor(bounds.device).to(bounds)
        return SearchSpace(whole, spec.log_dims, spec.integer_dims, spec.categorical_dims)
    return SearchSpace(bounds)


def _cells(acqf: AcquisitionFunction, index: int, grid: RegionGrid | None, d: int) -> RegionGrid:
    """The cells for candidate number ``index`` beyond the pending ones."""
    if grid is None and isinstance(acqf, FederatedThompsonSampling):
        grid = acqf.region_grid(acqf.draws(index + 1)[index])
    return RegionGrid([1] * d) if grid is None else grid


def _sequential(
    search: CellSearch,
    acqf: AcquisitionFunction,
    q: int,
    grid: RegionGrid | None,
    post_processing_func: Postprocess | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Candidates ``q x d``, values ``q`` (a scalar if q = 1) and regions ``q``, one by one."""
    before = acqf.X_pending if q > 1 else None
    found: list[Tensor] = []
    values: list[Tensor] = []
    regions: list[Tensor] = []
    try:
        for j in range(q):
            if j:
                acqf.set_X_pending(torch.cat([*([] if before is None else [before]), *found]))
            cells = _cells(acqf, 0, grid, search.space.dim)
            x, value = search.maximize(acqf, cells)
            if post_processing_func is not None:
                x = post_processing_func(x)
                with torch.no_grad():
                    value = acqf(x.unsqueeze(0)).squeeze(0)
            found.append(x)
            values.append(value)
            regions.append(cells.index(search.space.to_unit(x)))
    finally:
        if q > 1:
            acqf.set_X_pending(before)
    return torch.cat(found), torch.stack(values) if q > 1 else values[0], torch.cat(regions)


def _joint(
    search: CellSearch,
    acqf: AcquisitionFunction,
    q: int,
    grid: RegionGrid | None,
    post_processing_func: Postprocess | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Candidates ``q x d``, their joint value and regions ``q``."""
    space = search.space
    cells = [_cells(acqf, j, grid, space.dim) for j in range(q)]
    X, best, previous = _best_raw(search, acqf, q), -torch.inf, -torch.inf
    for cycle in range(_MAX_CYCLES):
        for j in range(q):
            x, value = search.maximize(_OneOfSeveral(acqf, X, j), cells[j])
            # The start need not be feasible, so the first cycle takes whatever is.
            if cycle == 0 or float(value) > best:
                X = torch.cat([X[:j], x, X[j + 1 :]])
                best = float(value)
        if cycle and best <= previous + _TOLERANCE * (1 + abs(previous)):
            break
        previous = best
    if not search.constraints:
        X = _polish(search, acqf, X, cells)
    if post_processing_func is not None:
        X = post_processing_func(X)
    with torch.no_grad():
        value = acqf(X.unsqueeze(0)).squeeze(0)
    regions = [c.index(space.to_unit(x)) for c, x in zip(cells, X.split(1), strict=True)]
    return X, value, torch.cat(regions)


def _best_raw(search: CellSearch, acqf: AcquisitionFunction, q: int) -> Tensor:
    """The best of quasi-random sets of candidates, ``q x d``."""
    d = search.space.dim
    sobol = SobolEngine(q * d, scramble=True, seed=derived_seed(search.seed, "joint"))
    U = sobol.draw(search.raw_samples, dtype=search.bounds.dtype).to(search.bounds.device)
    lower, upper = search.bounds
    X = search.space.snap(lower + U.reshape(-1, q, d) * (upper - lower))
    for i, value in search.fixed.items():
        X[..., i] = value
    with torch.no_grad():
        best: Tensor = X[acqf(X).argmax()]
    return best


def _polish(
    search: CellSearch, acqf: AcquisitionFunction, X: Tensor, cells: list[RegionGrid]
) -> Tensor:
    """Climb with all candidates at once, each in its cell; whole numbers stay."""
    space = search.space
    unit = space.to_unit(X)
    lower, upper = torch.empty_like(X), torch.empty_like(X)
    for j, grid in enumerate(cells):
        low, high = search.boxes(grid)
        middle = ((low + high) / 2).clamp(0, 1)
        own = (grid.index(middle) == grid.index(unit[j])).nonzero()[0, 0]
        lower[j], upper[j] = low[own], high[own]
    unit = unit.clamp(lower, upper)
    held = [*space.discrete_dims, *search.fixed]
    lower[:, held] = upper[:, held] = unit[:, held]

    def value_and_grad(u: Tensor) -> tuple[Tensor, Tensor]:  # 1 x qd -> 1, 1 x qd
        u = u.detach().requires_grad_()
        loss = -acqf(space.from_unit(u.reshape(1, *X.shape)))
        (grad,) = torch.autograd.grad(loss.sum(), u)
        return loss.detach(), grad

    u, _ = minimize_in_box(
        on_whole_batch(value_and_grad, unit.reshape(1, -1)),
        unit.reshape(1, -1),
        lower.flatten(),
        upper.flatten(),
        max_evals=_POLISH_EVALS,
        first_step=0.01,
    )
    polished = space.snap(space.from_unit(u.reshape(X.shape)))
    polished[:, held] = X[:, held]
    return polished


class _OneOfSeveral(AcquisitionFunction):
    """A joint acquisition function as one of candidate ``j``, the others held."""

    def __init__(self, acqf: AcquisitionFunction, X: Tensor, j: int) -> None:
        super().__init__(model=acqf.model)
        self._acqf = acqf
        self._before, self._after = X[:j], X[j + 1 :]

    def forward(self, X: Tensor) -> Tensor:
        before, after = (
            others.expand(*X.shape[:-2], *others.shape) for others in (self._before, self._after)
        )
        value: Tensor = self._acqf(torch.cat([before, X, after], dim=-2))
        return value
