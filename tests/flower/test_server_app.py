"""The ServerApp resumes, refuses a changed specification, and publishes nothing of the sites."""

from __future__ import annotations

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install -e '.[flower]'")

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from flwr.app import Context, RecordDict

from torch_dpfts import Broadcast, FederationSpec, Server
from torch_dpfts.errors import FingerprintMismatchError, InvalidInputError, StateError
from torch_dpfts.flower import server_app
from torch_dpfts.flower.client_app import build_client_app
from torch_dpfts.flower.config import ServerConfig, read_status, status_line
from torch_dpfts.flower.grid import InProcessGrid
from torch_dpfts.flower.roster import Member, key_fingerprint, roster_text
from torch_dpfts.inprocess import AgentCalls
from torch_dpfts.privacy import PrivacyLedger


@pytest.fixture
def config(tmp_path: Path, spec: FederationSpec, pem: Callable[[int], bytes]) -> ServerConfig:
    (tmp_path / "spec.json").write_text(spec.to_json())
    members = [Member(key_fingerprint(pem(n)), n, n % spec.num_regions) for n in range(3)]
    (tmp_path / "roster.toml").write_text(roster_text(members))
    (tmp_path / "server.toml").write_text(
        'spec = "spec.json"\nroster = "roster.toml"\ndeadline = 600\ninterval = 0\n'
    )
    return ServerConfig.read(tmp_path / "server.toml")


@pytest.fixture
def grid(pem: Callable[[int], bytes], make_sites: Callable[..., dict[int, AgentCalls]]) -> Any:
    sites = make_sites()
    apps = {pem(n): build_client_app(lambda *_, s=site: s) for n, site in sites.items()}
    return InProcessGrid(apps)


def test_flower_starts_it_with_the_configuration_named_in_the_run(
    config: ServerConfig, grid: InProcessGrid, tmp_path: Path, spec: FederationSpec
) -> None:
    context = Context(1, 1, {}, RecordDict(), {"config": str(tmp_path / "server.toml")})
    server_app.app(grid, context)
    status = read_status(config.directory)
    assert status["state"] == "finished"
    assert status["round"] == status["num_rounds"] == spec.num_rounds
    assert status["federation"] == spec.fingerprint
    with PrivacyLedger(config.directory / "ledger.jsonl") as ledger:
        assert len(ledger) == spec.num_rounds
        assert status["epsilon"] == ledger.epsilon(spec.delta)


def test_it_goes_on_where_it_was_killed(
    config: ServerConfig, grid: InProcessGrid, spec: FederationSpec
) -> None:
    class Killed(BaseException):
        pass

    def say(line: str) -> None:
        lines.append(line)
        if len(lines) in (2, 4):
            raise Killed

    lines: list[str] = []
    for _ in range(2):
        with pytest.raises(Killed):
            server_app.run_server(config, grid, say)
    server_app.run_server(config, grid, say)
    rounds = [line.split(",")[0] for line in lines]
    assert rounds[:-1] == [f"running: round {t} of 5" for t in range(1, 6)]
    assert rounds[-1] == "finished: round 5 of 5"
    undisturbed = Server(spec, seed=0)
    for _ in range(5):
        undisturbed.round([])
    on_disk = PrivacyLedger(config.directory / "ledger.jsonl", read_only=True)
    assert on_disk.export_json() == undisturbed.ledger.export_json()


def test_a_finished_federation_asks_for_nothing(config: ServerConfig, grid: InProcessGrid) -> None:
    server_app.run_server(config, grid, lambda line: None)
    before = (config.directory / "broadcast.bin").read_bytes()
    server_app.run_server(config, grid, lambda line: None)
    assert (config.directory / "broadcast.bin").read_bytes() == before


def test_a_changed_specification_is_refused(
    config: ServerConfig, grid: InProcessGrid, spec: FederationSpec
) -> None:
    server_app.run_server(config, grid, lambda line: None)
    files = {p.name: p.read_bytes() for p in config.directory.iterdir() if p.is_file()}
    config.spec.write_text(replace(spec, noise_multiplier=0.5).to_json())
    with pytest.raises(FingerprintMismatchError, match=spec.fingerprint):
        server_app.run_server(config, grid, lambda line: None)
    status = read_status(config.directory)
    assert status["state"] == "failed"
    assert spec.fingerprint in status_line(status)
    for name in ("ledger.jsonl", "broadcast.bin", "server.json"):
        assert (config.directory / name).read_bytes() == files[name]


def test_a_bad_roster_is_refused_before_anything_is_released(
    config: ServerConfig, grid: InProcessGrid
) -> None:
    config.roster.write_text("[[member]]\nkey = 1\n")
    with pytest.raises(InvalidInputError, match="hexadecimal"):
        server_app.run_server(config, grid, lambda line: None)
    assert status_line(read_status(config.directory)).startswith("failed: key must be")
    assert not (config.directory / "server.json").exists()


def test_two_servers_do_not_share_a_directory(
    config: ServerConfig, grid: InProcessGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_app, "_LOCK_SECONDS", 0.05)

    def say(line: str) -> None:
        with pytest.raises(StateError, match="Another server"):
            server_app.run_server(config, grid, lambda line: None)

    server_app.run_server(config, grid, say)
    assert read_status(config.directory)["state"] == "finished"


def test_what_is_published_does_not_depend_on_the_sites(
    config: ServerConfig, grid: InProcessGrid, clock: Any
) -> None:
    lines: list[list[str]] = []
    for number, nodes in enumerate((grid, InProcessGrid({}))):
        one = replace(config, directory=config.directory.with_name(f"state{number}"))
        lines.append([])
        server_app.run_server(one, nodes, lines[-1].append, clock)
    assert lines[0] == lines[1]


@pytest.mark.parametrize("wanted", [False, True])
def test_diagnostics_are_kept_only_if_wanted_and_hold_no_coins(
    config: ServerConfig, grid: InProcessGrid, wanted: bool
) -> None:
    server_app.run_server(replace(config, diagnostics=wanted), grid, lambda line: None)
    path = config.directory / "diagnostics.jsonl"
    assert path.exists() == wanted
    if wanted:
        assert path.stat().st_mode & 0o077 == 0
        first = json.loads(path.read_text().splitlines()[0])
        assert first["note"].startswith("not private")
        assert first["statuses"] == {"0": "answered", "1": "answered", "2": "answered"}
        assert set(first) == {"note", "round", "statuses", "refused"}
    text = "".join(p.read_text() for p in config.directory.glob("*.json"))
    assert "answered" not in text
    assert "cohort" not in text


def test_sites_hold_the_last_broadcast_at_the_end(
    config: ServerConfig, pem: Callable[[int], bytes], make_sites: Any
) -> None:
    sites = make_sites()
    apps = {pem(n): build_client_app(lambda *_, s=site: s) for n, site in sites.items()}
    server_app.run_server(config, InProcessGrid(apps), lambda line: None)
    last = Broadcast.from_bytes((config.directory / "broadcast.bin").read_bytes())
    for site in sites.values():
        assert torch.equal(site.broadcast.vectors, last.vectors)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ('spec = "s"\n', "lacks"),
        ('spec = "s"\nroster = "r"\ncolour = 1\n', "colour"),
        ('spec = "s"\nroster = "r"\ndeadline = 0\n', "deadline"),
        ('spec = "s"\nroster = "r"\ninterval = -1\n', "interval"),
        ('spec = "s"\nroster = "r"\ndiagnostics = 1\n', "diagnostics"),
    ],
)
def test_bad_configurations_are_refused(tmp_path: Path, text: str, match: str) -> None:
    (tmp_path / "server.toml").write_text(text)
    with pytest.raises(InvalidInputError, match=match):
        ServerConfig.read(tmp_path / "server.toml")
