"""Settings for the whole test run."""

import os
from importlib.util import find_spec

# The links at the root lead to modules that are collected in their real place.
collect_ignore = ["acquisition", "privacy"]
# The adapter to Flower, an extra, has doctests of its own.
if find_spec("flwr") is None:
    collect_ignore.append("torch_dpfts/flower")
if find_spec("ax") is None:
    collect_ignore.append("torch_dpfts/ax.py")

# One thread a process, set before torch is imported: the tests run in parallel.
os.environ.setdefault("OMP_NUM_THREADS", "1")
