"""Generators derived from one seed and a key, so that draws never depend on call order.

An agent that is saved and loaded, a round that is repeated, or a fleet that advances many
agents at once must all see the same draws. Each draw therefore has a generator of its own,
seeded with a hash of the root seed and of what the draw is for.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence

import torch
from torch import Tensor


def derived_seed(root: int, *key: int | str) -> int:
    """Return a 63-bit seed, the sha256 of ``root`` and ``key``.

    Example:
        >>> derived_seed(0, "path", 3) == derived_seed(0, "path", 3)
        True
    """
    digest = hashlib.sha256(repr((root, *key)).encode()).digest()
    # torch's CPU generator keeps the low 32 bits of a seed, which the hash fills evenly.
    return int.from_bytes(digest[:8], "big") >> 1


def derived_generator(root: int, *key: int | str) -> torch.Generator:
    """Return a CPU generator seeded with :func:`derived_seed`."""
    return torch.Generator().manual_seed(derived_seed(root, *key))


def fresh_seed() -> int:
    """Return a root seed from the operating system's entropy."""
    return secrets.randbits(62)


def normal_rows(
    generators: Sequence[torch.Generator],
    shape: Sequence[int],
    dtype: torch.dtype,
    device: torch.device | str | None = None,
) -> Tensor:
    """Stack standard normal draws, one row for each generator.

    The draws are made on the CPU in float64, whatever the target, so that a seed means the
    same draw everywhere.

    Returns:
        A ``len(generators) x shape`` tensor.
    """
    rows = [torch.randn(tuple(shape), generator=g, dtype=torch.float64) for g in generators]
    return torch.stack(rows).to(dtype=dtype, device=device)


def uniform_rows(
    generators: Sequence[torch.Generator],
    shape: Sequence[int],
    dtype: torch.dtype,
    device: torch.device | str | None = None,
) -> Tensor:
    """Stack uniform draws on ``[0, 1)``, one row for each generator; see :func:`normal_rows`."""
    rows = [torch.rand(tuple(shape), generator=g, dtype=torch.float64) for g in generators]
    return torch.stack(rows).to(dtype=dtype, device=device)
