"""Checks that the installed wheel is the package of the checkout, whole and alone.

Usage: python check_wheel.py CHECKOUT WHEEL, in the environment that has the wheel and outside the
checkout.
"""

import importlib
import pkgutil
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import torch_dpfts

# Libraries of extras that the environment of the checks may lack.
EXTRAS = {"ax", "flwr"}


def main(checkout: Path, wheel: Path) -> None:
    installed = Path(torch_dpfts.__file__).parent
    check(installed.is_relative_to(sys.prefix), f"{installed} is not in {sys.prefix}")
    check(version("torch_dpfts") == torch_dpfts.__version__, "the metadata name another version")

    shipped = {
        name: data
        for name, data in contents(wheel).items()
        if not name.partition("/")[0].endswith(".dist-info")
    }
    source = {
        path.relative_to(checkout).as_posix(): path.read_bytes()
        for pattern in ("**/*.py", "py.typed", "benchmark/settings/*.toml", "problems/data/*.npz")
        for path in (checkout / "torch_dpfts").glob(pattern)
    }
    difference = {
        name for name in shipped.keys() | source.keys() if shipped.get(name) != source.get(name)
    }
    check(not difference, f"wheel and checkout differ in {sorted(difference)}")
    check("torch_dpfts/py.typed" in shipped, "py.typed is missing")
    check(any(name.endswith(".npz") for name in shipped), "the table of a problem is missing")

    modules = [
        info.name for info in pkgutil.walk_packages(torch_dpfts.__path__, prefix="torch_dpfts.")
    ]
    for module in modules:
        if not module.endswith("__main__"):
            import_unless_extra(module)
    for name in torch_dpfts.__all__:
        getattr(torch_dpfts, name)
    print(f"{wheel.name}: {len(shipped)} files, {len(modules)} modules import from {installed}")


def import_unless_extra(module: str) -> None:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        check((error.name or "").partition(".")[0] in EXTRAS, f"{module} does not import: {error}")


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def check(condition: bool, message: str) -> None:
    if not condition:
        sys.exit(f"check_wheel: {message}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
