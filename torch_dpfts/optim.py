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
_BACKTRACKS = 10


def minimize_in_box(
    value_and_grad: ValueAndGrad,
    start: Tensor,
    lower: Tensor,
    upper: Tensor,
    *,
    max_iter: int,
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
        max_iter: Most iterations.
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
    rows, x, f, g, H = _select(f.isfinite(), rows, start, f, g, H)
    for iteration in range(max_iter):
        held = ((x <= lower) & (g > 0)) | ((x >= upper) & (g < 0))
        free_g = g.masked_fill(held, 0.0)
        step = -(H @ free_g.unsqueeze(-1)).squeeze(-1).masked_fill(held, 0.0)
        uphill = (step * g).sum(-1, keepdim=True) >= 0
        step = torch.where(uphill, -first_step * free_g, step)
        steep = free_g.abs().amax(-1) > gtol
        rows, x, f, g, H, step = _select(steep, rows, x, f, g, H, step)
        if not len(rows):
            break
        x_new, f_new, g_new = _backtrack(value_and_grad, rows, x, f, g, step, lower, upper)
        H = _update(H, x_new - x, g_new - g, eye if iteration == 0 else None)
        improved = f - f_new > ftol * (1 + f.abs())
        best_x[rows], best_f[rows] = x_new, f_new
        rows, x, f, g, H = _select(improved, rows, x_new, f_new, g_new, H)
    return best_x, best_f


def _select(keep: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
    return values if keep.all() else tuple(value[keep] for value in values)


def _backtrack(
    value_and_grad: ValueAndGrad,
    rows: Tensor,
    x: Tensor,
    f: Tensor,
    g: Tensor,
    step: Tensor,
    lower: Tensor,
    upper: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Shorten each step until it pays; a step that never pays is not taken."""
    x_new, f_new, g_new = x.clone(), f.clone(), g.clone()
    pending = torch.arange(len(rows), device=x.device)
    scale = 1.0
    for _ in range(_BACKTRACKS):
        start = x[pending]
        trial = torch.clamp(start + scale * step[pending], lower, upper)
        f_trial, g_trial = value_and_grad(trial, rows[pending])
        enough = f[pending] + _ARMIJO * ((trial - start) * g[pending]).sum(-1)
        pays = (f_trial <= enough) & g_trial.isfinite().all(-1)
        taken = pending[pays]
        x_new[taken], f_new[taken], g_new[taken] = trial[pays], f_trial[pays], g_trial[pays]
        pending = pending[~pays]
        if not len(pending):
            break
        scale *= 0.25
    return x_new, f_new, g_new


def _update(H: Tensor, s: Tensor, y: Tensor, first: Tensor | None) -> Tensor:
    """The BFGS update of the inverse Hessian where the curvature is positive."""
    sy = (s * y).sum(-1)
    curved = sy > 1e-10 * s.norm(dim=-1) * y.norm(dim=-1)
    sy = torch.where(curved, sy, torch.ones_like(sy))[:, None, None]
    if first is not None:
        # Before the first update, H takes the scale of the curvature just seen (Shanno, Phua).
        scale = sy / (y * y).sum(-1).clamp_min(1e-300)[:, None, None]
        H = torch.where(curved[:, None, None], first * scale, H)
    s, y = s.unsqueeze(-1), y.unsqueeze(-1)
    left = torch.eye(s.shape[-2], dtype=s.dtype, device=s.device) - s @ y.mT / sy
    updated = left @ H @ left.mT + s @ s.mT / sy
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
