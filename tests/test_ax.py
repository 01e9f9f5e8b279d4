import importlib
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("ax", reason="needs Ax: pip install 'torch_dpfts[ax]'")

from ax.adapter.registry import Generators
from ax.api.client import Client
from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig
from ax.core.parameter import FixedParameter, ParameterType
from ax.core.search_space import SearchSpace as AxSearchSpace
from ax.exceptions.core import UnsupportedError
from ax.generation_strategy.generation_node import GenerationNode
from ax.generation_strategy.generation_strategy import GenerationStrategy
from ax.generation_strategy.generator_spec import GeneratorSpec
from ax.generation_strategy.transition_criterion import MinTrials

from torch_dpfts import Broadcast, FederationSpec
from torch_dpfts.acquisition import (
    BroadcastPath,
    FederatedThompsonSampling,
    broadcast_to_text,
    input_constructor,
)
from torch_dpfts.acquisition.thompson import draw_coin
from torch_dpfts.ax import FederatedNode, federation_settings
from torch_dpfts.errors import FingerprintMismatchError, InvalidInputError
from torch_dpfts.regions import RegionGrid
from torch_dpfts.space import SearchSpace

RANGES = [
    RangeParameterConfig("rate", (1e-5, 1.0), "float", scaling="log"),
    RangeParameterConfig("layers", (1, 5), "int"),
]
CHOICE = ChoiceParameterConfig("optimiser", ["sgd", "adam", "lion"], "str", is_ordered=False)


def client(parameters: list[Any], objective: str = "-loss") -> Client:
    result = Client(random_seed=0)
    result.configure_experiment(name="site", parameters=parameters)
    result.configure_optimization(objective)
    return result


def settings(parameters: list[Any]) -> dict[str, Any]:
    return federation_settings(client(parameters)._experiment.search_space)


def spec_of(parameters: list[Any], **changes: Any) -> FederationSpec:
    return FederationSpec.fts(
        **settings(parameters), num_agents=3, num_rounds=9, local_probability="1-1/t", **changes
    )


def loss(parameters: dict[str, Any]) -> float:
    bad = parameters.get("optimiser", "adam") != "adam"
    return (math.log10(parameters["rate"]) + 2) ** 2 + abs(parameters["layers"] - 3) + 2 * bad


def run(site: Client, rounds: int, factor: float = 1.0, shift: float = 0.0) -> list[dict[str, Any]]:
    """Two trials at a time; returns their parameters."""
    seen = []
    for _ in range(rounds):
        trials = site.get_next_trials(max_trials=2)
        assert len(trials) == 2
        for index, parameters in trials.items():
            seen.append(dict(parameters))
            site.complete_trial(index, {"loss": factor * loss(seen[-1]) + shift})
    return seen


def with_node(node: FederatedNode, objective: str = "-loss") -> Client:
    site = client([*RANGES, CHOICE], objective)
    site.set_generation_strategy(GenerationStrategy(nodes=[node], name="federated"))
    return site


def node_of(site: Client) -> FederatedNode:
    (node,) = site._generation_strategy._nodes
    assert isinstance(node, FederatedNode)
    return node


def test_search_spaces_are_described() -> None:
    assert settings([*RANGES, CHOICE]) == {
        "bounds": ([1e-5, 1.0, 0.0], [1.0, 5.0, 2.0]),
        "log_dims": [0],
        "integer_dims": [1],
        "categorical_dims": [2],
    }
    fixed = AxSearchSpace([FixedParameter("x", ParameterType.FLOAT, 1.0)])
    with pytest.raises(UnsupportedError, match="'x' is neither a plain range nor a choice"):
        federation_settings(fixed)


def test_a_node_learns_is_saved_and_goes_on(tmp_path: Path) -> None:
    spec = spec_of([*RANGES, CHOICE])
    site = with_node(FederatedNode(spec, agent_id=1, seed=0))
    seen = run(site, 5)
    node = node_of(site)
    node.broadcast = Broadcast(spec.fingerprint, 2, node.contribute(1).vector.unsqueeze(0))
    site.save_to_json_file(str(tmp_path / "site.json"))
    again = Client.load_from_json_file(str(tmp_path / "site.json"))
    assert torch.equal(node_of(again).broadcast.vectors, node.broadcast.vectors)
    rest = run(site, 4)
    for one, other in zip(run(again, 4), rest, strict=True):
        assert one == other | {"rate": pytest.approx(other["rate"], rel=1e-3)}
    everything = seen + rest
    assert len({tuple(p.values()) for p in everything}) == len(everything)
    assert all(isinstance(p["layers"], int) for p in everything)
    best = min(everything, key=loss)
    assert loss(best) < 0.3
    assert best["optimiser"] == "adam"


def test_a_node_at_the_first_trial_lies_in_its_region() -> None:
    spec = FederationSpec.fts_de(**settings(RANGES), num_agents=8, num_rounds=9)
    for agent_id in range(4):
        site = client(RANGES)
        site.set_generation_strategy(GenerationStrategy(nodes=[FederatedNode(spec, agent_id, 0)]))
        for parameters in site.get_next_trials(2).values():
            x = torch.tensor([[parameters["rate"], parameters["layers"]]]).double()
            grid, space = RegionGrid(spec.region_grid), SearchSpace.from_spec(spec)
            assert int(grid.index(space.to_unit(x))) == agent_id


def test_a_node_does_not_try_a_point_next_to_an_old_one() -> None:
    plane = [RangeParameterConfig("rate", (1e-5, 1.0), "float", scaling="log"),
             RangeParameterConfig("width", (0.0, 100.0), "float")]  # fmt: skip
    spec = replace(spec_of(plane), local_probability="1-1/sqrt(t)")
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(1, 64, generator=generator, dtype=torch.float64)
    broadcast, space = Broadcast(spec.fingerprint, 1, vectors), SearchSpace.from_spec(spec)
    path = BroadcastPath.from_broadcast(spec, broadcast)
    lattice = torch.cartesian_prod(*[torch.linspace(0, 1, 401, dtype=torch.float64)] * 2)
    with torch.no_grad():
        best = lattice[path(space.from_unit(lattice)).argmax()]
    others = torch.rand(3, 2, generator=generator, dtype=torch.float64)
    tried = torch.cat([others, (best - 1e-3).clamp(0, 1)[None]])
    for seed in range(6):
        site = client(plane)
        node = FederatedNode(spec, 0, seed, broadcast, num_initial=1)
        site.set_generation_strategy(GenerationStrategy(nodes=[node]))
        for u in tried:
            rate, width = space.from_unit(u).tolist()
            index = site.attach_trial({"rate": rate, "width": width})
            site.complete_trial(index, {"loss": float((u - 0.5).square().sum())})
        (found,) = site.get_next_trials(1).values()
        x = torch.tensor([[found["rate"], found["width"]]], dtype=torch.float64)
        distances = (space.to_unit(x) - tried).abs().amax(-1)
        assert distances.amin() >= 5e-3, seed


def test_scale_and_direction_do_not_break_comparability() -> None:
    spec = spec_of([*RANGES, CHOICE])
    vectors = []
    for objective, factor in (("-loss", 1.0), ("-loss", 1000.0), ("loss", -0.1)):
        site = with_node(FederatedNode(spec, agent_id=1, seed=0), objective)
        run(site, 4, factor, shift=7.0)
        node_of(site).update_generator_state(site._experiment, site._experiment.lookup_data())
        vectors.append(node_of(site).contribute(1).vector)
    torch.testing.assert_close(vectors[1], vectors[0], atol=1e-6, rtol=0)
    torch.testing.assert_close(vectors[2], vectors[0], atol=1e-6, rtol=0)


def test_a_node_of_another_space_or_federation_is_refused() -> None:
    site = client(RANGES)
    other = spec_of([*RANGES, CHOICE])
    site.set_generation_strategy(GenerationStrategy(nodes=[FederatedNode(other, 0, seed=0)]))
    with pytest.raises(InvalidInputError, match="build the specification of federation_settings"):
        site.get_next_trials(1)
    with pytest.raises(FingerprintMismatchError, match="f00d"):
        FederatedNode(other, 0, broadcast=Broadcast("f00d", 1, torch.zeros(1, 64)))
    with pytest.raises(InvalidInputError, match="agent_id"):
        FederatedNode(other, 3)


def strategy(options: dict[str, Any]) -> GenerationStrategy:
    sobol = GenerationNode(
        name="Sobol",
        generator_specs=[
            GeneratorSpec(generator_enum=Generators.SOBOL, generator_kwargs={"seed": 0})
        ],
        transition_criteria=[
            MinTrials(threshold=6, transition_to="Federated", use_all_trials_in_exp=True)
        ],
    )
    arguments = {
        "botorch_acqf_class": FederatedThompsonSampling,
        "botorch_acqf_options": options,
    }
    federated = GenerationNode(
        name="Federated",
        generator_specs=[
            GeneratorSpec(generator_enum=Generators.BOTORCH_MODULAR, generator_kwargs=arguments)
        ],
    )
    return GenerationStrategy(nodes=[sobol, federated], name="modular")


def test_axs_own_models_take_the_acquisition_function(tmp_path: Path) -> None:
    spec = spec_of(RANGES)
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(1, 64, generator=generator, dtype=torch.float64)
    broadcast = Broadcast(spec.fingerprint, 9, vectors)
    # The seed of a strategy is fixed, so its coin is: here one that falls for the broadcast.
    seed = next(s for s in range(999) if draw_coin(s) > 0.9)
    options = {"spec": spec.to_json(), "broadcast": broadcast_to_text(broadcast), "seed": seed}
    site = client(RANGES)
    site.set_generation_strategy(strategy(options))
    run(site, 3)
    first, second = run(site, 1)
    path = BroadcastPath.from_broadcast(spec, broadcast)
    best = highest(path)
    assert first["layers"] == round(float(best[1]))
    assert math.log10(first["rate"]) == pytest.approx(math.log10(float(best[0])), abs=0.02)
    assert second != first
    site.save_to_json_file(str(tmp_path / "site.json"))
    again = Client.load_from_json_file(str(tmp_path / "site.json"))
    assert len(run(again, 1)) == 2


def highest(path: BroadcastPath) -> torch.Tensor:
    rates = torch.logspace(-5, 0, 2001, dtype=torch.float64)
    lattice = torch.cartesian_prod(rates, torch.arange(1.0, 6.0, dtype=torch.float64))
    with torch.no_grad():
        return lattice[path(lattice).argmax()]


def test_axs_own_models_without_a_broadcast() -> None:
    site = client([*RANGES, CHOICE])
    site.set_generation_strategy(strategy({"seed": 0}))
    seen = run(site, 8)
    assert len({tuple(p.values()) for p in seen}) == 16
    assert min(map(loss, seen[6:])) < min(map(loss, seen[:6]))


def test_importing_again_is_safe() -> None:
    importlib.reload(input_constructor)
    importlib.reload(importlib.import_module("torch_dpfts.ax"))
