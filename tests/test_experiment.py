import math

import pytest
import torch
from torch import Tensor

from torch_dpfts import FederationSpec, run_federation
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.experiment import planned_epsilon, run_arms
from torch_dpfts.privacy import epsilon_spent, round_charge

SPEC = FederationSpec.dp_fts_de(
    bounds=((0.0, 0.0), (1.0, 1.0)), num_agents=3, num_rounds=2, num_features=8,
    sample_rate=0.5, noise_multiplier=1.0, clip_norm=3.0,
)  # fmt: skip


def bowl(X: Tensor, agent_ids: Tensor) -> Tensor:
    return -(X - 0.3).square().sum(-1, keepdim=True)


def broken(X: Tensor, agent_ids: Tensor) -> Tensor:
    raise RuntimeError("the objective failed")


def test_arms_are_the_runs_of_one_process() -> None:
    rounds: list[str] = []
    results = run_arms(
        SPEC, bowl, ["ts", "dp-fts-de"], [0, 1], num_initial=2, deltas=[1e-5], processes=2,
        on_round=rounds.append,
    )  # fmt: skip
    assert sorted(rounds) == ["dp-fts-de"] * 4 + ["ts"] * 4
    for name, arm in results.items():
        assert arm.spec == SPEC.arm(name)
        for seed in (0, 1):
            single = run_federation(SPEC.arm(name), bowl, seed, num_initial=2, progress=False)
            torch.testing.assert_close(arm.best_values[seed], single.best_values.mean(-1))
        torch.testing.assert_close(arm.mean, arm.best_values.mean(0))
        torch.testing.assert_close(arm.standard_error, arm.best_values.std(0) / math.sqrt(2))
    assert results["ts"].epsilon == {}
    assert list(results["dp-fts-de"].epsilon) == [SPEC.delta, 1e-5]


def test_a_failure_in_a_worker_is_raised_here() -> None:
    with pytest.raises(RuntimeError, match="the objective failed"):
        run_arms(SPEC, broken, ["ts"], [0, 1], processes=1)


def test_an_unknown_arm_is_refused_before_anything_runs() -> None:
    with pytest.raises(InvalidInputError, match="got 'best'"):
        run_arms(SPEC, bowl, ["ts", "best"], [0])


def test_planned_epsilon() -> None:
    history = [(*round_charge(SPEC, t), 1) for t in (1, 2)]
    expected = epsilon_spent(history, 1e-5, "pld")
    assert planned_epsilon(SPEC, [1e-5]) == {1e-5: expected}
    assert planned_epsilon(SPEC.arm("fts-de"), [1e-5]) == {}
