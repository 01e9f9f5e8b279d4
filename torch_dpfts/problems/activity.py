"""Recognising activities from a wearer's sensors by logistic regression: what the data sets share.

The third experiment of Dai, Low and Jaillet, "Differentially private federated Bayesian
optimization with distributed exploration" (NeurIPS 2021): each agent is a person and tunes a
multinomial logistic regression on sensor data of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_dpfts.problems.base import check_query
from torch_dpfts.rng import derived_generator

NAMES = ("lr", "l2", "batch_size")
BOUNDS = ((1e-4, 1e-5, 8.0), (10.0, 10.0, 128.0))
LOG_DIMS = (0, 1, 2)
INTEGER_DIMS = (2,)
NUM_EPOCHS = 20


@dataclass(frozen=True, eq=False)
class LabelledSplit:
    """One person's data, float64 and int64.

    Args:
        train_X: Features to train on, ``n x p``.
        train_y: Their activities from 0, ``n``.
        validation_X: Features to validate on, ``m x p``.
        validation_y: Their activities, ``m``.
    """

    train_X: Tensor
    train_y: Tensor
    validation_X: Tensor
    validation_y: Tensor

    def standardized(self) -> LabelledSplit:
        """Features scaled by the training part's moments, and a constant for the intercept."""
        mean, std = self.train_X.mean(0), self.train_X.std(0, correction=0)
        scale = torch.where(std > 1e-9, std, torch.ones_like(std))

        def features(X: Tensor) -> Tensor:
            return F.pad((X - mean) / scale, (0, 1), value=1.0)

        return LabelledSplit(
            features(self.train_X), self.train_y, features(self.validation_X), self.validation_y
        )


def train_accuracies(
    split: LabelledSplit, num_classes: int, lr: Tensor, l2: Tensor, batch_size: int
) -> Tensor:
    """Train a logistic regression for every pair of hyperparameters, and validate it.

    Stochastic gradient descent from zero weights, 20 epochs; the weights of the last ten are
    averaged (Polyak and Juditsky, "Acceleration of stochastic approximation by averaging", 1992).
    The penalty's step is implicit, so that no pair makes the weights diverge.

    Args:
        split: The person's data, standardised.
        num_classes: Number of activities.
        lr: Learning rates, ``g``.
        l2: Factors of half the squared norm of the weights, ``g``.
        batch_size: Observations a step. Their order depends on it and on nothing else.

    Returns:
        Accuracies on the validation part, ``g``, float64.
    """
    X, target = split.train_X, F.one_hot(split.train_y, num_classes).to(split.train_X)
    generator = derived_generator(0, "activity", batch_size)
    rate, shrinkage = lr.reshape(-1, 1, 1), 1 / (1 + lr * l2).reshape(-1, 1, 1)
    weights = total = X.new_zeros(len(lr), X.shape[-1], num_classes)
    for epoch in range(NUM_EPOCHS):
        for rows in torch.randperm(len(X), generator=generator).split(batch_size):
            error = torch.softmax(X[rows] @ weights, dim=-1) - target[rows]  # g x rows x classes
            weights = (weights - rate / len(rows) * (X[rows].mT @ error)) * shrinkage
            if epoch >= NUM_EPOCHS // 2:
                total = total + weights
    predicted = (split.validation_X @ total).argmax(-1)  # g x m
    return (predicted == split.validation_y).double().mean(-1)


class ActivityRecognition:
    """Validation accuracy of a logistic regression on each person's data.

    The hyperparameters are the learning rate ``lr`` in [1e-4, 10], the penalty ``l2`` in
    [1e-5, 10] and the ``batch_size`` in 8 to 128, all on logarithmic scales. Models are trained
    on the CPU, wherever ``X`` lies, in milliseconds each. People differ as they do; there is
    nothing to dial.

    Args:
        splits: The people's data.
        num_classes: Number of activities.
    """

    name = "activity"
    dim = len(NAMES)
    optimal_values: Tensor | None = None

    def __init__(self, splits: Sequence[LabelledSplit], num_classes: int) -> None:
        self.num_agents = len(splits)
        self.num_classes = num_classes
        self.bounds = torch.tensor(BOUNDS, dtype=torch.float64)
        self.spec_fields = spec_fields()
        self._splits = [split.standardized() for split in splits]

    def __call__(self, X: Tensor, agent_ids: Tensor) -> Tensor:
        """Train a model for every point.

        Args:
            X: Columns ``lr``, ``l2`` and ``batch_size``, ``b x n x 3``; the last is rounded.
            agent_ids: The person of each of the ``b`` blocks, ``b``, int64.

        Returns:
            Validation accuracies, ``b x n x 1``, with the dtype and the device of ``X``.

        Raises:
            InvalidInputError: If ``X`` or ``agent_ids`` does not fit the problem.
        """
        check_query(X, agent_ids, self.bounds, self.num_agents)
        points = X.detach().to("cpu", torch.float64)
        values = [
            self.train(agent_id, point[:1], point[1:2], round(float(point[2])))
            for agent_id, rows in zip(agent_ids.tolist(), points, strict=True)
            for point in rows
        ]
        flat = torch.cat(values) if values else points.new_empty(0)
        return flat.reshape(*X.shape[:2], 1).to(X)

    def train(self, agent_id: int, lr: Tensor, l2: Tensor, batch_size: int) -> Tensor:
        """Accuracies of one person's models for ``g`` learning rates and ``g`` penalties, ``g``."""
        split = self._splits[agent_id]
        return train_accuracies(split, self.num_classes, lr, l2, batch_size)


def spec_fields() -> dict[str, Any]:
    """What a specification needs to know of the search space."""
    return {"bounds": BOUNDS, "log_dims": LOG_DIMS, "integer_dims": INTEGER_DIMS}
