"""Tuning of training functions across sites."""

from torch_dpfts.tune.space import ParameterSpace

__all__ = ["ParameterSpace"]
