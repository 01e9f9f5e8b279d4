"""Federated Thompson sampling as a BoTorch acquisition function."""

from __future__ import annotations

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.models.model import Model
from botorch.sampling.pathwise.paths import SamplePath
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from torch_dpfts.acquisition.paths import BroadcastPath, draw_posterior_path
from torch_dpfts.errors import FingerprintMismatchError, InvalidInputError
from torch_dpfts.messages import Broadcast
from torch_dpfts.rng import derived_generator, fresh_seed
from torch_dpfts.schedules import local_probability
from torch_dpfts.spec import FederationSpec


class FederatedThompsonSampling(AcquisitionFunction):
    r"""One draw for each candidate: the agent's own posterior sample, or the broadcast.

    Candidate j follows, with probability p_t, a function drawn exactly from the model's
    posterior, else the broadcast of round t (algorithm 1 of [Dai2021]_). Without a broadcast
    this is exact Thompson sampling. Draws depend on the seed and on j alone, and pending
    points shift j, so sequential candidates follow different draws.

    Args:
        model: A single-output exact GP.
        spec: The federation; needed with a broadcast.
        broadcast: What the server sent last, or ``None``.
        seed: Seed of the draws; ``None`` takes one from the operating system.
        X_pending: Points already chosen and not yet observed, ``m x d``.

    Raises:
        InvalidInputError: If a broadcast comes without a specification.
        FingerprintMismatchError: If the broadcast belongs to another specification.

    Example:
        >>> from botorch.models import SingleTaskGP
        >>> X = torch.rand(6, 2, dtype=torch.double, generator=torch.Generator().manual_seed(0))
        >>> acqf = FederatedThompsonSampling(SingleTaskGP(X, X.sum(-1, keepdim=True)), seed=0)
        >>> acqf(X.unsqueeze(-2)).shape
        torch.Size([6])
    """

    def __init__(
        self,
        model: Model,
        spec: FederationSpec | None = None,
        broadcast: Broadcast | None = None,
        *,
        seed: int | None = None,
        X_pending: Tensor | None = None,
    ) -> None:
        super().__init__(model=model)
        self.seed = fresh_seed() if seed is None else seed
        self.local_probability = 1.0
        self.broadcast_path: BroadcastPath | None = None
        if broadcast is not None:
            if spec is None:
                raise InvalidInputError("A broadcast needs the spec it belongs to; got spec=None.")
            check_fingerprint(spec, broadcast)
            self.local_probability = local_probability(spec.local_probability, broadcast.round)
            self.broadcast_path = BroadcastPath.from_broadcast(spec, broadcast)
        self._drawn: dict[int, SamplePath] = {}
        self.set_X_pending(X_pending)

    def follows_broadcast(self, index: int = 0) -> bool:
        """Whether draw number ``index`` is the broadcast rather than an own sample."""
        if self.broadcast_path is None:
            return False
        return draw_coin(self.seed, index) >= self.local_probability

    def _path(self, index: int) -> SamplePath:
        if self.broadcast_path is not None and self.follows_broadcast(index):
            return self.broadcast_path
        if index not in self._drawn:
            generator = derived_generator(self.seed, "path", index)
            self._drawn[index] = draw_posterior_path(self.model, [generator])
        return self._drawn[index]

    @t_batch_mode_transform()  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        """Evaluate the draws.

        Args:
            X: Candidates, ``batch_shape x q x d``.

        Returns:
            ``batch_shape`` sums over the q candidates, each of its own draw.
        """
        first = 0 if self.X_pending is None else len(self.X_pending)
        values = [
            self._path(first + j)(X[..., j : j + 1, :]).squeeze(-1) for j in range(X.shape[-2])
        ]
        return torch.stack(values, dim=-1).sum(-1)


def draw_coin(seed: int, index: int = 0) -> float:
    """The uniform draw that decides whether draw ``index`` is an agent's own."""
    return float(torch.rand((), generator=derived_generator(seed, "coin", index)))


def check_fingerprint(spec: FederationSpec, message: Broadcast) -> None:
    """Refuse a message of another specification, naming both fingerprints."""
    if message.fingerprint != spec.fingerprint:
        raise FingerprintMismatchError(
            f"The message has fingerprint {message.fingerprint} and this party's specification "
            f"{spec.fingerprint}; give all parties the same specification."
        )
