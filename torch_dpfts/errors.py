"""The errors and the warning of torch_dpfts, one class for each thing that callers catch."""

from __future__ import annotations


class DPFTSError(Exception):
    """Base class of every error that this package raises on purpose."""


class InvalidInputError(DPFTSError, ValueError):
    """A value handed in is refused; the message names the value and the mend."""


class MessageError(DPFTSError, ValueError):
    """A message cannot be decoded or does not fit the federation."""


class FingerprintMismatchError(MessageError):
    """Two parties hold different specifications; the message names both fingerprints."""


class PrivacyBudgetExceeded(DPFTSError, RuntimeError):
    """The next release would spend more than the target epsilon (or the planned rounds)."""


class LedgerError(DPFTSError, RuntimeError):
    """A privacy ledger was edited, cut, or is held by another process."""


class StateError(DPFTSError, RuntimeError):
    """Saved state is missing, damaged, or belongs to another federation."""


class RunError(DPFTSError, RuntimeError):
    """A run of an experiment failed; the message names the arm, the seed and the cause."""


class DPFTSWarning(UserWarning):
    """Category of every warning that this package issues."""
