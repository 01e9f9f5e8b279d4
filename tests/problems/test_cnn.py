from __future__ import annotations

import torch
from torch import nn

from torch_dpfts.problems.cnn import SmallCNN, batches


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_it_is_the_network_of_torch_s_layers() -> None:
    network = SmallCNN(3, 28, 5, generator())
    first, second, head = (
        nn.Conv2d(1, 3, 3, padding=1),
        nn.Conv2d(3, 6, 3, padding=1),
        nn.Linear(294, 5),
    )
    for layer, name in ((first, "first"), (second, "second"), (head, "head")):
        layer.weight = getattr(network, name)
        layer.bias = nn.Parameter(torch.randn(layer.bias.shape, generator=generator(1)))
        setattr(network, f"{name}_bias", layer.bias)
    pool = nn.MaxPool2d(2)
    reference = nn.Sequential(first, nn.ReLU(), pool, second, nn.ReLU(), pool, nn.Flatten(), head)
    images = torch.rand(4, 1, 28, 28, generator=generator(2))
    torch.testing.assert_close(network(images), reference(images))
    labels = reference(images).argmax(-1)
    assert network.accuracy((images, labels)) == 1.0
    assert network.accuracy((images, (labels + torch.tensor([0, 1, 1, 1])) % 5)) == 0.25


def test_the_generator_decides() -> None:
    weights = [SmallCNN(2, 8, 3, generator(seed)).head for seed in (0, 0, 1)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_dropout_keeps_the_mean_of_what_it_drops_from() -> None:
    network, images = SmallCNN(4, 8, 2, generator()), torch.rand(1, 1, 8, 8, generator=generator(1))
    draws = network(images.expand(4000, -1, -1, -1), 0.5, generator(2)).detach()
    # Within 5 standard errors of the mean: a probability below 1e-6 each.
    error = draws.std(0) / 4000**0.5
    assert ((draws.mean(0) - network(images)[0].detach()).abs() < 5 * error).all()


def test_batches_deal_each_row_once() -> None:
    data = torch.arange(10).reshape(10, 1), torch.arange(10)
    dealt = list(batches(data, 4, generator()))
    assert [len(labels) for _, labels in dealt] == [4, 4, 2]
    assert sorted(torch.cat([labels for _, labels in dealt]).tolist()) == list(range(10))
    assert all(torch.equal(images.squeeze(-1), labels) for images, labels in dealt)
