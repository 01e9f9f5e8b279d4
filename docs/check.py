"""Checks that a built site documents every public name.

Usage: python docs/check.py OUTPUT, after ``sphinx-build -W docs OUTPUT``.
"""

import sys
from importlib import import_module
from pathlib import Path

from sphinx.util.inventory import InventoryFile

PACKAGES = (
    "torch_dpfts",
    "torch_dpfts.acquisition",
    "torch_dpfts.benchmark",
    "torch_dpfts.privacy",
    "torch_dpfts.problems",
    "torch_dpfts.tune",
)


def main(output: Path) -> None:
    inventory = InventoryFile.loads((output / "objects.inv").read_bytes(), uri="")
    documented = {
        name for kind, items in inventory.data.items() if kind.startswith("py:") for name in items
    }
    public = {
        f"{package}.{name}"
        for package in PACKAGES
        for name in import_module(package).__all__
        if not name.startswith("_")
    }
    missing = sorted(public - documented)
    if missing:
        sys.exit(f"not documented: {', '.join(missing)}")
    print(f"{len(public)} public names documented, {len(documented)} names in all")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
