"""Small federations and sites."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from torch_dpfts import FederationSpec
from torch_dpfts.site.config import SiteConfig
from torch_dpfts.site.process import Site

OBJECTIVE = """
import os, time

def log(word, x):
    with open("calls.txt", "a") as file:
        file.write(f"{word} {x[0]:.17g}\\n")

def square(x):
    log("start", x)
    log("end", x)
    return -(x[0] - 0.3) ** 2

def slow(x):
    log("start", x)
    while not os.path.exists("go"):
        time.sleep(0.02)
    log("end", x)
    return x[0]

def secret(x):
    raise ValueError("the secret of patient 7")

def not_finite(x):
    return float("nan")

def hang(x):
    time.sleep(60)

def die(x):
    os._exit(9)
"""


@pytest.fixture
def spec() -> FederationSpec:
    return FederationSpec.dp_fts_de(
        bounds=[[0.0], [1.0]], num_agents=3, num_rounds=5, num_regions=2, num_features=8,
        sample_rate=0.5, noise_multiplier=1.0, clip_norm=2.0, delta=1e-3,
    )  # fmt: skip


@pytest.fixture
def configure(tmp_path: Path, spec: FederationSpec) -> Callable[..., SiteConfig]:
    """Write the files of a site whose objectives are those above; return its configuration."""
    (tmp_path / "spec.json").write_text(spec.to_json())
    (tmp_path / "objectives.py").write_text(OBJECTIVE)
    (tmp_path / "command.py").write_text(
        "import json, sys\nprint('thinking')\nprint(json.load(sys.stdin)[0] * 2)\n"
    )

    def configure(objective: str = "square", **changes: Any) -> SiteConfig:
        target: Any = f"objectives:{objective}"
        if objective == "command":
            target = [sys.executable, "command.py"]
        settings = {
            "spec": tmp_path / "spec.json", "agent_id": 1, "objective": target,
            "directory": tmp_path / "site", "num_initial": 2, "max_trials": 3, "seed": 0,
        }  # fmt: skip
        return SiteConfig(**(settings | changes))

    return configure


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[SiteConfig], tuple[Site, threading.Thread]]]:
    """Start sites in threads, and stop them at the end of the test."""
    running = []

    def start(config: SiteConfig) -> tuple[Site, threading.Thread]:
        site = Site(config, str(tmp_path))
        thread = threading.Thread(target=site.run, daemon=True)
        thread.start()
        running.append((site, thread))
        return site, thread

    yield start
    for site, thread in running:
        site.stop.set()
        thread.join(30)
        assert not thread.is_alive()


@pytest.fixture
def until() -> Callable[[Callable[[], Any]], None]:
    """Wait for a condition; a test that never sees it fails instead of hanging."""

    def until(condition: Callable[[], Any], seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "waited in vain"
            time.sleep(0.02)

    return until
