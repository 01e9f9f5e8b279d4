import numpy as np
from scipy import stats

from torch_dpfts.privacy import exact_gaussian

# The entropy of the operating system cannot be seeded, so every test below has a fixed
# probability of a false alarm: 1e-9 or less each.
ALPHA = 1e-9


def test_draws_are_standard_normal():
    draws = exact_gaussian.floored_normal(400_000, 48) * 2.0**-48
    assert stats.kstest(draws, "norm").pvalue > ALPHA


def test_every_cell_of_a_coarse_grid_has_its_exact_probability():
    bits, count = 2, 400_000
    draws = exact_gaussian.floored_normal(count, bits)
    edges = np.arange(-14, 15)
    expected = np.diff(stats.norm.cdf(np.concatenate([[-np.inf], edges / 2**bits, [np.inf]])))
    observed = np.bincount(np.searchsorted(edges, draws, side="right"), minlength=expected.size)
    assert stats.chisquare(observed, expected * count).pvalue > ALPHA


def test_low_bits_are_fair_coins():
    count = 200_000
    draws = exact_gaussian.floored_normal(count, 48)
    for bit in (0, 1, 7, 24, 40):
        ones = int(((draws >> bit) & 1).sum())
        assert stats.binomtest(ones, count).pvalue > ALPHA


def test_signs_and_sizes():
    draws = exact_gaussian.floored_normal(100_000, 48)
    assert stats.binomtest(int((draws < 0).sum()), draws.size).pvalue > ALPHA
    assert abs(draws).max() < 2**53  # exact in a double


def test_counts():
    assert exact_gaussian.floored_normal(0, 48).shape == (0,)
    assert exact_gaussian.floored_normal(1, 48).shape == (1,)


def test_ties_are_broken_by_a_fair_coin():
    same = np.full(100_000, 2**63, dtype=np.uint64)
    below = int(exact_gaussian._below(same, same).sum())
    assert stats.binomtest(below, same.size).pvalue > ALPHA


def test_probability_of_exp_minus():
    count = 200_000
    for chance in (0.0, 0.3, 1.0):
        threshold = np.uint64(int(chance * 2**63))

        def event(at, threshold=threshold):
            return (exact_gaussian.words(at.size) >> np.uint64(1)) < threshold

        successes = int(exact_gaussian._exp_minus(count, event).sum())
        assert stats.binomtest(successes, count, np.exp(-chance)).pvalue > ALPHA
