"""What is installed, what the checkout holds beside it, and what an import costs."""

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points, version
from pathlib import Path

import pytest

import torch_dpfts

ROOT = Path(__file__).parents[1]


def test_version_is_that_of_the_installed_distribution() -> None:
    assert version("torch_dpfts") == torch_dpfts.__version__


def test_command_line_is_installed() -> None:
    (script,) = entry_points(group="console_scripts", name="dpfts")
    assert callable(script.load())


def test_public_names_import_and_are_listed() -> None:
    assert len(set(torch_dpfts.__all__)) == len(torch_dpfts.__all__)
    for name in torch_dpfts.__all__:
        assert getattr(torch_dpfts, name) is not None, name
        assert name in dir(torch_dpfts), name


def test_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = torch_dpfts.no_such_name


@pytest.mark.parametrize("name", ["acquisition", "privacy"])
def test_root_link_leads_to_the_package(name: str) -> None:
    assert os.readlink(ROOT / name) == f"torch_dpfts/{name}"
    assert (ROOT / name / "__init__.py").is_file()


@pytest.mark.parametrize("name", ["acquisition", "privacy"])
def test_root_link_is_no_package_of_its_own(name: str, tmp_path: Path) -> None:
    output = python(f"import importlib.util as u; print(u.find_spec({name!r}))", tmp_path)
    assert output == "None"


def test_import_is_the_same_package_from_everywhere(tmp_path: Path) -> None:
    where = "import torch_dpfts; print(torch_dpfts.__file__)"
    assert python(where, tmp_path) == python(where, ROOT) == torch_dpfts.__file__


def test_public_names_load_no_library_that_only_some_calls_need(tmp_path: Path) -> None:
    lazy = {"dp_accounting", "matplotlib", "opacus", "sklearn"}
    code = f"""
import sys, torch_dpfts
print("torch" in sys.modules)
for name in torch_dpfts.__all__:
    getattr(torch_dpfts, name)
print(*sorted({lazy!r} & sys.modules.keys()))
"""
    assert python(code, tmp_path) == "False"


def test_constraints_are_plain_pins() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9a-z.]*", pin) for pin in pins)
    names = [re.sub(r"[-_.]+", "-", pin.partition("==")[0]).lower() for pin in pins]
    assert len(set(names)) == len(names)
    assert {"torch", "botorch", "gpytorch", "opacus", "dp-accounting"} <= set(names)


def python(code: str, folder: Path) -> str:
    """Runs code in a new interpreter, started in folder, and returns what it prints."""
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True
    )
    return result.stdout.strip()
