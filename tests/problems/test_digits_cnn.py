from typing import Any

import pytest
import torch

from torch_dpfts.errors import InvalidInputError
from torch_dpfts.problems.digits_cnn import NUM_EPOCHS, DigitsCNN, split_by_label

CONFIG = {
    "batch_size": 64,
    "dropout": 0.2,
    "lr": 0.01,
    "optimizer": "adam",
    "weight_decay": 1e-4,
    "width": 8,
}


def labels() -> torch.Tensor:
    return torch.arange(10).repeat(60)


def test_a_split_deals_each_row_at_most_once_and_equally() -> None:
    sites = split_by_label(labels(), 7, 1.0, seed=0)
    rows = [row for site in sites for row in site]
    assert [len(site) for site in sites] == [600 // 7] * 7
    assert len(set(rows)) == len(rows)
    assert split_by_label(labels(), 7, 1.0, seed=0) == sites
    assert split_by_label(labels(), 7, 1.0, seed=1) != sites


def largest_share(concentration: float) -> float:
    """The share of its most frequent label at a site, on average over the first sites."""
    sites = split_by_label(labels(), 12, concentration, seed=0)[:6]
    return sum(labels()[site].bincount(minlength=10).max().item() / len(site) for site in sites) / 6


def test_small_concentrations_give_sites_few_labels() -> None:
    # Equal shares would be 0.1.
    assert largest_share(1e4) < 0.25 < largest_share(1.0) < 0.6 < largest_share(0.02)


def test_every_site_has_data_to_train_and_to_validate() -> None:
    for site in (0, 19):
        (images, digits), (held_out, held_out_digits) = DigitsCNN(site, num_sites=20).data()
        assert images.shape == (45, 1, 8, 8)
        assert digits.shape == (45,)
        assert held_out.shape == (44, 1, 8, 8)
        assert held_out_digits.shape == (44,)
        assert images.min() >= 0
        assert images.max() <= 1


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop", "sgd"])
def test_training_is_repeatable_and_leaves_global_generators_alone(optimizer: str) -> None:
    state = torch.get_rng_state()
    reports: list[float] = []
    train = DigitsCNN(0)
    config = CONFIG | {"optimizer": optimizer}
    score = train(config, reports.append)
    assert len(reports) == NUM_EPOCHS
    assert score == reports[-1] == train(config)
    assert 0.4 < score < 1.0
    assert torch.equal(torch.get_rng_state(), state)


def test_sites_and_seeds_differ() -> None:
    scores = [DigitsCNN(0)(CONFIG), DigitsCNN(1)(CONFIG), DigitsCNN(0, seed=1)(CONFIG)]
    assert len(set(scores)) == 3


def test_an_absurd_learning_rate_ends_with_a_number() -> None:
    assert 0.0 <= DigitsCNN(0)(CONFIG | {"lr": 1.0}) <= 0.6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"site": 10}, "site must be below num_sites=10, got 10"),
        ({"site": -1}, "site must be at least 0"),
        ({"site": 0, "num_sites": 1}, "num_sites must be at least 2"),
        ({"site": 0, "num_sites": 41}, "num_sites must be at most 40, got 41"),
        ({"site": 0, "concentration": 0.0}, "concentration must be a number"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        DigitsCNN(**arguments)


def test_an_unknown_optimizer_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"optimizer must be one of .* got 'lion'"):
        DigitsCNN(0)(CONFIG | {"optimizer": "lion"})
