"""``dpfts deploy init``: every file that a federation of n sites needs."""

from __future__ import annotations

import datetime
import ipaddress
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from torch_dpfts import checks
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.flower.roster import Member, Roster, key_fingerprint, roster_text
from torch_dpfts.flower.units import server_units, site_units
from torch_dpfts.spec import FederationSpec

_VALID_DAYS = 365
_PRIVATE = 0o600

_APP = """\
[project]
name = "dpfts-federation"
version = "1.0.0"
description = "A torch_dpfts federation; its code is installed, not shipped"
license = {{ file = "LICENSE" }}
dependencies = ["flwr>=1.42,<1.43"]

[tool.flwr.app]
publisher = "operator"
fab-format-version = 1
flwr-version-target = "1.42.0"

[tool.flwr.app.components]
serverapp = "torch_dpfts.flower.server_app:app"
clientapp = "torch_dpfts.flower.client_app:app"

[tool.flwr.app.config]
config = "{config}"
"""
_APP_LICENSE = "The files of this app are configuration and may be used without restriction.\n"
_FLOWER = """\
[superlink]
default = "federation"

[superlink.federation]
address = "{address}"
root-certificates = "{folder}/ca.crt"
"""
_SERVER = """\
spec = "spec.json"
roster = "roster.toml"
deadline = {deadline}      # seconds that sites have for an answer
interval = {interval}      # seconds between the starts of two rounds
diagnostics = false  # true: keep what became of each request, which is not private
"""
_SITE = """\
spec = "spec.json"
agent_id = {agent_id}{listener}
objective = {objective}  # or a command line: ["python3", "train.py"]
directory = "state"
socket = "run/site.sock"
num_initial = 10
# max_trials = 100        # stop searching then; answering goes on
# timeout = 86400         # seconds for one evaluation
# target_epsilon = 1.0    # listen once this is spent
"""


def init(
    folder: str | Path,
    spec: FederationSpec,
    sites: int,
    *,
    listeners: int = 0,
    address: str = "127.0.0.1:8000",
    objective: str = "objective:evaluate",
    root: str | Path | None = None,
    deadline: float = 300.0,
    interval: float = 3600.0,
) -> str:
    """Write a deployment: certificates, keys, roster, configurations and systemd units.

    Args:
        folder: New folder, with a folder for the server and one for each site.
        spec: The federation.
        sites: Sites that contribute, at most ``spec.num_agents``.
        listeners: Sites that only receive.
        address: Host and port of the SuperLink, as the sites reach it.
        objective: The sites' objective; each site edits its own.
        root: Where the folders will lie on the machines; ``folder`` by default.
        deadline: Seconds that sites have for an answer.
        interval: Seconds between the starts of two rounds.

    Returns:
        The line that starts the federation.

    Raises:
        InvalidInputError: If the folder exists or an argument is out of range.
    """
    folder = Path(folder).resolve()
    root = folder if root is None else Path(root)
    checks.integer("sites", sites, minimum=1)
    checks.integer("listeners", listeners)
    checks.real("deadline", deadline, above=0.0)
    checks.real("interval", interval, minimum=0.0)
    host, port = _split(address)
    if sites > spec.num_agents:
        raise InvalidInputError(f"sites must be at most num_agents={spec.num_agents}, got {sites}.")
    if not spec.shares:
        raise InvalidInputError("The specification shares nothing; its sites need no server.")
    if folder.exists():
        raise InvalidInputError(f"{str(folder)!r} exists; choose a new folder.")
    names = [f"site-{n}" for n in range(sites)] + [f"listener-{n}" for n in range(listeners)]
    server = folder / "server"
    for path in (server / "app", server / "flower", server / "keys", *(folder / n for n in names)):
        path.mkdir(parents=True, mode=0o700)
    authority = _write_certificates(folder, server, host)
    members = []
    for number, name in enumerate(names):
        agent_id = number if number < sites else None
        key = _write_keys(folder / name, server / "keys" / f"{name}.pub")
        region = None if agent_id is None else agent_id % spec.num_regions
        members.append(Member(key, agent_id, region))
        _write_site(folder / name, root / name, spec, agent_id, objective, authority, address)
    Roster(members, spec)
    (server / "roster.toml").write_text(roster_text(members))
    return _write_server(server, root / "server", spec, host, port, deadline, interval)


def _write_server(
    folder: Path,
    root: Path,
    spec: FederationSpec,
    host: str,
    port: int,
    deadline: float,
    interval: float,
) -> str:
    (folder / "spec.json").write_text(spec.to_json())
    (folder / "server.toml").write_text(_SERVER.format(deadline=deadline, interval=interval))
    (folder / "app" / "pyproject.toml").write_text(_APP.format(config=root / "server.toml"))
    (folder / "app" / "LICENSE").write_text(_APP_LICENSE)
    (folder / "flower" / "config.toml").write_text(
        _FLOWER.format(address=f"{host}:{port}", folder=root)
    )
    for name, text in server_units(root, port, _bin_folder()).items():
        (folder / name).write_text(text)
    home, app = shlex.quote(str(root / "flower")), shlex.quote(str(root / "app"))
    return f"FLWR_HOME={home} FLWR_TELEMETRY_ENABLED=0 flwr run {app}"


def _write_site(
    folder: Path,
    root: Path,
    spec: FederationSpec,
    agent_id: int | None,
    objective: str,
    authority: bytes,
    address: str,
) -> None:
    (folder / "spec.json").write_text(spec.to_json())
    (folder / "ca.crt").write_bytes(authority)
    (folder / "site.toml").write_text(
        _SITE.format(
            agent_id=agent_id or 0,
            listener="\nlistener = true" if agent_id is None else "",
            objective=f'"{objective}"',
        )
    )
    for name, text in site_units(root, address, _bin_folder()).items():
        (folder / name).write_text(text)


def _write_keys(folder: Path, public: Path) -> str:
    """Make a SuperNode's key pair; return the fingerprint of the public one."""
    key = ec.generate_private_key(ec.SECP384R1())
    encoding, private = serialization.Encoding, serialization.PrivateFormat
    secret = key.private_bytes(encoding.PEM, private.OpenSSH, serialization.NoEncryption())
    _write_private(folder / "supernode.key", secret)
    formats = serialization.PublicFormat
    public.write_bytes(key.public_key().public_bytes(encoding.OpenSSH, formats.OpenSSH) + b"\n")
    pem = key.public_key().public_bytes(encoding.PEM, formats.SubjectPublicKeyInfo)
    return key_fingerprint(pem)


def _write_certificates(folder: Path, server: Path, host: str) -> bytes:
    """Make an authority and the server's certificate; return the authority's."""
    ca_key, key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    name = _name("torch_dpfts federation")
    authority = (
        _certificate(name, name, ca_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), False)
        .sign(ca_key, hashes.SHA256())
    )
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    certificate = (
        _certificate(_name(host), name, key)
        .add_extension(x509.SubjectAlternativeName(_alternatives(host)), False)
        .add_extension(issuer, False)
        .sign(ca_key, hashes.SHA256())
    )
    for path, secret in ((folder / "ca.key", ca_key), (server / "server.key", key)):
        encoding, private = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        _write_private(path, secret.private_bytes(encoding, private, serialization.NoEncryption()))
    (server / "server.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    text = authority.public_bytes(serialization.Encoding.PEM)
    (server / "ca.crt").write_bytes(text)
    return text


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=_VALID_DAYS))
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _alternatives(host: str) -> Sequence[x509.GeneralName]:
    """The names by which sites, and Flower's own processes beside the server, call it."""
    names: list[x509.GeneralName] = [
        x509.DNSName("localhost"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    ]
    try:
        own: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        own = x509.DNSName(host)
    return names if own in names else [*names, own]


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InvalidInputError(f"address must be HOST:PORT, got {address!r}.")
    return host.strip("[]"), int(port)


def _write_private(path: Path, content: bytes) -> None:
    path.touch(mode=_PRIVATE)
    path.write_bytes(content)


def _bin_folder() -> Path:
    return Path(sys.executable).parent
