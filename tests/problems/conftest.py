from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat


def write_landmine_file(path: Path, num_tasks: int) -> Path:
    """Write a file in the layout of LandmineData.mat with 24 made-up points a task."""
    rng = np.random.default_rng(0)
    feature = np.empty((1, num_tasks), dtype=object)
    label = np.empty((1, num_tasks), dtype=object)
    for task in range(num_tasks):
        y = np.arange(24) % 3 == 0
        feature[0, task] = rng.normal(size=(24, 9)) + 0.8 * y[:, None]
        label[0, task] = y.astype(np.uint8)[:, None]
    savemat(path, {"feature": feature, "label": label})
    return path


@pytest.fixture(scope="session")
def landmine_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_landmine_file(tmp_path_factory.mktemp("landmine") / "made_up.mat", 29)


@pytest.fixture(scope="session")
def short_landmine_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_landmine_file(tmp_path_factory.mktemp("landmine") / "short.mat", 28)
