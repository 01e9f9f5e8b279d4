"""The command line, ``dpfts``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from torch_dpfts import __version__
from torch_dpfts.cli import benchmark, demo, deploy, privacy, serve, site, tune
from torch_dpfts.errors import DPFTSError

app = typer.Typer(
    name="dpfts",
    help="Differentially private federated Bayesian optimisation.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"torch_dpfts {__version__}")
        raise typer.Exit()


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options of every command."""


demo.register(app)
benchmark.register(app)
privacy.register(app)
site.register(app)
serve.register(app)
deploy.register(app)
tune.register(app)


def main() -> None:
    """Run the command line; an error of ours becomes one line and exit status 2."""
    try:
        app()
    except DPFTSError as error:
        typer.echo(f"dpfts: {error}", err=True)
        sys.exit(2)
