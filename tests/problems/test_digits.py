import pytest
import torch

from torch_dpfts import FederationSpec, run_federation
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.problems.digits import NAMES, DigitsTable, config_at, embed, from_cube
from torch_dpfts.problems.digits_cnn import DigitsCNN


def points(n: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return from_cube(torch.rand(n, 6, generator=generator, dtype=torch.float64))


def test_values_are_accuracies_of_the_right_shape() -> None:
    problem = DigitsTable()
    X = points(12).reshape(3, 4, 6)
    Y = problem(X, torch.tensor([0, 9, 4]))
    assert Y.shape == (3, 4, 1)
    assert ((Y >= 0) & (Y <= 1)).all()
    assert problem(X.float(), torch.tensor([0, 9, 4])).dtype == torch.float32


def test_a_value_does_not_depend_on_its_company() -> None:
    problem, X = DigitsTable(), points(12).reshape(3, 4, 6)
    Y = problem(X, torch.tensor([0, 9, 4]))
    torch.testing.assert_close(problem(X[1:2, 2:3], torch.tensor([9])), Y[1:2, 2:3])


def test_it_is_the_posterior_mean_of_its_table() -> None:
    problem = DigitsTable()
    x = points(1)
    site = 3
    total = 0.0
    for point, weight in zip(problem._points, problem._weights[site], strict=True):
        distance = ((embed(x)[0] - point) / problem._lengthscales[site]).square().sum()
        total += float(torch.exp(-distance / 2) * weight)
    expected = float(problem._offset[site] + problem._scale[site] * total)
    found = problem(x.unsqueeze(0), torch.tensor([site])).item()
    assert found == pytest.approx(min(max(expected, 0.0), 1.0))


def test_it_tells_good_networks_from_bad_ones() -> None:
    """Against networks trained here and now, at a site, for configurations far apart."""
    good = torch.tensor([2.0, 0.2, 0.005, 0.0, 1e-4, 24.0], dtype=torch.float64)
    bad = torch.tensor([2.0, 0.2, 0.9, 1.0, 1e-4, 24.0], dtype=torch.float64)
    problem, train = DigitsTable(), DigitsCNN(2)
    for x in (good, bad):
        value = problem(x.reshape(1, 1, 6), torch.tensor([2])).item()
        assert abs(value - train(config_at(x))) < 0.25
    assert problem(good.reshape(1, 1, 6), torch.tensor([2])) > 0.7


def test_whole_numbers_are_rounded() -> None:
    problem = DigitsTable()
    X = torch.tensor([[[1.2, 0.2, 0.01, 1.4, 1e-3, 8.3]]], dtype=torch.float64)
    rounded = torch.tensor([[[1.0, 0.2, 0.01, 1.0, 1e-3, 8.0]]], dtype=torch.float64)
    assert torch.equal(problem(X, torch.tensor([0])), problem(rounded, torch.tensor([0])))
    config = config_at(X[0, 0])
    assert list(config) == list(NAMES)
    assert (config["batch_size"], config["optimizer"], config["width"]) == (16, "rmsprop", 8)


def test_categories_are_equally_far_from_one_another() -> None:
    X = points(1).repeat(3, 1)
    X[:, 3] = torch.arange(3)
    distances = torch.pdist(embed(X))
    torch.testing.assert_close(distances, torch.ones(3, dtype=torch.float64))


def test_bad_queries_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="X must lie in the bounds"):
        DigitsTable()(torch.full((1, 1, 6), 50.0), torch.tensor([0]))
    with pytest.raises(InvalidInputError, match="agent_ids must be from 0 to 9, got 10"):
        DigitsTable()(points(1).unsqueeze(0), torch.tensor([10]))


def test_a_federation_runs_on_it() -> None:
    problem = DigitsTable()
    spec = FederationSpec.fts(**problem.spec_fields, num_agents=10, num_rounds=2)
    result = run_federation(spec, problem, num_initial=3, progress=False)
    assert result.best_values.shape == (3, 10)
