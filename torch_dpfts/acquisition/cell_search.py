"""The search for one candidate, cell by cell, with and without constraints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.exceptions.errors import (
    CandidateGenerationError,
    InfeasibilityError,
    UnsupportedError,
)
from botorch.optim import optimize_acqf
from botorch.optim.parameter_constraints import evaluate_feasibility
from botorch.utils.sampling import get_polytope_samples
from torch import Tensor
from torch.quasirandom import SobolEngine

from torch_dpfts.acquisition.functions import Autograd
from torch_dpfts.acquisition.optimize import maximize_in_boxes
from torch_dpfts.acquisition.thompson import FederatedThompsonSampling
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.regions import RegionGrid
from torch_dpfts.rng import derived_seed
from torch_dpfts.space import SearchSpace

LinearConstraints = list[tuple[Tensor, Tensor, float]]
NonlinearConstraints = list[tuple[Callable[[Tensor], Tensor], bool]]
# Points tried by rejection for each feasible start that is needed.
_TRIES = 16


@dataclass(frozen=True, kw_only=True)
class Constraints:
    """Constraints of single points, in BoTorch's form."""

    inequality: LinearConstraints | None = None
    equality: LinearConstraints | None = None
    nonlinear: NonlinearConstraints | None = None

    def __post_init__(self) -> None:
        for indices, _, _ in [*(self.inequality or []), *(self.equality or [])]:
            if indices.ndim > 1:
                raise UnsupportedError(
                    "Constraints that join several candidates are not supported."
                )
        if any(not intra_point for _, intra_point in self.nonlinear or []):
            raise UnsupportedError("Constraints that join several candidates are not supported.")

    def __bool__(self) -> bool:
        return bool(self.inequality or self.equality or self.nonlinear)

    def as_kwargs(self) -> dict[str, Any]:
        """The keyword arguments of BoTorch's optimisers; those of no effect are left out."""
        named = {
            "inequality_constraints": self.inequality,
            "equality_constraints": self.equality,
            "nonlinear_inequality_constraints": self.nonlinear,
        }
        return {name: value for name, value in named.items() if value}


@dataclass(frozen=True, kw_only=True)
class CellSearch:
    """Where and how to search for one candidate.

    Args:
        space: The space whose unit cube the cells divide.
        bounds: The part of it to search, ``2 x d``.
        fixed: Dimensions held at a value.
        constraints: Further limits.
        num_restarts: Searches with gradients in all cells together.
        raw_samples: Points tried in all cells together.
        options: Options of BoTorch's optimiser, for the search with constraints.
        seed: Seed of the starting points.

    Raises:
        InvalidInputError: If the bounds reach beyond the space or a fixed value beyond the bounds.
        UnsupportedError: If there are constraints and whole-numbered dimensions.
    """

    space: SearchSpace
    bounds: Tensor
    fixed: Mapping[int, float]
    constraints: Constraints
    num_restarts: int
    raw_samples: int
    options: dict[str, Any]
    seed: int

    def __post_init__(self) -> None:
        whole = self.space.bounds
        if (self.bounds[0] < whole[0]).any() or (self.bounds[1] > whole[1]).any():
            raise InvalidInputError(
                f"bounds {self.bounds.tolist()} reach beyond the federation's {whole.tolist()}; "
                "narrow them."
            )
        for i, value in self.fixed.items():
            low, high = float(self.bounds[0, i]), float(self.bounds[1, i])
            if not low <= value <= high:
                raise InvalidInputError(
                    f"fixed_features[{i}] = {value} lies outside the bounds [{low}, {high}]."
                )
        if self.constraints and set(self.space.discrete_dims) - set(self.fixed):
            raise UnsupportedError(
                "Constraints together with whole-numbered dimensions are not supported here; use "
                "botorch.optim.optimize_acqf_mixed_alternating."
            )

    def maximize(self, acqf: AcquisitionFunction, grid: RegionGrid) -> tuple[Tensor, Tensor]:
        """Maximise a function of one candidate.

        Returns:
            The candidate, ``1 x d``, and its value, a scalar.

        Raises:
            CandidateGenerationError: If no cell holds a feasible point.
        """
        lower, upper = self.boxes(grid)
        if self.constraints:
            x = self._constrained(acqf, lower, upper)
        else:

            def f(X: Tensor) -> Tensor:  # 1 x r x d -> 1 x r
                values: Tensor = acqf(X.squeeze(0).unsqueeze(-2))
                return values.unsqueeze(0)

            x, value = maximize_in_boxes(
                Autograd(f, 1, self.space),
                self.space,
                lower,
                upper - lower,
                [self.seed],
                incumbents=self._incumbents(acqf),
                raw_samples=self.raw_samples,
                num_restarts=self.num_restarts,
            )
            if not self.fixed:
                return x, value.squeeze(0)
        for i, fixed in self.fixed.items():
            x[:, i] = fixed
        with torch.no_grad():
            value = acqf(x.unsqueeze(0))
        return x, value.squeeze(0)

    def _incumbents(self, acqf: AcquisitionFunction) -> Tensor | None:
        """The best points that the function knows of, in the cube, ``1 x k x d``."""
        if not isinstance(acqf, FederatedThompsonSampling):
            return None
        X = acqf.incumbents()
        return None if X is None else self.space.to_unit(X).unsqueeze(0)

    def boxes(self, grid: RegionGrid) -> tuple[Tensor, Tensor]:
        """Corners of what is left of the cells, each ``P' x d``, in the unit cube."""
        lower, width = self.space.boxes(grid)
        upper = lower + width
        whole = (self.bounds == self.space.bounds).all(dim=0)
        low, high = self.space.scale(self.bounds)
        # Boxes of whole numbers reach beyond the cube, so a bound that is the space's stays out.
        lower = torch.where(whole, lower, torch.maximum(lower, low))
        upper = torch.where(whole, upper, torch.minimum(upper, high))
        keep = (lower <= upper).all(dim=-1)
        for i, value in self.fixed.items():
            point = self.bounds.new_tensor(value).expand(1, self.space.dim)
            at = self.space.scale(point)[0, i]
            inside = ((lower + upper) / 2).clamp(0, 1)
            inside[:, i] = at
            keep &= grid.index(inside) == grid.index(((lower + upper) / 2).clamp(0, 1))
            lower[:, i] = upper[:, i] = at
        return lower[keep], upper[keep]

    def _constrained(self, acqf: AcquisitionFunction, lower: Tensor, upper: Tensor) -> Tensor:
        """The best of BoTorch's results in the cells that hold feasible points, ``1 x d``."""
        best: tuple[float, Tensor] | None = None
        restarts = -(-self.num_restarts // max(len(lower), 1))
        for cell, corners in enumerate(torch.stack([lower, upper], dim=1)):
            box = self.space.from_unit(corners)
            box = box.clamp(self.bounds[0], self.bounds[1])
            starts = self._feasible(box, restarts, cell)
            if not len(starts):
                continue
            with torch.no_grad():
                order = acqf(starts.unsqueeze(-2)).topk(min(restarts, len(starts))).indices
            try:
                x, value = optimize_acqf(
                    acqf,
                    box,
                    q=1,
                    num_restarts=len(order),
                    batch_initial_conditions=starts[order].unsqueeze(-2),
                    fixed_features=dict(self.fixed) or None,
                    options=self.options,
                    **self.constraints.as_kwargs(),
                )
            except CandidateGenerationError:
                continue
            if value is not None and (best is None or float(value) > best[0]):
                best = float(value), x
        if best is None:
            raise CandidateGenerationError(
                "No cell holds a point that meets the constraints; relax them."
            )
        return best[1]

    def _feasible(self, box: Tensor, restarts: int, cell: int) -> Tensor:
        """Feasible points of a box, ``k x d``; none if there seem to be none."""
        count = max(self.raw_samples, _TRIES * restarts)
        sobol = SobolEngine(box.shape[-1], scramble=True, seed=derived_seed(self.seed, "raw", cell))
        X = box[0] + sobol.draw(count, dtype=box.dtype).to(box.device) * (box[1] - box[0])
        for i, value in self.fixed.items():
            X[:, i] = value
        X = X[evaluate_feasibility(X.unsqueeze(-2), **self.constraints.as_kwargs())]
        if len(X) >= restarts or self.constraints.nonlinear:
            return X
        held = [
            (torch.tensor([i], device=box.device), box.new_ones(1), value)
            for i, value in self.fixed.items()
        ]
        box = box.clone()
        for i in self.fixed:  # the sampler needs room around what the equality holds
            box[0, i] -= 1
            box[1, i] += 1
        try:
            more: Tensor = get_polytope_samples(
                n=restarts,
                bounds=box,
                inequality_constraints=self.constraints.inequality,
                equality_constraints=[*(self.constraints.equality or []), *held] or None,
                seed=derived_seed(self.seed, "polytope", cell) % 2**32,
                n_burnin=500,
            )
        except InfeasibilityError:
            return X
        return torch.cat([X, more.to(X)])
