from __future__ import annotations

import numpy as np
import pytest
import torch

from torch_dpfts import FederationSpec, run_federation
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.problems.activity import (
    NUM_EPOCHS,
    ActivityRecognition,
    LabelledSplit,
    train_accuracies,
)
from torch_dpfts.rng import derived_generator


def made_up(seed: int, n: int = 40, distance: float = 3.0) -> LabelledSplit:
    """Three activities whose features lie at three places."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    places = distance * torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    X = places[y] + torch.randn(n, 2, generator=generator, dtype=torch.float64)
    return LabelledSplit(X[: n // 2], y[: n // 2], X[n // 2 :], y[n // 2 :])


def plain_accuracy(split: LabelledSplit, lr: float, l2: float, batch_size: int) -> float:
    """The learner, written out for one pair of hyperparameters in NumPy."""
    X, y = split.train_X.numpy(), split.train_y.numpy()
    generator = derived_generator(0, "activity", batch_size)
    weights, total = np.zeros((X.shape[1], 3)), np.zeros((X.shape[1], 3))
    for epoch in range(NUM_EPOCHS):
        order = torch.randperm(len(X), generator=generator).numpy()
        for start in range(0, len(X), batch_size):
            rows = order[start : start + batch_size]
            scores = np.exp(X[rows] @ weights)
            gradient = np.zeros_like(weights)
            for x, label, score in zip(X[rows], y[rows], scores, strict=True):
                gradient += np.outer(x, score / score.sum() - np.eye(3)[label]) / len(rows)
            weights = (weights - lr * gradient) / (1 + lr * l2)
            total += weights * (epoch >= NUM_EPOCHS // 2)
    guesses = (split.validation_X.numpy() @ total).argmax(-1)
    return float((guesses == split.validation_y.numpy()).mean())


@pytest.mark.parametrize("batch_size", [8, 20, 128])
def test_accuracies_are_those_of_a_plain_loop(batch_size: int) -> None:
    split = made_up(0, n=60, distance=1.0).standardized()
    lr = torch.tensor([1e-3, 0.1, 3.0], dtype=torch.float64)
    l2 = torch.tensor([1e-4, 0.1, 1e-3], dtype=torch.float64)
    found = train_accuracies(split, 3, lr, l2, batch_size)
    pairs = zip(lr.tolist(), l2.tolist(), strict=True)
    assert found.tolist() == [plain_accuracy(split, *pair, batch_size) for pair in pairs]


def test_features_are_scaled_by_the_training_part() -> None:
    split = made_up(1)
    constant = torch.ones(20, 1, dtype=torch.float64)
    padded = LabelledSplit(
        torch.cat([split.train_X, constant], -1),
        split.train_y,
        torch.cat([split.validation_X, 5 * constant], -1),
        split.validation_y,
    ).standardized()
    mean, std = split.train_X.mean(0), split.train_X.std(0, correction=0)
    torch.testing.assert_close(padded.validation_X[:, :2], (split.validation_X - mean) / std)
    # A feature that never changes is centred and not divided by zero; the last is the constant.
    assert (padded.train_X[:, 2] == 0).all()
    assert (padded.validation_X[:, 2] == 4).all()
    assert (padded.validation_X[:, 3] == 1).all()


def test_values_depend_on_hyperparameters_and_person() -> None:
    problem = ActivityRecognition([made_up(0, distance=6.0), made_up(1, distance=0.0)], 3)
    X = torch.tensor([[0.1, 1e-3, 8.0], [10.0, 10.0, 8.4]], dtype=torch.float64)
    Y = problem(X.expand(2, -1, -1), torch.tensor([0, 1]))
    assert Y.shape == (2, 2, 1)
    assert float(Y[0, 0]) > 0.85
    assert float(Y[1, 0]) < 0.7
    # Alone, and with the batch size rounded already, a point has the same value.
    alone = problem(X[1:].round(decimals=0).unsqueeze(0), torch.tensor([0]))
    torch.testing.assert_close(alone, Y[:1, 1:])


def test_global_generators_are_left_alone() -> None:
    state = torch.get_rng_state()
    X = torch.tensor([[[0.1, 1e-3, 8.0]]])
    Y = ActivityRecognition([made_up(0)], 3)(X, torch.tensor([0]))
    assert Y.dtype == torch.float32
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("shape", [(0, 4, 3), (1, 0, 3)])
def test_takes_no_points(shape: tuple[int, ...]) -> None:
    problem = ActivityRecognition([made_up(0)], 3)
    ids = torch.zeros(shape[0], dtype=torch.int64)
    assert problem(torch.ones(shape), ids).shape == (*shape[:2], 1)


def test_bad_queries_are_refused() -> None:
    problem = ActivityRecognition([made_up(0)], 3)
    with pytest.raises(InvalidInputError, match="X must lie in the bounds, got 4"):
        problem(torch.tensor([[[0.1, 1e-3, 4.0]]]), torch.tensor([0]))
    with pytest.raises(InvalidInputError, match="agent_ids must be from 0 to 0, got 1"):
        problem(torch.tensor([[[0.1, 1e-3, 8.0]]]), torch.tensor([1]))


def test_a_federation_runs_on_it() -> None:
    problem = ActivityRecognition([made_up(seed) for seed in range(3)], 3)
    spec = FederationSpec.fts(**problem.spec_fields, num_agents=3, num_rounds=2)
    result = run_federation(spec, problem, num_initial=2, progress=False)
    assert result.best_values.shape == (3, 3)
