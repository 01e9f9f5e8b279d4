r"""The feature map that all agents share, a function of public values alone.

For a stationary kernel k with k(x, x) = 1, random Fourier features [Rahimi2007]_ give
:math:`\phi: [0, 1]^d \to R^M` with :math:`\phi(x)^\top \phi(x') \approx k(x, x')`. A vector of
weights then stands for a function :math:`\phi(x)^\top \omega` that every agent can evaluate.

.. [Rahimi2007] A. Rahimi and B. Recht. Random Features for Large-Scale Kernel Machines.
   NeurIPS 2007.
.. [Sutherland2015] D. J. Sutherland and J. Schneider. On the Error of Random Fourier
   Features. UAI 2015.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from botorch.sampling.pathwise.features.maps import FeatureMap
from scipy.special import gammaincinv, ndtri
from torch import Size, Tensor

from torch_dpfts import checks
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.spec import FederationSpec

_SMOOTHNESS = {"matern12": 0.5, "matern32": 1.5, "matern52": 2.5}


class SharedFeatures(FeatureMap):
    r"""Random Fourier features with :math:`\phi(x)^\top \phi(x) = 1` for every x.

    Without phases the map is made of sine-cosine pairs, which have unit norm by themselves and
    less variance than random phases [Sutherland2015]_. With phases it is made of cosines, each
    row divided by its norm, as in the experiments of [Dai2021]_.

    Args:
        frequencies: Angular frequencies on the unit cube, ``M/2 x d`` without phases and
            ``M x d`` with them. They already hold the division by the lengthscales.
        phases: ``M`` phases, or ``None`` for sine-cosine pairs.

    Raises:
        InvalidInputError: If shapes disagree or a value is not finite.

    Example:
        >>> features = SharedFeatures(torch.ones(8, 2, dtype=torch.float64))
        >>> phi = features(torch.rand(5, 2, dtype=torch.float64))
        >>> phi.shape, bool(torch.allclose(phi.norm(dim=-1), torch.ones(5).double()))
        (torch.Size([5, 16]), True)
    """

    frequencies: Tensor
    phases: Tensor | None

    def __init__(self, frequencies: Tensor, phases: Tensor | None = None) -> None:
        super().__init__()
        if frequencies.ndim != 2 or 0 in frequencies.shape:
            raise InvalidInputError(
                f"frequencies must have shape K x d, got {tuple(frequencies.shape)}."
            )
        if phases is not None and phases.shape != frequencies.shape[:1]:
            raise InvalidInputError(
                f"phases must have shape {(len(frequencies),)}, got {tuple(phases.shape)}."
            )
        checks.finite("frequencies", frequencies)
        self.register_buffer("frequencies", frequencies)
        self.register_buffer("phases", None if phases is None else checks.finite("phases", phases))
        self.input_transform = None
        self.output_transform = None
        self.batch_shape = Size()
        self.num_outputs = len(frequencies) * (2 if phases is None else 1)

    @classmethod
    def from_spec(
        cls, spec: FederationSpec, device: torch.device | str | None = None
    ) -> SharedFeatures:
        """Draw the map that ``spec`` fixes; every party gets the same one."""
        paired = spec.feature_map == "sincos"
        count = spec.num_features // 2 if paired else spec.num_features
        uniforms = _public_uniforms(spec, count, spec.dim + 2)
        frequencies = ndtri(uniforms[:, : spec.dim]) / np.asarray(spec.lengthscales)
        if spec.kernel in _SMOOTHNESS:
            # A Matern spectral density is a Student t: normals over the root of a Gamma(nu, nu).
            nu = _SMOOTHNESS[spec.kernel]
            frequencies /= np.sqrt(gammaincinv(nu, uniforms[:, [spec.dim]]) / nu)
        for i in spec.categorical_dims:
            frequencies[:, i] = _categorical_frequencies(uniforms[:, i], spec, i)
        phases = None if paired else 2 * math.pi * uniforms[:, spec.dim + 1]

        def tensor(values: np.ndarray) -> Tensor:
            return torch.as_tensor(values, dtype=spec.torch_dtype, device=device)

        return cls(tensor(frequencies), None if phases is None else tensor(phases))

    def forward(self, X: Tensor) -> Tensor:
        """Evaluate the map.

        Args:
            X: Points of the unit cube, ``... x d``.

        Returns:
            Features ``... x M``, each row of unit norm.
        """
        angles = X @ self.frequencies.mT
        if self.phases is None:
            scale = len(self.frequencies) ** -0.5
            return torch.cat([angles.sin(), angles.cos()], dim=-1) * scale
        cosines = torch.cos(angles + self.phases)
        return cosines / cosines.norm(dim=-1, keepdim=True)

    def value_and_grad(self, X: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Evaluate functions of given weights and their gradients.

        Args:
            X: Points of the unit cube, ``... x d``.
            weights: The weights of the function at each point, ``... x M``.

        Returns:
            Values ``...`` and gradients ``... x d``.
        """
        angles = X @ self.frequencies.mT
        if self.phases is None:
            sin_weight, cos_weight = (weights * len(self.frequencies) ** -0.5).chunk(2, dim=-1)
            sin, cos = angles.sin(), angles.cos_()
            value = torch.addcmul(sin * sin_weight, cos, cos_weight).sum(-1)
            slope = cos * sin_weight - sin * cos_weight
        else:
            angles += self.phases
            cos = angles.cos()
            norm = cos.norm(dim=-1, keepdim=True)
            features = cos / norm
            value = (features * weights).sum(-1)
            slope = -angles.sin() * (weights - features * value.unsqueeze(-1)) / norm
        return value, slope @ self.frequencies


def _categorical_frequencies(uniforms: np.ndarray, spec: FederationSpec, i: int) -> np.ndarray:
    """Frequencies under which categories correlate by ``exp(-1 / lengthscale)``.

    On whole numbers a frequency of 0 makes all categories equal, and frequencies uniform on
    a full turn make different categories orthogonal; the mixture has the correlation between.
    """
    same = math.exp(-1 / spec.lengthscales[i])
    turn = np.where(uniforms < same, 0.0, (uniforms - same) / (1 - same))
    return 2 * math.pi * turn * spec.bounds[1][i]


def _public_uniforms(spec: FederationSpec, count: int, columns: int) -> np.ndarray:
    """Uniforms inside (0, 1) from the public seed, ``count x columns``.

    The bits of Philox are the same on every platform and version, as the agents need.
    """
    bits = np.random.Philox(spec.feature_seed)
    if spec.frequencies == "sobol":
        from scipy.stats import qmc  # takes a second to import

        sobol = qmc.Sobol(columns, scramble=True, rng=np.random.Generator(bits))
        values = sobol.random_base2(math.ceil(math.log2(count)))[:count]
    else:
        values = (bits.random_raw(count * columns) >> np.uint64(11)).reshape(
            count, columns
        ) * 2.0**-53
    return np.clip(values, 2.0**-33, 1 - 2.0**-33)
