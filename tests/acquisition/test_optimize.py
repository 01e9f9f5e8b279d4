import pytest
import torch
from botorch.acquisition import PosteriorMean
from botorch.models import SingleTaskGP
from torch import Tensor

from torch_dpfts.acquisition import BroadcastPath, maximize_per_region, optimize_acqf_per_region
from torch_dpfts.features import SharedFeatures
from torch_dpfts.regions import RegionGrid
from torch_dpfts.space import SearchSpace
from torch_dpfts.spec import FederationSpec

BOUNDS = torch.tensor([[-5.0, 0.0], [10.0, 15.0]], dtype=torch.float64)
GRID = RegionGrid((2, 2))


def piecewise(count: int) -> BroadcastPath:
    spec = FederationSpec.fts_de(bounds=BOUNDS, num_agents=1, num_rounds=1, lengthscales=0.15)
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(count, 4, 64, generator=generator, dtype=torch.float64)
    return BroadcastPath(
        SharedFeatures.from_spec(spec), GRID, vectors, SearchSpace(BOUNDS).input_transform()
    )


def test_no_dense_grid_does_better_on_functions_that_jump() -> None:
    path = piecewise(20)
    best = maximize_per_region(path, GRID, BOUNDS, range(20))
    axis = torch.linspace(0, 1, 201, dtype=torch.float64)
    dense = BOUNDS[0] + torch.cartesian_prod(axis, axis) * (BOUNDS[1] - BOUNDS[0])
    with torch.no_grad():
        highest = path(dense.expand(20, *dense.shape)).amax(-1)
        again = path(best.x.unsqueeze(-2)).squeeze(-1)
    assert (best.value > highest - 0.01).all()
    torch.testing.assert_close(best.value, again)
    unit = (best.x - BOUNDS[0]) / (BOUNDS[1] - BOUNDS[0])
    assert torch.equal(best.region, GRID.index(unit))


def test_inner_edges_belong_to_the_next_cell() -> None:
    """A function that grows up to a jump has no maximum: the search stops just below it."""

    def f(X: Tensor) -> Tensor:
        unit = (X - BOUNDS[0]) / (BOUNDS[1] - BOUNDS[0])
        return torch.where(unit[..., 0] < 0.5, unit[..., 0], -unit[..., 0])

    best = maximize_per_region(f, GRID, BOUNDS, [0])
    assert 0.4999 < float(best.value) < 0.5
    assert int(best.region) < 2


def test_outer_edges_are_reached() -> None:
    best = maximize_per_region(lambda X: X.sum(-1), GRID, BOUNDS, range(3))
    assert torch.equal(best.x, BOUNDS[1].expand(3, 2))
    assert best.region.tolist() == [3, 3, 3]


def test_a_result_does_not_depend_on_the_batch() -> None:
    together = maximize_per_region(piecewise(5), GRID, BOUNDS, range(5))
    path = piecewise(5)
    for i in range(5):
        alone = BroadcastPath(path.features, GRID, path.vectors[i : i + 1], path.input_transform)
        best = maximize_per_region(alone, GRID, BOUNDS, [i])
        torch.testing.assert_close(best.x[0], together.x[i], atol=1e-9, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_acquisition_functions_of_botorch(dtype: torch.dtype) -> None:
    X = torch.rand(10, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)
    acqf = PosteriorMean(SingleTaskGP(X, -(X - 0.3).square().sum(-1, keepdim=True)))
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=dtype)
    candidate, value = optimize_acqf_per_region(acqf, bounds, grid=GRID)
    assert candidate.shape == (1, 2)
    assert candidate.dtype == dtype
    torch.testing.assert_close(acqf(candidate.unsqueeze(0)).squeeze(), value)
    with torch.no_grad():
        tried = acqf(torch.rand(500, 1, 2, generator=torch.Generator().manual_seed(1)).to(dtype))
    assert (value >= tried.max() - 1e-4).all()


def test_incumbents_are_tried_in_every_cell() -> None:
    """A spike that no other point could find."""
    peak = torch.tensor([[[0.3331, 0.7771]], [[0.91, 0.02]]], dtype=torch.float64)

    def f(X: Tensor) -> Tensor:
        unit = (X - BOUNDS[0]) / (BOUNDS[1] - BOUNDS[0])
        return (-(unit - peak).square().sum(-1) * 1e8).exp()

    best = maximize_per_region(f, GRID, BOUNDS, [0, 1], incumbents=peak + 1e-5)
    assert (best.value > 0.999).all()
    assert best.region.tolist() == [1, 2]
    assert (maximize_per_region(f, GRID, BOUNDS, [0, 1]).value < 0.5).all()
