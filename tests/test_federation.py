import math
from typing import Any

import pytest
import torch
from torch import Tensor

from torch_dpfts import (
    Agent,
    Broadcast,
    Contribution,
    FederationSpec,
    Server,
    run_federation,
    run_federations,
)
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.federation import Objective

PRIVATE = {"sample_rate": 0.5, "noise_multiplier": 1.0, "clip_norm": 4.0}
SETTINGS = {
    "bounds": ((0.0, -1.0), (2.0, 1.0)),
    "num_agents": 5,
    "num_rounds": 6,
    "num_features": 16,
    "local_probability": "1-1/t",
}


def objective(X: Tensor, agent_ids: Tensor) -> Tensor:
    shift = 0.05 * agent_ids.to(X)[:, None, None]
    return -(X - 0.3 - shift).square().sum(-1, keepdim=True)


def queries(spec: FederationSpec, seed: int = 0) -> Tensor:
    return run_federation(spec, objective, seed, num_initial=3, progress=False).X


def spec(arm: str, **changes: Any) -> FederationSpec:
    return FederationSpec.dp_fts_de(**(SETTINGS | PRIVATE | changes)).arm(arm)


def test_full_participation_without_noise_and_clipping_is_fts_de() -> None:
    limit = {"sample_rate": 1.0, "noise_multiplier": 0.0, "clip_norm": math.inf}
    assert torch.equal(queries(spec("dp-fts-de", **limit)), queries(spec("fts-de")))


def test_one_region_is_dp_fts() -> None:
    assert torch.equal(queries(spec("dp-fts-de", num_regions=1)), queries(spec("dp-fts")))


def test_agents_that_never_listen_are_ts() -> None:
    deaf = spec("dp-fts-de", local_probability="1")
    ts = FederationSpec.ts(**(SETTINGS | {"num_regions": 4, "local_probability": "1"}))
    assert torch.equal(queries(deaf), queries(ts))
    assert torch.equal(queries(spec("dp-fts", local_probability="1")), queries(spec("ts")))


def test_sharing_changes_the_queries() -> None:
    runs = [queries(spec(arm, num_regions=1)) for arm in ("ts", "fts", "dp-fts", "noise")]
    for i, one in enumerate(runs):
        assert torch.equal(one[:, :3], runs[0][:, :3])
        assert not any(torch.equal(one, other) for other in runs[:i])


def test_it_is_the_loop_that_a_user_would_write() -> None:
    federation = spec("dp-fts-de", message="sample")
    result = run_federation(federation, objective, 3, num_initial=3, progress=False)
    server = Server(federation, seed=3)
    agents = [Agent(federation, n, seed=3) for n in range(5)]
    for agent in agents:
        X = agent.initial_points(3)
        agent.observe(X, objective(X[None], torch.tensor([agent.agent_id]))[0])
    for round in range(1, 7):
        broadcast = server.round([agent.contribute(round) for agent in agents])
        for agent in agents:
            x = agent.suggest(broadcast)
            agent.observe(x, objective(x[None], torch.tensor([agent.agent_id]))[0])
    for agent, X, Y in zip(agents, result.X, result.Y, strict=True):
        # The same draws; rounding differs between a batch and a single agent.
        torch.testing.assert_close(agent.X, X, atol=1e-5, rtol=0)
        torch.testing.assert_close(agent.Y, Y, atol=1e-5, rtol=0)
    assert server.epsilon() == result.epsilon


def test_it_rounds_messages_as_the_wire_does() -> None:
    coarse = spec("dp-fts-de", wire_dtype="float16", averaging=0.5)
    server = Server(coarse, seed=3)
    agents = [Agent(coarse, n, seed=3) for n in range(5)]
    for agent in agents:
        X = agent.initial_points(3)
        agent.observe(X, objective(X[None], torch.tensor([agent.agent_id]))[0])
    for round in range(1, 7):
        sent = [agent.contribute(round).to_bytes() for agent in agents]
        received = server.round(map(Contribution.from_bytes, sent)).to_bytes()
        for agent in agents:
            x = agent.suggest(Broadcast.from_bytes(received))
            agent.observe(x, objective(x[None], torch.tensor([agent.agent_id]))[0])
    X = queries(coarse, 3)
    torch.testing.assert_close(torch.stack([agent.X for agent in agents]), X, atol=1e-5, rtol=0)
    exact = queries(spec("dp-fts-de", averaging=0.5), 3)
    assert X.dtype == exact.dtype
    assert 1e-5 < (X - exact).abs().max() < 1e-2


def test_runs_in_one_batch_are_single_runs() -> None:
    both = run_federations(spec("dp-fts-de"), objective, [4, 9], num_initial=3, progress=False)
    assert [result.seed for result in both] == [4, 9]
    for result in both:
        torch.testing.assert_close(
            result.X, queries(spec("dp-fts-de"), result.seed), atol=1e-5, rtol=0
        )


def test_the_result() -> None:
    rounds: list[int] = []
    result = run_federation(spec("dp-fts-de"), objective, num_initial=3, progress=rounds.append)
    assert rounds == [1, 2, 3, 4, 5, 6]
    assert result.X.shape == (5, 9, 2)
    assert result.best_values.shape == (7, 5)
    assert torch.equal(result.best_values[0], result.Y[:, :3, 0].amax(-1))
    assert torch.equal(result.best_values[-1], result.Y[..., 0].amax(-1))
    assert (result.privacy, result.stopped_by_budget) == ("seeded: not private", False)
    assert 0 < result.epsilon < math.inf


def test_epsilon_of_the_arms_without_noise() -> None:
    epsilon = {
        arm: run_federation(spec(arm), objective, num_initial=3, progress=False).epsilon
        for arm in ("ts", "fts-de")
    }
    assert epsilon == {"ts": 0.0, "fts-de": math.inf}


def test_the_budget_ends_a_run_before_it_is_exceeded() -> None:
    full = run_federation(spec("dp-fts-de"), objective, num_initial=3, progress=False)
    target = 0.8 * full.epsilon
    result = run_federation(
        spec("dp-fts-de", target_epsilon=target), objective, num_initial=3, progress=False
    )
    assert result.stopped_by_budget
    assert result.epsilon <= target
    done = result.X.shape[1] - 3
    assert 0 < done < 6
    one_more = run_federation(
        spec("dp-fts-de", num_rounds=done + 1), objective, num_initial=3, progress=False
    )
    assert one_more.epsilon > target


def test_the_global_generator_is_left_alone_and_seeds_repeat() -> None:
    state = torch.random.get_rng_state()
    assert torch.equal(queries(spec("dp-fts-de"), 7), queries(spec("dp-fts-de"), 7))
    assert not torch.equal(queries(spec("dp-fts-de"), 7), queries(spec("dp-fts-de"), 8))
    assert torch.equal(state, torch.random.get_rng_state())


def test_bad_arguments() -> None:
    def flat(X: Tensor, agent_ids: Tensor) -> Tensor:
        return X.sum(-1)

    def broken(X: Tensor, agent_ids: Tensor) -> Tensor:
        return X[..., :1] / 0.0

    with pytest.raises(InvalidInputError, match=r"shape \(5, 3, 1\), got \(5, 3\)"):
        run_federation(spec("ts"), flat, num_initial=3, progress=False)
    with pytest.raises(InvalidInputError, match="The objective's outcomes must be finite"):
        run_federation(spec("ts"), broken, num_initial=3, progress=False)
    with pytest.raises(InvalidInputError, match="num_initial must be at least 1, got 0"):
        run_federation(spec("ts"), objective, num_initial=0)
    with pytest.raises(InvalidInputError, match="seed must be"):
        run_federation(spec("ts"), objective, seed=-1)


def test_few_rounds_with_small_cohorts() -> None:
    small = spec("dp-fts-de", sample_rate=0.05, num_rounds=20)
    assert queries(small).isfinite().all()


def test_contributions_are_what_the_server_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Contribution] = []
    original = Server.round

    def spy(self: Server, contributions: Any) -> Any:
        seen.extend(messages := list(contributions))
        return original(self, messages)

    monkeypatch.setattr(Server, "round", spy)
    queries(spec("noise"))
    assert len(seen) == 5 * 6
    assert all(message.vector.abs().max() == 0 for message in seen)


def test_each_seed_may_have_an_objective_of_its_own() -> None:
    def shifted(by: float) -> Objective:
        return lambda X, agent_ids: -(X - by).square().sum(-1, keepdim=True)

    spec = FederationSpec.fts(bounds=[[0.0], [1.0]], num_agents=3, num_rounds=2)
    both = run_federations(spec, [shifted(0.2), shifted(0.7)], [4, 5], progress=False)
    for by, seed, together in ((0.2, 4, both[0]), (0.7, 5, both[1])):
        alone = run_federation(spec, shifted(by), seed, progress=False)
        torch.testing.assert_close(alone.X, together.X, atol=1e-6, rtol=0)
        torch.testing.assert_close(alone.Y, together.Y, atol=1e-6, rtol=0)
    with pytest.raises(InvalidInputError, match="one for each of 2 seeds, got 1"):
        run_federations(spec, [shifted(0.2)], [4, 5], progress=False)
