from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import loadmat, savemat
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

from torch_dpfts.errors import InvalidInputError
from torch_dpfts.problems.landmine_svm import SCORERS, LandmineSVM

X = torch.tensor([[[1.0, 0.02], [10.0, 10.0]], [[1e-4, 0.01], [3.0, 0.3]]], dtype=torch.float64)
AGENT_IDS = torch.tensor([4, 28])


def pairs_in_order(y: np.ndarray, scores: np.ndarray) -> float:
    """Return the AUC as the share of pairs that are ranked rightly, ties half."""
    difference = scores[y == 1][:, None] - scores[y == 0]
    return float(((difference > 0) + 0.5 * (difference == 0)).mean())


def test_decision_agrees_with_counted_pairs(landmine_file: Path) -> None:
    content = loadmat(landmine_file)
    Y = LandmineSVM(landmine_file, "decision")(X, AGENT_IDS)
    assert Y.shape == (2, 2, 1)
    assert Y.dtype == torch.float64
    for row, task in enumerate(AGENT_IDS.tolist()):
        features, labels = content["feature"][0, task], content["label"][0, task][:, 0]
        X_train, X_test, y_train, y_test = train_test_split(
            features, labels, test_size=0.5, stratify=labels, random_state=0
        )
        for column, (C, gamma) in enumerate(X[row].tolist()):
            machine = SVC(C=C, gamma=gamma).fit(X_train, y_train)
            expected = pairs_in_order(y_test, machine.decision_function(X_test))
            assert Y[row, column].item() == pytest.approx(expected, abs=1e-12)


def test_probability_keeps_or_turns_the_ranking(landmine_file: Path) -> None:
    every = torch.arange(29)
    C_and_gamma = torch.tensor([[1.0, 0.1]], dtype=torch.float64).expand(29, 1, 2)
    decision = LandmineSVM(landmine_file, "decision")(C_and_gamma, every)
    probability = LandmineSVM(landmine_file, "probability")(C_and_gamma, every)
    kept = (probability - decision).abs() < 1e-9
    turned = (probability - (1 - decision)).abs() < 1e-9
    assert (kept | turned).all()
    assert kept.any()
    assert (turned & ~kept).any()


@pytest.mark.parametrize("scorer", SCORERS)
def test_repeats_and_leaves_the_global_generator_alone(landmine_file: Path, scorer: str) -> None:
    machines = LandmineSVM(landmine_file, scorer)
    state = np.random.get_state(legacy=False)["state"]  # noqa: NPY002
    first = machines(X, AGENT_IDS)
    assert torch.equal(first, machines(X, AGENT_IDS))
    after = np.random.get_state(legacy=False)["state"]  # noqa: NPY002
    assert after["pos"] == state["pos"]
    np.testing.assert_array_equal(after["key"], state["key"])


@pytest.mark.parametrize("scorer", SCORERS)
def test_does_not_warn(landmine_file: Path, scorer: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LandmineSVM(landmine_file, scorer)(X[:1, :1], AGENT_IDS[:1])


@pytest.mark.parametrize("shape", [(0, 4, 2), (2, 0, 2)])
def test_takes_no_points(landmine_file: Path, shape: tuple[int, ...]) -> None:
    ids = torch.zeros(shape[0], dtype=torch.int64)
    Y = LandmineSVM(landmine_file, "decision")(torch.zeros(shape), ids)
    assert Y.shape == (*shape[:2], 1)


def test_refuses_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"cannot read '.*absent.mat'"):
        LandmineSVM(tmp_path / "absent.mat", "decision")


def test_refuses_another_number_of_tasks(short_landmine_file: Path) -> None:
    with pytest.raises(InvalidInputError, match="29 tasks, got 28"):
        LandmineSVM(short_landmine_file, "decision")


@pytest.mark.parametrize("content", [b"", b"not a MATLAB file" * 20])
def test_refuses_what_is_no_matlab_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "other.mat").write_bytes(content)
    with pytest.raises(InvalidInputError, match=r"LandmineData.mat .* got '.*other.mat'"):
        LandmineSVM(tmp_path / "other.mat", "decision")


@pytest.mark.parametrize(
    "content",
    [{"feature": np.zeros((1, 29))}, {"feature": np.zeros((1, 29)), "label": np.zeros((1, 29))}],
)
def test_refuses_another_matlab_file(tmp_path: Path, content: dict[str, np.ndarray]) -> None:
    savemat(tmp_path / "other.mat", content)
    with pytest.raises(InvalidInputError, match=r"LandmineData.mat .* got '.*other.mat'"):
        LandmineSVM(tmp_path / "other.mat", "decision")


def test_refuses_an_unknown_scorer(landmine_file: Path) -> None:
    with pytest.raises(InvalidInputError, match="'decision', 'probability', got 'auc'"):
        LandmineSVM(landmine_file, "auc")
