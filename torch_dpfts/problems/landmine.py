"""Landmine detection: 29 sites tune a support vector machine, each on data of its own."""

from __future__ import annotations

from importlib.resources import files
from os import PathLike

import numpy as np
import torch
from torch import Tensor

from torch_dpfts import checks
from torch_dpfts.problems.base import check_query
from torch_dpfts.problems.landmine_svm import NUM_TASKS, SCORERS, LandmineSVM
from torch_dpfts.problems.multilinear import MultilinearTable

BOUNDS = ((1e-4, 1e-2), (10.0, 10.0))


class Landmine:
    """Test AUC of an RBF support vector machine on the 29 tasks of landmine detection.

    The benchmark of Dai, Low and Jaillet, "Differentially private federated Bayesian
    optimization with distributed exploration" (NeurIPS 2021): every agent tunes the penalty C
    in [1e-4, 10] and the inverse width gamma in [1e-2, 10] of its own machine, both on a
    linear scale. By default the values come from a table, interpolated bilinearly, that
    ``benchmarks/landmine_table.py`` computed; its grid is finer where C and gamma are small.
    The evaluation runs on the CPU, wherever ``X`` lies.

    Args:
        scorer: ``"decision"`` ranks the test points by ``SVC.decision_function``, which is
            deterministic; ``"probability"`` by ``SVC.predict_proba``, as published, which
            turns the ranking around in parts of the square and is random (here: its
            ``random_state`` is 0).
        data: Path of ``LandmineData.mat``, to fit the machines (milliseconds each) instead of
            using the table.

    Attributes:
        score: What the values are, ``"AUC"``.
        bounds: Bounds of C and gamma, ``2 x 2``, float64.
        optimal_values: The largest AUC in each agent's table, ``29``, float64; also with
            ``data``, where a fit may exceed it a little.

    Raises:
        InvalidInputError: If the scorer is unknown, or ``data`` is missing or another file.

    Example:
        >>> problem = Landmine()
        >>> X = torch.tensor([[[1.0, 0.02], [10.0, 10.0]]], dtype=torch.float64)
        >>> Y = problem(X, torch.tensor([7]))
        >>> Y.shape
        torch.Size([1, 2, 1])
        >>> bool((Y <= problem.optimal_values[7]).all())
        True
    """

    name = "landmine"
    score = "AUC"
    num_agents = NUM_TASKS
    dim = 2

    def __init__(self, scorer: str = "decision", data: str | PathLike[str] | None = None) -> None:
        self.scorer = checks.choice("scorer", scorer, SCORERS)
        self.bounds = torch.tensor(BOUNDS, dtype=torch.float64)
        table = _load_table(self.scorer)
        self.optimal_values = table.values.amax((-2, -1))
        self._auc = table if data is None else LandmineSVM(data, self.scorer)

    def __call__(self, X: Tensor, agent_ids: Tensor) -> Tensor:
        """Evaluate the test AUC.

        Args:
            X: Columns C and gamma, in these units, ``b x n x 2``.
            agent_ids: The agent of each of the ``b`` blocks, ``b``, int64.

        Returns:
            AUCs, to be maximised, ``b x n x 1``, with the dtype and the device of ``X``.

        Raises:
            InvalidInputError: If ``X`` is not a finite floating-point tensor of that shape
                inside the bounds, or ``agent_ids`` is not an int64 tensor of shape ``b`` with
                values from 0 to 28.
        """
        check_query(X, agent_ids, self.bounds, self.num_agents)
        points = X.to("cpu", torch.float64).clamp(self.bounds[0], self.bounds[1])
        return self._auc(points, agent_ids.cpu()).to(X)


def _load_table(scorer: str) -> MultilinearTable:
    resource = files("torch_dpfts.problems") / "data" / "landmine.npz"
    with resource.open("rb") as stream, np.load(stream, allow_pickle=False) as content:
        grid = torch.from_numpy(content["C"]), torch.from_numpy(content["gamma"])
        counts = content[scorer]  # num_agents x I x J
    return MultilinearTable(grid, torch.from_numpy(counts / np.iinfo(counts.dtype).max))
