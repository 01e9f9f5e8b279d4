"""The agents' part of the algorithm, for many agents at once.

A fleet is a batch of agents that hold equally many observations. A single agent is a fleet of
one (see :class:`torch_dpfts.Agent`), and its draws are the same in a fleet of any size, since
each of them has a generator of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from botorch.models import SingleTaskGP
from torch import Tensor

from torch_dpfts.acquisition.broadcast import BroadcastPath
from torch_dpfts.acquisition.functions import (
    Autograd,
    BroadcastFunctions,
    FunctionBatch,
    PosteriorDraws,
)
from torch_dpfts.acquisition.mixture import MixedDraws, draw_mixed_path
from torch_dpfts.acquisition.optimize import maximize_per_region
from torch_dpfts.acquisition.paths import draw_posterior_path
from torch_dpfts.acquisition.share import scaled_vectors
from torch_dpfts.acquisition.thompson import draw_coin, num_incumbents
from torch_dpfts.covariance import FactoredCovariance
from torch_dpfts.errors import StateError
from torch_dpfts.features import SharedFeatures
from torch_dpfts.posterior import weight_mean, weight_sample
from torch_dpfts.regions import RegionGrid
from torch_dpfts.rng import derived_generator, derived_seed, normal_rows, uniform_rows
from torch_dpfts.schedules import local_probability
from torch_dpfts.space import SearchSpace
from torch_dpfts.spec import FederationSpec
from torch_dpfts.surrogate import (
    Hyperparameters,
    build_model,
    fit_model,
    is_refit_due,
    standardized,
)

_MAX_DRAWS = 6


class Fleet:
    """A batch of ``b`` agents of one federation, or of several runs of it.

    Args:
        spec: The federation.
        agent_ids: Place of each agent on the roster.
        seeds: Root seed of each agent's own draws; see :func:`agent_seed`.
        device: Where the tensors live.

    Attributes:
        X: Inputs so far, in the user's units, ``b x n x d``.
        Y: Outcomes so far, ``b x n x 1``.
    """

    def __init__(
        self,
        spec: FederationSpec,
        agent_ids: Sequence[int],
        seeds: Sequence[int],
        device: torch.device | str | None = None,
    ) -> None:
        self.spec = spec
        self.seeds = list(seeds)
        self.agent_ids = torch.tensor(agent_ids, dtype=torch.long, device=device)
        self.space = SearchSpace.from_spec(spec, device)
        self.bounds = self.space.bounds
        self.features = SharedFeatures.from_spec(spec, device)
        self.grid = RegionGrid(spec.region_grid, spec.torch_dtype, device)
        self.X = self.bounds.new_empty(len(self), 0, spec.dim)
        self.Y = self.bounds.new_empty(len(self), 0, 1)
        self.hyperparameters: Hyperparameters | None = None
        self.num_fitted = 0
        self._covariance: FactoredCovariance | None = None

    def __len__(self) -> int:
        return len(self.seeds)

    @property
    def num_observations(self) -> int:
        """Observations of each agent."""
        return self.X.shape[-2]

    def initial_points(self, n: int) -> Tensor:
        """Draw points uniformly in each agent's own sub-region, ``b x n x d``."""
        generators = [derived_generator(seed, "initial", n) for seed in self.seeds]
        return self._points_in_region(self.agent_ids, generators, n)

    def _points_in_region(
        self, agent_ids: Tensor, generators: Sequence[torch.Generator], n: int
    ) -> Tensor:
        region = self.grid.assigned(agent_ids)
        lower, width = (box[region].unsqueeze(-2) for box in self.space.boxes(self.grid))
        unit = uniform_rows(generators, (n, self.spec.dim), self.bounds.dtype, self.bounds.device)
        return self.space.snap(self.space.from_unit(lower + unit * width))

    def observe(self, X: Tensor, Y: Tensor) -> None:
        """Add observations, ``b x k x d`` and ``b x k x 1``, and refit when that is due."""
        self.X = torch.cat([self.X, X], dim=-2)
        self.Y = torch.cat([self.Y, Y], dim=-2)
        if is_refit_due(self.num_observations, self.num_fitted):
            self.hyperparameters = fit_model(self.model())
            self.num_fitted = self.num_observations
            self._covariance = None

    def model(self, rows: Tensor | None = None) -> SingleTaskGP:
        """The agents' Gaussian processes; of ``rows`` alone if given."""
        X, Y, values = self.X, self.Y, self.hyperparameters
        if rows is not None:
            X, Y = X[rows], Y[rows]
            values = values and Hyperparameters(*(value[rows] for value in values))
        return build_model(X, Y, self.space, values)

    def suggest(self, vectors: Tensor | None = None, round: int | None = None) -> Tensor:
        """Choose each agent's next point.

        With probability p_t it maximises a draw from the agent's own posterior, else the
        broadcast. A maximiser that all but repeats an old query would teach nothing: the next
        draw takes its place. An agent without data starts at a random point of its sub-region.

        Args:
            vectors: The broadcast of each agent's run, ``b x P x M``; ``None`` for none.
            round: The broadcast's number.

        Returns:
            ``b x 1 x d``, in the user's units.
        """
        seeds = [derived_seed(seed, "suggest", self.num_observations) for seed in self.seeds]
        own = torch.ones(len(self), dtype=torch.bool, device=self.X.device)
        if vectors is not None and round is not None:
            p = local_probability(self.spec.local_probability, round)
            own = torch.tensor([draw_coin(seed) < p for seed in seeds], device=self.X.device)
        x = self.X.new_empty(len(self), 1, self.spec.dim)
        rows = (~own).nonzero().squeeze(-1)
        if vectors is not None and len(rows):
            x[rows] = self._maximise_broadcast(vectors[rows], [seeds[i] for i in rows.tolist()])
            own[rows] = self.space.all_but_repeats(x[rows], self.X[rows])
        rows = own.nonzero().squeeze(-1)
        if len(rows):
            prior_mean = vectors if self.spec.prior_mean else None
            x[rows] = self._maximise_own(rows, [seeds[i] for i in rows.tolist()], prior_mean)
        return x

    def _maximise_own(self, rows: Tensor, seeds: Sequence[int], vectors: Tensor | None) -> Tensor:
        """Maximise draws from the agents' own posteriors, repeats replaced ``_MAX_DRAWS`` times."""
        if self.num_observations == 0:
            generators = [derived_generator(seed, "path", 0) for seed in seeds]
            return self._points_in_region(self.agent_ids[rows], generators, 1)
        x = self.X.new_empty(len(rows), 1, self.spec.dim)
        repeats = torch.arange(len(rows), device=x.device)
        for index in range(_MAX_DRAWS):
            again = [seeds[i] for i in repeats.tolist()]
            generators = [derived_generator(seed, "path", index) for seed in again]
            x[repeats] = self._maximise_draw(rows[repeats], generators, again, vectors)
            old = self.X[rows[repeats]]
            repeats = repeats[self.space.all_but_repeats(x[repeats], old)]
            if not len(repeats):
                break
        return x

    def _maximise_draw(
        self,
        rows: Tensor,
        generators: Sequence[torch.Generator],
        seeds: Sequence[int],
        vectors: Tensor | None,
    ) -> Tensor:
        whole = RegionGrid([1] * self.spec.dim, self.bounds.dtype, self.bounds.device)
        grid = whole if vectors is None else self.grid
        functions = (
            self._draws(rows, generators)
            if vectors is None
            else self._mixed_draws(rows, generators, vectors[rows])
        )
        return self._maximise(functions, grid, seeds, self._incumbents(rows))

    def _draws(self, rows: Tensor, generators: Sequence[torch.Generator]) -> FunctionBatch:
        """Draws from the agents' own posteriors."""
        if self.space.discrete_dims:
            path = draw_posterior_path(self.model(rows), generators)
            return Autograd(path, len(rows), self.space)
        return PosteriorDraws(*self._observed(rows), generators)

    def _mixed_draws(
        self, rows: Tensor, generators: Sequence[torch.Generator], vectors: Tensor
    ) -> FunctionBatch:
        """Draws with the broadcasts as prior means."""
        if self.space.discrete_dims:
            broadcast = self._broadcast_path(vectors)
            return Autograd(
                draw_mixed_path(self.model(rows), broadcast, generators), len(rows), self.space
            )
        vectors = scaled_vectors(self.features, self.grid, vectors)
        functions = BroadcastFunctions(self.features, self.grid, vectors)
        U = self.space.to_unit(self.X[rows])
        return MixedDraws(*self._observed(rows), functions, U, generators)

    def _observed(self, rows: Tensor) -> tuple[FactoredCovariance, Tensor]:
        """Covariances and standardised outcomes of some of the agents."""
        covariance = self._factored_covariance()
        covariance = covariance if len(rows) == len(self) else covariance[rows]
        return covariance, standardized(self.Y[rows]).squeeze(-1)

    def _incumbents(self, rows: Tensor) -> Tensor:
        """The best points so far, in the cube, ``b x k x d``: searches start there too."""
        k = num_incumbents(self.num_observations, self.spec.dim)
        best = self.Y[rows].squeeze(-1).topk(k, dim=-1).indices
        return self.space.to_unit(self.X[rows].take_along_dim(best.unsqueeze(-1), dim=-2))

    def _factored_covariance(self) -> FactoredCovariance:
        """The covariances of all observations.

        The factor of the rows fitted last is made at once and later rows are appended, so that
        an agent loaded from a file computes with the same bits as one that never stopped.
        """
        inputs = self.space.to_unit(self.X)
        if self._covariance is None:
            if self.hyperparameters is None:
                raise StateError("There are no hyperparameters before the first observation.")
            self._covariance = FactoredCovariance(
                inputs[:, : self.num_fitted], self.hyperparameters
            )
        self._covariance.extend(inputs)
        return self._covariance

    def _maximise_broadcast(self, vectors: Tensor, seeds: Sequence[int]) -> Tensor:
        if self.space.discrete_dims:
            path = self._broadcast_path(vectors)
            return self._maximise(Autograd(path, len(vectors), self.space), self.grid, seeds)
        functions = BroadcastFunctions(self.features, self.grid, vectors)
        return self._maximise(functions, self.grid, seeds)

    def _broadcast_path(self, vectors: Tensor) -> BroadcastPath:
        return BroadcastPath(self.features, self.grid, vectors, self.space.input_transform())

    def _maximise(
        self,
        functions: FunctionBatch,
        grid: RegionGrid,
        seeds: Sequence[int],
        incumbents: Tensor | None = None,
    ) -> Tensor:
        best = maximize_per_region(functions, grid, self.space, seeds, incumbents=incumbents)
        return best.x.unsqueeze(-2)

    def contribute(self, round: int) -> Tensor:
        """Compute what each agent sends for a round, ``b x M``."""
        n, M = self.num_observations, self.spec.num_features
        if self.spec.message not in ("mean", "sample"):
            return self.X.new_zeros(len(self), M)
        phi = self.features(self.space.to_unit(self.X))
        Y = self.Y
        if self.spec.outcome_floor > 0 and n > 0:
            Y = torch.maximum(Y, Y.quantile(self.spec.outcome_floor, dim=-2, keepdim=True))
        y = standardized(Y).squeeze(-1)
        if self.spec.message == "mean":
            return weight_mean(phi, y, self.spec.noise_variance)
        generators = [derived_generator(seed, "contribute", round) for seed in self.seeds]
        draws = normal_rows(generators, (M + n,), self.X.dtype, self.X.device)
        return weight_sample(phi, y, self.spec.noise_variance, draws[..., :M], draws[..., M:])


def agent_seed(seed: int, agent_id: int) -> int:
    """The root seed of an agent in a run with seed ``seed``."""
    return derived_seed(seed, "agent", agent_id)
