"""Exercises recognised from a smartwatch: 20 agents tune a logistic regression each."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torch_dpfts.errors import InvalidInputError
from torch_dpfts.problems.activity import (
    BOUNDS,
    NAMES,
    ActivityRecognition,
    LabelledSplit,
    spec_fields,
)
from torch_dpfts.problems.base import check_query
from torch_dpfts.problems.multilinear import MultilinearTable

NUM_AGENTS = 20
NUM_CLASSES = 7
_WINDOW = 50  # samples, one second


class Watch:
    """Validation accuracy of a logistic regression that recognises an agent's exercises.

    The data are seglearn's watch data (Burns et al., "Shoulder physiotherapy exercise
    recognition: machine learning the inertial signals from a smartwatch", Physiological
    Measurement 2018): acceleration and rotation at 50 Hz while seven shoulder exercises were
    repeated. The package holds 10 people with both arms, each arm being an agent. Seconds become
    means, standard deviations and mean absolute changes of the six channels; models are trained
    on the first half of each recording and validated on the second. Hyperparameters and learner
    are those of :class:`~torch_dpfts.problems.activity.ActivityRecognition`: ``lr`` in
    [1e-4, 10], ``l2`` in [1e-5, 10] and ``batch_size`` in 8 to 128.

    By default the values come from a table, interpolated linearly in the logarithms, that
    ``benchmarks/watch_table.py`` computed. People differ as they do; there is nothing to dial.

    Args:
        train: Whether to train the models instead of using the table, milliseconds each. It
            needs the extra ``[activity]``.

    Attributes:
        bounds: Bounds of the hyperparameters, ``2 x 3``, float64.
        optimal_values: The largest accuracy in each agent's table, ``20``, float64; also with
            ``train``, where a model may exceed it a little.
        spec_fields: What a :class:`~torch_dpfts.FederationSpec` needs to know of the space.

    Raises:
        InvalidInputError: If ``train`` is set and seglearn is not installed.

    Example:
        >>> problem = Watch()
        >>> X = torch.tensor([[[0.1, 1e-3, 16.0]]], dtype=torch.float64)
        >>> 0.5 < problem(X, torch.tensor([0])).item() <= problem.optimal_values[0].item()
        True
    """

    name = "watch"
    dim = len(NAMES)
    num_agents = NUM_AGENTS

    def __init__(self, train: bool = False) -> None:
        self.bounds = torch.tensor(BOUNDS, dtype=torch.float64)
        self.spec_fields: dict[str, Any] = spec_fields()
        self._table = _load_table()
        self.optimal_values = self._table.values.flatten(1).amax(-1)
        self._models = ActivityRecognition(load_watch(), NUM_CLASSES) if train else None

    def __call__(self, X: Tensor, agent_ids: Tensor) -> Tensor:
        """Evaluate the validation accuracy.

        Args:
            X: Columns ``lr``, ``l2`` and ``batch_size``, ``b x n x 3``; the last is rounded.
            agent_ids: The agent of each of the ``b`` blocks, ``b``, int64.

        Returns:
            Accuracies, to be maximised, ``b x n x 1``, with the dtype and the device of ``X``.

        Raises:
            InvalidInputError: If ``X`` or ``agent_ids`` does not fit the problem.
        """
        if self._models is not None:
            return self._models(X, agent_ids)
        check_query(X, agent_ids, self.bounds, self.num_agents)
        points = X.to("cpu", torch.float64, copy=True)
        points[..., 2] = points[..., 2].round()
        points = points.clamp(self.bounds[0], self.bounds[1])
        return self._table(points.log(), agent_ids.cpu()).to(X)


def _load_table() -> MultilinearTable:
    resource = files("torch_dpfts.problems") / "data" / "watch.npz"
    with resource.open("rb") as stream, np.load(stream, allow_pickle=False) as content:
        grid = [torch.from_numpy(content[name]).log() for name in NAMES]
        counts = content["accuracy"]  # num_agents x I x J x K
    return MultilinearTable(grid, torch.from_numpy(counts / np.iinfo(counts.dtype).max))


def load_watch() -> list[LabelledSplit]:
    """Read seglearn's data: a split for each of the 20 arms, by person, the right arm first.

    Raises:
        InvalidInputError: If seglearn is not installed.
    """
    try:
        from seglearn.datasets import load_watch as load
    except ImportError as error:
        raise InvalidInputError(
            f"the watch data come with seglearn, which cannot be imported ({error}); "
            "install it with: pip install 'torch_dpfts[activity]'."
        ) from None
    data = load()
    arms: dict[tuple[int, int], list[tuple[Any, int]]] = {}
    for series, label, person, side in zip(
        data["X"], data["y"], data["subject"], data["side"], strict=True
    ):
        arms.setdefault((int(person), -int(side)), []).append((series, int(label)))
    return [_split(recordings) for _, recordings in sorted(arms.items())]


def _split(recordings: list[tuple[Any, int]]) -> LabelledSplit:
    parts: tuple[list[Tensor], list[Tensor]] = [], []
    labels: tuple[list[int], list[int]] = [], []
    for series, label in recordings:
        halves = torch.as_tensor(np.asarray(series), dtype=torch.float64).tensor_split(2)
        for half, X, y in zip(halves, parts, labels, strict=True):
            X.append(window_features(half, _WINDOW))
            y.extend([label] * len(X[-1]))
    (train_X, validation_X), (train_y, validation_y) = parts, labels
    return LabelledSplit(
        torch.cat(train_X),
        torch.tensor(train_y),
        torch.cat(validation_X),
        torch.tensor(validation_y),
    )


def window_features(series: Tensor, window: int) -> Tensor:
    """Mean, standard deviation and mean absolute change of each channel in each window.

    Args:
        series: Samples, ``n x channels``.
        window: Samples in a window; windows do not overlap, and an incomplete one is dropped.

    Returns:
        ``n // window x 3 channels``.
    """
    windows = series.unfold(0, window, window)  # windows x channels x window
    change = windows.diff(dim=-1).abs().mean(-1)
    return torch.cat([windows.mean(-1), windows.std(-1, correction=0), change], dim=-1)
