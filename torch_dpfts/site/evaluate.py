"""One evaluation of a site's objective, in a process of its own.

The process outlives the site's: it holds the lock file that it inherited, works, and leaves its
result in a file. A site that is killed and restarted finds the lock held and waits, or finds
the result; it never starts the same evaluation a second time while one is under way. What the
objective prints or raises stays in a log file beside the result.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from torch_dpfts.errors import InvalidInputError
from torch_dpfts.files import write_atomically


def call_objective(
    objective: str | Sequence[str], point: Sequence[float], timeout: float | None
) -> float:
    """Evaluate one point.

    Args:
        objective: ``module:function``, called with the point; or a command line, a list, which
            gets the point as JSON on its standard input and prints the value as its last line.
        point: ``d`` numbers in the federation's units.
        timeout: Seconds after which the evaluation is given up.

    Raises:
        InvalidInputError: If the value is not a finite number.
        Exception: Whatever the objective raises.
    """
    if isinstance(objective, str):
        module, _, name = objective.partition(":")
        if timeout is not None:
            # Ends the process whatever native code is doing; the site sees no result.
            signal.setitimer(signal.ITIMER_REAL, timeout)
        value = getattr(importlib.import_module(module), name)(point)
    else:
        done = subprocess.run(
            list(objective),
            input=json.dumps(list(point)).encode(),
            stdout=subprocess.PIPE,
            timeout=timeout,
            check=True,
        )
        value = done.stdout.decode().strip().splitlines()[-1]
    result = float(value)
    if not math.isfinite(result):
        raise InvalidInputError(f"The objective must return a finite number, got {result}.")
    return result


def main(request: Path) -> None:
    """Evaluate the request in a file ``<name>.json``; the result goes to ``<name>.result``."""
    asked = json.loads(request.read_text())
    sys.path.insert(0, os.getcwd())
    result: dict[str, float | None] = {"value": None}
    try:
        result["value"] = call_objective(asked["objective"], asked["point"], asked["timeout"])
    finally:
        write_atomically(request.with_suffix(".result"), json.dumps(result).encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
