"""What ``dpfts deploy init`` writes fits together."""

from __future__ import annotations

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install -e '.[flower]'")

import ssl
import tomllib
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from typer.testing import CliRunner

from torch_dpfts import FederationSpec
from torch_dpfts.cli import app
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.flower import deploy
from torch_dpfts.flower.config import ServerConfig
from torch_dpfts.flower.roster import Roster, key_fingerprint
from torch_dpfts.site.config import SiteConfig


@pytest.fixture
def folder(tmp_path: Path, spec: FederationSpec) -> Path:
    deploy.init(tmp_path / "d", spec, 3, listeners=2, address="dpfts.example:9000")
    return tmp_path / "d"


def test_configurations_are_read_as_written(folder: Path, spec: FederationSpec) -> None:
    server = ServerConfig.read(folder / "server" / "server.toml")
    assert server.read_spec() == spec
    for n in range(3):
        site = SiteConfig.read(folder / f"site-{n}" / "site.toml")
        assert (site.agent_id, site.listener) == (n, False)
        assert site.read_spec().fingerprint == spec.fingerprint
    assert SiteConfig.read(folder / "listener-1" / "site.toml").listener


def test_the_roster_names_the_keys_that_the_sites_hold(folder: Path, spec: FederationSpec) -> None:
    roster = Roster.read(folder / "server" / "roster.toml", spec)
    for n, name in enumerate(["site-0", "site-1", "site-2", "listener-0", "listener-1"]):
        key = serialization.load_ssh_private_key(
            (folder / name / "supernode.key").read_bytes(), None
        )
        pem = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        assert roster.agents.get(key_fingerprint(pem)) == (n if n < 3 else None)
        assert (key_fingerprint(pem) in roster.listeners) == (n >= 3)
        public = serialization.load_ssh_public_key(
            (folder / "server" / "keys" / f"{name}.pub").read_bytes()
        )
        assert public == key.public_key()


def test_the_certificate_is_the_servers_and_the_authoritys(folder: Path) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "server" / "server.crt", folder / "server" / "server.key")
    client = ssl.create_default_context(cafile=str(folder / "site-0" / "ca.crt"))
    for host in ("dpfts.example", "localhost", "127.0.0.1"):
        assert handshake(server, client, host)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, client, "other.example")


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> bool:
    """A TLS handshake in memory."""
    buffers = [ssl.MemoryBIO() for _ in range(4)]
    ends = [
        client.wrap_bio(buffers[0], buffers[1], server_hostname=host),
        server.wrap_bio(buffers[2], buffers[3], server_side=True),
    ]
    done = [False, False]
    for _ in range(10):
        for i, end in enumerate(ends):
            try:
                end.do_handshake()
                done[i] = True
            except ssl.SSLWantReadError:
                pass
            buffers[2 - 2 * i].write(buffers[1 + 2 * i].read())
    return all(done)


def test_secrets_are_for_their_owners(folder: Path) -> None:
    for path in folder.rglob("*.key"):
        assert path.stat().st_mode & 0o077 == 0, path
    # The authority's key is on no machine of the federation.
    assert [p.name for p in folder.iterdir() if p.is_file()] == ["ca.key"]
    everything = b"".join(p.read_bytes() for p in (folder / "server").rglob("*") if p.is_file())
    for name in ("site-0", "listener-0"):
        assert (folder / name / "supernode.key").read_bytes() not in everything


def test_the_app_ships_no_code(folder: Path) -> None:
    shipped = folder / "server" / "app"
    assert sorted(p.name for p in shipped.iterdir()) == ["LICENSE", "pyproject.toml"]
    content = tomllib.loads((shipped / "pyproject.toml").read_text())
    for reference in content["tool"]["flwr"]["app"]["components"].values():
        assert reference.startswith("torch_dpfts.flower.")


def test_units_turn_flower_away_from_the_data_and_from_home(
    tmp_path: Path, spec: FederationSpec
) -> None:
    line = deploy.init(tmp_path / "d", spec, 1, address="h:1", root="/srv/dpfts")
    units = {p.name: p.read_text() for p in (tmp_path / "d").rglob("*.service")}
    assert len(units) == 4
    for text in units.values():
        assert "FLWR_TELEMETRY_ENABLED=0" in text
        assert "FLWR_DISABLE_UPDATE_CHECK=1" in text
        assert str(tmp_path) not in text
    node = units["dpfts-supernode.service"]
    assert "InaccessiblePaths=-/srv/dpfts/site-0/state" in node
    assert "User=dpfts-flower" in node
    assert "User=dpfts-site" in units["dpfts-site.service"]
    assert "--enable-supernode-auth" in units["dpfts-superlink.service"]
    assert "--disable-runtime-dependency-installation" in units["dpfts-superlink.service"]
    assert line.endswith("flwr run /srv/dpfts/server/app")


def test_bad_arguments_write_nothing(tmp_path: Path, spec: FederationSpec) -> None:
    cases = {
        "at most num_agents=3": {"sites": 4},
        "sites must be at least 1": {"sites": 0},
        "listeners": {"sites": 1, "listeners": -1},
        "HOST:PORT": {"sites": 1, "address": "nowhere"},
        "shares nothing": {"sites": 1, "spec": spec.arm("ts")},
    }
    for match, changes in cases.items():
        with pytest.raises(InvalidInputError, match=match):
            deploy.init(tmp_path / "d", **({"spec": spec} | changes))  # type: ignore[arg-type]
        assert not (tmp_path / "d").exists()
    (tmp_path / "d").mkdir()
    with pytest.raises(InvalidInputError, match="exists"):
        deploy.init(tmp_path / "d", spec, 1)


def test_on_the_command_line(tmp_path: Path, spec: FederationSpec) -> None:
    (tmp_path / "spec.json").write_text(spec.to_json())
    words = ["deploy", "init", str(tmp_path / "d"), "--spec", str(tmp_path / "spec.json")]
    result = CliRunner().invoke(app, [*words, "--sites", "2"])
    assert result.exit_code == 0, result.output
    assert "flwr run" in result.output
    assert (tmp_path / "d" / "site-1" / "site.toml").exists()
    status = CliRunner().invoke(app, ["serve", str(tmp_path / "d/server/server.toml"), "--status"])
    assert status.exit_code == 1
    assert "No saved state" in str(status.exception)
