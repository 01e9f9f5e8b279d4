"""Named settings: those of the paper's landmine experiment, and those we recommend."""

from __future__ import annotations

from typing import Any

from torch_dpfts import checks
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
    "practical": {
        "message": "mean",
        "num_features": 64,
        "feature_map": "sincos",
        "frequencies": "sobol",
        "lengthscales": 0.2,
        "noise_variance": 0.01,
        "num_regions": 1,
        "sample_rate": 0.35,
        "noise_multiplier": 1.0,
        "clip_norm": 4.0,
        "local_probability": "1-1/sqrt(t)",
    },
}


def preset_spec(name: str, **settings: Any) -> FederationSpec:
    """Return the ``dp-fts-de`` specification of a preset.

    Args:
        name: ``"paper"`` (section 5 of [Dai2021]_ and its public code) or ``"practical"``
            (mean messages, a lengthscale that fits the cube, a small clip norm, and agents that
            listen longer).
        settings: The fields that a preset leaves open (bounds, agents, rounds), and changes.

    Raises:
        InvalidInputError: If there is no such preset.

    Example:
        >>> preset_spec("paper", bounds=[[0.0], [1.0]], num_agents=29, num_rounds=60).num_features
        100
    """
    checks.choice("preset", name, PRESETS)
    return FederationSpec(**(PRESETS[name] | settings))
