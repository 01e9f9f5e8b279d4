import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from botorch.utils.transforms import standardize
from torch import Tensor

from torch_dpfts import Agent, Broadcast, FederationSpec
from torch_dpfts.acquisition import FederatedThompsonSampling, optimize_acqf_per_region
from torch_dpfts.errors import (
    FingerprintMismatchError,
    InvalidInputError,
    MessageError,
    StateError,
)
from torch_dpfts.features import SharedFeatures
from torch_dpfts.posterior import weight_mean
from torch_dpfts.regions import RegionGrid
from torch_dpfts.rng import derived_seed

BOUNDS = torch.tensor([[200.0, -1.0], [8000.0, 1.0]], dtype=torch.float64)


def make(**changes: Any) -> FederationSpec:
    settings = {"bounds": BOUNDS, "num_agents": 8, "num_rounds": 9, "num_features": 16}
    return FederationSpec.fts_de(**(settings | changes))


def objective(X: Tensor) -> Tensor:
    unit = (X - BOUNDS[0]) / (BOUNDS[1] - BOUNDS[0])
    return -(unit - 0.3).square().sum(-1, keepdim=True)


def trained(spec: FederationSpec | None = None, n: int = 6, seed: int = 0) -> Agent:
    agent = Agent(spec or make(), agent_id=3, seed=seed)
    X = agent.initial_points(n)
    agent.observe(X, objective(X))
    return agent


def broadcast(spec: FederationSpec, round: int = 1) -> Broadcast:
    generator = torch.Generator().manual_seed(round)
    vectors = torch.randn(
        spec.num_regions, spec.num_features, generator=generator, dtype=spec.torch_dtype
    )
    return Broadcast(spec.fingerprint, round, vectors)


def unit(X: Tensor) -> Tensor:
    return (X - BOUNDS[0]) / (BOUNDS[1] - BOUNDS[0])


def test_initial_points_lie_in_the_own_region() -> None:
    grid = RegionGrid((2, 2))
    for agent_id in range(8):
        X = Agent(make(), agent_id, seed=0).initial_points(50)
        assert X.shape == (50, 2)
        assert set(grid.index(unit(X)).tolist()) == {agent_id % 4}


def test_asking_twice_gives_the_same_point_and_telling_moves_on() -> None:
    agent = trained()
    first, again = agent.suggest(), agent.suggest()
    assert first.shape == (1, 2)
    assert torch.equal(first, again)
    agent.observe(first, objective(first))
    assert not torch.equal(agent.suggest(), first)
    assert len(agent.X) == len(agent.Y) == 7


def test_without_data_it_starts_in_its_region() -> None:
    agent = Agent(make(), agent_id=2, seed=0)
    assert int(RegionGrid((2, 2)).index(unit(agent.suggest()))) == 2
    assert agent.contribute(round=1).vector.abs().max() == 0.0
    with pytest.raises(InvalidInputError, match="at least 1 observation, got 0"):
        _ = agent.model


@pytest.mark.parametrize("local_probability", ["1-1/t", "1"])
def test_suggestions_are_those_of_the_acquisition_function(local_probability: str) -> None:
    """The long way round: BoTorch model, acquisition function, optimiser."""
    spec = make(local_probability=local_probability)
    agent = trained(spec)
    for round in range(1, 6):
        message = broadcast(spec, round)
        seed = derived_seed(agent._fleet.seeds[0], "suggest", len(agent.X))
        acqf = FederatedThompsonSampling(agent.model, spec, message, seed=seed)
        x, _ = optimize_acqf_per_region(acqf, BOUNDS, seed=seed)
        if not acqf.follows_broadcast():
            acqf = FederatedThompsonSampling(agent.model, seed=seed)
            for draw in range(1, 6):
                if (unit(x) - unit(agent.X)).abs().amax(-1).min() >= 5e-3:
                    break
                acqf.set_X_pending(BOUNDS[:1].repeat(draw, 1))
                x, _ = optimize_acqf_per_region(acqf, BOUNDS, seed=seed)
        torch.testing.assert_close(agent.suggest(message), x, atol=1e-3, rtol=1e-4)
        agent.observe(x, objective(x))


def test_repeats_are_rare() -> None:
    """On a noiseless function Thompson sampling by itself returns to the best point again."""
    agent = trained(n=4)
    for _ in range(25):
        x = agent.suggest()
        agent.observe(x, objective(x))
    X = unit(agent.X)
    gaps = torch.stack([(X[i] - X[:i]).abs().amax(-1).min() for i in range(4, len(X))])
    assert (gaps < 5e-3).sum() <= 5


def test_in_many_dimensions_it_is_the_acquisition_function_too() -> None:
    bounds = torch.tensor([[-1.0] * 5, [3.0] * 5], dtype=torch.float64)
    agent = Agent(FederationSpec.ts(bounds=bounds, num_agents=1, num_rounds=1), 0, seed=0)
    X = agent.initial_points(12)
    agent.observe(X, -(X - 0.3).square().sum(-1, keepdim=True))
    seed = derived_seed(agent._fleet.seeds[0], "suggest", 12)
    acqf = FederatedThompsonSampling(agent.model, seed=seed)
    assert acqf.incumbents().shape == (3, 5)
    torch.testing.assert_close(
        agent.suggest(), optimize_acqf_per_region(acqf, bounds, seed=seed)[0]
    )


def test_a_mean_message_is_the_posterior_mean() -> None:
    agent = trained()
    spec = agent.spec
    message = agent.contribute(round=4)
    assert (message.agent_id, message.round, message.fingerprint) == (3, 4, spec.fingerprint)
    phi = SharedFeatures.from_spec(spec)(unit(agent.X))
    expected = weight_mean(phi, standardize(agent.Y).squeeze(-1), spec.noise_variance)
    torch.testing.assert_close(message.vector, expected)


def test_a_sample_message_repeats_within_a_round_and_changes_between_rounds() -> None:
    agent = trained(make(message="sample"))
    one, again, two = (agent.contribute(round=t).vector for t in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, two)


@pytest.mark.parametrize("message", ["zero", "none"])
def test_the_control_sends_zero(message: str) -> None:
    assert trained(make(message=message)).contribute(round=1).vector.abs().max() == 0.0


def test_rescaling_the_outcomes_changes_no_message() -> None:
    agent, scaled = trained(), Agent(make(), agent_id=3, seed=0)
    scaled.observe(agent.X, 1000 * agent.Y - 7)
    torch.testing.assert_close(scaled.contribute(1).vector, agent.contribute(1).vector)


@pytest.mark.parametrize("n", [1, 3])
def test_few_or_equal_outcomes(n: int) -> None:
    agent = Agent(make(), agent_id=0, seed=0)
    agent.observe(agent.initial_points(n), torch.full((n, 1), 0.7, dtype=torch.float64))
    assert agent.suggest().isfinite().all()
    assert agent.contribute(round=1).vector.abs().max() < 1e-12


def test_near_repeats_in_float32() -> None:
    agent = Agent(make(dtype="float32"), agent_id=0, seed=0)
    X = agent.initial_points(12)
    X[6:] = X[5] + 1e-7 * torch.arange(6).unsqueeze(-1)
    agent.observe(X, objective(X).float())
    x = agent.suggest()
    assert x.dtype == torch.float32
    assert x.isfinite().all()


def test_other_dtypes_are_converted_at_the_boundary() -> None:
    agent = Agent(make(), agent_id=0, seed=0)
    X = agent.initial_points(4).float()
    agent.observe(X, objective(X.double()).float())
    assert agent.X.dtype == agent.Y.dtype == torch.float64


Z = torch.zeros(1, 1)
X1 = torch.tensor([[300.0, 0.0]])


@pytest.mark.parametrize(
    ("X", "Y", "message"),
    [
        (
            torch.full((3, 2), 300.0),
            torch.tensor([[0.1], [torch.inf], [torch.nan]]),
            "Y must be fin",
        ),
        (torch.tensor([[300.0, torch.nan]]), Z, r"X must be finite, got nan at index \(0, 1\)"),
        (torch.zeros(1, 3), Z, r"X must be a tensor of shape n x 2, got \(1, 3\)"),
        (torch.zeros(2), Z, r"X must be a tensor of shape n x 2, got \(2,\)"),
        (X1, torch.zeros(1), r"Y must be a tensor of shape n x 1, got \(1,\)"),
        (X1, torch.zeros(2, 1), "equally many rows, got 1 and 2"),
        (torch.tensor([[300.0, 1.5]]), Z, r"X\[0, 1\] = 1.5 lies outside the bounds \[-1.0, 1.0\]"),
        ([[300.0, 0.0]], Z, "X must be a tensor of shape n x 2, got list"),
    ],
)
def test_bad_observations_change_nothing(X: Tensor, Y: Tensor, message: str) -> None:
    agent = trained()
    before = (agent.X.clone(), agent.Y.clone(), agent.suggest())
    with pytest.raises(InvalidInputError, match=message):
        agent.observe(X, Y)
    for old, new in zip(before, (agent.X, agent.Y, agent.suggest()), strict=True):
        assert torch.equal(old, new)


@pytest.mark.parametrize("agent_id", [-1, 8, 2.0, None])
def test_bad_places_on_the_roster(agent_id: Any) -> None:
    with pytest.raises(InvalidInputError, match="agent_id must be"):
        Agent(make(), agent_id)


def test_bad_broadcasts_are_refused() -> None:
    agent = trained()
    good = broadcast(agent.spec)
    with pytest.raises(FingerprintMismatchError, match=f"f00d.*{agent.spec.fingerprint}"):
        agent.suggest(Broadcast("f00d", 1, good.vectors))
    for vectors in (good.vectors[:3], good.vectors[:, :4], good.vectors / 0.0):
        with pytest.raises(MessageError, match=r"finite vectors of shape \(4, 16\)"):
            agent.suggest(Broadcast(good.fingerprint, 1, vectors))


@pytest.mark.parametrize("value", [0, -2, 1.5])
def test_bad_rounds_and_counts(value: Any) -> None:
    with pytest.raises(InvalidInputError, match="round must be"):
        trained().contribute(value)
    with pytest.raises(InvalidInputError, match="n must be"):
        trained().initial_points(value)


def test_a_loaded_agent_goes_on_in_another_process(tmp_path: Path) -> None:
    spec = make(message="sample")
    agent = trained(spec)
    path = tmp_path / "agent.json"
    agent.save(path)
    program = (
        "import sys, json\n"
        "from torch_dpfts import Agent, Broadcast\n"
        "agent = Agent.load(sys.argv[1])\n"
        "message = Broadcast.from_bytes(open(sys.argv[2], 'rb').read())\n"
        "print(json.dumps([agent.suggest(message).tolist(), agent.suggest().tolist(),"
        " agent.contribute(2).vector.tolist()]))\n"
    )
    message = broadcast(spec)
    (tmp_path / "broadcast").write_bytes(message.to_bytes())
    output = subprocess.run(
        [sys.executable, "-c", program, path, tmp_path / "broadcast"],
        capture_output=True, text=True, check=True, timeout=120,
    ).stdout  # fmt: skip
    assert json.loads(output) == [
        agent.suggest(message).tolist(),
        agent.suggest().tolist(),
        agent.contribute(2).vector.tolist(),
    ]


def test_a_loaded_agent_refits_when_the_old_one_would(tmp_path: Path) -> None:
    agent = trained(n=10)
    agent.save(tmp_path / "agent.json")
    other = Agent.load(tmp_path / "agent.json")
    for _ in range(4):
        x = agent.suggest()
        assert torch.equal(x, other.suggest())
        for each in (agent, other):
            each.observe(x, objective(x))
    empty = Agent(make(), 1, seed=0)
    empty.save(tmp_path / "agent.json")
    assert torch.equal(Agent.load(tmp_path / "agent.json").suggest(), empty.suggest())


def test_damaged_state_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="No saved state"):
        Agent.load(tmp_path / "nothing")
    path = tmp_path / "agent.json"
    trained().save(path)
    whole = path.read_text()
    state = json.loads(whole)
    for text in (
        whole[:-9],
        "[]",
        json.dumps(state | {"X": [[1.0]]}),
        json.dumps({k: v for k, v in state.items() if k != "Y"}),
        json.dumps(state | {"agent_id": 99}),
    ):
        path.write_text(text)
        with pytest.raises(StateError, match="damaged"):
            Agent.load(path)


def test_seeds_and_the_global_generator() -> None:
    state = torch.random.get_rng_state()
    assert torch.equal(trained(seed=7).suggest(), trained(seed=7).suggest())
    assert not torch.equal(trained(seed=7).suggest(), trained(seed=8).suggest())
    assert not torch.equal(Agent(make(), 0).initial_points(3), Agent(make(), 0).initial_points(3))
    assert torch.equal(state, torch.random.get_rng_state())
