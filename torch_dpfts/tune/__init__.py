"""Tuning of training functions across sites."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_HOME = {
    "MedianRule": "stopping",
    "Outcome": "trial",
    "ParameterSpace": "space",
    "Report": "worker",
    "Site": "site",
    "StoppingRule": "stopping",
    "SuccessiveHalving": "stopping",
    "TrainFn": "worker",
    "Trial": "trial",
    "TrialState": "trial",
    "TrialStore": "store",
    "TuneResult": "result",
    "Tuner": "site",
    "importance": "plots",
    "plot_best": "plots",
    "plot_epsilon": "plots",
    "plot_importance": "plots",
    "plot_summary": "plots",
    "tune_across_sites": "tuning",
}

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


def __getattr__(name: str) -> Any:
    # Looked up when first used, so that the processes of trials start without BoTorch.
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"torch_dpfts.tune.{_HOME[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name not in ("ConfigSpace", "cloudpickle", "pandas"):
            raise
        raise ModuleNotFoundError(
            f"torch_dpfts.tune needs {error.name}: pip install 'torch_dpfts[tune]'.",
            name=error.name,
        ) from None


def __dir__() -> list[str]:
    return __all__
