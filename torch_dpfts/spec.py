"""What all parties of a federation agree on before the first round."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from torch_dpfts import checks, spec_fields
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.schedules import SCHEDULES

KERNELS = ("rbf", "matern12", "matern32", "matern52")
MESSAGES = ("mean", "sample", "zero", "none")
FREQUENCIES = ("iid", "sobol")
FEATURE_MAPS = ("sincos", "cosine")
DTYPES = {"float64": torch.float64, "float32": torch.float32}
WIRE_DTYPES = DTYPES | {"float16": torch.float16}
ACCOUNTANTS = ("rdp", "pld", "prv", "moments")
SENSITIVITIES = ("exact", "paper")

_NOT_PRIVATE: dict[str, Any] = {
    "sample_rate": 1.0,
    "noise_multiplier": 0.0,
    "clip_norm": math.inf,
    "target_epsilon": None,
    "clip_quantile": None,
    "averaging": 0.0,
}
ARMS: dict[str, dict[str, Any]] = {
    "ts": {"message": "none", "local_probability": "1", "num_regions": 1, **_NOT_PRIVATE},
    "fts": {"num_regions": 1, **_NOT_PRIVATE},
    "fts-de": _NOT_PRIVATE,
    "dp-fts": {"num_regions": 1},
    "dp-fts-de": {},
    "noise": {"message": "zero"},
}
"""What each arm of an experiment changes in the settings of ``dp-fts-de``."""


@dataclass(frozen=True, kw_only=True)
class FederationSpec:
    r"""The public settings of a federation: frozen, validated, and the same at every party.

    Nothing in it depends on anybody's data. Two parties whose ``fingerprint`` differs do not
    exchange messages. The algorithm is DP-FTS-DE [Dai2021]_; the named constructors
    (:meth:`ts`, :meth:`fts`, :meth:`fts_de`, :meth:`dp_fts`, :meth:`dp_fts_de`,
    :meth:`noise`) are special cases that differ in these fields alone.

    .. [Dai2021] Z. Dai, B. K. H. Low and P. Jaillet. Differentially Private Federated
       Bayesian Optimization with Distributed Exploration. NeurIPS 2021.

    Args:
        bounds: Lower and upper bounds of the search space, ``2 x d``, in the user's units.
        log_dims: Dimensions on a logarithmic scale; their bounds are positive. Regions,
            features and models see the logarithm.
        integer_dims: Dimensions of whole numbers, between whole bounds.
        categorical_dims: Dimensions of categories, coded ``0, 1, ..., k - 1``; their bounds are
            whole. Different categories correlate by ``exp(-1 / lengthscale)`` under the shared
            features.
        space: Names and choices of the dimensions as JSON, for sites that tune by name (see
            :class:`torch_dpfts.tune.ParameterSpace`); kept in canonical form.
        num_agents: Size N of the public roster, fixed for the federation.
        num_rounds: Number T of broadcasts.
        num_regions: Number P of sub-regions (cells of a grid over the unit cube).
        region_grid: Cells along each dimension, ``d`` integers whose product is
            ``num_regions``. ``None`` splits the dimensions as evenly as the prime factors of
            ``num_regions`` allow.
        region_score: Score ``a`` of the agents assigned to a region, against 1 for the others.
        region_hold: Rounds for which the score stays at ``region_score``.
        region_decay: Rounds over which it then falls linearly to 1.
        message: What agents send: the posterior ``"mean"`` of the weights, a posterior
            ``"sample"`` (the paper), the ``"zero"`` vector (the noise-only control), or
            ``"none"`` (no sharing).
        outcome_floor: Quantile of an agent's own outcomes to which its message raises those below.
            How bad a bad point is says little about where other agents should look, and fills
            the message with what is private to the agent. 0 leaves outcomes as they are (the
            paper).
        num_features: Length M of a vector; even.
        feature_map: ``"sincos"`` for sine-cosine pairs, ``"cosine"`` for cosines with random
            phases, each row scaled to unit norm.
        frequencies: ``"iid"`` or scrambled ``"sobol"`` draws of the spectral density.
        feature_seed: Public seed of the shared features.
        kernel: ``"rbf"``, ``"matern12"``, ``"matern32"`` or ``"matern52"``.
        lengthscales: Lengthscale on the unit cube, one number or one for each dimension.
        noise_variance: Regulariser lambda of the weight-space posterior, for standardised y.
        sample_rate: Probability q with which each agent joins a round's cohort.
        noise_multiplier: Noise multiplier z; 0 means no privacy.
        clip_norm: Bound S on the L2 norm of an agent's whole stack of P vectors.
        clip_quantile: Quantile of the norms of messages that the clip norm follows, starting
            at ``clip_norm``; ``None`` keeps it fixed.
        count_noise_multiplier: Noise multiplier of the count that an adaptive clip norm needs
            in every round; charged with the broadcast.
        delta: The delta of (epsilon, delta)-DP; ``None`` means ``max(num_agents, 2) ** -1.1``.
        target_epsilon: Budget at ``delta`` after which the server stops; ``None`` for no limit
            but ``num_rounds``.
        accountant: ``"pld"``, ``"rdp"``, ``"prv"`` or ``"moments"``.
        sensitivity: ``"exact"`` charges the joint sensitivity of the round's region weights,
            ``"paper"`` charges one whole noise multiplier.
        averaging: Discount of older rounds in the average that is broadcast, in ``[0, 1)``; 0
            broadcasts every round by itself (the paper). Costs no privacy.
        local_probability: Name of the schedule p_t with which an agent trusts its own
            posterior: ``"1-1/t^2"``, ``"1-1/t"``, ``"1-1/sqrt(t)"`` or ``"1"``.
        prior_mean: Whether that posterior takes the broadcast as its prior mean, to the share that
            the agent's own outcomes support (see :mod:`torch_dpfts.acquisition.share`).
        dtype: ``"float64"`` or ``"float32"``.
        wire_dtype: ``"float64"``, ``"float32"`` or ``"float16"``: what messages are rounded to, if
            that is coarser than ``dtype``.

    Raises:
        InvalidInputError: If a value is out of range; the message names it and the mend.

    Example:
        >>> import torch
        >>> spec = FederationSpec.dp_fts_de(
        ...     bounds=torch.tensor([[0.0, 0.0], [1.0, 10.0]]), num_agents=29, num_rounds=60,
        ...     sample_rate=0.35, noise_multiplier=1.0, clip_norm=4.0,
        ... )
        >>> FederationSpec.from_json(spec.to_json()) == spec
        True
        >>> spec.arm("noise").message
        'zero'
    """

    bounds: Any
    num_agents: int
    num_rounds: int
    log_dims: Any = ()
    integer_dims: Any = ()
    categorical_dims: Any = ()
    space: str | None = None
    num_regions: int = 1
    region_grid: Any = None
    region_score: float = 16.0
    region_hold: int = 10
    region_decay: int = 30
    message: str = "mean"
    outcome_floor: float = 0.0
    num_features: int = 64
    feature_map: str = "sincos"
    frequencies: str = "sobol"
    feature_seed: int = 0
    kernel: str = "rbf"
    lengthscales: Any = 0.2
    noise_variance: float = 0.01
    sample_rate: float = 1.0
    noise_multiplier: float = 0.0
    clip_norm: float = math.inf
    clip_quantile: float | None = None
    count_noise_multiplier: float = 10.0
    delta: Any = None
    target_epsilon: float | None = None
    accountant: str = "pld"
    sensitivity: str = "exact"
    averaging: float = 0.0
    local_probability: str = "1-1/sqrt(t)"
    prior_mean: bool = False
    dtype: str = "float64"
    wire_dtype: str = "float64"

    def __post_init__(self) -> None:
        def set_(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        set_("bounds", spec_fields.check_bounds(self.bounds))
        for name, minimum in (
            ("num_agents", 1),
            ("num_rounds", 1),
            ("num_regions", 1),
            ("region_hold", 0),
            ("region_decay", 1),
            ("num_features", 2),
            ("feature_seed", 0),
        ):
            set_(name, checks.integer(name, getattr(self, name), minimum=minimum))
        if self.num_features % 2:
            raise InvalidInputError(
                f"num_features must be even (sine-cosine pairs), got {self.num_features}; "
                f"use {self.num_features + 1}."
            )
        for name in ("log_dims", "integer_dims", "categorical_dims"):
            set_(name, spec_fields.check_dims(name, getattr(self, name), self.dim))
        spec_fields.check_kinds(self)
        set_("space", spec_fields.check_space(self.space))
        values = spec_fields.num_values(self)
        set_("region_grid", spec_fields.check_grid(self.region_grid, self.num_regions, values))
        set_("lengthscales", spec_fields.check_lengthscales(self.lengthscales, self.dim))
        for name, limits in (
            ("region_score", {"minimum": 1.0, "below": math.inf}),
            ("noise_variance", {"above": 0.0, "below": math.inf}),
            ("sample_rate", {"above": 0.0, "maximum": 1.0}),
            ("noise_multiplier", {"minimum": 0.0, "below": math.inf}),
            ("clip_norm", {"above": 0.0}),
            ("count_noise_multiplier", {"above": 0.0, "below": math.inf}),
            ("averaging", {"minimum": 0.0, "below": 1.0}),
            ("outcome_floor", {"minimum": 0.0, "below": 1.0}),
        ):
            set_(name, checks.real(name, getattr(self, name), **limits))
        for name, options in (
            ("message", MESSAGES),
            ("feature_map", FEATURE_MAPS),
            ("frequencies", FREQUENCIES),
            ("kernel", KERNELS),
            ("accountant", ACCOUNTANTS),
            ("sensitivity", SENSITIVITIES),
            ("local_probability", SCHEDULES),
            ("dtype", DTYPES),
            ("wire_dtype", WIRE_DTYPES),
        ):
            checks.choice(name, getattr(self, name), options)
        checks.boolean("prior_mean", self.prior_mean)
        self._check_privacy()

    def _check_privacy(self) -> None:
        if self.delta is None:
            object.__setattr__(self, "delta", max(self.num_agents, 2) ** -1.1)
        object.__setattr__(self, "delta", checks.real("delta", self.delta, above=0.0, below=1.0))
        if self.noise_multiplier > 0 and math.isinf(self.clip_norm):
            raise InvalidInputError(
                f"clip_norm must be finite when noise_multiplier > 0, got {self.clip_norm}: "
                "unbounded vectors would need infinite noise."
            )
        if self.clip_quantile is not None:
            quantile = checks.real("clip_quantile", self.clip_quantile, above=0.0, below=1.0)
            object.__setattr__(self, "clip_quantile", quantile)
            if self.noise_multiplier == 0 or self.averaging:
                raise InvalidInputError(
                    f"clip_quantile={quantile} needs noise_multiplier > 0 and averaging=0 (noise "
                    "scales that are known in advance), got "
                    f"{self.noise_multiplier} and {self.averaging}."
                )
        if self.target_epsilon is not None:
            target = checks.real("target_epsilon", self.target_epsilon, above=0.0, below=math.inf)
            object.__setattr__(self, "target_epsilon", target)
            if self.noise_multiplier == 0:
                raise InvalidInputError(
                    f"target_epsilon={target} cannot be met with noise_multiplier=0; "
                    "give a positive noise_multiplier."
                )

    # --- the arms -----------------------------------------------------------------------

    @classmethod
    def ts(cls, **settings: Any) -> FederationSpec:
        """Thompson sampling without sharing: the baseline."""
        return cls(**(ARMS["ts"] | settings))

    @classmethod
    def fts(cls, **settings: Any) -> FederationSpec:
        """Federated Thompson sampling: sharing, one region, no privacy."""
        return cls(**(ARMS["fts"] | settings))

    @classmethod
    def fts_de(cls, *, num_regions: int = 4, **settings: Any) -> FederationSpec:
        """Federated Thompson sampling with distributed exploration, no privacy."""
        return cls(**(ARMS["fts-de"] | {"num_regions": num_regions} | settings))

    @classmethod
    def dp_fts(
        cls, *, sample_rate: float, noise_multiplier: float, clip_norm: float, **settings: Any
    ) -> FederationSpec:
        """Private federated Thompson sampling over one region."""
        private = _private(sample_rate, noise_multiplier, clip_norm)
        return cls(**(ARMS["dp-fts"] | private | settings))

    @classmethod
    def dp_fts_de(
        cls,
        *,
        sample_rate: float,
        noise_multiplier: float,
        clip_norm: float,
        num_regions: int = 4,
        **settings: Any,
    ) -> FederationSpec:
        """Private federated Thompson sampling with distributed exploration: the algorithm."""
        private = _private(sample_rate, noise_multiplier, clip_norm)
        return cls(**(private | {"num_regions": num_regions} | settings))

    @classmethod
    def noise(
        cls,
        *,
        sample_rate: float,
        noise_multiplier: float,
        clip_norm: float,
        num_regions: int = 4,
        **settings: Any,
    ) -> FederationSpec:
        """The control: contributions are zero and the noise stays."""
        private = _private(sample_rate, noise_multiplier, clip_norm)
        return cls(**(ARMS["noise"] | private | {"num_regions": num_regions} | settings))

    @classmethod
    def recommended(
        cls, *, bounds: Any, num_agents: int, num_rounds: int, **settings: Any
    ) -> FederationSpec:
        """The settings we would defend, with the noise that a budget asks for.

        Posterior means of floored outcomes as messages, clipped to a common norm, in one region;
        every agent in every round; broadcasts averaged over rounds; and the broadcast as prior
        mean of each agent's own model, to a learnt share. ``benchmarks/RESULTS.md`` compares them
        with Thompson sampling alone and with the noise-only control.

        Args:
            bounds: As for the specification.
            num_agents: Size N of the roster.
            num_rounds: Number T of broadcasts.
            settings: Any other field of a specification. Unless ``noise_multiplier`` is given, it
                is the smallest that keeps ``target_epsilon``, which is 3 unless given; ``None``
                means no privacy and no noise.

        Warns:
            DPFTSWarning: If the broadcasts are expected to be so noisy that the noise-only control
                would do as well.

        Example:
            >>> spec = FederationSpec.recommended(
            ...     bounds=[[0.0, 0.0], [1.0, 1.0]], num_agents=29, num_rounds=60)
            >>> spec.noise_multiplier, spec.target_epsilon
            (5.69, 3.0)
        """
        from torch_dpfts.presets import recommended_spec

        fields = {"bounds": bounds, "num_agents": num_agents, "num_rounds": num_rounds}
        return recommended_spec(**fields, **settings)

    def arm(self, name: str) -> FederationSpec:
        """Return this specification turned into the arm ``name`` (a key of ``ARMS``).

        Raises:
            InvalidInputError: If there is no such arm.
        """
        checks.choice("arm", name, ARMS)
        changes = dict(ARMS[name])
        if changes.get("num_regions", self.num_regions) != self.num_regions:
            changes["region_grid"] = None
        return replace(self, **changes)

    # --- derived values -----------------------------------------------------------------

    @property
    def dim(self) -> int:
        """Number d of dimensions of the search space."""
        return len(self.bounds[0])

    @property
    def torch_dtype(self) -> torch.dtype:
        """The torch dtype that ``dtype`` names."""
        return DTYPES[self.dtype]

    @property
    def shares(self) -> bool:
        """Whether agents send anything at all."""
        return self.message != "none"

    @property
    def is_private(self) -> bool:
        """Whether the broadcasts carry noise."""
        return self.noise_multiplier > 0

    def bounds_tensor(self, device: torch.device | str | None = None) -> Tensor:
        """The bounds as a ``2 x d`` tensor of the federation's dtype."""
        return torch.tensor(self.bounds, dtype=self.torch_dtype, device=device)

    # --- JSON and the fingerprint -------------------------------------------------------

    def to_json(self) -> str:
        """Return canonical JSON: sorted keys, no spaces, infinity as the string ``"inf"``."""
        settings = asdict(self)
        if math.isinf(self.clip_norm):
            settings["clip_norm"] = "inf"
        return json.dumps(settings, sort_keys=True, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> FederationSpec:
        """Read what :meth:`to_json` wrote.

        Raises:
            InvalidInputError: If the text is not JSON, or a field is unknown or missing.
        """
        try:
            settings = json.loads(text)
        except ValueError as error:
            raise InvalidInputError(f"The specification is not valid JSON: {error}.") from None
        if not isinstance(settings, Mapping):
            raise InvalidInputError(
                f"The specification must be a JSON object, got {type(settings).__name__}."
            )
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(settings) - known)
        missing = sorted({"bounds", "num_agents", "num_rounds"} - set(settings))
        if unknown or missing:
            raise InvalidInputError(
                f"The specification has unknown fields {unknown} and lacks {missing}."
            )
        settings = dict(settings)
        if settings.get("clip_norm") == "inf":
            settings["clip_norm"] = math.inf
        return cls(**settings)

    @cached_property
    def fingerprint(self) -> str:
        """Hexadecimal sha256 of the canonical JSON; travels with every message."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()


def _private(sample_rate: float, noise_multiplier: float, clip_norm: float) -> dict[str, Any]:
    return {
        "sample_rate": sample_rate,
        "noise_multiplier": noise_multiplier,
        "clip_norm": clip_norm,
    }
