"""The broadcast as a prior mean, from which any acquisition function profits."""

from __future__ import annotations

import torch
from botorch.models.transforms.input import InputTransform
from gpytorch.constraints import GreaterThan
from gpytorch.means import Mean
from gpytorch.priors import NormalPrior
from torch import Tensor
from torch.quasirandom import SobolEngine

from torch_dpfts.acquisition.broadcast import BroadcastPath
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.messages import Broadcast
from torch_dpfts.spec import FederationSpec

_SAMPLES = 512
_OUTSIDE = 0.01


class FederatedMean(Mean):  # type: ignore[misc]
    r"""The prior mean :math:`c + \tau \, f(x) / \|f\|`, f the broadcast, with the trust learnt.

    The constant c and the trust :math:`\tau \ge 0` are parameters of the model like any other.
    The broadcast is scaled to a root mean square of 1 over the space, so that for standardised
    outcomes a trust of 1 says that it explains them entirely, however strongly the server's
    weights or noise have scaled it. The prior on the trust is half a normal density around 0:
    a broadcast that does not fit the data is ignored. Reading a broadcast costs no privacy.

    The mean jumps at the borders of the sub-regions; so do acquisition functions of the model,
    which :func:`~torch_dpfts.acquisition.optimize_acqf_per_region` takes into account when given
    the grid.

    Args:
        spec: The federation.
        broadcast: What the server sent.
        input_transform: Maps what the mean sees to the unit cube. ``None`` if that lies there
            already, as in a model whose input transform is ``Normalize`` with the federation's
            bounds.
        scale: Standard deviation of the normal density of the prior.

    Raises:
        FingerprintMismatchError: If the broadcast belongs to another specification.
        InvalidInputError: When evaluated outside the unit cube.

    Example:
        >>> from botorch.models import SingleTaskGP
        >>> from botorch.models.transforms import Normalize
        >>> spec = FederationSpec.fts(bounds=[[0.0], [10.0]], num_agents=2, num_rounds=5)
        >>> vectors = torch.ones(1, 64, dtype=torch.float64)
        >>> mean = FederatedMean(spec, Broadcast(spec.fingerprint, 1, vectors))
        >>> X = torch.linspace(0, 10, 5, dtype=torch.float64).unsqueeze(-1)
        >>> model = SingleTaskGP(
        ...     X, X.sin(), mean_module=mean,
        ...     input_transform=Normalize(1, bounds=spec.bounds_tensor()))
        >>> model.posterior(X).mean.shape
        torch.Size([5, 1])
    """

    constant: torch.nn.Parameter
    trust: torch.nn.Parameter

    def __init__(
        self,
        spec: FederationSpec,
        broadcast: Broadcast,
        input_transform: InputTransform | None = None,
        scale: float = 0.5,
    ) -> None:
        super().__init__()
        self.path = BroadcastPath.from_broadcast(spec, broadcast)
        self.path.input_transform = input_transform
        vectors = self.path.vectors
        sobol = SobolEngine(spec.dim, scramble=True, seed=spec.feature_seed)
        cube = sobol.draw(_SAMPLES, dtype=vectors.dtype).to(vectors.device)
        norm = self.path.forward(cube).square().mean().sqrt()
        self.path.vectors = vectors / torch.where(norm > 0, norm, torch.ones_like(norm))
        self.register_parameter("constant", torch.nn.Parameter(vectors.new_zeros(())))
        self.register_parameter("trust", torch.nn.Parameter(vectors.new_full((), 0.1)))
        # No transform: the limit is kept by the optimiser, which can then reach 0 itself.
        self.register_constraint("trust", GreaterThan(0.0, transform=None))
        self.register_prior("trust_prior", NormalPrior(0.0, scale), "trust")

    def forward(self, x: Tensor) -> Tensor:
        """Evaluate, ``batch_shape x n x d -> batch_shape x n``."""
        unit = x if self.path.input_transform is None else self.path.input_transform(x)
        if (unit < -_OUTSIDE).any() or (unit > 1 + _OUTSIDE).any():
            raise InvalidInputError(
                f"A federated mean needs inputs in the unit cube, got {float(unit.min()):g} to "
                f"{float(unit.max()):g}; give the model Normalize with the federation's bounds, "
                "or the mean an input_transform."
            )
        mean: Tensor = self.constant + self.trust * self.path.forward(unit)
        return mean
