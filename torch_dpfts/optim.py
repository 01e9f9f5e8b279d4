"""Many small smooth problems in one box, minimised at once.

The maximisation of sample paths and the fit of hyperparameters are both thousands of
independent problems in a few dimensions. A loop over them would spend its time in Python, so
the quasi-Newton steps here run on all of them together. A problem that is done leaves the
batch, and its result does not depend on which others were in it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

ValueAndGrad = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

_ARMIJO = 1e-4
_SHORTEN = 0.25
_SHORTEST = 1e-5  # of a step, before a problem is given up


def minimize_in_box(
    value_and_grad: ValueAndGrad,
    start: Tensor,
    lower: Tensor,
    upper: Tensor,
    *,
    max_evals: int,
    first_step: float,
    gtol: float = 1e-5,
    ftol: float = 1e-9,
) -> tuple[Tensor, Tensor]:
    r"""Minimise a batch of functions over a box by projected BFGS.

    Variables at a bound whose gradient points outward are held; the others take a step
    :math:`-H g` with the BFGS inverse Hessian H, projected on the box and shortened until the
    Armijo condition holds (Bertsekas 1982, *Projected Newton Methods for Optimization Problems
    with Simple Constraints*).

    Args:
        value_and_grad: Maps points ``m x k`` and the numbers ``m`` of the problems they belong
            to (a LongTensor) to values ``m`` and gradients ``m x k``.
        start: Starting points, ``n x k``, inside the box; problem i starts at row i.
        lower: Lower bounds, ``k``.
        upper: Upper bounds, ``k``.
        max_evals: Most evaluations after the one at the start.
        first_step: Length of the first step, in the units of the variables.
        gtol: A problem is done when no free entry of its gradient exceeds this.
        ftol: It is also done when a step improves it by less than ``ftol * (1 + |value|)``.

    Returns:
        The best points found, ``n x k``, and their values, ``n``.
    """
    rows = torch.arange(len(start), device=start.device)
    f, g = value_and_grad(start, rows)
    best_x, best_f = start.clone(), f.clone()
    eye = torch.eye(start.shape[-1], dtype=start.dtype, device=start.device)
    H = eye * (first_step / g.norm(dim=-1).clamp_min(1e-12))[:, None, None]
    scale, fresh = torch.ones_like(f), torch.ones_like(rows, dtype=torch.bool)
    going = f.isfinite()
    x = start
    for _ in range(max_evals):
        step, slope = _step(x, g, H, lower, upper, first_step)
        rows, x, f, g, H, step, scale, fresh = _select(
            going & (slope > gtol), rows, x, f, g, H, step, scale, fresh
        )
        if not len(rows):
            break
        trial = torch.clamp(x + scale.unsqueeze(-1) * step, lower, upper)
        moved = trial - x
        f_trial, g_trial = value_and_grad(trial, rows)
        # A step that does not pay is tried again, shorter, while others go on with their next.
        pays = (f_trial <= f + _ARMIJO * (moved * g).sum(-1)) & g_trial.isfinite().all(-1)
        taken = pays.unsqueeze(-1)
        H = torch.where(taken.unsqueeze(-1), _update(H, moved, g_trial - g, fresh), H)
        going = torch.where(pays, f - f_trial > ftol * (1 + f.abs()), scale > _SHORTEST)
        x, g = torch.where(taken, trial, x), torch.where(taken, g_trial, g)
        f, fresh = torch.where(pays, f_trial, f), fresh & ~pays
        scale = torch.where(pays, torch.ones_like(scale), _SHORTEN * scale)
        best_x[rows], best_f[rows] = x, f
    return best_x, best_f


def _select(keep: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
    return values if keep.all() else tuple(value[keep] for value in values)


def _step(
    x: Tensor, g: Tensor, H: Tensor, lower: Tensor, upper: Tensor, first_step: float
) -> tuple[Tensor, Tensor]:
    """Return the quasi-Newton steps, ``n x k``, and the largest free entries of the gradients."""
    held = ((x <= lower) & (g > 0)) | ((x >= upper) & (g < 0))
    free_g = g.masked_fill(held, 0.0)
    step = -(H @ free_g.unsqueeze(-1)).squeeze(-1).masked_fill(held, 0.0)
    uphill = (step * g).sum(-1, keepdim=True) >= 0
    return torch.where(uphill, -first_step * free_g, step), free_g.abs().amax(-1)


def _update(H: Tensor, s: Tensor, y: Tensor, fresh: Tensor) -> Tensor:
    """The BFGS update of the inverse Hessian where the curvature is positive."""
    sy = (s * y).sum(-1)
    curved = sy > 1e-10 * s.norm(dim=-1) * y.norm(dim=-1)
    sy = torch.where(curved, sy, torch.ones_like(sy))[:, None, None]
    eye = torch.eye(s.shape[-1], dtype=s.dtype, device=s.device)
    # Before the first update, H takes the scale of the curvature just seen (Shanno, Phua).
    scale = sy / (y * y).sum(-1).clamp_min(1e-300)[:, None, None]
    H = torch.where((curved & fresh)[:, None, None], eye * scale, H)
    s, y = s.unsqueeze(-1), y.unsqueeze(-1)
    Hy = H @ y
    half = (0.5 * (1 + (y * Hy).sum(-2, keepdim=True) / sy) * s - Hy) * s.mT / sy
    updated = H + half + half.mT
    return torch.where(curved[:, None, None], updated, H)


def on_whole_batch(
    value_and_grad: Callable[[Tensor], tuple[Tensor, Tensor]], start: Tensor
) -> ValueAndGrad:
    """Adapt a function that has to see all problems at once; those that are done stay put.

    Args:
        value_and_grad: Maps points ``n x k`` to values ``n`` and gradients ``n x k``.
        start: Starting points, ``n x k``.
    """
    current = start.clone()

    def of_rows(x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        current[rows] = x
        values, grads = value_and_grad(current)
        return values[rows], grads[rows]

    return of_rows
