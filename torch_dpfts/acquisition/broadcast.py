"""The broadcast as a BoTorch sample path."""

from __future__ import annotations

from collections.abc import Callable

import torch
from botorch.models.transforms.input import InputTransform, Normalize
from botorch.sampling.pathwise.paths import SamplePath
from torch import Tensor

from torch_dpfts.acquisition.paths import PathModel
from torch_dpfts.errors import FingerprintMismatchError, InvalidInputError, MessageError
from torch_dpfts.features import SharedFeatures
from torch_dpfts.messages import Broadcast
from torch_dpfts.regions import RegionGrid
from torch_dpfts.space import SearchSpace
from torch_dpfts.spec import FederationSpec


class BroadcastPath(SamplePath):
    r"""The broadcast as a function, :math:`f(x) = \phi(x)^\top \omega^{(i(x))}`.

    It jumps at the borders of the sub-regions (equation 5 of [Dai2021]_), so maximise it cell by
    cell. :meth:`as_model` wraps it for ``optimize_posterior_samples`` and for acquisition
    functions.

    Args:
        features: The shared feature map, on the unit cube.
        grid: The sub-regions.
        vectors: Weights of each sub-region, ``batch_shape x P x M``.
        input_transform: Maps inputs to the unit cube; ``None`` if they lie there already.

    Example:
        >>> import torch
        >>> from botorch.utils.sampling import optimize_posterior_samples
        >>> spec = FederationSpec.fts_de(bounds=[[0.0], [9.0]], num_agents=2, num_rounds=5)
        >>> vectors = torch.ones(4, 64, dtype=torch.float64)
        >>> path = BroadcastPath.from_broadcast(spec, Broadcast(spec.fingerprint, 1, vectors))
        >>> path(torch.rand(3, 5, 1, dtype=torch.float64)).shape
        torch.Size([3, 5])
        >>> X, Y = optimize_posterior_samples(path.as_model(), spec.bounds_tensor())
        >>> X.shape, Y.shape
        (torch.Size([1]), torch.Size([1]))
    """

    vectors: Tensor

    def __init__(
        self,
        features: SharedFeatures,
        grid: RegionGrid,
        vectors: Tensor,
        input_transform: InputTransform | Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.features = features
        self.grid = grid
        self.register_buffer("vectors", vectors)
        self.input_transform = input_transform
        self.output_transform = None

    @classmethod
    def from_broadcast(
        cls, spec: FederationSpec, broadcast: Broadcast, bounds: Tensor | None = None
    ) -> BroadcastPath:
        """Build the path of a broadcast on the broadcast's device.

        Args:
            spec: The federation.
            broadcast: What the server sent.
            bounds: Bounds of the inputs, ``2 x d``, if they have been rescaled; they then lie on
                the unit cube evenly, whatever logarithms they stand for. ``None`` for the user's
                units.

        Raises:
            FingerprintMismatchError: If the broadcast belongs to another specification.
            MessageError: If its vectors do not fit the specification.
            InvalidInputError: If the bounds have another dimension than the federation.
        """
        check_broadcast(spec, broadcast)
        device = broadcast.vectors.device
        space = SearchSpace.from_spec(spec, device)
        if bounds is not None and bounds.shape != (2, spec.dim):
            raise InvalidInputError(
                f"bounds must have shape {(2, spec.dim)} like the federation's, got "
                f"{tuple(bounds.shape)}."
            )
        return cls(
            SharedFeatures.from_spec(spec, device),
            RegionGrid(spec.region_grid, spec.torch_dtype, device),
            broadcast.vectors.to(spec.torch_dtype),
            space.input_transform() if bounds is None else _Rescaled(space, bounds),
        )

    def forward(self, X: Tensor) -> Tensor:
        """Evaluate at points of the unit cube, ``batch_shape x q x d -> batch_shape x q``."""
        U = X.to(self.vectors.dtype)  # a model may have another dtype than the federation
        by_region = self.features(U) @ self.vectors.mT  # batch_shape x q x P
        return by_region.gather(-1, self.grid.index(U).unsqueeze(-1)).squeeze(-1).to(X.dtype)

    def as_model(self) -> PathModel:
        """The same function as a deterministic model, ``... x q x d -> ... x q x 1``."""
        return PathModel(self)

    def set_ensemble_as_batch(self, ensemble_as_batch: bool) -> None:
        """A broadcast is one function: nothing to set."""


class _Rescaled(torch.nn.Module):
    """From rescaled inputs to the unit cube, with the rounding of the space."""

    def __init__(self, space: SearchSpace, bounds: Tensor) -> None:
        super().__init__()
        self.normalize = Normalize(space.dim, bounds=bounds.to(space.bounds))
        self.space = space

    def forward(self, X: Tensor) -> Tensor:
        unit: Tensor = self.normalize(X)
        if not self.space.discrete_dims:
            return unit
        return self.space.to_unit(self.space.from_unit(unit))


def check_broadcast(spec: FederationSpec, broadcast: Broadcast) -> None:
    """Refuse a broadcast of another specification, naming both fingerprints, or a faulty one."""
    if broadcast.fingerprint != spec.fingerprint:
        raise FingerprintMismatchError(
            f"The message has fingerprint {broadcast.fingerprint} and this party's specification "
            f"{spec.fingerprint}; give all parties the same specification."
        )
    expected = (spec.num_regions, spec.num_features)
    if broadcast.vectors.shape != expected or not broadcast.vectors.isfinite().all():
        raise MessageError(
            f"The broadcast of round {broadcast.round} must hold finite vectors of shape "
            f"{expected}, got shape {tuple(broadcast.vectors.shape)}; ask for it again."
        )
