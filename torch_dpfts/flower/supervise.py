"""``dpfts serve``: keep a ServerApp at work until the federation is done."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from torch_dpfts.errors import StateError
from torch_dpfts.flower.config import FAILED, FINISHED, ServerConfig, read_status, status_line

_POLL_SECONDS = 1.0
_START_SECONDS = 60.0
_FLWR_SECONDS = 60.0


def quiet_environment(flower_home: Path) -> dict[str, str]:
    """The environment for Flower's commands: our configuration, and no calls home."""
    bin_folder = str(Path(sys.executable).parent)
    return os.environ | {
        "FLWR_HOME": str(flower_home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "PATH": f"{bin_folder}{os.pathsep}{os.environ.get('PATH', '')}",
    }


def register_keys(config: ServerConfig, say: Callable[[str], object]) -> None:
    """Tell the SuperLink which SuperNodes may connect; those it knows already stay."""
    for key in sorted(config.keys.glob("*.pub")):
        done = _flwr(config, "supernode", "register", str(key))
        say(f"{key.name}: {'registered' if done else 'not registered anew'}")


def supervise(config: ServerConfig, say: Callable[[str], object]) -> None:
    """Submit the app, and again whenever the server has died, until the federation is done.

    Args:
        config: The server's configuration.
        say: Called with each new status line.

    Raises:
        StateError: If the server gave up for a reason that trying again will not mend.
    """
    if (_status(config.directory) or {}).get("state") == FAILED:
        # An earlier server left it, and since then somebody may have mended the cause.
        (config.directory / "status.json").unlink()
    said, submit_again_at = "", 0.0
    while True:
        status = _status(config.directory)
        line = "" if status is None else status_line(status)
        if line != said:
            say(line)
            said = line
        if status is not None and status["state"] == FINISHED:
            return
        if status is not None and status["state"] == FAILED:
            raise StateError(line)
        if _at_work(config.directory):
            submit_again_at = 0.0
        elif time.monotonic() >= submit_again_at:
            said = ""
            if _flwr(config, "run", str(config.app)):
                say("submitted")
                submit_again_at = time.monotonic() + _START_SECONDS
            else:
                say("the SuperLink does not take the run yet")
        time.sleep(_POLL_SECONDS)


def _status(directory: Path) -> dict[str, Any] | None:
    try:
        return read_status(directory)
    except StateError:
        return None


def _at_work(directory: Path) -> bool:
    """Whether a server holds the lock; a killed one does not."""
    if not directory.exists():
        return False
    try:
        with FileLock(directory / "serving.lock", timeout=0):
            return False
    except Timeout:
        return True


def _flwr(config: ServerConfig, *words: str) -> bool:
    """Run a command of Flower; whether it succeeded in time."""
    try:
        done = subprocess.run(
            ["flwr", *words],
            env=quiet_environment(config.flower_home),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_FLWR_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
