import itertools
from typing import Any

import pytest
import torch
from botorch.acquisition import AcquisitionFunction, PosteriorMean, qUpperConfidenceBound
from botorch.exceptions.errors import CandidateGenerationError, UnsupportedError
from botorch.models import SingleTaskGP
from botorch.sampling import SobolQMCNormalSampler
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from torch_dpfts import Broadcast, FederationSpec
from torch_dpfts.acquisition import FederatedThompsonSampling, optimize_acqf_per_region
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.regions import RegionGrid

BOUNDS = torch.tensor([[-5.0, 0.0], [10.0, 15.0]], dtype=torch.float64)
GRID = RegionGrid((2, 2))
WIDTH = BOUNDS[1] - BOUNDS[0]


def unit(X: Tensor) -> Tensor:
    return (X - BOUNDS[0]) / WIDTH


class Jumps(AcquisitionFunction):
    """A bump in each cell, the highest in cell 2; candidates repel one another."""

    centres = torch.tensor([[0.2, 0.3], [0.3, 0.8], [0.9, 0.1], [0.6, 0.6]], dtype=torch.float64)
    heights = torch.tensor([1.0, 1.2, 1.5, 1.3], dtype=torch.float64)

    def __init__(self) -> None:
        X = torch.zeros(1, 2, dtype=torch.float64)
        super().__init__(model=SingleTaskGP(X, X[:, :1], outcome_transform=None))
        self.set_X_pending(None)

    @t_batch_mode_transform()
    def forward(self, X: Tensor) -> Tensor:
        X = unit(X)
        cell = GRID.index(X)
        bumps = self.heights[cell] - (X - self.centres[cell]).square().sum(-1)
        others = X if self.X_pending is None else torch.cat(
            [X, unit(self.X_pending).expand(*X.shape[:-2], -1, 2)], dim=-2
        )  # fmt: skip
        near = torch.exp(-20 * torch.cdist(X, others).square()).sum((-2, -1)) - X.shape[-2]
        return bumps.sum(-1) - near


def test_it_says_which_region_won() -> None:
    x, value, region = optimize_acqf_per_region(Jumps(), BOUNDS, grid=GRID, return_regions=True)
    assert region.tolist() == [2]
    torch.testing.assert_close(unit(x), Jumps.centres[2:3], atol=1e-4, rtol=0)
    assert value.shape == ()
    assert float(value) == pytest.approx(1.5, abs=1e-6)


def test_sequential_candidates_pend_for_the_next() -> None:
    acqf = Jumps()
    pending = BOUNDS[0] + Jumps.centres[2:3] * WIDTH
    acqf.set_X_pending(pending)
    X, values, regions = optimize_acqf_per_region(
        acqf, BOUNDS, q=3, sequential=True, grid=GRID, return_regions=True
    )
    assert X.shape == (3, 2)
    assert values.shape == (3,)
    assert torch.equal(acqf.X_pending, pending)
    assert torch.cdist(unit(X), unit(X)).fill_diagonal_(1).min() > 0.1
    assert torch.cdist(unit(X), unit(pending)).min() > 0.1
    assert torch.equal(regions, GRID.index(unit(X)))


def test_joint_candidates_match_a_search_over_all_combinations_of_cells() -> None:
    acqf = Jumps()
    X, value = optimize_acqf_per_region(acqf, BOUNDS, q=2, grid=GRID, raw_samples=256)
    best = max(
        float(acqf(torch.stack([a, b]) * WIDTH + BOUNDS[0]))
        for a, b in itertools.combinations(local_grid(), 2)
    )
    assert X.shape == (2, 2)
    assert value.shape == ()
    assert float(value) == pytest.approx(float(acqf(X)))
    assert float(value) > best - 0.01


def local_grid() -> Tensor:
    axis = torch.arange(-0.1, 0.11, 0.05, dtype=torch.float64)
    offsets = torch.cartesian_prod(axis, axis)
    return (Jumps.centres.unsqueeze(1) + offsets).flatten(0, 1).clamp(0, 1)


def test_inequality_constraints() -> None:
    # x0 <= 2.5 in the user's units shuts the cells 2 and 3.
    limit = [(torch.tensor([0]), torch.tensor([-1.0]).double(), -2.49)]
    x, value, region = optimize_acqf_per_region(
        Jumps(), BOUNDS, grid=GRID, inequality_constraints=limit, return_regions=True
    )
    assert region.tolist() == [1]
    assert float(x[0, 0]) <= 2.49 + 1e-8
    assert float(value) == pytest.approx(1.2, abs=1e-4)


def test_equality_and_fixed_features_together() -> None:
    line = [(torch.tensor([0, 1]), torch.tensor([1.0, 1.0]).double(), 6.0)]
    x, _ = optimize_acqf_per_region(Jumps(), BOUNDS, grid=GRID, equality_constraints=line)
    assert float(x.sum()) == pytest.approx(6.0, abs=1e-6)
    both, _, region = optimize_acqf_per_region(
        Jumps(), BOUNDS, grid=GRID, equality_constraints=line, fixed_features={1: 9.0},
        return_regions=True,
    )  # fmt: skip
    torch.testing.assert_close(both, torch.tensor([[-3.0, 9.0]]).double())
    assert region.tolist() == [1]


def test_nonlinear_constraints() -> None:
    def inside(x: Tensor) -> Tensor:
        return 0.25 - (unit(x) - 0.1).norm()

    x, _ = optimize_acqf_per_region(
        Jumps(), BOUNDS, grid=GRID, nonlinear_inequality_constraints=[(inside, True)]
    )
    assert float(inside(x[0])) >= -1e-8


@pytest.mark.parametrize("q", [1, 2])
def test_constraints_and_several_candidates(q: int) -> None:
    limit = [(torch.tensor([0, 1]), torch.tensor([-1.0, -1.0]).double(), -8.0)]
    for sequential in (False, True):
        X, _ = optimize_acqf_per_region(
            Jumps(), BOUNDS, q=q, grid=GRID, inequality_constraints=limit, sequential=sequential
        )
        assert (X.sum(-1) <= 8.0 + 1e-6).all()
        assert len(X.unique(dim=0)) == q


@pytest.mark.parametrize("value", [-5.0, 2.5, 2.4, 10.0])
def test_a_fixed_feature_is_kept_exactly_and_picks_the_cells(value: float) -> None:
    for q in (1, 2):
        X, _, regions = optimize_acqf_per_region(
            Jumps(), BOUNDS, q=q, grid=GRID, fixed_features={-2: value}, return_regions=True
        )
        assert (X[:, 0] == value).all()
        assert all(region // 2 == int(value >= 2.5) for region in regions.tolist())


def test_all_features_fixed() -> None:
    x, value = optimize_acqf_per_region(Jumps(), BOUNDS, grid=GRID, fixed_features={0: 8.5, 1: 1.5})
    assert x.tolist() == [[8.5, 1.5]]
    assert float(value) == pytest.approx(1.5)


def test_narrower_bounds_than_the_federations() -> None:
    spec = FederationSpec.fts_de(bounds=BOUNDS, num_agents=4, num_rounds=9, num_features=16)
    vectors = torch.randn(4, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    acqf = follower(spec, Broadcast(spec.fingerprint, 1, vectors))
    inner = torch.tensor([[0.0, 2.0], [6.0, 10.0]], dtype=torch.float64)
    x, value, region = optimize_acqf_per_region(acqf, inner, return_regions=True)
    assert ((inner[0] <= x) & (x <= inner[1])).all()
    assert region.tolist() == GRID.index(unit(x)).tolist()
    axes = [torch.linspace(*inner[:, i].tolist(), 101, dtype=torch.float64) for i in range(2)]
    assert float(value) > float(acqf(torch.cartesian_prod(*axes).unsqueeze(-2)).max()) - 0.01
    with pytest.raises(InvalidInputError, match="reach beyond the federation's"):
        optimize_acqf_per_region(acqf, BOUNDS * 2)


def follower(spec: FederationSpec, broadcast: Broadcast) -> FederatedThompsonSampling:
    """An acquisition function whose first draw is the broadcast."""
    X = torch.zeros(1, 2, dtype=torch.float64)
    model = SingleTaskGP(X, X[:, :1], outcome_transform=None)
    candidates = (FederatedThompsonSampling(model, spec, broadcast, seed=s) for s in range(99))
    return next(acqf for acqf in candidates if acqf.follows_broadcast())


def test_post_processing_and_repeats() -> None:
    first, again = (
        optimize_acqf_per_region(
            Jumps(), BOUNDS, 1, 4, 64, grid=GRID, post_processing_func=torch.round
        )
        for _ in range(2)
    )
    assert torch.equal(first[0], first[0].round())
    assert float(first[1]) == pytest.approx(float(Jumps()(first[0])))
    assert torch.equal(first[0], again[0])


def test_a_monte_carlo_function_of_several_candidates() -> None:
    generator = torch.Generator().manual_seed(0)
    X = BOUNDS[0] + torch.rand(10, 2, generator=generator, dtype=torch.float64) * WIDTH
    model = SingleTaskGP(X, -(unit(X) - 0.4).square().sum(-1, keepdim=True))
    acqf = qUpperConfidenceBound(model, 0.2, sampler=SobolQMCNormalSampler(torch.Size([64]), 0))
    found, value = optimize_acqf_per_region(acqf, BOUNDS, q=3, grid=GRID)
    tried = torch.rand(500, 3, 2, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        assert float(value) >= float(acqf(BOUNDS[0] + tried * WIDTH).max()) - 1e-6
    assert found.shape == (3, 2)


def test_the_global_generator_is_as_before() -> None:
    state = torch.random.get_rng_state()
    limit = [(torch.tensor([0]), torch.tensor([-1.0]).double(), 4.9)]
    for constraints in (None, limit):
        optimize_acqf_per_region(Jumps(), BOUNDS, grid=GRID, inequality_constraints=constraints)
    assert torch.equal(state, torch.random.get_rng_state())


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"q": 0}, InvalidInputError, "q must be at least 1, got 0"),
    ({"num_restarts": 0}, InvalidInputError, "num_restarts must be at least 1, got 0"),
    ({"raw_samples": 1.5}, InvalidInputError, "raw_samples must be an integer"),
    ({"bounds": BOUNDS / 0}, InvalidInputError, "bounds must be finite"),
    ({"fixed_features": {0: 11.0}}, InvalidInputError, r"fixed_features\[0\] = 11.0 lies outside"),
    (
        {"inequality_constraints": [(torch.tensor([0]), torch.tensor([1.0]).double(), 99.0)]},
        CandidateGenerationError,
        "No cell holds a point",
    ),
    (
        {"inequality_constraints": [(torch.tensor([[0, 0]]), torch.tensor([1.0]).double(), 0.0)]},
        UnsupportedError,
        "join several candidates",
    ),
    (
        {"nonlinear_inequality_constraints": [(torch.sum, False)]},
        UnsupportedError,
        "join several candidates",
    ),
]


@pytest.mark.parametrize(("changes", "error", "message"), BAD)
def test_bad_arguments(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        optimize_acqf_per_region(**({"acq_function": Jumps(), "bounds": BOUNDS} | changes))


def test_a_smooth_function_needs_no_grid() -> None:
    generator = torch.Generator().manual_seed(0)
    X = BOUNDS[0] + torch.rand(10, 2, generator=generator, dtype=torch.float64) * WIDTH
    acqf = PosteriorMean(SingleTaskGP(X, -(unit(X) - 0.4).square().sum(-1, keepdim=True)))
    x, _, region = optimize_acqf_per_region(acqf, BOUNDS, return_regions=True)
    assert region.tolist() == [0]
    assert (unit(x) - 0.4).abs().max() < 0.1
