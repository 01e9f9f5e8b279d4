"""Tuning of training functions across sites."""

from torch_dpfts.tune.plots import (
    importance,
    plot_best,
    plot_epsilon,
    plot_importance,
    plot_summary,
)
from torch_dpfts.tune.result import TuneResult
from torch_dpfts.tune.site import Site, Tuner
from torch_dpfts.tune.space import ParameterSpace
from torch_dpfts.tune.stopping import MedianRule, StoppingRule, SuccessiveHalving
from torch_dpfts.tune.store import TrialStore
from torch_dpfts.tune.trial import Outcome, Trial, TrialState
from torch_dpfts.tune.tuning import tune_across_sites
from torch_dpfts.tune.worker import Report, TrainFn

__all__ = [
    "MedianRule",
    "Outcome",
    "ParameterSpace",
    "Report",
    "Site",
    "StoppingRule",
    "SuccessiveHalving",
    "TrainFn",
    "Trial",
    "TrialState",
    "TrialStore",
    "TuneResult",
    "Tuner",
    "importance",
    "plot_best",
    "plot_epsilon",
    "plot_importance",
    "plot_summary",
    "tune_across_sites",
]
