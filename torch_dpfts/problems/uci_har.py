"""Activities recognised from a smartphone: 30 people tune a logistic regression each."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from torch_dpfts.errors import InvalidInputError
from torch_dpfts.problems.activity import ActivityRecognition, LabelledSplit

NUM_AGENTS = 30
NUM_CLASSES = 6
_MEND = (
    "download 'Human Activity Recognition Using Smartphones' from the UCI Machine Learning "
    "Repository, unpack it and give the folder 'UCI HAR Dataset'"
)


class UciHar(ActivityRecognition):
    """Validation accuracy of a logistic regression that recognises a person's activities.

    The third experiment of Dai, Low and Jaillet, "Differentially private federated Bayesian
    optimization with distributed exploration" (NeurIPS 2021), on the data of Anguita et al., "A
    public domain dataset for human activity recognition using smartphones" (ESANN 2013): six
    activities of 30 people. Those set apart for testing there are agents like the others. Of
    each activity, the first half of a person's windows is to train on, the rest to validate.
    Hyperparameters and learner are those of
    :class:`~torch_dpfts.problems.activity.ActivityRecognition`.

    Args:
        root: The unpacked folder ``UCI HAR Dataset``.

    Attributes:
        bounds: Bounds of the hyperparameters, ``2 x 3``, float64.
        spec_fields: What a :class:`~torch_dpfts.FederationSpec` needs to know of the space.

    Raises:
        InvalidInputError: If a file is missing, cannot be read or does not fit the others.
    """

    name = "uci-har"

    def __init__(self, root: str | PathLike[str]) -> None:
        super().__init__(load_uci_har(root), NUM_CLASSES)


def load_uci_har(root: str | PathLike[str]) -> list[LabelledSplit]:
    """Read the folder: a split for each person, by number.

    Raises:
        InvalidInputError: As for :class:`UciHar`.
    """
    parts = [_read_part(Path(root), name) for name in ("train", "test")]
    widths = {X.shape[-1] for X, _, _ in parts}
    if len(widths) > 1:
        raise InvalidInputError(
            f"the files X_train.txt and X_test.txt under {str(root)!r} must have equally many "
            f"columns, got {sorted(widths)}; {_MEND}."
        )
    X, activity, person = (torch.cat(columns) for columns in zip(*parts, strict=True))
    people = person.unique().tolist()
    if people != list(range(1, NUM_AGENTS + 1)):
        raise InvalidInputError(
            f"the files subject_train.txt and subject_test.txt under {str(root)!r} must name "
            f"people 1 to {NUM_AGENTS}, got {people}; {_MEND}."
        )
    splits = [_halves(X[person == number], activity[person == number]) for number in people]
    for number, split in zip(people, splits, strict=True):
        if not len(split.validation_y):
            raise InvalidInputError(
                f"the files under {str(root)!r} must hold two windows or more of an activity of "
                f"each person, got fewer for person {number}; {_MEND}."
            )
    return splits


def _read_part(root: Path, part: str) -> tuple[Tensor, Tensor, Tensor]:
    """Features ``n x p``, activities from 0, ``n``, and people from 1, ``n``."""
    folder = root / part
    X = _read(folder / f"X_{part}.txt", np.float64, ndmin=2)
    y = _read(folder / f"y_{part}.txt", np.int64, ndmin=1)
    person = _read(folder / f"subject_{part}.txt", np.int64, ndmin=1)
    if not len(X) == len(y) == len(person):
        raise InvalidInputError(
            f"the files in {str(folder)!r} must have equally many lines, got {len(X)} of "
            f"X_{part}.txt, {len(y)} of y_{part}.txt and {len(person)} of subject_{part}.txt; "
            f"{_MEND}."
        )
    if not torch.isfinite(X).all():
        raise InvalidInputError(
            f"{str(folder / f'X_{part}.txt')!r} must hold finite numbers; {_MEND}."
        )
    if not ((y >= 1) & (y <= NUM_CLASSES)).all():
        raise InvalidInputError(
            f"{str(folder / f'y_{part}.txt')!r} must hold numbers from 1 to {NUM_CLASSES}, got "
            f"{int(y.min())} to {int(y.max())}; {_MEND}."
        )
    return X, y - 1, person


def _read(path: Path, dtype: Any, ndmin: Literal[1, 2]) -> Tensor:
    if not path.is_file() or not path.stat().st_size:
        raise InvalidInputError(f"the file {str(path)!r} is missing or empty; {_MEND}.")
    try:
        values = np.loadtxt(path, dtype=dtype, ndmin=ndmin)
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"cannot read {str(path)!r}: {error}; {_MEND}.") from None
    if values.ndim != ndmin or not values.size:
        raise InvalidInputError(
            f"{str(path)!r} must hold {'rows of numbers' if ndmin == 2 else 'a number a line'}, "
            f"got shape {values.shape}; {_MEND}."
        )
    return torch.from_numpy(values)


def _halves(X: Tensor, activity: Tensor) -> LabelledSplit:
    """Neighbouring windows overlap, so that the halves are not mixed."""
    rows = [(activity == label).nonzero().squeeze(-1) for label in activity.unique()]
    train, validation = (
        torch.cat([half[part] for half in (row.tensor_split(2) for row in rows)]) for part in (0, 1)
    )
    return LabelledSplit(X[train], activity[train], X[validation], activity[validation])
