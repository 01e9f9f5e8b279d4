"""The ClientApp hides everything but two calls, and is light."""

from __future__ import annotations

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install -e '.[flower]'")

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict

from torch_dpfts import FederationSpec, Server
from torch_dpfts.flower import compat
from torch_dpfts.flower.client_app import app, build_client_app
from torch_dpfts.flower.records import read_answer_bytes, request_content
from torch_dpfts.inprocess import AgentCalls
from torch_dpfts.protocol import Code, answer
from torch_dpfts.site.config import SiteConfig
from torch_dpfts.site.local_socket import SocketServer
from torch_dpfts.site.process import Site

MakeSites = Callable[..., dict[int, AgentCalls]]


def call(client: Any, content: RecordDict, ttl: float = 600.0, **node_config: str) -> Message:
    compat.be_server(1)
    message = Message(content, 2, "query", ttl=ttl)
    compat.set_message_id(message)
    return client(message, Context(1, 2, dict(node_config), RecordDict(), {}))


def test_it_reaches_a_site_over_its_socket(tmp_path: Path, make_sites: MakeSites) -> None:
    site = make_sites()[1]
    server = SocketServer(tmp_path / "s", site, 10_000)
    reply = call(app, request_content(1, None), socket=str(tmp_path / "s"))
    assert read_answer_bytes(reply) == site.contribution(1)
    server.close()


def test_a_site_that_is_not_there_is_a_code() -> None:
    for config in ({"socket": "/nowhere/s"}, {}):
        reply = call(app, request_content(1, None), 2.0, **config)
        assert read_answer_bytes(reply) == answer(Code.FAILED)


@pytest.mark.parametrize(
    "content",
    [
        RecordDict(),
        RecordDict({"dpfts": ConfigRecord({"round": "1"})}),
        RecordDict({"dpfts": ConfigRecord({"round": True})}),
        RecordDict({"dpfts": ConfigRecord({"broadcast": 3})}),
        RecordDict({"dpfts": ConfigRecord({"run": b"code"})}),
        RecordDict({"other": ConfigRecord({"round": 1})}),
    ],
)
def test_requests_that_are_none_are_refused(content: RecordDict) -> None:
    assert read_answer_bytes(call(app, content, socket="/nowhere")) == answer(Code.REFUSED)


def test_no_exception_leaves() -> None:
    def site_of(*_: Any) -> Any:
        raise ValueError("the secret of patient 7")

    reply = call(build_client_app(site_of), request_content(1, None))
    assert read_answer_bytes(reply) == answer(Code.FAILED)
    assert all(b"secret" not in part for part in compat.deflate(reply).values())


def test_a_secret_in_an_objective_reaches_no_byte(
    tmp_path: Path, spec: FederationSpec, connect: Callable[..., Any]
) -> None:
    """A whole site whose objective raises; every byte that goes to the server is searched."""
    (tmp_path / "spec.json").write_text(spec.to_json())
    (tmp_path / "planted.py").write_text('def f(x):\n    raise ValueError("secret")\n')
    config = SiteConfig(
        spec=tmp_path / "spec.json", agent_id=0, objective="planted:f", num_initial=1,
        directory=tmp_path / "site", max_trials=2, seed=0,
    )  # fmt: skip
    site = Site(config, str(tmp_path))
    while len(site.store.trials()) < 2:
        trial = site._next_trial()
        assert trial is not None
        assert not site._evaluate(trial)
    assert b"secret" in (tmp_path / "site" / "trials" / "000000.log").read_bytes()
    wire: list[bytes] = []

    def on_wire(name: str, objects: dict[str, bytes]) -> list[tuple[str, dict[str, bytes]]]:
        wire.extend([name.encode(), *objects.values()])
        return [(name, objects)]

    transport = connect({0: site.calls}, on_wire=on_wire)
    server = Server(spec, seed=0)
    for _ in range(2):
        exchange = transport.exchange(server.next_round, server.last_broadcast, 600.0)
        assert sorted(exchange.contributions) == [0]
        server.round(exchange.contributions.values())
    assert wire
    assert all(b"secret" not in part for part in wire)
    site._socket.close()
    site.store.close()


def test_it_loads_without_torch() -> None:
    code = "import sys, torch_dpfts.flower.client_app; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
