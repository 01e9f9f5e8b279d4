"""Benchmark problems: objectives for every agent of a federation."""

from torch_dpfts.problems.base import Problem
from torch_dpfts.problems.digits import DigitsTable
from torch_dpfts.problems.emnist import Emnist
from torch_dpfts.problems.gp_functions import GPFunctions
from torch_dpfts.problems.landmine import Landmine
from torch_dpfts.problems.per_agent import PerAgent
from torch_dpfts.problems.shifted import SHIFTED_FUNCTIONS, ShiftedFunctions
from torch_dpfts.problems.uci_har import UciHar
from torch_dpfts.problems.watch import Watch

__all__ = [
    "SHIFTED_FUNCTIONS",
    "DigitsTable",
    "Emnist",
    "GPFunctions",
    "Landmine",
    "PerAgent",
    "Problem",
    "ShiftedFunctions",
    "UciHar",
    "Watch",
]
