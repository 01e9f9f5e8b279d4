from __future__ import annotations

import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.interpolate import RegularGridInterpolator

from torch_dpfts.errors import InvalidInputError
from torch_dpfts.problems import Landmine, Problem
from torch_dpfts.problems.landmine_svm import SCORERS, LandmineSVM

TABLE = files("torch_dpfts.problems") / "data" / "landmine.npz"
EVERY = torch.arange(29)

# Machines fitted to LandmineData.mat: agent, C, gamma, AUC by decision and by probability.
AT_RANDOM_PLACES = torch.tensor(
    [
        (7, 0.6106, 2.2533, 0.74929, 0.74929),
        (19, 2.3426, 1.7792, 0.56822, 0.56822),
        (26, 5.5607, 1.1033, 0.60572, 0.60572),
        (16, 4.6092, 7.0866, 0.75660, 0.75660),
        (12, 5.7978, 4.9717, 0.70412, 0.27577),
        (13, 5.1038, 3.3021, 0.82417, 0.81583),
        (5, 7.1821, 3.8513, 0.78778, 0.79083),
        (8, 0.8981, 1.1834, 0.58968, 0.59107),
        (20, 6.4024, 1.9757, 0.60540, 0.60343),
        (28, 5.1245, 7.1213, 0.61204, 0.38796),
        (19, 9.2487, 9.9970, 0.56656, 0.56541),
        (26, 8.9273, 8.7684, 0.64320, 0.35680),
    ],
    dtype=torch.float64,
)
AT_CORNERS = torch.tensor(
    [
        (0, 1e-4, 1e-2, 0.72569, 0.72569),
        (0, 1e-4, 10.0, 0.51754, 0.51754),
        (0, 10.0, 1e-2, 0.75708, 0.75708),
        (0, 10.0, 10.0, 0.60400, 0.60338),
        (13, 1e-4, 1e-2, 0.57361, 0.57361),
        (13, 1e-4, 10.0, 0.74000, 0.26000),
        (13, 10.0, 1e-2, 0.86694, 0.86694),
        (13, 10.0, 10.0, 0.81611, 0.81611),
        (28, 1e-4, 1e-2, 0.63655, 0.63655),
        (28, 1e-4, 10.0, 0.54937, 0.45063),
        (28, 10.0, 1e-2, 0.63819, 0.63819),
        (28, 10.0, 10.0, 0.58660, 0.41340),
    ],
    dtype=torch.float64,
)


def points(problem: Problem, n: int, seed: int) -> torch.Tensor:
    """Draw ``n`` points for every agent, ``29 x n x 2``."""
    unit = torch.rand(29, n, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return problem.bounds[0] + (problem.bounds[1] - problem.bounds[0]) * unit


def errors(rows: torch.Tensor, scorer: str) -> torch.Tensor:
    Y = Landmine(scorer)(rows[:, None, 1:3], rows[:, 0].long())
    return (Y[:, 0, 0] - rows[:, 3 + SCORERS.index(scorer)]).abs()


def test_attributes() -> None:
    problem: Problem = Landmine()
    assert (problem.name, problem.num_agents, problem.dim) == ("landmine", 29, 2)
    assert problem.bounds.tolist() == [[1e-4, 1e-2], [10.0, 10.0]]
    assert problem.bounds.dtype == torch.float64


@pytest.mark.parametrize("scorer", SCORERS)
def test_is_close_to_fitted_machines(scorer: str) -> None:
    assert errors(AT_RANDOM_PLACES, scorer).mean() < 0.003
    # Corners lie on the grid: what is left is the rounding of the table and of the references.
    assert errors(AT_CORNERS, scorer).max() < 1.5e-5


@pytest.mark.parametrize("scorer", SCORERS)
def test_agrees_with_scipy(scorer: str) -> None:
    problem = Landmine(scorer)
    X = points(problem, 20, seed=0)
    Y = problem(X, EVERY.flip(0))
    assert Y.shape == (29, 20, 1)
    with TABLE.open("rb") as stream, np.load(stream, allow_pickle=False) as content:
        for row, agent in enumerate(EVERY.flip(0).tolist()):
            oracle = RegularGridInterpolator(
                (content["C"], content["gamma"]), content[scorer][agent] / 65535.0
            )
            expected = oracle(X[row].numpy())
            np.testing.assert_allclose(Y[row, :, 0].numpy(), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("scorer", SCORERS)
def test_optimal_values_are_attained_and_not_exceeded(scorer: str) -> None:
    problem = Landmine(scorer)
    best = problem.optimal_values
    assert best.shape == (29,)
    assert ((best > 0.6) & (best <= 1)).all()
    with TABLE.open("rb") as stream, np.load(stream, allow_pickle=False) as content:
        flat = content[scorer].reshape(29, -1).argmax(-1)
        i, j = np.unravel_index(flat, content[scorer].shape[1:])
        X = torch.from_numpy(np.stack([content["C"][i], content["gamma"][j]], -1))
    torch.testing.assert_close(problem(X[:, None], EVERY)[:, 0, 0], best, rtol=0, atol=1e-12)
    assert (problem(points(problem, 500, seed=1), EVERY)[..., 0] <= best[:, None] + 1e-12).all()


def test_the_table_is_small_and_finer_where_the_coordinates_are_small() -> None:
    content = TABLE.read_bytes()
    assert len(content) < 500_000
    with TABLE.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        assert set(arrays) == {"C", "gamma", *SCORERS}
        for axis, lower in (("C", 1e-4), ("gamma", 1e-2)):
            assert (arrays[axis][0], arrays[axis][-1]) == (lower, 10.0)
            assert (np.diff(arrays[axis], 2) > 0).all()
        for scorer in SCORERS:
            assert arrays[scorer].dtype == np.uint16
            assert arrays[scorer].shape == (29, len(arrays["C"]), len(arrays["gamma"]))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_keeps_the_dtype(dtype: torch.dtype) -> None:
    problem = Landmine()
    X = torch.cat([points(problem, 5, seed=2), problem.bounds.expand(29, 2, 2)], -2).to(dtype)
    Y = problem(X, EVERY)
    assert Y.dtype == dtype
    torch.testing.assert_close(Y.double(), problem(X.double(), EVERY), rtol=0, atol=1e-3)


def test_rows_do_not_depend_on_one_another() -> None:
    problem = Landmine()
    X, ids = points(problem, 6, seed=3)[:4], torch.tensor([28, 0, 28, 5])
    Y = problem(X, ids)
    alone = [problem(X[b, n].reshape(1, 1, 2), ids[b : b + 1]) for b in range(4) for n in range(6)]
    torch.testing.assert_close(Y.reshape(-1), torch.cat(alone).reshape(-1), rtol=0, atol=1e-15)


@pytest.mark.parametrize("shape", [(0, 4, 2), (2, 0, 2)])
def test_takes_no_points(shape: tuple[int, ...]) -> None:
    Y = Landmine()(torch.zeros(shape), torch.zeros(shape[0], dtype=torch.int64))
    assert Y.shape == (*shape[:2], 1)


@pytest.mark.parametrize("scorer", SCORERS)
def test_fits_the_machines_of_a_file(landmine_file: Path, scorer: str) -> None:
    problem = Landmine(scorer, data=landmine_file)
    X, ids = points(problem, 2, seed=4)[:3], torch.tensor([3, 1, 28])
    Y = problem(X.float(), ids)
    assert Y.dtype == torch.float32
    expected = LandmineSVM(landmine_file, scorer)(X.float().double(), ids)
    torch.testing.assert_close(Y, expected.float(), rtol=0, atol=0)
    assert torch.equal(problem.optimal_values, Landmine(scorer).optimal_values)


@pytest.mark.parametrize("with_file", [False, True])
def test_refuses_a_bad_query(landmine_file: Path, with_file: bool) -> None:
    problem = Landmine(data=landmine_file if with_file else None)
    good = torch.ones(1, 1, 2)
    bad: list[tuple[Any, Any, str]] = [
        (good[0], torch.tensor([0]), "b x n x 2"),
        (10.1 * good, torch.tensor([0]), "got 10.1 at index"),
        (torch.nan * good, torch.tensor([0]), "X must be finite, got nan"),
        (good, torch.tensor([29]), "from 0 to 28, got 29"),
        (good, torch.tensor([0.0]), "int64 tensor, got torch.float32"),
    ]
    for X, agent_ids, message in bad:
        with pytest.raises(InvalidInputError, match=message):
            problem(X, agent_ids)


def test_refuses_an_unknown_scorer() -> None:
    with pytest.raises(InvalidInputError, match="'decision', 'probability', got 'accuracy'"):
        Landmine("accuracy")


def test_refuses_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="cannot read"):
        Landmine(data=tmp_path / "absent.mat")


def test_the_table_needs_neither_scikit_learn_nor_scipy() -> None:
    code = (
        "import sys, torch; from torch_dpfts.problems import Landmine;"
        "Landmine()(torch.ones(1, 1, 2), torch.tensor([0]));"
        "sys.exit(sum(name in sys.modules for name in ('sklearn', 'scipy')))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
