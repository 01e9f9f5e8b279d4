"""Differential privacy of the server's broadcasts: mechanism, accounting, planning."""

from torch_dpfts.privacy.accounting import epsilon_spent
from torch_dpfts.privacy.adaptive_clip import clip_votes, next_clip_norm
from torch_dpfts.privacy.audit import AuditResult, audit_privacy, plot_audits
from torch_dpfts.privacy.ledger import LedgerEntry, PrivacyLedger
from torch_dpfts.privacy.mechanism import NoisyRegionAggregator
from torch_dpfts.privacy.noise import NoiseSource, SecureNoise, SeededNoise
from torch_dpfts.privacy.planning import NoisePlan, plan_noise
from torch_dpfts.privacy.report import PrivacyReport, privacy_report
from torch_dpfts.privacy.sensitivity import (
    charged_sensitivity,
    joint_multiplier,
    joint_sensitivity,
    planned_charges,
    round_charge,
)
from torch_dpfts.privacy.signal import averaged_signal_to_noise, signal_to_noise
from torch_dpfts.privacy.weights import region_score, region_weights

__all__ = [
    "AuditResult",
    "LedgerEntry",
    "NoisePlan",
    "NoiseSource",
    "NoisyRegionAggregator",
    "PrivacyLedger",
    "PrivacyReport",
    "SecureNoise",
    "SeededNoise",
    "audit_privacy",
    "averaged_signal_to_noise",
    "charged_sensitivity",
    "clip_votes",
    "epsilon_spent",
    "joint_multiplier",
    "joint_sensitivity",
    "next_clip_norm",
    "plan_noise",
    "planned_charges",
    "plot_audits",
    "privacy_report",
    "region_score",
    "region_weights",
    "round_charge",
    "signal_to_noise",
]
