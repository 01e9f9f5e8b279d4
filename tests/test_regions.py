import pytest
import torch

from torch_dpfts.errors import InvalidInputError
from torch_dpfts.regions import RegionGrid


@pytest.mark.parametrize("cells", [(1,), (4,), (2, 2), (3, 2), (7, 3, 5)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_each_point_lies_in_the_one_cell_that_holds_it(
    cells: tuple[int, ...], dtype: torch.dtype
) -> None:
    grid = RegionGrid(cells, dtype)
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(500, len(cells), generator=generator, dtype=dtype)
    inside = (X.unsqueeze(-2) >= grid.lower) & (X.unsqueeze(-2) < grid.upper)  # n x P x d
    holders = inside.all(-1)
    assert (holders.sum(-1) == 1).all()
    assert torch.equal(grid.index(X), holders.long().argmax(-1))


@pytest.mark.parametrize("cells", [(10,), (7, 3), (6, 49)])
def test_lower_edges_belong_and_upper_edges_do_not(cells: tuple[int, ...]) -> None:
    grid = RegionGrid(cells)
    assert torch.equal(grid.index(grid.lower), torch.arange(len(grid)))
    below = torch.nextafter(grid.upper, torch.zeros_like(grid.upper))
    assert torch.equal(grid.index(below), torch.arange(len(grid)))


def test_the_cube_is_closed() -> None:
    grid = RegionGrid((2, 2))
    assert int(grid.index(torch.ones(2, dtype=torch.float64))) == 3
    assert int(grid.index(torch.tensor([1 + 1e-15, -1e-15], dtype=torch.float64))) == 2


def test_assignment_is_by_remainder() -> None:
    assert RegionGrid((2, 2)).assigned(torch.arange(6)).tolist() == [0, 1, 2, 3, 0, 1]


@pytest.mark.parametrize("cells", [(), (0,), (2, -1)])
def test_bad_grids(cells: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInputError, match="cells"):
        RegionGrid(cells)
