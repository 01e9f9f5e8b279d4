r"""Functions drawn from a Gaussian process, with a part that all agents share.

They are made of random Fourier features rather than of values on a grid: a draw is then a
function of the whole cube in any dimension, it needs no interpolation, and its derivatives are
at hand when the largest values are computed. With sine-cosine pairs its prior variance is
exactly 1 everywhere; only the correlation is approximate (root mean square error .002 with two
dimensions, .03 with six). The frequencies are drawn anew for each seed, not an agent's own.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from torch_dpfts import checks
from torch_dpfts.problems.base import check_query
from torch_dpfts.rng import derived_generator, derived_seed

_NUM_FREQUENCIES = 512
_NUM_POINTS = 2**14
_NUM_STARTS = 6
_NEWTON_STEPS = 12


class GPFunctions:
    r"""Draws :math:`f_n = \sqrt{s} h + \sqrt{1 - s} g_n` on the unit cube, s being ``shared``.

    The function h is common to all agents, each g_n is private, and all are drawn from a
    Gaussian process with mean 0, variance 1 and an RBF kernel, so that functions of two agents
    correlate by ``shared``. The synthetic setting of Dai, Low and Jaillet, "Differentially
    private federated Bayesian optimization with distributed exploration" (NeurIPS 2021), with
    heterogeneity that can be dialled. The evaluation runs on the CPU in float64, wherever ``X``
    lies, and has no noise.

    Args:
        num_agents: Number of agents.
        dim: Number of dimensions.
        lengthscale: Lengthscale of the kernel, in units of the cube.
        shared: Share of the variance that is common to all agents, from 0 (strangers) to 1
            (all the same).
        seed: Seed of the functions.

    Attributes:
        bounds: The unit cube, ``2 x d``, float64.

    Raises:
        InvalidInputError: If an argument is out of range.

    Example:
        >>> problem = GPFunctions(num_agents=3, seed=1)
        >>> X = torch.rand(3, 5, 2, dtype=torch.float64)
        >>> Y = problem(X, torch.arange(3))
        >>> Y.shape
        torch.Size([3, 5, 1])
        >>> bool((Y.squeeze(-1) <= problem.optimal_values.unsqueeze(-1)).all())
        True
    """

    name = "gp-functions"

    def __init__(
        self,
        num_agents: int = 200,
        dim: int = 2,
        lengthscale: float = 0.15,
        shared: float = 0.8,
        seed: int = 0,
    ) -> None:
        self.num_agents = checks.integer("num_agents", num_agents, minimum=1)
        self.dim = checks.integer("dim", dim, minimum=1)
        self.lengthscale = checks.real("lengthscale", lengthscale, minimum=1e-3, maximum=1e3)
        self.shared = checks.real("shared", shared, minimum=0.0, maximum=1.0)
        self.seed = checks.integer("seed", seed)
        self.bounds = torch.tensor([[0.0] * self.dim, [1.0] * self.dim], dtype=torch.float64)
        self._frequencies = self._draw_frequencies()  # K x d
        generator = derived_generator(self.seed, "gp functions")
        size = (self.num_agents + 1, 2 * _NUM_FREQUENCIES)
        common, private = torch.randn(size, generator=generator, dtype=torch.float64).split(
            [1, self.num_agents]
        )
        # num_agents x 2K, the sines' weights first
        self._weights = self.shared**0.5 * common + (1 - self.shared) ** 0.5 * private

    def _draw_frequencies(self) -> Tensor:
        # The generator of a Sobol sequence takes 32 bits of a seed.
        sobol = SobolEngine(
            self.dim, scramble=True, seed=derived_seed(self.seed, "gp frequencies") % 2**32
        )
        uniforms = sobol.draw(_NUM_FREQUENCIES, dtype=torch.float64).clamp(2.0**-33, 1 - 2.0**-33)
        return torch.special.ndtri(uniforms) / self.lengthscale

    def _features(self, X: Tensor) -> Tensor:
        """Sines and then cosines, ``... x 2K``, of unit norm."""
        angles = X @ self._frequencies.mT
        return torch.cat([angles.sin(), angles.cos()], dim=-1) * _NUM_FREQUENCIES**-0.5

    def __call__(self, X: Tensor, agent_ids: Tensor) -> Tensor:
        """Evaluate the agents' functions.

        Args:
            X: Points of the unit cube, ``b x n x d``.
            agent_ids: The agent of each of the ``b`` blocks, ``b``, int64.

        Returns:
            Values, ``b x n x 1``, with the dtype and the device of ``X``.

        Raises:
            InvalidInputError: If ``X`` or ``agent_ids`` does not fit the problem.
        """
        check_query(X, agent_ids, self.bounds, self.num_agents)
        weights = self._weights[agent_ids.cpu()].unsqueeze(-1)  # b x 2K x 1
        return (self._features(X.to("cpu", torch.float64)) @ weights).to(X)

    @cached_property
    def optimal_values(self) -> Tensor:
        """Largest value of each agent's function, ``num_agents``, float64.

        Found by a dense search and Newton's method from several of the best places: right to
        1e-4 with one or two dimensions; with more, where the cube holds too many local maxima,
        a lower bound. Computed when first asked for: a second for 200 agents.
        """
        X, best = self._starts(), torch.full((self.num_agents,), -torch.inf, dtype=torch.float64)
        for _ in range(_NEWTON_STEPS):
            X, values = self._newton_step(X)
            best = torch.maximum(best, values.amax(-1))
        return best

    def _starts(self) -> Tensor:
        """The highest of many points and then the highest far from it, ``N x starts x d``."""
        points = SobolEngine(self.dim).draw(_NUM_POINTS, dtype=torch.float64)  # n x d
        values = torch.cat(
            [self._features(chunk) @ self._weights.mT for chunk in points.split(2048)]
        ).mT.contiguous()  # N x n
        starts = []
        for _ in range(_NUM_STARTS):
            starts.append(points[values.argmax(-1)])  # N x d
            near = torch.cdist(starts[-1], points) < self.lengthscale / 2
            values.masked_fill_(near, -torch.inf)
        return torch.stack(starts, dim=-2)

    def _newton_step(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Move each point ``N x starts x d`` uphill in the cube; also the values before."""
        frequencies = self._frequencies
        on_sine, on_cosine = self._weights.unsqueeze(-2).chunk(2, dim=-1)  # N x 1 x K
        sine, cosine = self._features(X).chunk(2, dim=-1)  # N x starts x K
        height = on_sine * sine + on_cosine * cosine
        gradient = (on_sine * cosine - on_cosine * sine) @ frequencies
        squares = (frequencies.unsqueeze(-1) * frequencies.unsqueeze(-2)).flatten(1)  # K x d^2
        hessian = -(height @ squares).unflatten(-1, (self.dim, self.dim))
        # A coordinate at its bound stays there while the function rises towards the outside.
        free = ~(((X <= 0) & (gradient < 0)) | ((X >= 1) & (gradient > 0)))
        gradient = gradient * free
        hessian = hessian * free.unsqueeze(-1) * free.unsqueeze(-2)
        curvature, axes = torch.linalg.eigh(hessian)
        # Uphill also where the function is convex, and no farther than a trust region.
        slopes = (axes.mT @ gradient.unsqueeze(-1)).squeeze(-1)
        steps = slopes / curvature.abs().clamp_min(1e-9 / self.lengthscale**2)
        limit = self.lengthscale / 4
        steps = steps * (limit / steps.norm(dim=-1, keepdim=True).clamp_min(limit))
        moved = X + (axes @ steps.unsqueeze(-1)).squeeze(-1)
        return moved.clamp(0, 1), height.sum(-1)
