"""The systemd units of a deployment."""

from __future__ import annotations

from pathlib import Path

_UNIT = """\
[Unit]
Description={description}
After=network-online.target
Wants=network-online.target

[Service]
User={user}
Group=dpfts
UMask=0027
WorkingDirectory={folder}
Environment=FLWR_TELEMETRY_ENABLED=0
Environment=FLWR_DISABLE_UPDATE_CHECK=1
Environment=FLWR_HOME={folder}/flower
Environment=PATH={bin}:/usr/bin:/bin
ExecStart={command}
Restart=on-failure
RestartSec=10
NoNewPrivileges=yes
PrivateTmp=yes
ProtectSystem=full
{more}
[Install]
WantedBy=multi-user.target
"""


def server_units(folder: Path, port: int, bin_folder: Path) -> dict[str, str]:
    """The units of the server, by file name.

    Example:
        >>> units = server_units(Path("/etc/dpfts/server"), 8000, Path("/opt/dpfts/bin"))
        >>> sorted(units)
        ['dpfts-serve.service', 'dpfts-superlink.service']
    """
    superlink = (
        f"{bin_folder}/flower-superlink --host 0.0.0.0 --port {port} "
        "--ssl-certfile server.crt --ssl-keyfile server.key --ssl-ca-certfile ca.crt "
        "--enable-supernode-auth --disable-runtime-dependency-installation "
        "--database superlink.sqlite"
    )
    return {
        "dpfts-superlink.service": _unit(
            "Flower SuperLink of a torch_dpfts federation", "dpfts", folder, bin_folder, superlink
        ),
        "dpfts-serve.service": _unit(
            "Rounds of a torch_dpfts federation",
            "dpfts",
            folder,
            bin_folder,
            f"{bin_folder}/dpfts serve server.toml",
        ),
    }


def site_units(folder: Path, address: str, bin_folder: Path) -> dict[str, str]:
    """The units of a site, by file name: its own process, and the SuperNode in another account.

    Example:
        >>> units = site_units(Path("/etc/dpfts/site-0"), "dpfts.org:8000", Path("/opt/dpfts/bin"))
        >>> "User=dpfts-flower" in units["dpfts-supernode.service"]
        True
    """
    supernode = (
        f"{bin_folder}/flower-supernode --root-certificates ca.crt --superlink {address} "
        "--auth-supernode-private-key supernode.key "
        f"--node-config 'socket=\"{folder}/run/site.sock\"'"
    )
    return {
        "dpfts-site.service": _unit(
            "A site of a torch_dpfts federation",
            "dpfts-site",
            folder,
            bin_folder,
            f"{bin_folder}/dpfts site site.toml",
            "# An evaluation under way outlives a restart and is found again.\nKillMode=process\n",
        ),
        "dpfts-supernode.service": _unit(
            "Flower SuperNode of a torch_dpfts site",
            "dpfts-flower",
            folder,
            bin_folder,
            supernode,
            f"ProtectHome=yes\nInaccessiblePaths=-{folder}/state\n",
        ),
    }


def _unit(
    description: str, user: str, folder: Path, bin_folder: Path, command: str, more: str = ""
) -> str:
    return _UNIT.format(
        description=description, user=user, folder=folder, bin=bin_folder, command=command,
        more=more,
    )  # fmt: skip
