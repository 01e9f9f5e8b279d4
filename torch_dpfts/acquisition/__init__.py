"""What a BoTorch user imports: the acquisition function, its paths and its optimiser."""

from torch_dpfts.acquisition.optimize import maximize_per_region, optimize_acqf_per_region
from torch_dpfts.acquisition.paths import BroadcastPath, draw_posterior_path
from torch_dpfts.acquisition.thompson import FederatedThompsonSampling

__all__ = [
    "BroadcastPath",
    "FederatedThompsonSampling",
    "draw_posterior_path",
    "maximize_per_region",
    "optimize_acqf_per_region",
]
