import math
from dataclasses import replace

import pytest

from torch_dpfts.errors import InvalidInputError
from torch_dpfts.privacy import epsilon_spent, plan_noise, round_charge
from torch_dpfts.privacy.planning import SOLVABLE, default_delta

WHOLE = {
    "epsilon": 1.0,
    "delta": 1e-2,
    "num_agents": 29,
    "num_rounds": 20,
    "num_regions": 2,
    "sample_rate": 0.3,
    "noise_multiplier": 2.0,
}


def without(name, **changes):
    return {key: value for key, value in WHOLE.items() if key != name} | changes


def independent_cost(plan):
    spec = plan.spec()
    history = [(*round_charge(spec, t), 1) for t in range(1, plan.num_rounds + 1)]
    return epsilon_spent(history, plan.delta, plan.method)


@pytest.mark.parametrize("name", SOLVABLE)
def test_solution_keeps_epsilon_and_costs_what_it_says(name):
    plan = plan_noise(**without(name, noise_multiplier=1.5) if name == "delta" else without(name))
    assert plan.solved_for == name
    assert plan.epsilon == pytest.approx(independent_cost(plan), rel=1e-9)
    if name != "epsilon":
        assert plan.epsilon <= WHOLE["epsilon"]


@pytest.mark.parametrize(
    ("name", "worse"),
    [
        ("noise_multiplier", lambda z: 0.99 * z),
        ("sample_rate", lambda q: 1.01 * q),
        ("num_rounds", lambda rounds: rounds + 1),
        ("delta", lambda delta: 0.9 * delta),
    ],
)
def test_solution_is_the_best_one(name, worse):
    plan = plan_noise(**without(name, noise_multiplier=1.5) if name == "delta" else without(name))
    beyond = replace(plan, **{name: worse(getattr(plan, name))})
    assert independent_cost(beyond) > WHOLE["epsilon"]


def test_fewest_regions():
    needed = plan_noise(**without("epsilon", num_regions=3)).epsilon
    plan = plan_noise(**without("num_regions", epsilon=needed))
    assert plan.num_regions == 3


def test_fewest_agents_for_a_signal():
    plan = plan_noise(**without("num_agents"), target_signal_to_noise=0.5)
    assert plan.signal_to_noise() >= 0.5
    assert replace(plan, num_agents=plan.num_agents - 1).signal_to_noise() < 0.5


def test_defaults():
    plan = plan_noise(epsilon=1.0, num_agents=29, num_rounds=5, sample_rate=0.3)
    assert plan.delta == default_delta(29) == 29**-1.1
    assert plan.num_regions == 1
    assert plan.solved_for == "noise_multiplier"
    assert plan.spec().delta == plan.delta


def test_everything_is_allowed_at_a_large_budget():
    assert plan_noise(**without("sample_rate", epsilon=50.0)).sample_rate == 1.0
    assert plan_noise(**without("num_regions", epsilon=50.0)).num_regions == 1


def test_paper_sensitivity_costs_more():
    exact = plan_noise(**without("epsilon"))
    assert plan_noise(**without("epsilon"), sensitivity="paper").epsilon > exact.epsilon


def test_verdicts():
    noise = plan_noise(epsilon=1.0, num_agents=29, num_rounds=60, sample_rate=0.35)
    assert noise.verdict.startswith("noise")
    assert replace(noise, num_agents=60).verdict.startswith("weak")
    assert replace(noise, num_agents=1000).verdict.startswith("signal")


def test_alternatives_keep_epsilon():
    plan = plan_noise(**without("noise_multiplier", num_rounds=4), method="rdp")
    options = dict(plan.alternatives())
    assert set(options) == {"P = 1", "M / 4", "T / 2", "q = 1", "4 N", "16 N", "3 epsilon"}
    for name, option in options.items():
        target = 3.0 if name == "3 epsilon" else 1.0
        assert 0.99 * target <= option.epsilon <= target
    assert options["16 N"].signal_to_noise() > 10 * plan.signal_to_noise()


def test_alternatives_follow_the_default_delta():
    plan = plan_noise(epsilon=1.0, num_agents=29, num_rounds=4, sample_rate=0.3, method="rdp")
    assert dict(plan.alternatives())["4 N"].delta == default_delta(4 * 29)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (without("num_rounds", noise_multiplier=0.1), "a single round"),
        (without("num_regions", num_rounds=80, method="rdp"), "with 29 regions it is still"),
        (without("delta", noise_multiplier=0.1), "even there"),
        (without("sample_rate", noise_multiplier=0.02, delta=1e-9), "one in a million"),
        (without("num_agents", noise_multiplier=0.5), "whatever their number"),
        (without("num_agents", num_features=10**11), "not even"),
        (without("noise_multiplier", delta=1e-5, epsilon=1e-3, method="moments"), "accountant"),
    ],
)
def test_impossible_requests_say_why(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        plan_noise(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (WHOLE, "Exactly one"),
        ({}, "Exactly one"),
        (without("epsilon", num_agents=None), "Exactly one"),
        (without("noise_multiplier", epsilon=0.0), "epsilon"),
        (without("noise_multiplier", epsilon=math.nan), "epsilon"),
        (without("noise_multiplier", delta=1.0), "delta"),
        (without("noise_multiplier", num_agents=0), "num_agents"),
        (without("noise_multiplier", num_rounds=1.5), "num_rounds"),
        (without("noise_multiplier", num_regions=0), "num_regions"),
        (without("noise_multiplier", sample_rate=1.5), "sample_rate"),
        (without("epsilon", noise_multiplier=-1.0), "noise_multiplier"),
        (without("epsilon", num_features=0), "num_features"),
        (without("epsilon", clip_norm=math.inf), "clip_norm"),
        (without("epsilon", message_norm=0.0), "message_norm"),
        (without("epsilon", target_signal_to_noise=math.nan), "target_signal_to_noise"),
        (without("epsilon", sensitivity="none"), "sensitivity"),
        (without("epsilon", method="gdp"), "method"),
    ],
)
def test_bad_requests_are_refused(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        plan_noise(**arguments)
