"""Runs every notebook of a folder from top to bottom in its short mode (DPFTS_SHORT=1).

Usage: python tutorials/run.py [FOLDER]. The notebooks are read, never written.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError


def main(folder: Path) -> int:
    """Runs the notebooks and returns the number of those that failed."""
    os.environ["DPFTS_SHORT"] = "1"
    notebooks = sorted(folder.glob("*.ipynb"))
    failed = [path.name for path in notebooks if not runs(path)]
    print(f"{len(notebooks) - len(failed)} notebooks ran, {len(failed)} failed", *failed)
    return len(failed)


def runs(path: Path) -> bool:
    """Runs one notebook, in an empty folder so that what it writes stays out of the checkout."""
    start = time.monotonic()
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": folder}})
        try:
            client.execute()
        except CellExecutionError as error:
            print(f"{path.name}: {error}")
            return False
    print(f"{path.name}: {time.monotonic() - start:.0f} s")
    return True


if __name__ == "__main__":
    sys.exit(min(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent), 1))
