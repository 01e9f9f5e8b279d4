"""The digits example: ten or so sites, each tuning a small network on images of its own."""

from __future__ import annotations

from typing import Any

from ConfigSpace import Categorical, Float, Integer

from torch_dpfts.problems.digits import BOUNDS
from torch_dpfts.problems.digits_cnn import BATCH_SIZES, OPTIMIZERS, DigitsCNN
from torch_dpfts.spec import FederationSpec
from torch_dpfts.tune.site import Site
from torch_dpfts.tune.space import ParameterSpace


def digits_space() -> ParameterSpace:
    """Six hyperparameters of :class:`~torch_dpfts.problems.digits_cnn.DigitsCNN`."""
    (_, dropout, lr, _, decay, width) = zip(*BOUNDS, strict=True)
    return ParameterSpace(
        {
            "batch_size": Categorical("batch_size", list(BATCH_SIZES), ordered=True),
            "dropout": Float("dropout", dropout),
            "lr": Float("lr", lr, log=True),
            "optimizer": list(OPTIMIZERS),
            "weight_decay": Float("weight_decay", decay, log=True),
            "width": Integer("width", (int(width[0]), int(width[1])), log=True),
        }
    )


def digits_sites(
    num_sites: int = 10, *, concentration: float = 1.0, data_seed: int = 0, **options: Any
) -> list[Site]:
    """The sites, with mixtures of labels drawn from a Dirichlet distribution.

    Args:
        num_sites: How many, from 2 to 40.
        concentration: Parameter of the Dirichlet distribution.
        data_seed: Seed of the split and of the training.
        options: Passed to :class:`Site`, such as ``stopping``.

    Example:
        >>> len(digits_sites(12))
        12
    """
    space = digits_space()
    return [
        Site(space, DigitsCNN(site, num_sites, concentration, data_seed), site, **options)
        for site in range(num_sites)
    ]


def digits_spec(num_sites: int = 10, num_rounds: int = 15, **settings: Any) -> FederationSpec:
    """The recommended settings for the digits example.

    Args:
        num_sites: Number of sites.
        num_rounds: Number of rounds.
        settings: As for :meth:`FederationSpec.recommended`.
    """
    fields = digits_space().spec_fields()
    roster = {"num_agents": num_sites, "num_rounds": num_rounds}
    return FederationSpec.recommended(**(fields | roster | settings))
