"""Federated Thompson sampling as a BoTorch acquisition function."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, islice

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.objective import (
    IdentityMCObjective,
    MCAcquisitionObjective,
    PosteriorTransform,
)
from botorch.exceptions.errors import UnsupportedError
from botorch.models import SingleTaskGP
from botorch.models.deterministic import DeterministicModel
from botorch.models.model import Model
from botorch.sampling.pathwise.utils import get_train_inputs
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from torch_dpfts.acquisition.broadcast import BroadcastPath
from torch_dpfts.acquisition.draws import draw_posterior
from torch_dpfts.acquisition.mixture import check_mixable, draw_mixed_path
from torch_dpfts.acquisition.paths import PathModel
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.messages import Broadcast
from torch_dpfts.regions import RegionGrid
from torch_dpfts.rng import derived_generator, fresh_seed
from torch_dpfts.schedules import local_probability
from torch_dpfts.spec import FederationSpec


class FederatedThompsonSampling(AcquisitionFunction):
    r"""One draw for each candidate: the agent's own posterior sample, or the broadcast.

    Candidate j follows, with probability p_t, a function drawn exactly from the model's
    posterior (:func:`~torch_dpfts.acquisition.draw_posterior`), else the broadcast of round t
    (algorithm 1 of [Dai2021]_), which one candidate at most follows. Without a broadcast this is
    exact Thompson sampling. In a federation with ``prior_mean`` the own samples take the broadcast
    as their prior mean, to the share that the model's data support
    (:mod:`torch_dpfts.acquisition.share`).

    Draws depend on the seed and their number alone. Candidates follow the first draws that no
    pending point has taken, so candidates chosen one after the other follow different draws; a
    pending point holds its draw for as long as it is pending, which lets cyclic optimisation
    choose each candidate anew. A draw is made when it is first needed and kept; moving the
    function to another device or dtype makes it anew from the same seed.

    A broadcast is what the federation maximises. It therefore stands beside the *objective*: a
    ``posterior_transform`` or ``objective`` (minimisation, for instance) applies to the own
    draws alone.

    Args:
        model: A BoTorch model with a Gaussian posterior.
        spec: The federation; needed with a broadcast.
        broadcast: What the server sent last, or ``None``.
        objective: Turns draws of several outputs into one; ``None`` for one output.
        posterior_transform: Applied to the draws before the objective. With several outputs and
            no objective it must scalarise.
        bounds: Bounds of the model's inputs, ``2 x d``, if they are not in the user's units; see
            :meth:`BroadcastPath.from_broadcast`.
        seed: Seed of the draws; ``None`` takes one from the operating system.
        X_pending: Points already chosen and not yet observed, ``m x d``.

    Raises:
        InvalidInputError: If a broadcast comes without a specification, or ``bounds`` have another
            dimension than it.
        FingerprintMismatchError: If the broadcast belongs to another specification.
        MessageError: If its vectors do not fit the specification.
        UnsupportedError: If a model of several outputs comes without a way to scalarise them, or
            (when evaluated) no function can be drawn from the model.

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
        objective: MCAcquisitionObjective | None = None,
        posterior_transform: PosteriorTransform | None = None,
        bounds: Tensor | None = None,
        seed: int | None = None,
        X_pending: Tensor | None = None,
    ) -> None:
        super().__init__(model=model)
        _check_outputs(model, objective, posterior_transform)
        self.objective = IdentityMCObjective() if objective is None else objective
        self._identity = objective is None
        self.posterior_transform = posterior_transform
        self.spec = spec
        self.seed = fresh_seed() if seed is None else seed
        self.local_probability = 1.0
        self.broadcast_path: BroadcastPath | None = None
        self.prior_mean: BroadcastPath | None = None
        if broadcast is not None:
            if not isinstance(spec, FederationSpec) or not isinstance(broadcast, Broadcast):
                raise InvalidInputError(
                    "A broadcast needs its spec, in the order model, spec, broadcast; "
                    f"got spec={type(spec).__name__} and broadcast={type(broadcast).__name__}."
                )
            self.broadcast_path = BroadcastPath.from_broadcast(spec, broadcast, bounds)
            self.local_probability = local_probability(spec.local_probability, broadcast.round)
            if spec.prior_mean:
                check_mixable(model)
                self.prior_mean = self.broadcast_path
        self._drawn: dict[int, DeterministicModel] = {}
        self._taken: list[int] = []
        self.X_pending: Tensor | None = None  # type: ignore[assignment]
        self.set_X_pending(X_pending)

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Set the points that are chosen and not yet observed; ``None`` takes them all back.

        Args:
            X_pending: ``m x d``. Points that were pending before keep their draws; each new one
                takes the next draw that was free before this call, which is the one it was chosen
                by.
        """
        before = [] if self.X_pending is None else list(self.X_pending)
        taken = list(self._taken)
        super().set_X_pending(X_pending)
        free = (i for i in count() if i not in self._taken)
        now = []
        for x in [] if self.X_pending is None else self.X_pending:
            same = next((k for k, other in enumerate(before) if torch.equal(x, other)), None)
            if same is None:
                now.append(next(free))
            else:
                before.pop(same)
                now.append(taken.pop(same))
        self._taken = now

    def draws(self, q: int) -> list[int]:
        """Numbers of the draws that the next q candidates follow."""
        return list(islice((i for i in count() if i not in self._taken), q))

    def follows_broadcast(self, index: int = 0) -> bool:
        """Whether draw number ``index`` is the broadcast rather than an own sample.

        It is for the first coin that falls that way alone: the broadcast is one function, and
        two candidates would end at the same point of it.
        """
        if self.broadcast_path is None:
            return False
        coins = [draw_coin(self.seed, i) >= self.local_probability for i in range(index + 1)]
        return coins[index] and not any(coins[:index])

    def region_grid(self, index: int = 0) -> RegionGrid | None:
        """The cells at whose borders draw number ``index`` jumps; ``None`` if it is smooth."""
        if self.broadcast_path is None:
            return None
        jumps = self.follows_broadcast(index) or self.prior_mean is not None
        return self.broadcast_path.grid if jumps else None

    def incumbents(self) -> Tensor | None:
        """The best points observed, ``k x d``: good starts for a search of the next draw.

        ``None`` if that is the broadcast, which knows nothing of them, or if what is best depends
        on an objective.
        """
        model = self.model
        if not isinstance(model, SingleTaskGP) or self.follows_broadcast(self.draws(1)[0]):
            return None
        if model.num_outputs > 1 or model.batch_shape.numel() > 1:
            return None
        if self.posterior_transform is not None or not self._identity:
            return None
        (X,) = get_train_inputs(model, transformed=False)
        y = model.train_targets.flatten()
        k = num_incumbents(len(y), X.shape[-1])
        return X.reshape(len(y), -1)[y.topk(k).indices] if k else None

    @t_batch_mode_transform()  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        """Evaluate the draws.

        Args:
            X: Candidates, ``batch_shape x q x d``.

        Returns:
            ``batch_shape`` sums over the q candidates, each of its own draw.
        """
        values = [
            self._value(index, X[..., j : j + 1, :])
            for j, index in enumerate(self.draws(X.shape[-2]))
        ]
        return torch.stack(values).sum(dim=0)

    def _value(self, index: int, X: Tensor) -> Tensor:
        """The objective under draw number ``index``, ``batch_shape x 1 x d -> batch_shape``."""
        if self.broadcast_path is not None and self.follows_broadcast(index):
            value: Tensor = self.broadcast_path(X)
            return value.squeeze(-1)
        if index not in self._drawn:
            generator = derived_generator(self.seed, "path", index)
            self._drawn[index] = self._draw(generator)
        Y: Tensor = self._drawn[index](X)
        if self.posterior_transform is not None:
            Y = self.posterior_transform.evaluate(Y, X=X)
            # A scalarisation drops the output dimension, which objectives expect.
            Y = Y.unsqueeze(-1) if self.posterior_transform.scalarize else Y
        return self.objective(Y, X=X).squeeze(-1)

    def _draw(self, generator: torch.Generator) -> DeterministicModel:
        if self.prior_mean is not None:
            return PathModel(draw_mixed_path(self.model, self.prior_mean, [generator]))
        return draw_posterior(self.model, generator)

    def _apply(
        self, fn: Callable[[Tensor], Tensor], recurse: bool = True
    ) -> FederatedThompsonSampling:
        self._drawn.clear()
        moved: FederatedThompsonSampling = super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return moved


def num_incumbents(num_observations: int, dim: int) -> int:
    """How many of the best points so far a search of a draw starts from.

    In a square the points tried lie densely enough by themselves; every further dimension
    hides the summits better.
    """
    return min(max(dim - 2, 0), num_observations)


def draw_coin(seed: int, index: int = 0) -> float:
    """The uniform draw that decides whether draw ``index`` is an agent's own."""
    return float(torch.rand((), generator=derived_generator(seed, "coin", index)))


def _check_outputs(
    model: Model,
    objective: MCAcquisitionObjective | None,
    posterior_transform: PosteriorTransform | None,
) -> None:
    if objective is not None or model.num_outputs == 1:
        return
    if posterior_transform is None or not posterior_transform.scalarize:
        raise UnsupportedError(
            f"A model with {model.num_outputs} outputs needs an objective or a posterior_transform "
            "that scalarises them."
        )
