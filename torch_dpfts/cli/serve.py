"""``dpfts serve``: the federation's server on Flower."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torch_dpfts.errors import InvalidInputError


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("serve")(serve)


def serve(
    config: Annotated[Path, typer.Argument(help="The server's configuration, a TOML file.")],
    status: Annotated[
        bool, typer.Option("--status", help="Say how far the federation is, and start nothing.")
    ] = False,
) -> None:
    """Run a federation on a SuperLink that is up, and resume it whenever the server dies."""
    try:
        from torch_dpfts.flower.config import ServerConfig, read_status, status_line
        from torch_dpfts.flower.supervise import register_keys, supervise
    except ImportError as error:
        raise InvalidInputError(
            f"This command needs Flower, and {error.name!r} is missing; "
            "pip install 'torch_dpfts[flower]'."
        ) from None
    settings = ServerConfig.read(config)
    if status:
        typer.echo(status_line(read_status(settings.directory)))
        return
    register_keys(settings, typer.echo)
    supervise(settings, typer.echo)
