import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from torch_dpfts import Contribution, FederationSpec, Server
from torch_dpfts.errors import InvalidInputError, PrivacyBudgetExceeded, StateError

N, P, M = 3000, 2, 4
IDS = torch.arange(N)


def make(**changes: Any) -> FederationSpec:
    settings: dict[str, Any] = {
        "bounds": ((0.0, 0.0), (1.0, 1.0)), "num_agents": N, "num_rounds": 2,
        "num_regions": P, "num_features": M, "sample_rate": 0.5, "noise_multiplier": 1.0,
        "clip_norm": 3.0,
    }  # fmt: skip
    return FederationSpec.dp_fts_de(**(settings | changes))


def vectors() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(N, M, generator=generator, dtype=torch.float64)


def by_messages(spec: FederationSpec) -> Tensor:
    """The round of somebody who knows no streams."""
    messages = (Contribution(spec.fingerprint, n, 1, v) for n, v in enumerate(vectors()))
    return Server(spec, seed=0).round(messages).vectors


@pytest.mark.parametrize("size", [97, 700, N])
def test_chunks_of_any_size_in_any_order_are_the_messages(size: int) -> None:
    server = Server(make(), seed=0)
    stream = server.begin_round()
    order = torch.randperm(N, generator=torch.Generator().manual_seed(1))
    for ids in order.split(size):
        stream.add_chunk(ids, vectors()[ids])
    assert stream.statuses == {"accepted": N, "lost": 0}
    assert torch.equal(server.finish_round(stream).vectors, by_messages(make()))


PART = """
import sys, torch
from torch_dpfts.privacy import NoisyRegionAggregator
from torch_dpfts.spec import FederationSpec
spec = FederationSpec.from_json(sys.argv[1])
ids, vectors = torch.load(sys.argv[2])
chunks = zip(ids.split(300), vectors.split(300), strict=True)
torch.save(NoisyRegionAggregator(spec).partial_sum(1, chunks), sys.argv[2])
"""


def test_sums_of_several_processes_get_one_noise(tmp_path: Path) -> None:
    spec = make()
    server = Server(spec, seed=0)
    stream = server.begin_round()
    parts = stream.cohort.nonzero().squeeze(-1).tensor_split(3)
    workers = []
    for i, ids in enumerate(parts[1:]):
        torch.save((ids, vectors()[ids]), tmp_path / str(i))
        command = [sys.executable, "-c", PART, spec.to_json(), str(tmp_path / str(i))]
        workers.append(subprocess.Popen(command))
    stream.add_chunk(parts[0], vectors()[parts[0]])
    for i, worker in enumerate(workers):
        assert worker.wait(timeout=120) == 0
        stream.add_sum(torch.load(tmp_path / str(i)), parts[i + 1])
    assert torch.equal(server.finish_round(stream).vectors, by_messages(spec))


def test_faulty_rows_count_as_zero() -> None:
    spec = make(sample_rate=1.0)
    rows = vectors()
    rows[5, 1], rows[9] = torch.nan, torch.tensor([torch.inf, -torch.inf, 0.0, 0.0])
    server = Server(spec, seed=0)
    stream = server.begin_round()
    stream.add_chunk(IDS, rows)
    stream.add_chunk(IDS[:2], 100 * rows[:2])
    stream.add_chunk(torch.tensor([5, 5]), torch.ones(2, M, dtype=torch.float64))
    assert stream.statuses == {"accepted": N - 1, "lost": 1, "duplicate": 3, "non-finite": 2}
    rows[5], rows[9] = 1.0, 0.0
    expected = Server(spec, seed=0).begin_round()
    expected.add_chunk(IDS, rows)
    assert torch.equal(stream.total, expected.total)


def test_large_finite_rows_are_not_taken_for_infinite_ones() -> None:
    stream = Server(make(sample_rate=1.0), seed=0).begin_round()
    stream.add_chunk(IDS[:1], torch.full((1, M), 1e308, dtype=torch.float64))
    assert stream.statuses["accepted"] == 1


def test_agents_that_were_not_drawn_leave_no_trace() -> None:
    spec = make()
    stream = Server(spec, seed=0).begin_round()
    stream.add_chunk(IDS[~stream.cohort], vectors()[~stream.cohort])
    assert not stream.total.any()


def test_wrong_chunks_and_sums_are_refused_and_change_nothing() -> None:
    spec = make()
    stream = Server(spec, seed=0).begin_round()
    drawn = stream.cohort.nonzero().squeeze(-1)[:2]
    zero = torch.zeros(P, M, dtype=torch.int64)
    with pytest.raises(InvalidInputError, match=r"shape \(2, 4\), got \(2, 3\)"):
        stream.add_chunk(drawn, torch.ones(2, 3))
    with pytest.raises(InvalidInputError, match=r"lie in 0\.\.2999, got 3000"):
        stream.add_chunk(torch.tensor([3000]), torch.ones(1, M))
    with pytest.raises(InvalidInputError, match="result of partial_sum"):
        stream.add_sum(zero.double(), drawn)
    with pytest.raises(InvalidInputError, match="of the round's cohort"):
        stream.add_sum(zero, IDS[~stream.cohort][:1])
    with pytest.raises(InvalidInputError, match="not been counted"):
        stream.add_sum(zero, torch.cat([drawn, drawn]))
    assert stream.statuses == {"accepted": 0, "lost": N}
    stream.add_sum(zero, drawn)
    with pytest.raises(InvalidInputError, match="not been counted"):
        stream.add_sum(zero, drawn)


def test_a_stream_is_finished_once_and_charged_once() -> None:
    server = Server(make(), seed=0)
    stream, other = server.begin_round(), server.begin_round()
    assert len(server.ledger) == 0
    server.finish_round(stream)
    for late in (stream, other):
        with pytest.raises(StateError, match="of round 1 and the next round is 2"):
            server.finish_round(late)
    assert len(server.ledger) == 1
    server.round([])
    with pytest.raises(PrivacyBudgetExceeded):
        server.begin_round()
