"""Benchmarks: arms against each other on one problem, with paired seeds."""

from torch_dpfts.benchmark.configuration import BenchmarkSettings, shipped_settings
from torch_dpfts.benchmark.plots import (
    plot_convergence,
    plot_privacy_utility,
    plot_sharing_gain,
    write_plots,
)
from torch_dpfts.benchmark.runner import run_benchmark
from torch_dpfts.benchmark.runs import Run
from torch_dpfts.benchmark.statistics import Estimate
from torch_dpfts.benchmark.summary import ArmSummary, Comparison, Summary, summarise
from torch_dpfts.benchmark.tables import markdown, print_summary

__all__ = [
    "ArmSummary",
    "BenchmarkSettings",
    "Comparison",
    "Estimate",
    "Run",
    "Summary",
    "markdown",
    "plot_convergence",
    "plot_privacy_utility",
    "plot_sharing_gain",
    "print_summary",
    "run_benchmark",
    "shipped_settings",
    "summarise",
    "write_plots",
]
