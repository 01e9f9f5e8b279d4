r"""Random Fourier features of kernels, composed the way the kernels are.

A stationary kernel is the characteristic function of its spectral density [Rahimi2007]_. Sums of
kernels concatenate features, products add independent frequencies, scales multiply. The
categorical kernel of BoTorch belongs here too: on whole numbers :math:`k(c, c') = \rho` for
:math:`c \ne c'` is stationary, with frequency 0 in a share :math:`\rho` of the cases and uniform
on :math:`[0, 2\pi)` otherwise, so that different categories decorrelate exactly.

Importing this module teaches BoTorch's ``gen_kernel_features`` the categorical, additive and
product kernels, which it refuses by itself; ``get_matheron_path_model`` then takes a
``MixedSingleTaskGP``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import singledispatch
from itertools import product
from typing import NamedTuple

import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.models.kernels import CategoricalKernel
from botorch.sampling.pathwise.features.generators import GenKernelFeatures
from botorch.sampling.pathwise.features.maps import KernelFeatureMap
from botorch.sampling.pathwise.utils import FeatureSelector, SineCosineTransform
from gpytorch.kernels import (
    AdditiveKernel,
    Kernel,
    MaternKernel,
    ProductKernel,
    RBFKernel,
    ScaleKernel,
)
from torch import Tensor

from torch_dpfts.rng import fresh_seed


class Draws(NamedTuple):
    """Where features and weights come from: two functions of a shape.

    Args:
        normal: Returns standard normal draws.
        uniform: Returns uniform draws on ``[0, 1)``.
    """

    normal: Callable[..., Tensor]
    uniform: Callable[..., Tensor]


class _Term(NamedTuple):
    """A product of stationary kernels, each over some of the inputs, times a variance."""

    variance: Tensor  # kernel_batch_shape, or a scalar
    factors: tuple[tuple[Kernel, tuple[int, ...]], ...]


def fourier_features(
    kernel: Kernel, num_inputs: int, num_outputs: int, draws: Draws
) -> KernelFeatureMap:
    r"""Draw features with :math:`\phi(x)^\top \phi(x') \approx k(x, x')`, exact at x = x'.

    Args:
        kernel: A sum, product or scaled version of RBF, Matern and categorical kernels.
        num_inputs: Number of inputs of the model.
        num_outputs: Number of features, even and at least 2 for each term of the expanded sum.
        draws: The source of randomness.

    Returns:
        A map ``batch_shape x n x d -> batch_shape x n x num_outputs`` of the kernel as it is now.

    Raises:
        UnsupportedError: If a kernel has no known spectral density, or ``num_outputs`` is odd or
            too small.
    """
    return _features(
        kernel, _terms(kernel, tuple(range(num_inputs))), num_inputs, num_outputs, draws
    )


def _features(
    kernel: Kernel, terms: Sequence[_Term], num_inputs: int, num_outputs: int, draws: Draws
) -> KernelFeatureMap:
    pairs, odd = divmod(num_outputs, 2)
    if odd or pairs < len(terms):
        raise UnsupportedError(
            f"num_outputs must be even and at least {2 * len(terms)}, got {num_outputs}."
        )
    frequencies, scales = [], []
    for i, term in enumerate(terms):
        count = pairs // len(terms) + (i < pairs % len(terms))
        frequencies.append(_term_frequencies(term, num_inputs, count, draws))
        scale = (term.variance / count).sqrt()[..., None, None]
        scales.append(scale.expand(*scale.shape[:-1], count))
    batch = torch.broadcast_shapes(*(f.shape[:-2] for f in frequencies))
    weight = torch.cat([f.expand(*batch, *f.shape[-2:]) for f in frequencies], dim=-2)
    scale = torch.cat([s.expand(*batch, *s.shape[-2:]) for s in scales], dim=-1)
    return KernelFeatureMap(
        kernel=kernel,
        weight=weight,
        output_transform=SineCosineTransform(torch.cat([scale, scale], dim=-1)),
    )


def num_terms(kernel: Kernel, num_inputs: int) -> int:
    """Number of terms of the expanded sum; raises ``UnsupportedError`` like the features."""
    return len(_terms(kernel, tuple(range(num_inputs))))


def categorical_inputs(kernel: Kernel, num_inputs: int) -> list[int]:
    """Places of the inputs on which a categorical kernel acts."""
    factors = [f for term in _terms(kernel, tuple(range(num_inputs))) for f in term.factors]
    return sorted({i for k, dims in factors if isinstance(k, CategoricalKernel) for i in dims})


def _terms(kernel: Kernel, dims: tuple[int, ...]) -> list[_Term]:
    """Expand a kernel into a sum of products; it picks its active ones of the inputs ``dims``."""
    if kernel.active_dims is not None:
        dims = tuple(dims[i] for i in kernel.active_dims.tolist())
    return _expand(kernel, dims)


def _expand(kernel: Kernel, dims: tuple[int, ...]) -> list[_Term]:
    """The same where the active inputs have been picked."""
    if isinstance(kernel, ScaleKernel):
        # A scaled kernel picks for its base as well.
        inner = _expand(kernel.base_kernel, dims)
        return [_Term(kernel.outputscale * term.variance, term.factors) for term in inner]
    if isinstance(kernel, AdditiveKernel):
        return [term for child in kernel.kernels for term in _terms(child, dims)]
    if isinstance(kernel, ProductKernel):
        return [
            _Term(
                torch.stack(torch.broadcast_tensors(*(t.variance for t in combination))).prod(0),
                tuple(factor for t in combination for factor in t.factors),
            )
            for combination in product(*(_terms(child, dims) for child in kernel.kernels))
        ]
    if spectral_draw.dispatch(type(kernel)) is spectral_draw.dispatch(object):
        raise UnsupportedError(
            f"{type(kernel).__name__} has no known spectral density; kernels built of RBF, Matern "
            "and categorical ones by sums, products and scales have."
        )
    one = torch.ones((), dtype=kernel.dtype, device=kernel.device)
    return [_Term(one, ((kernel, dims),))]


def _term_frequencies(term: _Term, num_inputs: int, count: int, draws: Draws) -> Tensor:
    """Frequencies of a product, ``kernel_batch_shape x count x d``."""
    total: Tensor | None = None
    for kernel, dims in term.factors:
        drawn: Tensor = spectral_draw(kernel, len(dims), count, draws)
        if dims != tuple(range(num_inputs)):
            full = drawn.new_zeros(*drawn.shape[:-1], num_inputs)
            full[..., list(dims)] = drawn
            drawn = full
        total = drawn if total is None else total + drawn
    if total is None:
        raise UnsupportedError("A product of no kernels has no features.")
    return total


@singledispatch
def spectral_draw(kernel: Kernel, num_inputs: int, count: int, draws: Draws) -> Tensor:
    """Draw frequencies from a kernel's spectral density; register other kernels here.

    Returns:
        ``batch_shape x count x num_inputs``.
    """
    raise UnsupportedError(f"{type(kernel).__name__} has no known spectral density.")


@spectral_draw.register
def _(kernel: RBFKernel, num_inputs: int, count: int, draws: Draws) -> Tensor:
    return draws.normal(count, num_inputs) / kernel.lengthscale


@spectral_draw.register
def _(kernel: MaternKernel, num_inputs: int, count: int, draws: Draws) -> Tensor:
    # A Student t spectral density: normals over the root of a chi-square by its 2 nu.
    normals = draws.normal(count, num_inputs)
    chi_square = draws.normal(count, round(2 * kernel.nu)).square().mean(-1, keepdim=True)
    return normals / chi_square.sqrt() / kernel.lengthscale


@spectral_draw.register
def _(kernel: CategoricalKernel, num_inputs: int, count: int, draws: Draws) -> Tensor:
    u = draws.uniform(2, count, num_inputs).movedim(-3, 0)
    same = (-1 / (num_inputs * kernel.lengthscale)).exp()
    return torch.where(u[0] < same, torch.zeros_like(u[1]), 2 * math.pi * u[1])


@GenKernelFeatures.register(  # type: ignore[untyped-decorator]
    (CategoricalKernel, AdditiveKernel, ProductKernel)
)
def _botorch_features(
    kernel: Kernel,
    *,
    num_inputs: int,
    num_outputs: int,
    generator: torch.Generator | None = None,
) -> KernelFeatureMap:
    """BoTorch's entry; without a generator the draws come from the operating system's entropy."""
    if generator is None:
        generator = torch.Generator().manual_seed(fresh_seed())
    selector = None
    if kernel.active_dims is not None:
        # BoTorch leaves the choice of inputs to the map.
        selector, num_inputs = FeatureSelector(kernel.active_dims), len(kernel.active_dims)
    terms = _expand(kernel, tuple(range(num_inputs)))
    draws = single_draws(generator, kernel.batch_shape, kernel)
    feature_map = _features(kernel, terms, num_inputs, num_outputs, draws)
    feature_map.input_transform = selector
    return feature_map


def single_draws(generator: torch.Generator, batch_shape: Sequence[int], like: Kernel) -> Draws:
    """Draws of one generator, ``batch_shape x shape``, in the dtype and on the device of a kernel.

    They are made on the CPU in float64, so that a seed means the same draw everywhere.
    """

    def normal(*shape: int) -> Tensor:
        values = torch.randn(*batch_shape, *shape, generator=generator, dtype=torch.float64)
        return values.to(dtype=like.dtype, device=like.device)

    def uniform(*shape: int) -> Tensor:
        values = torch.rand(*batch_shape, *shape, generator=generator, dtype=torch.float64)
        return values.to(dtype=like.dtype, device=like.device)

    return Draws(normal, uniform)
