"""What a BoTorch user imports: the acquisition function, its paths and its optimiser."""

from torch_dpfts.acquisition.broadcast import BroadcastPath
from torch_dpfts.acquisition.draws import draw_posterior
from torch_dpfts.acquisition.input_constructor import broadcast_from_text, broadcast_to_text
from torch_dpfts.acquisition.mean import FederatedMean
from torch_dpfts.acquisition.mixture import MixedPath, draw_mixed_path
from torch_dpfts.acquisition.optimize import maximize_per_region
from torch_dpfts.acquisition.paths import PathModel, draw_posterior_path
from torch_dpfts.acquisition.per_region import optimize_acqf_per_region
from torch_dpfts.acquisition.thompson import FederatedThompsonSampling

__all__ = [
    "BroadcastPath",
    "FederatedMean",
    "FederatedThompsonSampling",
    "MixedPath",
    "PathModel",
    "broadcast_from_text",
    "broadcast_to_text",
    "draw_mixed_path",
    "draw_posterior",
    "draw_posterior_path",
    "maximize_per_region",
    "optimize_acqf_per_region",
]
