import pytest
import torch

from torch_dpfts.errors import InvalidInputError
from torch_dpfts.privacy import region_score, region_weights
from torch_dpfts.spec import FederationSpec


def make_spec(**settings):
    settings = {"num_agents": 29, "num_rounds": 60, "num_regions": 4} | settings
    return FederationSpec(bounds=[[0.0, 0.0], [1.0, 1.0]], **settings)


def test_rows_are_softmaxes_of_the_scores():
    weights = region_weights(make_spec(), 1)
    assert weights.shape == (4, 29)
    for region in range(4):
        scores = torch.tensor([16.0 if n % 4 == region else 1.0 for n in range(29)]).double()
        torch.testing.assert_close(weights[region], scores.exp() / scores.exp().sum())


@pytest.mark.parametrize(
    ("round", "score"), [(1, 16.0), (10, 16.0), (11, 15.5), (25, 8.5), (40, 1.0), (1000, 1.0)]
)
def test_score_is_held_then_falls_linearly(round, score):
    assert region_score(make_spec(), round) == score


def test_weights_become_uniform():
    torch.testing.assert_close(
        region_weights(make_spec(), 40), torch.full((4, 29), 1 / 29, dtype=torch.float64)
    )


def test_regions_without_agents_weigh_all_alike():
    weights = region_weights(make_spec(num_agents=2, num_regions=4), 1)
    torch.testing.assert_close(weights[2:], torch.full((2, 2), 0.5, dtype=torch.float64))


def test_dtype():
    assert region_weights(make_spec(), 1, dtype=torch.float32).dtype == torch.float32


@pytest.mark.parametrize("round", [0, -1, 1.5, "1"])
def test_bad_round_is_refused(round):
    with pytest.raises(InvalidInputError, match="round"):
        region_weights(make_spec(), round)
