import json

import pytest
from typer.testing import CliRunner

from torch_dpfts.cli import app
from torch_dpfts.errors import InvalidInputError

SHORT = ["audit", "--trials", "100", "--rounds", "1", "--num-features", "2", "--seed", "0"]


def run(*arguments):
    result = CliRunner().invoke(app, list(arguments))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_honest_server(tmp_path):
    result = run(*SHORT, "--noise-multipliers", "1,2", "--out", str(tmp_path / "a.png"), "--json")
    assert result.exit_code == 0
    figures = json.loads(result.stdout)
    assert [figure["noise_multiplier"] for figure in figures] == [1.0, 2.0]
    assert all(figure["passed"] and figure["bound"] <= figure["claim"] for figure in figures)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_broken_server(tmp_path):
    result = run(
        *(*SHORT, "--noise-multipliers", "1", "--num-features", "8"),
        *("--fault", "uniform-if-empty", "--out", str(tmp_path / "a.png")),
    )
    assert result.exit_code == 1
    assert "BROKEN" in result.stdout


def test_bad_values_are_refused():
    with pytest.raises(InvalidInputError, match="fault"):
        run(*SHORT, "--fault", "none")
    with pytest.raises(InvalidInputError, match="noise_multipliers"):
        run(*SHORT, "--noise-multipliers", "1;2")
