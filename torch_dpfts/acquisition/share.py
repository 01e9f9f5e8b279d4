r"""How much of an agent's own function the broadcast explains, learnt from its own outcomes.

An agent's standardised outcomes are taken to be

.. math:: y = c + a \, g(x) + \sqrt{1 - a^2} \, (f(x) + \varepsilon),

with g the broadcast scaled to a standard deviation of 1 over the search space, f the agent's
Gaussian process, :math:`\varepsilon` its noise, c an unknown constant, and a the *share*: 0 if the
others' functions have nothing in common with the agent's own, nearly 1 if they are the same. The
variance is the same for every share, so a broadcast that explains much also leaves less to
explore. The share has a uniform prior. Its posterior needs no new factorization: with C the
covariance of :math:`f + \varepsilon` at the n inputs and c integrated out,

.. math:: \log p(y \mid a) = -\frac{n - 1}{2} \log(1 - a^2)
   - \frac{\langle y, y \rangle - 2 a \langle y, g \rangle + a^2 \langle g, g \rangle}{2 (1 - a^2)}
   + \text{const},

where :math:`\langle u, v \rangle = u^\top (C^{-1} - C^{-1} 1 1^\top C^{-1} / 1^\top C^{-1} 1) v`
(universal kriging; Rasmussen and Williams, *Gaussian Processes for Machine Learning*, 2006, section
2.7). Thompson sampling draws a share and then a function given the share, so that agents differ in
how far they follow the broadcast as long as they cannot know how far they should. All of this stays
with the agent and costs no privacy.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from torch_dpfts.features import SharedFeatures
from torch_dpfts.regions import RegionGrid

_MAX_SHARE = 0.95
_NUM_SHARES = 96
_SAMPLES = 512


class Share(NamedTuple):
    r"""A posterior draw of the share, with what it leaves to the agent's own process.

    Args:
        share: The share a of each model, ``b``.
        scale: :math:`\sqrt{1 - a^2}`, ``b``.
        offset: The constant c given the share, ``b``.
        rest: Outcomes of f that the share leaves, ``b x n``: with them,
            ``offset + share * g + scale * rest`` is what was observed.
    """

    share: Tensor
    scale: Tensor
    offset: Tensor
    rest: Tensor


def draw_share(factor: Tensor, residual: Tensor, g: Tensor, uniform: Tensor) -> Share:
    """Draw the share of each of ``b`` models from its posterior.

    Args:
        factor: Lower Cholesky factors of the covariances of the outcomes, ``b x n x n``.
        residual: Standardised outcomes less the prior mean, ``b x n``.
        g: The scaled broadcast at the inputs, ``b x n``.
        uniform: A uniform draw for each model, ``b``.

    Example:
        >>> eye, y = torch.eye(4).double(), torch.tensor([[-1.0, 0.0, 1.0, 2.0]]).double()
        >>> draw = draw_share(eye.unsqueeze(0), y, y, torch.tensor([0.5]).double())
        >>> 0 <= float(draw.share) < 1
        True
    """
    columns = torch.stack([torch.ones_like(g), residual, g], dim=-1)  # b x n x 3
    products = columns.mT @ torch.cholesky_solve(columns, factor)  # b x 3 x 3
    ones = products[:, :1, :1]
    forms = products - products[:, :, :1] @ products[:, :1, :] / ones  # 1 projected out
    yy, yg, gg = forms[:, 1, 1], forms[:, 1, 2], forms[:, 2, 2]
    shares = torch.linspace(0, _MAX_SHARE, _NUM_SHARES, dtype=g.dtype, device=g.device)
    rest_variance = 1 - shares.square()
    distance = yy.unsqueeze(-1) - 2 * shares * yg.unsqueeze(-1) + shares**2 * gg.unsqueeze(-1)
    n = g.shape[-1]
    log_density = -0.5 * ((n - 1) * rest_variance.log() + distance / rest_variance)
    below = log_density.softmax(dim=-1).cumsum(dim=-1) < uniform.unsqueeze(-1)
    share = shares[below.sum(dim=-1).clamp_max(_NUM_SHARES - 1)]
    scale = (1 - share.square()).sqrt()
    offset = (products[:, 0, 1] - share * products[:, 0, 2]) / ones.flatten()
    rest = residual - share.unsqueeze(-1) * g - offset.unsqueeze(-1)
    return Share(share, scale, offset, rest / scale.unsqueeze(-1))


def scaled_vectors(features: SharedFeatures, grid: RegionGrid, vectors: Tensor) -> Tensor:
    """Scale broadcasts to functions with a standard deviation of 1 over the cube.

    Args:
        features: The shared feature map.
        grid: The sub-regions.
        vectors: ``batch_shape x P x M``. A constant broadcast stays as it is.

    Returns:
        ``batch_shape x P x M``.
    """
    sobol = SobolEngine(grid.dim, scramble=True, seed=0)
    cube = sobol.draw(_SAMPLES, dtype=vectors.dtype).to(vectors.device)
    by_region = features(cube) @ vectors.mT  # batch_shape x samples x P
    region = grid.index(cube).expand(by_region.shape[:-1])
    spread = by_region.gather(-1, region.unsqueeze(-1)).std(dim=-2, keepdim=True)
    return vectors / torch.where(spread > 0, spread, torch.ones_like(spread))
