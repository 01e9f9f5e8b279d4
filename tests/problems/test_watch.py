from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from scipy.interpolate import RegularGridInterpolator

from torch_dpfts.errors import InvalidInputError
from torch_dpfts.problems import Watch
from torch_dpfts.problems.watch import load_watch, window_features


def points(b: int, n: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    lower, upper = Watch().bounds.log()
    unit = torch.rand(b, n, 3, generator=generator, dtype=torch.float64)
    return (lower + (upper - lower) * unit).exp()


def test_the_table_is_interpolated_in_the_logarithms() -> None:
    problem, X = Watch(), points(2, 30)
    X[..., 2] = X[..., 2].round()
    Y = problem(X, torch.tensor([3, 19]))
    assert Y.shape == (2, 30, 1)
    grid = [axis.numpy() for axis in problem._table.grid]
    for row, agent in enumerate([3, 19]):
        oracle = RegularGridInterpolator(grid, problem._table.values[agent].numpy())
        np.testing.assert_allclose(Y[row, :, 0].numpy(), oracle(X[row].log().numpy()), atol=1e-12)


def test_optimal_values_are_the_largest() -> None:
    problem = Watch()
    assert problem.optimal_values.shape == (20,)
    Y = problem(points(20, 200), torch.arange(20)).squeeze(-1)
    assert (Y.amax(-1) <= problem.optimal_values).all()
    assert (Y.amax(-1) > problem.optimal_values - 0.05).all()


def test_batch_sizes_are_rounded_and_bounds_included() -> None:
    problem = Watch()
    X = torch.tensor([[[0.1, 1e-3, 16.4], [0.1, 1e-3, 16.0]]], dtype=torch.float64)
    Y = problem(X, torch.tensor([5]))
    assert Y[0, 0] == Y[0, 1]
    corners = problem.bounds.float().unsqueeze(0)
    Y = problem(corners, torch.tensor([5]))
    assert Y.dtype == torch.float32
    torch.testing.assert_close(Y[0, 1, 0].double(), problem._table.values[5, -1, -1, -1])


def test_bad_queries_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="X must lie in the bounds, got 0 at"):
        Watch()(torch.zeros(1, 1, 3), torch.tensor([0]))
    with pytest.raises(InvalidInputError, match="agent_ids must be from 0 to 19, got 20"):
        Watch()(points(1, 1), torch.tensor([20]))


def test_without_seglearn_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "seglearn.datasets", None)
    assert Watch().num_agents == 20
    with pytest.raises(InvalidInputError, match=r"pip install 'torch_dpfts\[activity\]'"):
        Watch(train=True)


def test_windows_become_moments_and_changes() -> None:
    series = torch.tensor([[0.0, 1.0], [2.0, 1.0], [4.0, 7.0], [4.0, 9.0], [9.0, 9.0]]).double()
    expected = [[1.0, 1.0, 1.0, 0.0, 2.0, 0.0], [4.0, 8.0, 0.0, 1.0, 0.0, 2.0]]
    assert window_features(series, 2).tolist() == expected


class TestRealModels:
    @pytest.fixture(autouse=True)
    def _seglearn(self) -> None:
        pytest.importorskip("seglearn")

    def test_each_arm_has_both_halves_of_seven_recordings(self) -> None:
        splits = load_watch()
        assert len(splits) == 20
        for split in splits:
            for X, y in (
                (split.train_X, split.train_y),
                (split.validation_X, split.validation_y),
            ):
                assert X.shape == (len(y), 18)
                assert y.unique().tolist() == list(range(7))
        assert not torch.equal(splits[0].train_X[:5], splits[1].train_X[:5])

    def test_the_table_holds_their_accuracies(self) -> None:
        table = Watch()._table
        index = ([0, 30, 15, 24], [0, 18, 9, 3], [0, 8, 4, 2])
        X = torch.stack([axis[i] for axis, i in zip(table.grid, index, strict=True)], dim=-1)
        Y = Watch(train=True)(X.exp().expand(2, -1, -1), torch.tensor([2, 11]))
        expected = torch.stack([table.values[agent][index] for agent in (2, 11)])
        # One of about 130 seconds may be labelled differently where rounding differs.
        torch.testing.assert_close(Y.squeeze(-1), expected, atol=0.02, rtol=0)
