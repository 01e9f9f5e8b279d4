from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from torch_dpfts import FederationSpec, run_federation
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.problems import Emnist
from torch_dpfts.problems.emnist import load_emnist

NUM_IMAGES = 200
GOOD = torch.tensor([[[0.05, 0.9, 1e-4]]], dtype=torch.float64)


def write_files(
    root: Path, split: str = "digits", size: int = 28, label: int | None = None, missing: int = 0
) -> Path:
    """Write noisy images on which each label has a bright row of its own."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, size=NUM_IMAGES, dtype=np.uint8)
    images = rng.integers(0, 80, size=(NUM_IMAGES, size, size), dtype=np.uint8)
    images[np.arange(NUM_IMAGES), 2 * labels.astype(int) + 3] = 255
    if label is not None:
        labels[7] = label
    labels = labels[missing:]
    raw = root / "EMNIST" / "raw"
    raw.mkdir(parents=True)
    head = struct.pack(">4B3I", 0, 0, 8, 3, NUM_IMAGES, size, size)
    (raw / f"emnist-{split}-train-images-idx3-ubyte").write_bytes(head + images.tobytes())
    packed = gzip.compress(struct.pack(">4BI", 0, 0, 8, 1, len(labels)) + labels.tobytes())
    (raw / f"emnist-{split}-train-labels-idx1-ubyte.gz").write_bytes(packed)
    return root


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files(tmp_path_factory.mktemp("emnist"))


def small(root: Path, **settings: Any) -> Emnist:
    return Emnist(root, **{"num_agents": 3, "split": "digits", "images_per_agent": 60} | settings)


def test_files_are_read(root: Path) -> None:
    images, labels = load_emnist(root, "digits")
    assert images.shape == (NUM_IMAGES, 28, 28)
    rows = images.float().mean(-1).argmax(-1)
    assert torch.equal(rows, 2 * labels + 3)


def test_agents_hold_different_images(root: Path) -> None:
    problem = small(root)
    pixels = [part[0] for agent_id in range(3) for part in problem.data(agent_id)]
    assert [tuple(images.shape) for images in pixels] == [(30, 1, 28, 28)] * 6
    flat = torch.cat(pixels).flatten(1)
    assert len(flat.unique(dim=0)) == len(flat)
    assert float(flat.min()) >= 0
    assert float(flat.max()) == 1
    for agent_id in range(3):
        (images, labels), _ = problem.data(agent_id)
        assert torch.equal(images[:, 0].mean(-1).argmax(-1), 2 * labels + 3)


def test_concentration_dials_the_mixture_of_labels(root: Path) -> None:
    def largest_share(concentration: float) -> float:
        problem = small(root, images_per_agent=20, concentration=concentration)
        (_, train), (_, validation) = problem.data(0)
        return float(torch.cat([train, validation]).bincount().max() / 20)

    assert largest_share(1e5) < 0.45 < largest_share(0.01)


def test_values_are_accuracies_that_training_earns(root: Path) -> None:
    problem = small(root)
    X = torch.cat([GOOD, torch.tensor([[[1e-4, 0.5, 1e-1]]]).double()], dim=1)
    Y = problem(X, torch.tensor([1]))
    assert Y.shape == (1, 2, 1)
    assert Y.dtype == torch.float64
    assert float(Y[0, 0]) > 0.65 > 0.5 > float(Y[0, 1])


def test_a_value_depends_on_point_agent_and_seed_alone(root: Path) -> None:
    state = torch.get_rng_state()
    with torch.no_grad():
        together = small(root)(GOOD.expand(2, -1, -1).float(), torch.tensor([2, 0]))
    assert together.dtype == torch.float32
    torch.testing.assert_close(small(root)(GOOD.float(), torch.tensor([0])), together[1:])
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(small(root).data(0)[0][0], small(root, seed=1).data(0)[0][0])


def test_a_federation_runs_on_it(root: Path) -> None:
    problem = small(root, images_per_agent=20)
    spec = FederationSpec.fts(**problem.spec_fields, num_agents=3, num_rounds=1)
    result = run_federation(spec, problem, num_initial=1, progress=False)
    assert result.best_values.shape == (2, 3)


@pytest.mark.parametrize("shape", [(0, 4, 3), (1, 0, 3)])
def test_takes_no_points(root: Path, shape: tuple[int, ...]) -> None:
    ids = torch.zeros(shape[0], dtype=torch.int64)
    assert small(root)(torch.ones(shape), ids).shape == (*shape[:2], 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_agents": 0}, "num_agents must be at least 1, got 0"),
        ({"split": "kanji"}, "split must be one of 'byclass', .* got 'kanji'"),
        ({"images_per_agent": 1}, "images_per_agent must be at least 2, got 1"),
        ({"images_per_agent": 67}, r"at most the 200 images .*'digits', got 67 \* 3; lower"),
        ({"concentration": 0.0}, "concentration must be a number in"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
    ],
)
def test_refuses(root: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        small(root, **settings)


def test_bad_queries_are_refused(root: Path) -> None:
    with pytest.raises(InvalidInputError, match="X must lie in the bounds, got 2"):
        small(root)(torch.tensor([[[2.0, 0.9, 1e-4]]]), torch.tensor([0]))
    with pytest.raises(InvalidInputError, match="agent_ids must be from 0 to 2, got 3"):
        small(root)(GOOD, torch.tensor([3]))


def test_a_missing_file_is_named_with_the_mend(root: Path) -> None:
    with pytest.raises(
        InvalidInputError,
        match=r"emnist-balanced-train-images-idx3-ubyte' \(or .gz\) is missing; download .* "
        r"torchvision.datasets.EMNIST\(root, split='balanced', download=True\)",
    ):
        small(root, split="balanced")


@pytest.mark.parametrize(
    ("spoilt", "message"),
    [
        ({"size": 24}, r"must hold images of 28 x 28 pixels, got \(24, 24\)"),
        ({"label": 10}, "must hold labels below 10, got 10"),
        ({"missing": 1}, "got 200 images and 199 labels"),
    ],
)
def test_files_that_do_not_fit_are_refused(
    tmp_path: Path, spoilt: dict[str, int], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        small(write_files(tmp_path, **spoilt))
