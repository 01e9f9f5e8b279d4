from pathlib import Path
from typing import Any

import pytest

from torch_dpfts.benchmark.runs import FILE_NAME, Run, RunsFile
from torch_dpfts.errors import StateError


def run(**changes: Any) -> Run:
    values: dict[str, Any] = {
        "arm": "dp", "swept": {"clip_norm": "inf", "lengthscales": [0.1, 0.2]}, "seed": 3,
        "problem": "landmine", "problem_settings": {}, "num_initial": 2, "fingerprint": "ab",
        "spec": {"num_agents": 29}, "score": None, "best_values": [0.1, 0.2], "regret": None,
        "seconds": 1.5, "version": "1",
    }  # fmt: skip
    return Run(**(values | changes))


def test_json_both_ways() -> None:
    assert Run.from_json(run().to_json()) == run()
    assert "\n" not in run().to_json()
    assert run().name == "dp [clip_norm=inf, lengthscales=[0.1, 0.2]]"


def test_appended_runs_are_read_again(tmp_path: Path) -> None:
    file = RunsFile(tmp_path / "new")
    assert file.runs == []
    with file.locked():
        file.append([run(), run(seed=4)])
        file.append([run(seed=5)])
    assert file.runs == RunsFile(tmp_path / "new").runs == [run(), run(seed=4), run(seed=5)]


@pytest.mark.parametrize("part", ['{"arm": "dp", "se', run(seed=4).to_json(), "\0\0"])
def test_a_line_half_written_is_dropped(tmp_path: Path, part: str) -> None:
    path = tmp_path / FILE_NAME
    path.write_text(f"{run().to_json()}\n{part}")
    file = RunsFile(tmp_path)
    assert file.runs == [run()]
    file.append([run(seed=9)])
    assert path.read_text() == f"{run().to_json()}\n{run(seed=9).to_json()}\n"


@pytest.mark.parametrize("line", ["{}", "3", '{"arm": "dp"', '{"arm": "dp"}'])
def test_another_line_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / FILE_NAME).write_text(f"{run().to_json()}\n{line}\n{run().to_json()}\n")
    with pytest.raises(StateError, match=r"Line 2 of .*runs.jsonl' is not a run: .*remove"):
        RunsFile(tmp_path)


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    with (
        RunsFile(tmp_path).locked(),
        pytest.raises(StateError, match="Another benchmark is writing to"),
        RunsFile(tmp_path).locked(),
    ):
        pass
