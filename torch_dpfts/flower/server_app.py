"""The ServerApp: the federation's rounds over Flower, resumed wherever they stopped."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from filelock import FileLock, Timeout
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from torch_dpfts.errors import DPFTSError, FingerprintMismatchError, StateError
from torch_dpfts.flower import compat
from torch_dpfts.flower.config import (
    FINISHED,
    RUNNING,
    ServerConfig,
    read_status,
    status_line,
    write_failure,
    write_status,
)
from torch_dpfts.flower.roster import Roster
from torch_dpfts.flower.transport import Clock, FlowerTransport
from torch_dpfts.messages import Broadcast
from torch_dpfts.server import Server
from torch_dpfts.serving import serve
from torch_dpfts.spec import FederationSpec
from torch_dpfts.transport import Exchange

_LOCK_SECONDS = 10.0


def open_server(spec: FederationSpec, directory: Path) -> Server:
    """Start a federation, or go on with the one in the directory.

    Raises:
        FingerprintMismatchError: If the directory holds a federation of another specification.
    """
    if not (directory / "server.json").exists():
        return Server(spec, directory=directory)
    server = Server.load(directory)
    if server.spec.fingerprint != spec.fingerprint:
        server.close()
        raise FingerprintMismatchError(
            f"{str(directory)!r} holds the federation {server.spec.fingerprint}, the "
            f"specification is {spec.fingerprint}; a running federation keeps its specification. "
            "Restore it, or choose an empty directory."
        )
    return server


def run_server(
    config: ServerConfig,
    grid: Grid,
    say: Callable[[str], object],
    clock: Clock = time,
) -> None:
    """Run the rounds that are left.

    Args:
        config: The server's configuration.
        grid: Flower's Grid.
        say: Called with a status line after each round; it may be published.
        clock: For tests.

    Raises:
        StateError: If another server works in the directory.
        FingerprintMismatchError: If the specification was changed.
    """
    directory = config.directory
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _only_one(directory):
        try:
            _run(config, grid, say, clock)
        except DPFTSError as error:
            write_failure(directory, str(error))
            raise


def _run(config: ServerConfig, grid: Grid, say: Callable[[str], object], clock: Clock) -> None:
    spec, directory = config.read_spec(), config.directory
    transport = FlowerTransport(spec, grid, Roster.read(config.roster, spec), clock=clock)
    server = open_server(spec, directory)

    def report(broadcast: Broadcast, exchange: Exchange) -> None:
        write_status(directory, server, RUNNING)
        say(status_line(read_status(directory)))
        if config.diagnostics:
            _keep_diagnostics(directory, broadcast.round, exchange)

    with closing(server):
        write_status(directory, server, RUNNING)
        reason = serve(server, transport, config.deadline, interval=config.interval, report=report)
        write_status(directory, server, FINISHED, reason)
        say(status_line(read_status(directory)))


def _keep_diagnostics(directory: Path, round: int, exchange: Exchange) -> None:
    """What became of each request; the coins of the cohort are not among it."""
    line = {
        "note": "not private: never publish this",
        "round": round,
        "statuses": {str(n): status for n, status in sorted(exchange.statuses.items())},
        "refused": dict(exchange.refused),
    }
    path = directory / "diagnostics.jsonl"
    with open(path, "a", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(json.dumps(line) + "\n")


def _only_one(directory: Path) -> FileLock:
    lock = FileLock(directory / "serving.lock", timeout=_LOCK_SECONDS, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        raise StateError(
            f"Another server works in {str(directory)!r}; stop that one first."
        ) from None
    return lock


app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """What ``flwr run`` starts; ``config`` names the server's configuration."""
    config = ServerConfig.read(str(context.run_config["config"]))
    run_server(config, grid, lambda line: compat.log(logging.INFO, line))
