import pytest
import torch
from botorch.acquisition import AcquisitionFunction, PosteriorMean, qUpperConfidenceBound
from botorch.acquisition.thompson_sampling import PathwiseThompsonSampling
from botorch.models.model import Model
from botorch.sampling import SobolQMCNormalSampler

from torch_dpfts import Broadcast, FederationSpec
from torch_dpfts.acquisition import FederatedThompsonSampling
from torch_dpfts.testing import AcquisitionContract


class TestFederatedThompsonSampling(AcquisitionContract):
    def make(self, model: Model) -> AcquisitionFunction:
        return FederatedThompsonSampling(model, seed=0)


class TestInSinglePrecision(TestFederatedThompsonSampling):
    dtype = torch.float32


class TestWithABroadcast(AcquisitionContract):
    """Draws alternate between the own model and the broadcast as the coins fall."""

    def make(self, model: Model) -> AcquisitionFunction:
        spec = FederationSpec.fts_de(
            bounds=self.bounds, num_agents=4, num_rounds=9, num_features=16,
            local_probability="1-1/t", integer_dims=[2],
        )  # fmt: skip
        generator = torch.Generator().manual_seed(0)
        vectors = torch.randn(4, 16, generator=generator, dtype=torch.float64)
        acqf = FederatedThompsonSampling(
            model, spec, Broadcast(spec.fingerprint, 1, vectors), seed=4
        )
        assert {acqf.follows_broadcast(i) for i in range(3)} == {False, True}
        return acqf


class Upper(AcquisitionContract):
    def make(self, model: Model) -> AcquisitionFunction:
        return qUpperConfidenceBound(model, 0.5, SobolQMCNormalSampler(torch.Size([16]), seed=0))


class Pathwise(AcquisitionContract):
    def make(self, model: Model) -> AcquisitionFunction:
        return PathwiseThompsonSampling(model)


class Mean(AcquisitionContract):
    def make(self, model: Model) -> AcquisitionFunction:
        return PosteriorMean(model)


def failures(contract: AcquisitionContract) -> dict[str, str]:
    found = {part: outcome for part, outcome in contract.report().items() if outcome}
    for part, outcome in found.items():
        print(f"{type(contract).__name__:>10} {part:<40} {outcome[:90]}")
    return found


def test_which_parts_botorchs_thompson_sampling_fails() -> None:
    """Evaluation with another q, pending points, and every optimiser that sets them."""
    assert set(failures(Pathwise())) == {
        "global_generator",
        "moving",
        "optimize_acqf_cyclic",
        "optimize_acqf_discrete",
        "optimize_acqf_discrete_local_search",
        "optimize_acqf_fixed_features",
        "optimize_acqf_inequality_constraints",
        "optimize_acqf_list",
        "optimize_acqf_mixed",
        "optimize_acqf_mixed_alternating",
        "optimize_acqf_sequential",
        "pending_points_can_be_undone",
        "rows_are_independent",
        "shapes",
    }


def test_a_monte_carlo_function_passes_where_chance_has_no_part() -> None:
    """Its candidates may coincide where BoTorch's optimisers happen to end."""
    failed = failures(Upper())
    assert not failed.keys() & {
        "shapes", "the_same_value_twice", "rows_are_independent", "gradients",
        "pending_points_can_be_undone", "optimize_acqf",
    }  # fmt: skip


def test_a_function_of_one_candidate_fails_where_it_should() -> None:
    failed = failures(Mean())
    assert "optimize_acqf" not in failed
    assert "optimize_acqf_joint" in failed


def test_a_maker_is_needed() -> None:
    with pytest.raises(NotImplementedError, match="Say how"):
        AcquisitionContract().acquisition()
