"""``dpfts site``: the long-lived process at a site."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("site")(site)


def site(
    config: Annotated[Path, typer.Argument(help="The site's configuration, a TOML file.")],
    status: Annotated[
        bool, typer.Option("--status", help="Say how far the site is, and start nothing.")
    ] = False,
) -> None:
    """Tune this site's own objective and answer the federation, until it is told to stop.

    What it prints may hold outcomes of the objective: it is for the site's owner.
    """
    from torch_dpfts.site.config import SiteConfig
    from torch_dpfts.site.process import Site, summary

    settings = SiteConfig.read(config)
    if status:
        typer.echo(summary(settings))
        return
    process = Site(settings, str(config.resolve().parent), say=typer.echo)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: process.stop.set())
    process.run()
