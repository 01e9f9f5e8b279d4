"""``dpfts deploy``: set-up of a federation on several machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torch_dpfts.errors import InvalidInputError

_commands = typer.Typer(no_args_is_help=True, help="Set up a federation on several machines.")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(_commands, name="deploy")


@_commands.callback()
def _group() -> None:
    """Set up a federation on several machines."""


@_commands.command("init")
def init(
    folder: Annotated[Path, typer.Argument(help="New folder for all files.")],
    spec: Annotated[Path, typer.Option(help="The specification, as FederationSpec.to_json wrote.")],
    sites: Annotated[int, typer.Option(min=1, help="Sites that contribute.")],
    listeners: Annotated[int, typer.Option(min=0, help="Sites that only receive.")] = 0,
    address: Annotated[
        str, typer.Option(help="The server's HOST:PORT, as the sites reach it.")
    ] = "127.0.0.1:8000",
    objective: Annotated[
        str, typer.Option(help="The objective, module:function; each site edits its own.")
    ] = "objective:evaluate",
    root: Annotated[
        Path | None, typer.Option(help="Where the folders will lie on the machines.")
    ] = None,
    deadline: Annotated[float, typer.Option(help="Seconds that sites have for an answer.")] = 300.0,
    interval: Annotated[float, typer.Option(help="Seconds between two rounds.")] = 3600.0,
) -> None:
    """Write certificates, keys, roster, configurations and systemd units."""
    try:
        from torch_dpfts.flower import deploy
    except ImportError as error:
        raise InvalidInputError(
            f"This command needs Flower, and {error.name!r} is missing; "
            "pip install 'torch_dpfts[flower]'."
        ) from None
    from torch_dpfts.site.config import read_spec

    line = deploy.init(
        folder, read_spec(spec), sites, listeners=listeners, address=address,
        objective=objective, root=root, deadline=deadline, interval=interval,
    )  # fmt: skip
    typer.echo(f"wrote {folder}/server and {sites + listeners} folders for sites; keep")
    typer.echo(f"{folder}/ca.key off-line. Start the rounds with `dpfts serve`, or with")
    typer.echo(line)
