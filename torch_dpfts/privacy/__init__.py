"""Differential privacy of the server's broadcasts: mechanism, noise, accounting, ledger."""

from torch_dpfts.privacy.accounting import epsilon_spent
from torch_dpfts.privacy.ledger import LedgerEntry, PrivacyLedger
from torch_dpfts.privacy.mechanism import NoisyRegionAggregator
from torch_dpfts.privacy.noise import NoiseSource, SecureNoise, SeededNoise
from torch_dpfts.privacy.sensitivity import (
    charged_sensitivity,
    joint_multiplier,
    joint_sensitivity,
    round_charge,
)
from torch_dpfts.privacy.weights import region_score, region_weights

__all__ = [
    "LedgerEntry",
    "NoiseSource",
    "NoisyRegionAggregator",
    "PrivacyLedger",
    "SecureNoise",
    "SeededNoise",
    "charged_sensitivity",
    "epsilon_spent",
    "joint_multiplier",
    "joint_sensitivity",
    "region_score",
    "region_weights",
    "round_charge",
]
