import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from torch_dpfts.acquisition.share import draw_share, scaled_vectors
from torch_dpfts.features import SharedFeatures
from torch_dpfts.regions import RegionGrid
from torch_dpfts.spec import FederationSpec


def rand(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


def kernel(X: Tensor) -> Tensor:
    distance = torch.cdist(X, X) / 0.2
    return (-0.5 * distance.square()).exp() + 0.01 * torch.eye(len(X), dtype=X.dtype)


def random_values(factor: Tensor, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return factor @ torch.randn(len(factor), generator=generator, dtype=torch.float64)


def test_the_posterior_is_that_of_the_whole_model() -> None:
    X = rand(9, 2)
    C = kernel(X)
    factor = torch.linalg.cholesky(C)
    g = random_values(factor, 1)
    y = 0.7 * g + 0.6 * random_values(factor, 2) + 3.0
    # The oracle: the marginal likelihood with a wide prior on the constant, share by share.
    shares = torch.linspace(0, 0.95, 96, dtype=torch.float64)
    ones = 1e8 * torch.ones_like(C)
    evidence = torch.stack(
        [
            MultivariateNormal(a * g, (1 - a**2) * C + ones).log_prob(y).detach()
            for a in shares.tolist()
        ]
    )
    expected = evidence.softmax(0).cumsum(0)
    uniform = torch.linspace(0.01, 0.99, 33, dtype=torch.float64)
    b = len(uniform)
    draw = draw_share(factor.expand(b, 9, 9), y.expand(b, 9), g.expand(b, 9), uniform)
    index = (draw.share / 0.01).round().long()
    # The draw inverts the distribution: it lies just above the uniform at each drawn share.
    assert (expected[index] >= uniform - 1e-4).all()
    assert (expected[index - 1] <= uniform + 1e-4).all()
    assert draw.share.unique().numel() > 5


def test_a_draw_explains_what_was_observed() -> None:
    factor = torch.linalg.cholesky(kernel(rand(7, 2))).expand(3, 7, 7)
    y, g = rand(3, 7, seed=1), rand(3, 7, seed=2)
    draw = draw_share(factor, y, g, torch.tensor([0.1, 0.5, 0.9]).double())
    again = draw.offset[:, None] + draw.share[:, None] * g + draw.scale[:, None] * draw.rest
    torch.testing.assert_close(again, y)
    torch.testing.assert_close(draw.scale.square() + draw.share.square(), torch.ones(3).double())


@pytest.mark.parametrize(("share", "low", "high"), [(0.0, 0.0, 0.35), (0.95, 0.85, 0.95)])
def test_many_observations_tell_the_share(share: float, low: float, high: float) -> None:
    factor = torch.linalg.cholesky(kernel(rand(80, 2)))
    g, own = random_values(factor, 3), random_values(factor, 4)
    y = share * g + (1 - share**2) ** 0.5 * own
    uniform = torch.linspace(0.05, 0.95, 19, dtype=torch.float64)
    draw = draw_share(factor.expand(19, 80, 80), y.expand(19, 80), g.expand(19, 80), uniform)
    assert low <= float(draw.share.median()) <= high


def test_without_information_every_share_is_as_likely() -> None:
    one = torch.ones(5, 1, 1, dtype=torch.float64)
    uniform = torch.tensor([0.005, 0.25, 0.5, 0.75, 0.995]).double()
    draw = draw_share(one, torch.zeros(5, 1).double(), torch.ones(5, 1).double(), uniform)
    torch.testing.assert_close(draw.share, uniform * 0.95, atol=0.01, rtol=0)


def test_scaled_broadcasts_have_a_standard_deviation_of_one() -> None:
    spec = FederationSpec.fts_de(bounds=[[0.0, 0.0], [1.0, 1.0]], num_agents=2, num_rounds=2)
    features, grid = SharedFeatures.from_spec(spec), RegionGrid((2, 2))
    scaled = scaled_vectors(features, grid, 40 * (rand(3, 4, 64) - 0.5))
    X = rand(4000, 2, seed=9)
    values = (features(X) @ scaled.mT).gather(-1, grid.index(X).expand(3, -1).unsqueeze(-1))
    # The standard deviation over 512 Sobol points is right to a few per cent.
    torch.testing.assert_close(
        values.std(dim=-2).flatten(), torch.ones(3).double(), atol=0.06, rtol=0
    )
    nothing = torch.zeros(4, 64, dtype=torch.float64)
    assert torch.equal(scaled_vectors(features, grid, nothing), nothing)
