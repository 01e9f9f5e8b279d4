"""Handwritten characters: many agents, each of which trains a convolutional network."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_dpfts import checks
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.problems.base import check_query
from torch_dpfts.problems.cnn import Batch, SmallCNN, batches
from torch_dpfts.problems.digits_cnn import split_by_label
from torch_dpfts.problems.idx import read_idx
from torch_dpfts.rng import derived_generator, derived_seed

NAMES = ("lr", "lr_decay", "l2")
BOUNDS = ((1e-4, 0.5, 1e-6), (1.0, 1.0, 1e-1))
LOG_DIMS = (0, 2)
NUM_EPOCHS = 10
# Labels from 0 below these; those of the letters begin at 1.
EMNIST_SPLITS = {
    "byclass": 62,
    "bymerge": 47,
    "balanced": 47,
    "letters": 27,
    "digits": 10,
    "mnist": 10,
}
_BATCH_SIZE = 32
_WIDTH = 8


class Emnist:
    r"""Validation accuracy of a network on each agent's images of handwritten characters.

    After the fourth experiment of Dai, Low and Jaillet, "Differentially private federated
    Bayesian optimization with distributed exploration" (NeurIPS 2021), on the data of Cohen et
    al., "EMNIST: an extension of MNIST to handwritten letters" (2017). Torchvision's files do
    not tell who wrote an image, so agents differ by the mixture of their labels. Each tunes the
    learning rate ``lr`` in [1e-4, 1] (logarithmic), the factor ``lr_decay`` in [.5, 1] by which
    it shrinks after each of 10 epochs, and the penalty ``l2`` in [1e-6, .1] (logarithmic).
    Networks are trained on the CPU, wherever ``X`` lies, in a second or less each; a value depends
    on the point, the agent and the seed alone. Images stay transposed, as they are stored.

    Args:
        root: The folder that holds ``EMNIST/raw`` with the files of
            :class:`torchvision.datasets.EMNIST`, plain or packed by gzip. Torchvision itself is
            not needed.
        split: Which of its six splits.
        num_agents: Number of agents.
        images_per_agent: Images of each, half to train on and half to validate.
        concentration: Parameter of the Dirichlet distribution of the agents' labels, the dial
            of heterogeneity: small values give each agent few of the labels.
        seed: Seed of the partition and of the training.

    Attributes:
        bounds: Bounds of the hyperparameters, ``2 x 3``, float64.
        spec_fields: What a :class:`~torch_dpfts.FederationSpec` needs to know of the space.

    Raises:
        InvalidInputError: If an argument is out of range, a file is missing or damaged, or it
            holds too few images.
    """

    name = "emnist"
    dim = len(NAMES)
    optimal_values: Tensor | None = None

    def __init__(
        self,
        root: str | PathLike[str],
        num_agents: int = 50,
        split: str = "balanced",
        images_per_agent: int = 400,
        concentration: float = 1.0,
        seed: int = 0,
    ) -> None:
        self.num_agents = checks.integer("num_agents", num_agents, minimum=1)
        self.split = checks.choice("split", split, EMNIST_SPLITS)
        share = checks.integer("images_per_agent", images_per_agent, minimum=2)
        self.concentration = checks.real("concentration", concentration, above=0.0, below=1e6)
        self.seed = checks.integer("seed", seed)
        self.bounds = torch.tensor(BOUNDS, dtype=torch.float64)
        self.spec_fields: dict[str, Any] = {"bounds": BOUNDS, "log_dims": LOG_DIMS}
        images, labels = load_emnist(root, split)
        wanted = self.num_agents * share
        if len(labels) < wanted:
            raise InvalidInputError(
                f"images_per_agent * num_agents must be at most the {len(labels)} images of the "
                f"split {split!r}, got {share} * {num_agents}; lower one of them."
            )
        generator = derived_generator(self.seed, "emnist")
        rows = torch.randperm(len(labels), generator=generator)[:wanted]
        images, labels = images[rows], labels[rows]
        deal = split_by_label(
            labels, self.num_agents, self.concentration, derived_seed(self.seed, "emnist deal")
        )
        self._data = [(images[own], labels[own]) for own in map(torch.tensor, deal)]

    def data(self, agent_id: int) -> tuple[Batch, Batch]:
        """The agent's images, ``n x 1 x 28 x 28``, and labels, to train and to validate."""
        images, labels = self._data[agent_id]
        pixels = images.unsqueeze(1).float() / 255
        return (pixels[::2], labels[::2]), (pixels[1::2], labels[1::2])

    def __call__(self, X: Tensor, agent_ids: Tensor) -> Tensor:
        """Train a network for every point.

        Args:
            X: Columns ``lr``, ``lr_decay`` and ``l2``, ``b x n x 3``.
            agent_ids: The agent of each of the ``b`` blocks, ``b``, int64.

        Returns:
            Validation accuracies, ``b x n x 1``, with the dtype and the device of ``X``.

        Raises:
            InvalidInputError: If ``X`` or ``agent_ids`` does not fit the problem.
        """
        check_query(X, agent_ids, self.bounds, self.num_agents)
        values = [
            [self._accuracy(agent_id, *point) for point in points]
            for agent_id, points in zip(agent_ids.tolist(), X.tolist(), strict=True)
        ]
        return torch.tensor(values, dtype=X.dtype, device=X.device).reshape(*X.shape[:2], 1)

    def _accuracy(self, agent_id: int, lr: float, lr_decay: float, l2: float) -> float:
        train, validation = self.data(agent_id)
        generator = derived_generator(self.seed, "emnist train", agent_id)
        network = SmallCNN(_WIDTH, train[0].shape[-1], EMNIST_SPLITS[self.split], generator)
        optimizer = torch.optim.SGD(network.parameters(), lr, momentum=0.9, weight_decay=l2)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, lr_decay)
        # A caller's no_grad, common around an evaluation, must not reach the training.
        with torch.enable_grad():
            for _ in range(NUM_EPOCHS):
                for images, labels in batches(train, _BATCH_SIZE, generator):
                    optimizer.zero_grad()
                    F.cross_entropy(network(images), labels).backward()
                    optimizer.step()
                schedule.step()
        return network.accuracy(validation)


def load_emnist(root: str | PathLike[str], split: str) -> Batch:
    """Read the training images of a split, ``n x 28 x 28``, uint8, and their labels, int64.

    Raises:
        InvalidInputError: If a file is missing or damaged, or the two do not fit.
    """
    folder = Path(root) / "EMNIST" / "raw"
    mend = (
        f"download the data with torchvision.datasets.EMNIST(root, split={split!r}, "
        "download=True) and give the same root"
    )
    image_path = folder / f"emnist-{split}-train-images-idx3-ubyte"
    label_path = folder / f"emnist-{split}-train-labels-idx1-ubyte"
    images = read_idx(image_path, 3, mend)
    labels = read_idx(label_path, 1, mend).long()
    if len(images) != len(labels):
        raise InvalidInputError(
            f"{str(image_path)!r} and {str(label_path)!r} must hold equally many, got "
            f"{len(images)} images and {len(labels)} labels; {mend}."
        )
    if images.shape[1:] != (28, 28):
        raise InvalidInputError(
            f"{str(image_path)!r} must hold images of 28 x 28 pixels, got "
            f"{tuple(images.shape[1:])}; {mend}."
        )
    if len(labels) and int(labels.max()) >= EMNIST_SPLITS[split]:
        raise InvalidInputError(
            f"{str(label_path)!r} must hold labels below {EMNIST_SPLITS[split]}, got "
            f"{int(labels.max())}; {mend}."
        )
    return images, labels
