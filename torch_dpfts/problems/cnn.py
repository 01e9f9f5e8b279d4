"""A small convolutional network and its mini-batches, drawn from explicit generators."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Batch = tuple[Tensor, Tensor]


class SmallCNN(nn.Module):
    """Two convolutions, each followed by a maximum over 2 x 2 pixels, and a linear layer.

    Args:
        width: Channels of the first convolution; the second has twice as many.
        size: Height and width of the images in pixels, at least 4.
        num_classes: Number of labels.
        generator: What the weights are drawn from.
    """

    def __init__(self, width: int, size: int, num_classes: int, generator: torch.Generator) -> None:
        super().__init__()
        self.first = _parameter((width, 1, 3, 3), generator)
        self.second = _parameter((2 * width, width, 3, 3), generator)
        self.head = _parameter((num_classes, 2 * width * (size // 4) ** 2), generator)
        self.first_bias = nn.Parameter(torch.zeros(width))
        self.second_bias = nn.Parameter(torch.zeros(2 * width))
        self.head_bias = nn.Parameter(torch.zeros(num_classes))

    def forward(
        self, x: Tensor, dropout: float = 0.0, generator: torch.Generator | None = None
    ) -> Tensor:
        """Map images ``n x 1 x size x size`` to logits, ``n x num_classes``."""
        x = F.max_pool2d(F.relu(F.conv2d(x, self.first, self.first_bias, padding=1)), 2)
        x = F.max_pool2d(F.relu(F.conv2d(x, self.second, self.second_bias, padding=1)), 2)
        x = x.flatten(1)
        if dropout > 0:
            x = x * (torch.rand(x.shape, generator=generator) >= dropout) / (1 - dropout)
        return F.linear(x, self.head, self.head_bias)

    def accuracy(self, data: Batch) -> float:
        """Share of the images whose largest logit is that of their label."""
        images, labels = data
        with torch.no_grad():
            return float((self(images).argmax(-1) == labels).double().mean())


def _parameter(shape: tuple[int, ...], generator: torch.Generator) -> nn.Parameter:
    fan_in = shape[1] * (shape[2] * shape[3] if len(shape) == 4 else 1)
    return nn.Parameter(torch.randn(shape, generator=generator) * (2 / fan_in) ** 0.5)


def batches(data: Batch, size: int, generator: torch.Generator) -> Iterator[Batch]:
    """Deal images and labels, in an order drawn from ``generator``, ``size`` at a time."""
    images, labels = data
    for rows in torch.randperm(len(labels), generator=generator).split(size):
        yield images[rows], labels[rows]
