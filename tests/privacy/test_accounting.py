import math
import time
from collections import Counter

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from scipy import optimize, stats

from torch_dpfts.errors import InvalidInputError
from torch_dpfts.privacy import epsilon_spent, round_charge
from torch_dpfts.spec import FederationSpec

DELTA = 29**-1.1
METHODS = ("pld", "rdp", "prv", "moments")
# sample rate, noise multiplier, published epsilon, epsilon with the exact sensitivity
PUBLISHED = [
    (0.35, 1.0, 15.17, 6.21),
    (0.35, 1.6, 7.12, 2.84),
    (0.35, 2.0, 5.14, 2.01),
    (0.35, 3.0, 3.05, 1.09),
    (0.35, 4.0, 2.16, 0.70),
    (0.25, 1.0, 9.82, 4.01),
    (0.20, 1.0, 7.69, 3.00),
    (0.15, 1.0, 5.98, 2.06),
    (0.10, 1.0, 3.75, 1.20),
]


def composed_event(history):
    counts = Counter()
    for z, q, rounds in history:
        counts[z, q] += rounds
    return dp_event.ComposedDpEvent(
        [
            dp_event.SelfComposedDpEvent(
                dp_event.PoissonSampledDpEvent(q, dp_event.GaussianDpEvent(z)), rounds
            )
            for (z, q), rounds in counts.items()
        ]
    )


def independent_epsilon(history, delta, interval=1e-3):
    accountant = PLDAccountant(value_discretization_interval=interval)
    return accountant.compose(composed_event(history)).get_epsilon(delta)


def gaussian_epsilon(multiplier, rounds, delta):
    """The exact epsilon of composed Gaussian releases without sampling (Balle and Wang 2018)."""
    mu = math.sqrt(rounds) / multiplier

    def excess(epsilon):
        return (
            stats.norm.cdf(mu / 2 - epsilon / mu)
            - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)
            - delta
        )

    return optimize.brentq(excess, 0.0, 500.0)


@pytest.mark.parametrize(("rate", "multiplier", "published", "_"), PUBLISHED)
def test_published_figures(rate, multiplier, published, _):
    epsilon = epsilon_spent([(multiplier, rate, 60)], DELTA, "moments")
    assert round(epsilon, 2) == published


@pytest.mark.parametrize(("rate", "multiplier", "_", "exact"), PUBLISHED)
def test_exact_sensitivity(rate, multiplier, _, exact):
    spec = FederationSpec.dp_fts_de(
        bounds=[[0.0, 0.0], [1.0, 1.0]],
        num_agents=29,
        num_rounds=60,
        sample_rate=rate,
        noise_multiplier=multiplier,
        clip_norm=1.0,
    )
    history = [(*round_charge(spec, t), 1) for t in range(1, 61)]
    epsilon = epsilon_spent(history, spec.delta)
    assert epsilon == pytest.approx(exact, rel=0.01)
    assert epsilon == pytest.approx(independent_epsilon(history, DELTA), rel=1e-3)


HISTORIES = [
    [(1.0, 0.35, 60)],
    [(2.0, 0.35, 10), (1.0, 0.35, 50)],
    [(4.0, 0.1, 200), (2.0, 0.05, 100), (8.0, 0.5, 3)],
    [(0.7, 0.01, 500)],
    [(3.0, 1.0, 5), (3.0, 0.2, 20)],
    [(40.0, 0.1, 60)],
]


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-8])
def test_every_method_bounds_the_independent_value(history, delta):
    reference = independent_epsilon(history, delta, 1e-4 if history[0][0] > 10 else 1e-3)
    spent = {method: epsilon_spent(history, delta, method) for method in METHODS}
    # The grid of 1e-3 makes the reference an upper bound too, by up to 1e-3.
    assert spent["pld"] == pytest.approx(reference, rel=2e-3, abs=1e-3)
    for epsilon in spent.values():
        assert epsilon >= reference * (1 - 1e-4) - 1e-3
    assert spent["pld"] <= spent["rdp"] * (1 + 1e-9)
    assert spent["rdp"] <= spent["moments"] * (1 + 1e-9) or delta > 1e-3
    assert spent["prv"] <= 1.02 * spent["pld"]


@pytest.mark.parametrize("history", HISTORIES)
def test_rdp_equals_dp_accounting(history):
    accountant = RdpAccountant(orders=[float(order) for order in range(2, 200)])
    reference = accountant.compose(composed_event(history)).get_epsilon(1e-5)
    epsilon = epsilon_spent(history, 1e-5, "rdp")
    assert epsilon == pytest.approx(reference, rel=0.01)


@pytest.mark.parametrize("multiplier", [0.5, 1.0, 5.0, 100.0])
@pytest.mark.parametrize("rounds", [1, 60])
def test_without_sampling_it_is_the_analytic_gaussian(multiplier, rounds):
    exact = gaussian_epsilon(multiplier, rounds, 1e-5)
    for method in METHODS:
        assert epsilon_spent([(multiplier, 1.0, rounds)], 1e-5, method) >= exact * (1 - 1e-9)
    assert epsilon_spent([(multiplier, 1.0, rounds)], 1e-5) == pytest.approx(exact, rel=2e-3)


def test_small_epsilons_have_no_floor():
    assert epsilon_spent([(40.0, 0.1, 60)], 1e-5, "rdp") == pytest.approx(0.064, rel=0.01)
    assert epsilon_spent([(40.0, 0.1, 60)], 1e-5, "pld") == pytest.approx(0.0569, rel=0.01)
    assert epsilon_spent([(200.0, 0.1, 10)], 1e-5, "rdp") == pytest.approx(0.0040, rel=0.01)
    assert epsilon_spent([(200.0, 0.1, 10)], 1e-5, "pld") == pytest.approx(0.00334, rel=0.01)
    for method in ("rdp", "pld", "prv"):
        assert epsilon_spent([(1e4, 0.01, 1)], 1e-5, method) < 1e-4


def test_wide_orders_agree_with_dp_accounting():
    accountant = RdpAccountant(orders=[1448.0, 2048.0, 2896.0, 4096.0])
    history = [(200.0, 0.1, 10)]
    reference = accountant.compose(composed_event(history)).get_epsilon(1e-5)
    assert epsilon_spent(history, 1e-5, "rdp") == pytest.approx(reference, rel=1e-6)


@pytest.mark.parametrize("method", METHODS)
class TestEveryMethod:
    def test_nothing_released_costs_nothing(self, method):
        assert epsilon_spent([], 1e-5, method) == 0.0
        assert epsilon_spent([(1.0, 0.5, 0)], 1e-5, method) == 0.0
        assert epsilon_spent([(0.0, 0.5, 0)], 1e-5, method) == 0.0

    def test_no_noise_costs_everything(self, method):
        assert epsilon_spent([(0.0, 0.5, 1)], 1e-5, method) == math.inf
        assert epsilon_spent([(1.0, 0.5, 3), (1e-200, 0.5, 1)], 1e-5, method) == math.inf

    @pytest.mark.parametrize("rate", [0.5, 1.0])
    @pytest.mark.parametrize("multiplier", [1e-3, 1e-2, 0.1])
    def test_tiny_multipliers_return_a_bound_soon(self, method, multiplier, rate):
        start = time.monotonic()
        epsilon = epsilon_spent([(multiplier, rate, 60)], 1e-5, method)
        assert time.monotonic() - start < 60  # would otherwise hang
        assert epsilon > 60 / (2 * multiplier**2) * 0.9

    def test_figures_do_not_depend_on_order_or_on_how_rounds_are_told(self, method):
        told = [(1.0, 0.35, 2), (2.0, 0.35, 1)]
        again = [(1.0, 0.35, 1), (2.0, 0.35, 1), (1.0, 0.35, 1)]
        assert epsilon_spent(told, 1e-3, method) == epsilon_spent(again, 1e-3, method)

    def test_history_may_be_a_generator_and_is_left_alone(self, method):
        history = [(1.0, 0.35, 2), (2.0, 0.35, 1)]
        assert epsilon_spent(iter(history), 1e-3, method) > 0
        assert history == [(1.0, 0.35, 2), (2.0, 0.35, 1)]

    def test_very_many_different_rounds(self, method):
        multipliers = np.random.default_rng(0).uniform(4.0, 8.0, 10_000)
        history = [(z, 0.02, 1) for z in multipliers]
        epsilon = epsilon_spent(history, 1e-5, method)
        assert epsilon >= epsilon_spent([(8.0, 0.02, 10_000)], 1e-5)
        assert epsilon <= epsilon_spent([(4.0, 0.02, 10_000)], 1e-5, "moments")


def test_more_rounds_never_cost_less():
    multipliers = np.random.default_rng(1).uniform(2.0, 4.0, 60)
    history = [(z, 0.3, 1) for z in multipliers]
    spent = [epsilon_spent(history[:n], 1e-3) for n in (0, 1, 5, 31, 32, 33, 34, 36, 50, 60)]
    assert spent == sorted(spent)


BAD = [math.nan, math.inf, -1.0, "1", None]


@pytest.mark.parametrize("method", METHODS)
def test_bad_input_is_refused(method):
    for value in BAD:
        with pytest.raises(InvalidInputError, match="noise_multiplier"):
            epsilon_spent([(value, 0.5, 1)], 1e-5, method)
    for value in [*BAD, 0.0, 1.5]:
        with pytest.raises(InvalidInputError, match="sample_rate"):
            epsilon_spent([(1.0, value, 1)], 1e-5, method)
    for value in [*BAD, 0.0, 1.0, 1.5]:
        with pytest.raises(InvalidInputError, match="delta"):
            epsilon_spent([(1.0, 0.5, 1)], value, method)
    for value in [math.nan, -1, 1.5, "1", None]:
        with pytest.raises(InvalidInputError, match="num_rounds"):
            epsilon_spent([(1.0, 0.5, value)], 1e-5, method)
    for entry in [(1.0, 0.5), 1.0, None]:
        with pytest.raises(InvalidInputError, match="history"):
            epsilon_spent([entry], 1e-5, method)


@pytest.mark.parametrize("method", ["gdp", "PLD", None, ["pld"]])
def test_unknown_methods_are_refused(method):
    with pytest.raises(InvalidInputError, match="method"):
        epsilon_spent([], 1e-5, method)
