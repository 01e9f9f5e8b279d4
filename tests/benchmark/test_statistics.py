import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from torch_dpfts.benchmark.statistics import (
    first_round_reaching,
    mean_difference,
    ratio_of_means,
    standard_error,
)
from torch_dpfts.errors import InvalidInputError


def pairs(seeds: int, rounds: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    shared = torch.rand(seeds, rounds, generator=generator, dtype=torch.float64)
    noise = torch.rand(2, seeds, rounds, generator=generator, dtype=torch.float64)
    return 1 + shared + 0.3 * noise[0], 2 + shared + 0.3 * noise[1]


def test_standard_error_by_hand() -> None:
    values = torch.tensor([[1.0, 5.0], [2.0, 5.0], [6.0, 5.0]])
    expected = math.sqrt((4 + 1 + 9) / 2 / 3)
    torch.testing.assert_close(standard_error(values), torch.tensor([expected, 0.0]))
    assert standard_error(values[:1]).isnan().all()


def test_pairing_removes_what_the_seeds_have_in_common() -> None:
    b = torch.tensor([[0.0], [100.0], [-50.0]])
    estimate = mean_difference(b + torch.tensor([[1.0], [2.0], [3.0]]), b)
    assert estimate.value.item() == pytest.approx(2)
    assert estimate.standard_error.item() == pytest.approx(1 / math.sqrt(3))
    assert estimate.interval.flatten().tolist() == pytest.approx([1.0, 3.0])


@pytest.mark.parametrize("seeds", [8, 20])
def test_intervals_are_those_of_scipy(seeds: int) -> None:
    a, b = pairs(seeds, 3)

    def ratio(a: np.ndarray, b: np.ndarray, axis: int) -> np.ndarray:
        return a.mean(axis=axis) / b.mean(axis=axis)

    # Limits of two independent sets of 10,000 resamples: the standard deviation of a limit is
    # about .03 of the width, so .12 of the width is four of them for 12 limits in all.
    for estimate, data, statistic in (
        (mean_difference(a, b), (a - b,), np.mean),
        (ratio_of_means(a, b), (a, b), ratio),
    ):
        expected = stats.bootstrap(
            tuple(part.numpy() for part in data), statistic, n_resamples=10_000, paired=True,
            axis=0, vectorized=True, method="percentile", rng=np.random.default_rng(5),
        )  # fmt: skip
        limits = torch.from_numpy(np.stack(expected.confidence_interval))
        width = limits[1] - limits[0]
        assert ((estimate.interval - limits).abs() < 0.12 * width).all()
        spread = torch.from_numpy(expected.standard_error)
        torch.testing.assert_close(estimate.standard_error, spread, rtol=0.15, atol=0.0)


def test_the_interval_of_all_three_resamples_of_two_seeds() -> None:
    # Means 0, 1 and 2 with probabilities 1/4, 1/2, 1/4: the 2.5% and 97.5% quantiles are 0, 2.
    a = torch.tensor([[0.0], [2.0]])
    assert mean_difference(a, torch.zeros(2, 1)).interval.flatten().tolist() == [0.0, 2.0]


def test_ratio_by_hand() -> None:
    a = torch.tensor([[1.0, 1.0], [3.0, 1.0]])
    b = torch.tensor([[2.0, 0.0], [6.0, 0.0]])
    estimate = ratio_of_means(a, b)
    assert estimate.value[0] == 0.5
    torch.testing.assert_close(estimate.interval[:, 0], torch.tensor([0.5, 0.5]))
    assert estimate.value[1].isnan()
    assert estimate.interval[:, 1].isnan().all()


def test_one_seed_has_no_interval() -> None:
    one = torch.tensor([[1.0, 2.0]])
    for estimate in (mean_difference(one, 2 * one), ratio_of_means(one, 2 * one)):
        assert estimate.value.isfinite().all()
        assert estimate.standard_error.isnan().all()
        assert estimate.interval.isnan().all()


def test_the_same_seed_gives_the_same_interval_and_no_global_draw() -> None:
    a, b = pairs(6, 2)
    state = torch.random.get_rng_state()
    first, second, other = (mean_difference(a, b, seed).interval for seed in (0, 0, 1))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("compare", [mean_difference, ratio_of_means])
def test_unpaired_values_are_refused(compare: object) -> None:
    assert callable(compare)
    for a, b in (((2, 3), (3, 3)), ((2,), (2,)), ((0, 3), (0, 3))):
        with pytest.raises(InvalidInputError, match="same shape seeds x k"):
            compare(torch.zeros(a), torch.zeros(b))


def test_first_round_reaching() -> None:
    curve = torch.tensor([0.1, 0.4, 0.4, 0.9])
    assert first_round_reaching(curve, 0.4) == 1
    assert first_round_reaching(curve, 0.05) == 0
    assert first_round_reaching(curve, 0.91) is None
