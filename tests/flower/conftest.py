"""A federation in one process over Flower's own serialisation. Skipped without Flower."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from typing import Any

import pytest

from torch_dpfts import Agent, FederationSpec
from torch_dpfts.inprocess import AgentCalls

# Before flwr is imported: no test may call home.
os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"

SPEC = FederationSpec.dp_fts_de(
    bounds=[[0.0], [1.0]], num_agents=3, num_rounds=5, num_regions=2, num_features=8,
    sample_rate=0.7, noise_multiplier=1.0, clip_norm=2.0, delta=1e-3,
)  # fmt: skip


class FakeClock:
    """Time passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def spec() -> FederationSpec:
    return SPEC


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def pem() -> Callable[[int], bytes]:
    """Something that looks like the public key of an agent."""

    def pem(n: int) -> bytes:
        text = base64.b64encode(f"key of {n}".encode())
        return b"-----BEGIN PUBLIC KEY-----\n" + text + b"\n-----END PUBLIC KEY-----\n"

    return pem


@pytest.fixture
def make_sites() -> Callable[..., dict[int, AgentCalls]]:
    def make_sites(spec: FederationSpec = SPEC) -> dict[int, AgentCalls]:
        sites = {n: AgentCalls(Agent(spec, n, seed=0)) for n in range(spec.num_agents)}
        for site in sites.values():
            X = site.agent.initial_points(2)
            site.agent.observe(X, X.sin())
        return sites

    return make_sites


@pytest.fixture
def connect(pem: Callable[[int], bytes], clock: FakeClock) -> Callable[..., Any]:
    """Put sites behind a grid and a transport."""

    def connect(sites: dict[int, Any], spec: FederationSpec = SPEC, on_wire: Any = None) -> Any:
        from torch_dpfts.flower.client_app import build_client_app
        from torch_dpfts.flower.grid import InProcessGrid
        from torch_dpfts.flower.roster import Member, Roster, key_fingerprint
        from torch_dpfts.flower.transport import FlowerTransport

        apps = {pem(n): build_client_app(lambda *_, s=site: s) for n, site in sites.items()}
        members = [
            Member(key_fingerprint(pem(n)), n, n % spec.num_regions)
            if n < spec.num_agents
            else Member(key_fingerprint(pem(n)))
            for n in sites
        ]
        grid = InProcessGrid(apps, on_wire=on_wire)
        return FlowerTransport(spec, grid, Roster(members, spec), clock=clock)

    return connect
