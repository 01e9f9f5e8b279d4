import numpy as np

from torch_dpfts.privacy.grouping import grouped


def random_charges(count, seed=0):
    generator = np.random.default_rng(seed)
    multipliers = 10 ** generator.uniform(-3, 3, count)
    rates = 10 ** generator.uniform(-4, 0, count)
    rounds = 1 + np.arange(count) % 3
    return list(zip(multipliers.tolist(), rates.tolist(), rounds.tolist(), strict=True))


def test_few_charges_are_kept_exactly():
    charges = [(1.0, 0.5, 1), (1.5, 0.5, 1), (1.0, 0.5, 2)]
    assert grouped(charges, 2) == ((1.0, 0.5, 3), (1.5, 0.5, 1))
    assert grouped([], 2) == ()


def test_rounding_is_to_costlier_charges_and_loses_no_round():
    for limit in (2, 10, 50):
        charges = random_charges(300)
        groups = grouped(charges, limit)
        assert len(groups) <= limit
        assert sum(g[2] for g in groups) == sum(c[2] for c in charges)
        # Every original charge is covered by one with a smaller multiplier and a larger rate.
        for z, q, _ in charges:
            assert any(lower <= z and q <= upper <= 1.0 for lower, upper, _ in groups)


def test_close_multipliers_are_rounded_little():
    charges = [(float(z), 0.35, 1) for z in np.linspace(1.0, 1.1, 500)]
    groups = grouped(charges, 32)
    assert len(groups) > 8
    steps = np.diff([z for z, _, _ in groups])
    assert steps.max() < 0.01
