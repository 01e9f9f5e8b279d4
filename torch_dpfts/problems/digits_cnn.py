"""Handwritten digits at several sites, each of which trains a small convolutional network.

The images are scikit-learn's ``load_digits`` (1,797 of 8 x 8 pixels). Sites see the labels in
different proportions, drawn from a Dirichlet distribution as is usual in studies of federated
learning (Hsu, Qi and Brown, "Measuring the effects of non-identical data distribution for
federated visual classification", 2019).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_dpfts import checks
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.problems.cnn import Batch, SmallCNN, batches
from torch_dpfts.rng import derived_generator

BATCH_SIZES = (8, 16, 32, 64)
OPTIMIZERS = ("adam", "rmsprop", "sgd")
NUM_EPOCHS = 20
_CLASSES = 10
_SIZE = 8  # pixels


class DigitsCNN:
    """Validation accuracy of a network trained on one site's images.

    A configuration holds ``batch_size`` (one of ``BATCH_SIZES``), ``dropout``, ``lr``,
    ``optimizer`` (one of ``OPTIMIZERS``), ``weight_decay`` and ``width``. The result depends on
    the configuration, the site and the seed alone, and global generators are left alone.

    Args:
        site: Number of the site, from 0.
        num_sites: Sites that share the images, from 2 to 40; each has equally many.
        concentration: Parameter of the Dirichlet distribution of the sites' labels; small
            values give each site few of the ten digits.
        seed: Seed of the split and of the training.

    Raises:
        InvalidInputError: If an argument is out of range.

    Example:
        >>> train = DigitsCNN(site=0)
        >>> config = {"batch_size": 32, "dropout": 0.2, "lr": 0.01, "optimizer": "adam",
        ...           "weight_decay": 1e-4, "width": 8}
        >>> 0.5 < train(config) < 1.0
        True
    """

    def __init__(
        self, site: int, num_sites: int = 10, concentration: float = 1.0, seed: int = 0
    ) -> None:
        self.site = checks.integer("site", site)
        self.num_sites = checks.integer("num_sites", num_sites, minimum=2)
        self.concentration = checks.real("concentration", concentration, above=0.0, below=1e6)
        self.seed = checks.integer("seed", seed)
        if num_sites > 40:
            raise InvalidInputError(
                f"num_sites must be at most 40, got {num_sites}: there would be too few images."
            )
        if site >= num_sites:
            raise InvalidInputError(f"site must be below num_sites={num_sites}, got {site}.")

    def data(self) -> tuple[Batch, Batch]:
        """The site's images, ``n x 1 x 8 x 8``, and labels, ``n``, to train and to validate."""
        images, labels = _load()
        own = split_by_label(labels, self.num_sites, self.concentration, self.seed)[self.site]
        train, validation = own[::2], own[1::2]
        return (images[train], labels[train]), (images[validation], labels[validation])

    def __call__(
        self, config: Mapping[str, Any], report: Callable[[float], None] | None = None
    ) -> float:
        """Train, and return the accuracy on the site's validation images.

        Args:
            config: The hyperparameters.
            report: Called with that accuracy after every epoch.
        """
        train, validation = self.data()
        generator = derived_generator(self.seed, "train", self.site)
        network = SmallCNN(int(config["width"]), _SIZE, _CLASSES, generator)
        optimizer = _optimizer(network, config)
        accuracy = 0.0
        for _ in range(NUM_EPOCHS):
            for batch, target in batches(train, int(config["batch_size"]), generator):
                optimizer.zero_grad()
                logits = network(batch, float(config["dropout"]), generator)
                F.cross_entropy(logits, target).backward()
                optimizer.step()
            accuracy = network.accuracy(validation)
            if report is not None:
                report(accuracy)
        return accuracy


def _optimizer(network: SmallCNN, config: Mapping[str, Any]) -> torch.optim.Optimizer:
    lr, decay = float(config["lr"]), float(config["weight_decay"])
    name = checks.choice("optimizer", config["optimizer"], OPTIMIZERS)
    if name == "sgd":
        return torch.optim.SGD(network.parameters(), lr, momentum=0.9, weight_decay=decay)
    kind = torch.optim.AdamW if name == "adam" else torch.optim.RMSprop
    return kind(network.parameters(), lr, weight_decay=decay)


@cache
def _load() -> Batch:
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = torch.from_numpy(digits.images).float().unsqueeze(1) / 16
    return images, torch.from_numpy(digits.target).long()


def split_by_label(
    labels: Tensor, num_sites: int, concentration: float, seed: int
) -> list[list[int]]:
    """Deal rows to sites of equal size whose labels are mixed differently.

    Site by site, each row's label is drawn from the site's own proportions among the labels
    that are left.

    Args:
        labels: Labels from 0, ``n``.
        num_sites: Number of sites.
        concentration: Parameter of the symmetric Dirichlet distribution of the proportions.
        seed: Seed of the split.

    Returns:
        For each site, ``n // num_sites`` different rows.
    """
    import numpy as np

    rng = np.random.default_rng(seed)
    pools = [rng.permutation(rows).tolist() for rows in _rows_by_label(labels)]
    share = len(labels) // num_sites
    mixtures = rng.dirichlet([concentration] * len(pools), size=num_sites)
    sites: list[list[int]] = []
    for mixture in mixtures:
        rows: list[int] = []
        for _ in range(share):
            # The small constant serves a site whose own labels have run out.
            left = (mixture + 1e-9) * [bool(pool) for pool in pools]
            rows.append(pools[rng.choice(len(pools), p=left / left.sum())].pop())
        sites.append(rows)
    return sites


def _rows_by_label(labels: Tensor) -> list[list[int]]:
    count = int(labels.max()) + 1
    return [(labels == label).nonzero().squeeze(-1).tolist() for label in range(count)]
