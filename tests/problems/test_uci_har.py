from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from torch_dpfts.errors import InvalidInputError
from torch_dpfts.problems import UciHar
from torch_dpfts.problems.uci_har import load_uci_har

COLUMNS = 4
# Windows of each activity of a person, in the order of the file.
ACTIVITIES = [5, 5, 5, 5, 2, 2, 2]


def write_folder(root: Path, people: int = 30) -> Path:
    """Write the six files, with the last nine people set apart for testing.

    A window's features tell who and what it is of, and its place in the file.
    """
    parts: dict[str, list[int]] = {
        "train": list(range(1, people - 8)),
        "test": list(range(people - 8, people + 1)),
    }
    for part, numbers in parts.items():
        (root / part).mkdir(parents=True)
        rows = [
            [person, activity, place, (-1.0) ** person]
            for person in numbers
            for place, activity in enumerate(ACTIVITIES)
        ]
        X = np.array(rows, dtype=float)
        np.savetxt(root / part / f"X_{part}.txt", X, fmt="%16.7e")
        np.savetxt(root / part / f"y_{part}.txt", X[:, 1], fmt="%d")
        np.savetxt(root / part / f"subject_{part}.txt", X[:, 0], fmt="%d")
    return root


def test_each_person_gets_their_windows_halved_by_activity(tmp_path: Path) -> None:
    splits = load_uci_har(write_folder(tmp_path / "UCI HAR Dataset"))
    assert len(splits) == 30
    for person, split in enumerate(splits, start=1):
        assert (split.train_X[:, 0] == person).all()
        assert (split.validation_X[:, 0] == person).all()
        # Activities from 0, by number; windows in the order of the file.
        assert split.train_y.tolist() == [1, 1, 4, 4]
        assert split.train_X[:, 2].tolist() == [4, 5, 0, 1]
        assert split.validation_y.tolist() == [1, 4, 4]
        assert split.validation_X[:, 2].tolist() == [6, 2, 3]


def test_it_is_a_problem(tmp_path: Path) -> None:
    problem = UciHar(write_folder(tmp_path))
    assert (problem.name, problem.num_agents, problem.dim) == ("uci-har", 30, 3)
    X = torch.tensor([[[0.1, 1e-3, 8.0], [1.0, 1e-2, 16.0]]], dtype=torch.float64)
    Y = problem(X.expand(2, -1, -1), torch.tensor([0, 29]))
    # The activity is one of the features.
    assert Y.flatten().tolist() == [1.0] * 4


@pytest.mark.parametrize("name", ["train/X_train.txt", "test/subject_test.txt", "test/y_test.txt"])
def test_a_missing_or_empty_file_is_named(tmp_path: Path, name: str) -> None:
    path = write_folder(tmp_path) / name
    for spoil in (lambda: path.write_text(""), path.unlink):
        spoil()
        with pytest.raises(InvalidInputError, match=f"{path.name}' is missing or empty; download"):
            UciHar(tmp_path)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"nowhere/train/X_train.txt' is missing"):
        UciHar(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("test/X_test.txt", "1 2 three\n", "cannot read .*X_test.txt'"),
        ("test/X_test.txt", "1 2\n1 2 3\n", "cannot read .*X_test.txt'"),
        ("test/y_test.txt", "1\n2\n", "equally many lines, got 63 of X_test.txt, 2 of y_test.txt"),
        ("test/y_test.txt", "7\n" * 63, "y_test.txt' must hold numbers from 1 to 6, got 7 to 7"),
        ("test/y_test.txt", "1.5\n" * 63, "cannot read .*y_test.txt'"),
        ("test/y_test.txt", "1 2\n" * 63, "y_test.txt' must hold a number a line"),
        ("test/X_test.txt", "1 2 3 nan\n" * 63, "X_test.txt' must hold finite numbers"),
        ("test/X_test.txt", "1 2 3\n" * 63, r"equally many columns, got \[3, 4\]"),
        ("test/subject_test.txt", "31\n" * 63, r"must name people 1 to 30, got .*, 31\]"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, name: str, content: str, message: str) -> None:
    (write_folder(tmp_path) / name).write_text(content)
    with pytest.raises(InvalidInputError, match=message):
        UciHar(tmp_path)


def test_a_person_with_nothing_to_validate_on_is_named(tmp_path: Path) -> None:
    root = write_folder(tmp_path)
    for stem in ("X", "y", "subject"):
        path = root / "train" / f"{stem}_train.txt"
        lines = path.read_text().splitlines()
        path.write_text("\n".join(lines[:1] + lines[len(ACTIVITIES) :]))
    with pytest.raises(InvalidInputError, match="got fewer for person 1;"):
        UciHar(root)


def test_another_number_of_people_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"must name people 1 to 30, got .*, 29\]"):
        UciHar(write_folder(tmp_path, people=29))
