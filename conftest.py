"""Settings for the whole test run."""

import os

# The links at the root lead to modules that are collected in their real place.
collect_ignore = ["acquisition", "privacy"]

# One thread a process, set before torch is imported: the tests run in parallel.
os.environ.setdefault("OMP_NUM_THREADS", "1")
