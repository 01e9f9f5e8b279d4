from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch

from torch_dpfts.benchmark import BenchmarkSettings, Run
from torch_dpfts.benchmark.variants import expand


@pytest.fixture
def make_settings() -> Callable[..., BenchmarkSettings]:
    """Settings of four arms on the valley."""

    def make(**changes: Any) -> BenchmarkSettings:
        given = {
            "problem": "tests.benchmark.valley:Valley", "num_rounds": 4, "num_initial": 2,
            "seeds": 3, "rounds_reported": [0, 2, 4], "control": "noise", "baseline": "ts",
            "settings": {"preset": "recommended", "delta": 1e-3},
            "arms": {name: {"arm": name} for name in ("ts", "fts", "dp-fts", "noise")},
        }  # fmt: skip
        return BenchmarkSettings(**(given | changes))

    return make


@pytest.fixture
def make_runs() -> Callable[..., list[Run]]:
    """Runs with random curves, which cost nothing."""

    def make(settings: BenchmarkSettings, *, regret: bool = True, **changes: Any) -> list[Run]:
        generator = torch.Generator().manual_seed(1)
        runs = []
        for variant in expand(settings):
            for seed in settings.seeds:
                draws = torch.rand(settings.num_rounds + 1, generator=generator)
                best = (draws.double() / 2).cummax(0).values
                values: dict[str, Any] = {
                    "arm": variant.arm, "swept": dict(variant.swept), "seed": seed,
                    "problem": settings.problem, "problem_settings": {},
                    "num_initial": settings.num_initial, "spec": json.loads(variant.spec.to_json()),
                    "fingerprint": variant.spec.fingerprint, "score": None,
                    "best_values": best.tolist(), "seconds": 60.0, "version": "1.2.3",
                    "regret": (1 - best).tolist() if regret else None,
                }  # fmt: skip
                runs.append(Run(**(values | changes)))
        return runs

    return make
