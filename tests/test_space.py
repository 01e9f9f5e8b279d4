import pytest
import torch
from torch import Tensor

from torch_dpfts.errors import InvalidInputError
from torch_dpfts.regions import RegionGrid
from torch_dpfts.space import SearchSpace
from torch_dpfts.spec import FederationSpec

# A learning rate, a number of layers, a category of 3 and a width from 1 to 1000 on a log scale.
BOUNDS = torch.tensor([[5e-10, 1.0, 0.0, 1.0], [1e-6, 7.0, 2.0, 1000.0]], dtype=torch.float64)
SPEC = FederationSpec.fts(
    bounds=BOUNDS, num_agents=2, num_rounds=3, log_dims=[0, 3], integer_dims=[1, 3],
    categorical_dims=[2],
)  # fmt: skip


def uniform(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_there_and_back() -> None:
    space = SearchSpace.from_spec(SPEC)
    U = uniform(50, 4)
    X = space.from_unit(U)
    torch.testing.assert_close(space.scale(X), U)
    snapped = space.snap(X)
    torch.testing.assert_close(space.to_unit(X), space.scale(snapped))
    assert torch.equal(snapped[:, 1:].round(), snapped[:, 1:])
    torch.testing.assert_close(space.to_unit(BOUNDS), torch.tensor([[0.0] * 4, [1.0] * 4]).double())


def test_without_kinds_it_is_the_affine_map() -> None:
    space = SearchSpace(BOUNDS)
    U = uniform(20, 4)
    expected = BOUNDS[0] + U * (BOUNDS[1] - BOUNDS[0])
    torch.testing.assert_close(space.from_unit(U), expected)
    torch.testing.assert_close(space.to_unit(expected), U)


def test_boxes_hold_the_points_of_their_cells() -> None:
    space = SearchSpace.from_spec(SPEC)
    for cells in [(1, 1, 1, 1), (2, 2, 3, 1), (1, 3, 1, 2), (3, 7, 1, 1)]:
        grid = RegionGrid(cells)
        lower, width = space.boxes(grid)
        X = space.snap(space.from_unit(lower.unsqueeze(-2) + uniform(200, 4) * width.unsqueeze(-2)))
        index = grid.index(space.to_unit(X))
        assert torch.equal(index, torch.arange(len(grid)).unsqueeze(-1).expand_as(index))
        assert len(X[..., 2].unique()) == 3
        assert len(X[..., 1].unique()) == 7


def test_whole_numbers_of_a_box_are_equally_likely() -> None:
    space = SearchSpace.from_spec(SPEC)
    lower, width = space.boxes(RegionGrid([1] * 4))
    X = space.snap(space.from_unit(lower + uniform(9000, 4) * width))
    # Binomial(9000, 1/3): beyond five standard deviations with probability below 1e-6.
    counts = torch.stack([(X[:, 2] == c).sum() for c in range(3)])
    assert ((counts - 3000).abs() < 5 * (9000 * 2 / 9) ** 0.5).all()


def test_a_cell_without_values_is_refused() -> None:
    space = SearchSpace(torch.tensor([[1.0], [4.0]]).double(), log_dims=[0], integer_dims=[0])
    with pytest.raises(InvalidInputError, match="holds no value of dimension 0"):
        space.boxes(RegionGrid((4,)))


def test_one_hot_columns_put_categories_equally_far_apart() -> None:
    space = SearchSpace.from_spec(SPEC)
    X = space.snap(space.from_unit(uniform(40, 4)))
    encoded = space.input_transform(one_hot=True)(X)
    assert encoded.shape == (40, 6)
    torch.testing.assert_close(encoded[:, :3], space.to_unit(X)[:, [0, 1, 3]])
    distance = torch.cdist(encoded[:, 3:], encoded[:, 3:])
    different = X[:, 2].unsqueeze(0) != X[:, 2].unsqueeze(1)
    torch.testing.assert_close(distance, different.double())


def test_what_all_but_repeats() -> None:
    space = SearchSpace.from_spec(SPEC)
    U = torch.tensor([[0.2, 0.5, 0.0, 0.9], [0.6, 0.0, 1.0, 0.1]], dtype=torch.float64)
    X = space.snap(space.from_unit(U)).expand(3, 2, 4)
    x = X[:, 1:].clone()
    x[1, 0, 0] *= 1.02  # .0026 of a logarithmic range of 3.3 decades
    x[2, 0, 1] += 1.0
    assert space.all_but_repeats(x, X).tolist() == [True, True, False]
    assert not space.all_but_repeats(x, X[:, :0]).any()
