import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel
from torch import Tensor

from torch_dpfts import FederationSpec
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.features import SharedFeatures

KERNELS = {
    "rbf": RBFKernel(ard_num_dims=2),
    "matern12": MaternKernel(0.5, ard_num_dims=2),
    "matern32": MaternKernel(1.5, ard_num_dims=2),
    "matern52": MaternKernel(2.5, ard_num_dims=2),
}


def spec(**changes: object) -> FederationSpec:
    return FederationSpec.fts(
        bounds=[[0.0, 0.0], [1.0, 1.0]],
        num_agents=2,
        num_rounds=1,
        lengthscales=(0.3, 0.6),
        **changes,
    )


def points(n: int = 40) -> Tensor:
    return torch.rand(n, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("frequencies", ["iid", "sobol"])
@pytest.mark.parametrize("feature_map", ["sincos", "cosine"])
def test_inner_products_approach_the_kernel(
    kernel: str, frequencies: str, feature_map: str
) -> None:
    features = SharedFeatures.from_spec(
        spec(kernel=kernel, frequencies=frequencies, feature_map=feature_map, num_features=8192)
    )
    phi, X = features(points()), points()
    exact = KERNELS[kernel].double()
    exact.lengthscale = torch.tensor([0.3, 0.6])
    error = (phi @ phi.mT - exact(X).to_dense()).abs().max()
    # Entries are means of 4,096 terms of variance at most 1: six standard deviations.
    assert error < 6 / math.sqrt(4096)


def test_sobol_frequencies_give_a_better_kernel_at_small_sizes() -> None:
    X = points()
    exact = KERNELS["rbf"].double()
    exact.lengthscale = torch.tensor([0.3, 0.6])

    def error(frequencies: str) -> float:
        errors = []
        for seed in range(10):
            phi = SharedFeatures.from_spec(
                spec(frequencies=frequencies, num_features=64, feature_seed=seed)
            )(X)
            errors.append((phi @ phi.mT - exact(X).to_dense()).square().mean().sqrt())
        return float(torch.stack(errors).detach().mean())

    assert error("sobol") < 0.7 * error("iid")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("feature_map", ["sincos", "cosine"])
def test_rows_have_unit_norm(dtype: str, feature_map: str) -> None:
    features = SharedFeatures.from_spec(spec(dtype=dtype, feature_map=feature_map))
    phi = features(points().to(features.frequencies))
    assert phi.dtype == features.frequencies.dtype == getattr(torch, dtype)
    assert phi.shape == (40, 64) == (40, features.num_outputs)
    assert torch.allclose(phi.norm(dim=-1), torch.ones(40, dtype=phi.dtype), atol=1e-6)


def test_the_map_is_a_function_of_the_public_seed() -> None:
    first, again = (SharedFeatures.from_spec(spec()) for _ in range(2))
    other = SharedFeatures.from_spec(spec(feature_seed=1))
    assert torch.equal(first.frequencies, again.frequencies)
    assert not torch.equal(first.frequencies, other.frequencies)


@pytest.mark.parametrize(
    ("kernel", "frequencies", "first", "last"),
    [
        ("rbf", "iid", [-7.3180393376, -1.0837403415], [-6.6351691048, 1.3447602375]),
        ("rbf", "sobol", [0.3087300899, 0.2276085754], [0.1879311967, -0.8715776679]),
        ("matern52", "iid", [-8.0353796318, -1.1899724318], [-14.0203516000, 2.8415268775]),
        ("matern52", "sobol", [0.2621223268, 0.1932474071], [0.2198408466, -1.0195666059]),
    ],
)
def test_a_seed_means_the_same_map_in_every_version(
    kernel: str, frequencies: str, first: list[float], last: list[float]
) -> None:
    """Sites with different releases of torch, numpy and scipy must hold one map."""
    drawn = SharedFeatures.from_spec(spec(kernel=kernel, frequencies=frequencies)).frequencies
    np.testing.assert_allclose(drawn[[0, -1]], [first, last], rtol=1e-8)


def test_iid_frequencies_are_quantiles_of_philox_bits() -> None:
    lengthscales = torch.tensor([0.3, 0.6])
    drawn = SharedFeatures.from_spec(spec(frequencies="iid")).frequencies[0] * lengthscales
    raw = np.random.Philox(0).random_raw(2) >> np.uint64(11)
    expected = torch.erfinv(2 * torch.tensor(raw * 2.0**-53) - 1) * math.sqrt(2)
    assert torch.allclose(drawn, expected)


def test_explicit_frequencies_and_phases() -> None:
    frequencies, phases = (
        torch.randn(6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64),
        torch.linspace(0, 6, 6, dtype=torch.float64),
    )
    phi = SharedFeatures(frequencies, phases)(points(3))
    for row, x in zip(phi, points(3), strict=True):
        cosines = [math.cos(float(w @ x + b)) for w, b in zip(frequencies, phases, strict=True)]
        expected = np.array(cosines) / np.linalg.norm(cosines)
        np.testing.assert_allclose(row, expected)


@pytest.mark.parametrize(
    ("frequencies", "phases", "message"),
    [
        (torch.ones(3), None, "shape K x d"),
        (torch.ones(0, 2), None, "shape K x d"),
        (torch.ones(3, 2), torch.ones(2), r"phases must have shape \(3,\), got \(2,\)"),
        (torch.full((3, 2), math.nan), None, "frequencies must be finite"),
        (torch.ones(3, 2), torch.full((3,), math.inf), "phases must be finite"),
    ],
)
def test_bad_maps(frequencies: Tensor, phases: Tensor | None, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        SharedFeatures(frequencies, phases)


@pytest.mark.parametrize("feature_map", ["sincos", "cosine"])
def test_gradients_are_those_of_autograd(feature_map: str) -> None:
    spec = FederationSpec.fts(
        bounds=[[0.0] * 3, [1.0] * 3], num_agents=2, num_rounds=2, feature_map=feature_map
    )
    features = SharedFeatures.from_spec(spec)
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(7, 3, generator=generator, dtype=torch.float64).requires_grad_()
    weights = torch.randn(7, 64, generator=generator, dtype=torch.float64)
    expected = (features(X) * weights).sum(-1)
    (slope,) = torch.autograd.grad(expected.sum(), X)
    value, grad = features.value_and_grad(X.detach(), weights)
    torch.testing.assert_close(value, expected.detach())
    torch.testing.assert_close(grad, slope)
