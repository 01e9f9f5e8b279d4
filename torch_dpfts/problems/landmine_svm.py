"""The support vector machines behind the landmine problem, fitted for real."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from torch_dpfts import checks
from torch_dpfts.errors import InvalidInputError

NUM_TASKS = 29


class LandmineSVM:
    """Test AUC of an RBF support vector machine on each task of ``LandmineData.mat``.

    Each task's observations are split once, half for training and half for testing,
    stratified by label with ``random_state=0``.

    Args:
        path: The file ``LandmineData.mat`` (Xue, Liao, Carin and Krishnapuram, "Multi-task
            learning for classification with Dirichlet process priors", JMLR 2007).
        scorer: ``"decision"`` ranks the test points by ``decision_function``;
            ``"probability"`` by ``predict_proba``, Platt's scaling with a cross-validation
            of fixed random state, which may turn the ranking around.

    Raises:
        InvalidInputError: If the scorer is unknown, or the file is missing or does not hold
            the cell arrays ``feature`` and ``label`` of 29 tasks.
    """

    def __init__(self, path: str | PathLike[str], scorer: str) -> None:
        self._score = _SCORERS[checks.choice("scorer", scorer, SCORERS)]
        self._splits = _read(path)

    def __call__(self, X: Tensor, agent_ids: Tensor) -> Tensor:
        """Fit a machine for every point.

        Args:
            X: Columns C and gamma, ``b x n x 2``.
            agent_ids: The task of each block, ``b``.

        Returns:
            Test AUCs, ``b x n x 1``, float64.
        """
        values = [
            [self._auc(task, C, gamma) for C, gamma in points]
            for task, points in zip(agent_ids.tolist(), X.tolist(), strict=True)
        ]
        return torch.tensor(values, dtype=torch.float64).reshape(*X.shape[:2], 1)

    def _auc(self, task: int, C: float, gamma: float) -> float:
        from sklearn.metrics import roc_auc_score

        X_train, X_test, y_train, y_test = self._splits[task]
        scores = self._score(X_train, y_train, X_test, C, gamma)
        return float(roc_auc_score(y_test, scores))


def _decision(X_train: Any, y_train: Any, X_test: Any, C: float, gamma: float) -> Any:
    machine = _machine(C, gamma)
    return machine.fit(X_train, y_train).decision_function(X_test)


def _probability(X_train: Any, y_train: Any, X_test: Any, C: float, gamma: float) -> Any:
    machine = _machine(C, gamma).set_params(probability=True)
    with warnings.catch_warnings():
        # scikit-learn deprecates libsvm's own Platt scaling. Its replacement splits the folds
        # differently, so that it would be another objective than the published one.
        warnings.simplefilter("ignore", FutureWarning)
        return machine.fit(X_train, y_train).predict_proba(X_test)[:, 1]


def _machine(C: float, gamma: float) -> Any:
    from sklearn.svm import SVC

    # Without a random state even a deterministic fit advances NumPy's global generator.
    return SVC(C=C, gamma=gamma, random_state=0)


_SCORERS: dict[str, Callable[..., Any]] = {"decision": _decision, "probability": _probability}
SCORERS = tuple(_SCORERS)


def _read(path: str | PathLike[str]) -> list[list[Any]]:
    """Return ``X_train``, ``X_test``, ``y_train`` and ``y_test`` of each task."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError
    from sklearn.model_selection import train_test_split

    try:
        content = loadmat(path)
        splits = [
            train_test_split(X, y.ravel(), test_size=0.5, stratify=y.ravel(), random_state=0)
            for X, y in zip(content["feature"].ravel(), content["label"].ravel(), strict=True)
        ]
    except OSError as error:
        raise InvalidInputError(
            f"data must be the path of LandmineData.mat, cannot read {str(path)!r}: {error}."
        ) from None
    except (KeyError, MatReadError, NotImplementedError, TypeError, ValueError) as error:
        raise InvalidInputError(
            "data must be LandmineData.mat with the cell arrays 'feature' and 'label' of "
            f"{NUM_TASKS} tasks, got {str(path)!r}: {error!r}."
        ) from None
    if len(splits) != NUM_TASKS:
        raise InvalidInputError(
            f"data must hold {NUM_TASKS} tasks, got {len(splits)} in {str(path)!r}."
        )
    return splits
