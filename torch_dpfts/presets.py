"""Named settings: those of the paper's landmine experiment, and those we recommend."""

from __future__ import annotations

import math
import warnings
from typing import Any

from torch_dpfts import checks, spec_fields
from torch_dpfts.errors import DPFTSWarning
from torch_dpfts.privacy.planning import noise_within
from torch_dpfts.privacy.signal import averaged_signal_to_noise
from torch_dpfts.spec import FederationSpec

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {
        "message": "sample",
        "num_features": 100,
        "feature_map": "cosine",
        "frequencies": "iid",
        "lengthscales": 0.01,
        "noise_variance": 1e-6,
        "num_regions": 4,
        "region_score": 16.0,
        "region_hold": 10,
        "region_decay": 30,
        "sample_rate": 0.35,
        "noise_multiplier": 1.0,
        "clip_norm": 22.0,
        "local_probability": "1-1/t",
    },
    "recommended": {
        "message": "mean",
        "outcome_floor": 0.5,
        "num_features": 64,
        "feature_map": "sincos",
        "frequencies": "sobol",
        "noise_variance": 0.5,
        "num_regions": 1,
        "sample_rate": 1.0,
        "clip_norm": 1.0,
        "averaging": 0.9,
        "local_probability": "1-1/t",
        "prior_mean": True,
        "wire_dtype": "float16",
    },
}

_EPSILON = 3.0
# Near this ratio no gain over the noise-only control was shown at round 10 (RESULTS.md).
_MIN_SIGNAL = 0.1


def recommended_spec(**settings: Any) -> FederationSpec:
    """Return the settings we would defend for a budget; see :meth:`FederationSpec.recommended`."""
    fields = PRESETS["recommended"] | settings
    dim = len(spec_fields.check_bounds(settings.get("bounds"))[0])
    # Distances grow with the square root of the dimension, and lengthscales with them.
    fields = {"lengthscales": 0.2 * math.sqrt(dim / 2)} | fields
    if "noise_multiplier" not in fields:
        fields = {"target_epsilon": _EPSILON} | fields
        fields["noise_multiplier"] = _planned_noise(fields)
    spec = FederationSpec(**fields)
    round = min(10, spec.num_rounds)
    ratio = float(averaged_signal_to_noise(spec, round).min())
    if ratio < _MIN_SIGNAL:
        warnings.warn(
            f"The average of the first {round} broadcasts is expected to carry {ratio:.2g} times "
            f"as much signal as noise. Below {_MIN_SIGNAL:g} the noise-only control does about as "
            "well: allow a larger target_epsilon, more agents or fewer rounds, or tune alone.",
            DPFTSWarning,
            stacklevel=3,
        )
    return spec


def _planned_noise(fields: dict[str, Any]) -> float:
    if fields["target_epsilon"] is None:
        return 0.0
    # A specification checks the numbers first; its own noise plays no part.
    checked = FederationSpec(**fields, noise_multiplier=1.0)
    return noise_within(checked, float(fields["target_epsilon"]))


def preset_spec(name: str, **settings: Any) -> FederationSpec:
    """Return the ``dp-fts-de`` specification of a preset.

    Args:
        name: ``"paper"`` (section 5 of [Dai2021]_ and its public code) or ``"recommended"``
            (:meth:`FederationSpec.recommended`).
        settings: The fields that a preset leaves open (bounds, agents, rounds), and changes.

    Raises:
        InvalidInputError: If there is no such preset.

    Example:
        >>> preset_spec("paper", bounds=[[0.0], [1.0]], num_agents=29, num_rounds=60).num_features
        100
    """
    checks.choice("preset", name, PRESETS)
    if name == "recommended":
        return recommended_spec(**settings)
    return FederationSpec(**(PRESETS[name] | settings))
