"""Everything computes where it is asked to: no tensor of ours is made on another device."""

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from torch_dpfts import FederationSpec, Fleet, Server, run_federation
from torch_dpfts.covariance import FactoredCovariance
from torch_dpfts.features import SharedFeatures
from torch_dpfts.fleet import agent_seed
from torch_dpfts.marginal import LogMarginalLikelihood
from torch_dpfts.posterior import weight_mean
from torch_dpfts.privacy import NoisyRegionAggregator
from torch_dpfts.regions import RegionGrid
from torch_dpfts.space import SearchSpace
from torch_dpfts.surrogate import Hyperparameters, build_model

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
SETTINGS: dict[str, Any] = {
    "bounds": [[0.0, 0.0], [1.0, 1.0]], "num_agents": 6, "num_rounds": 4, "num_features": 16,
    "sample_rate": 0.5, "noise_multiplier": 1.0, "clip_norm": 3.0,
}  # fmt: skip


def objective(X: Tensor, agent_ids: Tensor) -> Tensor:
    return -(X - 0.3).square().sum(-1, keepdim=True)


class Work(TorchDispatchMode):
    """Counts the floating-point results of at least 64 numbers by device."""

    def __init__(self) -> None:
        super().__init__()
        self.devices: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, tuple | list) else (result,):
            if isinstance(value, Tensor) and value.is_floating_point() and value.numel() >= 64:
                self.devices[value.device.type] += 1
        return result


def test_shapes_alone_can_be_computed_with() -> None:
    """The meta device holds no numbers: what mixes devices or reads a number fails on it."""
    spec, meta = FederationSpec.dp_fts_de(**SETTINGS), torch.device("meta")
    X, y = torch.rand(6, 9, 2, device=meta).double(), torch.rand(6, 9, device=meta).double()
    values = Hyperparameters(y[:, 0], X[:, 0], y[:, 1])
    space = SearchSpace.from_spec(spec, meta)
    features = SharedFeatures.from_spec(spec).to(meta)
    grid = RegionGrid(spec.region_grid, device=meta)
    assert space.to_unit(X).device.type == grid.index(X).device.type == "meta"
    assert weight_mean(features(X), y, 0.1).shape == (6, 16)
    covariance = object.__new__(FactoredCovariance)
    covariance.hyperparameters, covariance.points = values, X
    covariance.factor = torch.rand(6, 9, 9, device=meta).double()
    covariance.extend(torch.rand(6, 11, 2, device=meta).double())
    assert covariance.solve(torch.rand(6, 11, device=meta).double()).device.type == "meta"
    model = build_model(torch.rand(6, 9, 2).double(), torch.rand(6, 9, 1).double(), space_on_cpu())
    priors = model.covar_module.lengthscale_prior, model.likelihood.noise_covar.noise_prior
    likelihood = LogMarginalLikelihood(X, y, *priors)
    rows = torch.arange(6, device=meta)
    value, grad = likelihood(torch.rand(6, 4, device=meta).double(), rows)
    assert (value.device.type, grad.shape) == ("meta", (6, 4))


def space_on_cpu() -> SearchSpace:
    return SearchSpace.from_spec(FederationSpec.dp_fts_de(**SETTINGS))


@needs_cuda
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_federation_on_a_gpu_is_the_one_on_the_cpu(dtype: str) -> None:
    spec = FederationSpec.dp_fts_de(**SETTINGS, dtype=dtype)
    on_gpu = run_federation(spec, objective, progress=False, device="cuda")
    on_cpu = run_federation(spec, objective, progress=False)
    assert on_gpu.X.device.type == on_gpu.Y.device.type == "cuda"
    if dtype == "float64":
        torch.testing.assert_close(on_gpu.X.cpu(), on_cpu.X, atol=1e-4, rtol=0)


@needs_cuda
def test_no_work_of_an_agent_is_done_on_the_cpu() -> None:
    spec = FederationSpec.ts(**(SETTINGS | {"noise_multiplier": 0.0}))
    fleet = Fleet(spec, range(6), [agent_seed(0, n) for n in range(6)], "cuda")
    X = fleet.initial_points(9)
    with Work() as work:
        fleet.observe(X, objective(X, fleet.agent_ids))
        fleet.contribute(1)
    assert work.devices["cuda"] > 100
    assert work.devices["cpu"] == 0
    with Work() as work:
        fleet.suggest()
    # The CPU makes the random draws, which are the same on every device, and nothing else.
    assert work.devices["cuda"] > 10 * work.devices["cpu"]


@needs_cuda
def test_a_server_sums_where_it_is_told() -> None:
    spec = FederationSpec.dp_fts_de(**SETTINGS)
    ids, vectors = torch.arange(6), torch.ones(6, 16, dtype=torch.float64)
    releases = []
    for device in ("cpu", "cuda"):
        server = Server(spec, seed=0, device=device)
        stream = server.begin_round()
        stream.add_chunk(ids, vectors.to(device))
        assert stream.total.device.type == device
        releases.append(server.finish_round(stream).vectors)
    torch.testing.assert_close(*releases)
    total = NoisyRegionAggregator(spec).partial_sum(1, [(ids, vectors.cuda())])
    assert total.device.type == "cuda"
