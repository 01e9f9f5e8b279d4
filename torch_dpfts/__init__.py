"""Differentially private federated Bayesian optimisation for BoTorch (DP-FTS-DE)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from torch_dpfts._version import __version__

if TYPE_CHECKING:
    from torch_dpfts.agent import Agent
    from torch_dpfts.federation import FederationResult, run_federation, run_federations
    from torch_dpfts.fleet import Fleet
    from torch_dpfts.messages import Broadcast, Contribution
    from torch_dpfts.server import Server
    from torch_dpfts.spec import ARMS, FederationSpec

__all__ = [
    "ARMS",
    "Agent",
    "Broadcast",
    "Contribution",
    "FederationResult",
    "FederationSpec",
    "Fleet",
    "Server",
    "__version__",
    "run_federation",
    "run_federations",
]

_HOME = {
    "ARMS": "spec",
    "Agent": "agent",
    "Broadcast": "messages",
    "Contribution": "messages",
    "FederationResult": "federation",
    "FederationSpec": "spec",
    "Fleet": "fleet",
    "Server": "server",
    "run_federation": "federation",
    "run_federations": "federation",
}


def __getattr__(name: str) -> Any:
    # Names are looked up when first used, so that the command line starts without BoTorch.
    if name in _HOME:
        return getattr(import_module(f"torch_dpfts.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
