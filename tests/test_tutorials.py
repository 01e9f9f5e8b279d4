"""The script that runs the tutorials must notice a notebook that fails."""

import subprocess
import sys
from pathlib import Path

import nbformat

RUN = Path(__file__).parents[1] / "tutorials" / "run.py"


def test_runs_every_notebook_in_short_mode_and_reports_the_failures(tmp_path: Path) -> None:
    write(tmp_path / "good.ipynb", 'import os; assert os.environ["DPFTS_SHORT"] == "1"')
    write(tmp_path / "writes.ipynb", 'open("left_over", "w").close()')
    result = run(tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "2 notebooks ran, 0 failed" in result.stdout
    assert not (tmp_path / "left_over").exists()

    write(tmp_path / "bad.ipynb", 'raise ValueError("planted")')
    result = run(tmp_path)
    assert result.returncode == 1
    assert "2 notebooks ran, 1 failed bad.ipynb" in result.stdout
    assert "planted" in result.stdout


def test_no_notebook_is_no_failure(tmp_path: Path) -> None:
    assert run(tmp_path).returncode == 0


def write(path: Path, code: str) -> None:
    cells = [nbformat.v4.new_code_cell(code)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(RUN), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)
