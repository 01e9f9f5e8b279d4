"""Many small smooth problems in boxes, minimised at once.

The maximisation of sample paths and the fit of hyperparameters are both thousands of
independent problems in a few dimensions. A loop over them would spend its time in Python, so
the quasi-Newton steps here run on all of them together, and a problem's result does not depend
on which others share the batch.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

ValueAndGrad = Callable[[Tensor], tuple[Tensor, Tensor]]

_ARMIJO = 1e-4
_BACKTRACKS = 12


def minimize_in_box(
    value_and_grad: ValueAndGrad,
    start: Tensor,
    lower: Tensor,
    upper: Tensor,
    *,
    max_iter: int,
    first_step: float,
    tol: float = 1e-7,
) -> tuple[Tensor, Tensor]:
    r"""Minimise a batch of functions over boxes by projected BFGS.

    Variables at a bound whose gradient points outward are held; the others take a step
    :math:`-H g` with the BFGS inverse Hessian H, projected on the box and shortened until the
    Armijo condition holds (Bertsekas 1982, *Projected Newton Methods for Optimization Problems
    with Simple Constraints*).

    Args:
        value_and_grad: Maps ``batch_shape x k`` to values ``batch_shape`` and gradients
            ``batch_shape x k``. It is always called with the whole batch.
        start: Starting points, ``batch_shape x k``, inside the boxes.
        lower: Lower bounds, broadcastable to ``start``.
        upper: Upper bounds, broadcastable to ``start``.
        max_iter: Most iterations.
        first_step: Length of the first step, in the units of the variables.
        tol: A problem is done when a step improves it by less than ``tol * (1 + |value|)``.

    Returns:
        The best points found, ``batch_shape x k``, and their values, ``batch_shape``.
    """
    x = start
    f, g = value_and_grad(x)
    eye = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device).expand(*x.shape, x.shape[-1])
    H = eye * (first_step / g.norm(dim=-1).clamp_min(1e-12))[..., None, None]
    done = ~torch.isfinite(f)
    for iteration in range(max_iter):
        held = ((x <= lower) & (g > 0)) | ((x >= upper) & (g < 0))
        free_g = g.masked_fill(held, 0.0)
        step = -(H @ free_g.unsqueeze(-1)).squeeze(-1).masked_fill(held, 0.0)
        uphill = (step * g).sum(-1, keepdim=True) >= 0
        step = torch.where(uphill, -first_step * free_g, step)
        x_new, f_new, g_new = _backtrack(value_and_grad, x, f, g, step, lower, upper, done)
        done = done | ~(f - f_new > tol * (1 + f.abs()))
        H = _update(H, x_new - x, g_new - g, eye if iteration == 0 else None)
        x, f, g = x_new, f_new, g_new
        if done.all():
            break
    return x, f


def _backtrack(
    value_and_grad: ValueAndGrad,
    x: Tensor,
    f: Tensor,
    g: Tensor,
    step: Tensor,
    lower: Tensor,
    upper: Tensor,
    done: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Shorten each step until it pays; what never pays (and what is done) stays where it is."""
    x_new, f_new, g_new = x, f, g
    open_ = ~done
    scale = torch.ones_like(f)
    for _ in range(_BACKTRACKS):
        trial = torch.clamp(x + scale.unsqueeze(-1) * step, lower, upper)
        trial = torch.where(open_.unsqueeze(-1), trial, x_new)
        f_trial, g_trial = value_and_grad(trial)
        enough = f + _ARMIJO * ((trial - x) * g).sum(-1)
        accept = open_ & (f_trial <= enough) & torch.isfinite(g_trial).all(-1)
        x_new = torch.where(accept.unsqueeze(-1), trial, x_new)
        g_new = torch.where(accept.unsqueeze(-1), g_trial, g_new)
        f_new = torch.where(accept, f_trial, f_new)
        open_ = open_ & ~accept
        if not open_.any():
            break
        scale = scale * 0.25
    return x_new, f_new, g_new


def _update(H: Tensor, s: Tensor, y: Tensor, first: Tensor | None) -> Tensor:
    """The BFGS update of the inverse Hessian where the curvature is positive."""
    sy = (s * y).sum(-1)
    curved = sy > 1e-10 * s.norm(dim=-1) * y.norm(dim=-1)
    sy = torch.where(curved, sy, torch.ones_like(sy))[..., None, None]
    if first is not None:
        # Before the first update, H takes the scale of the curvature just seen (Shanno, Phua).
        scale = sy / (y * y).sum(-1).clamp_min(1e-300)[..., None, None]
        H = torch.where(curved[..., None, None], first * scale, H)
    s, y = s.unsqueeze(-1), y.unsqueeze(-1)
    left = torch.eye(s.shape[-2], dtype=s.dtype, device=s.device) - s @ y.mT / sy
    updated = left @ H @ left.mT + s @ s.mT / sy
    return torch.where(curved[..., None, None], updated, H)
