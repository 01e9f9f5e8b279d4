"""Time of 20 sites x 10 rounds over Flower's serialisation in one process, without objective."""

from __future__ import annotations

import base64
import time

from torch_dpfts import Agent, FederationSpec, Server
from torch_dpfts.flower.client_app import build_client_app
from torch_dpfts.flower.grid import InProcessGrid
from torch_dpfts.flower.roster import Member, Roster, key_fingerprint
from torch_dpfts.flower.transport import FlowerTransport
from torch_dpfts.inprocess import AgentCalls
from torch_dpfts.serving import serve

SITES, ROUNDS = 20, 10


def pem(n: int) -> bytes:
    text = base64.b64encode(f"key of {n}".encode())
    return b"-----BEGIN PUBLIC KEY-----\n" + text + b"\n-----END PUBLIC KEY-----\n"


def main() -> None:
    spec = FederationSpec.dp_fts_de(
        bounds=[[0.0] * 4, [1.0] * 4], num_agents=SITES, num_rounds=ROUNDS, num_features=256,
        sample_rate=0.35, noise_multiplier=1.0, clip_norm=4.0,
    )  # fmt: skip
    sites = [AgentCalls(Agent(spec, n, seed=0)) for n in range(SITES)]
    for site in sites:
        X = site.agent.initial_points(20)
        site.agent.observe(X, X.sum(-1, keepdim=True))
    apps = {pem(n): build_client_app(lambda *_, s=site: s) for n, site in enumerate(sites)}
    members = [Member(key_fingerprint(pem(n)), n, n % spec.num_regions) for n in range(SITES)]
    transport = FlowerTransport(spec, InProcessGrid(apps), Roster(members, spec))
    start = time.perf_counter()
    serve(Server(spec), transport, deadline=60.0)
    print(f"{SITES} sites x {ROUNDS} rounds: {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main()
