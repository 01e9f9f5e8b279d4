import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from torch_dpfts import Broadcast, Contribution, FederationSpec, Server
from torch_dpfts.errors import DPFTSError, PrivacyBudgetExceeded, StateError
from torch_dpfts.privacy import SeededNoise, epsilon_spent, region_weights, round_charge

N, P, M = 6, 2, 4


def make(**changes: Any) -> FederationSpec:
    settings: dict[str, Any] = {
        "bounds": ((0.0, 0.0), (1.0, 1.0)), "num_agents": N, "num_rounds": 12,
        "num_regions": P, "num_features": M, "sample_rate": 0.5, "noise_multiplier": 1.0,
        "clip_norm": 3.0,
    }  # fmt: skip
    return FederationSpec.dp_fts_de(**(settings | changes))


EXACT = {"sample_rate": 1.0, "noise_multiplier": 0.0, "clip_norm": math.inf}


def vector(agent_id: int, round: int) -> Tensor:
    generator = torch.Generator().manual_seed(100 * round + agent_id)
    return torch.randn(M, generator=generator, dtype=torch.float64)


def messages(spec: FederationSpec, round: int) -> list[Contribution]:
    return [Contribution(spec.fingerprint, n, round, vector(n, round)) for n in range(N)]


def advance(server: Server, rounds: int) -> list[Broadcast]:
    return [server.round(messages(server.spec, server.next_round)) for _ in range(rounds)]


def test_without_noise_a_round_is_the_weighted_sum() -> None:
    spec = make(**EXACT)
    broadcast = Server(spec).round(messages(spec, 1))
    weights = region_weights(spec, 1)
    for i in range(P):
        expected = sum(float(weights[i, n]) * vector(n, 1) for n in range(N))
        torch.testing.assert_close(broadcast.vectors[i], expected)
    assert (broadcast.fingerprint, broadcast.round) == (spec.fingerprint, 1)


FAULTS = {
    "stale": lambda spec: Contribution(spec.fingerprint, 2, 3, vector(2, 1)),
    "wrong fingerprint": lambda spec: Contribution("f00d", 2, 1, vector(2, 1)),
    "wrong shape": lambda spec: Contribution(spec.fingerprint, 2, 1, vector(2, 1)[:3]),
    "non-finite": lambda spec: Contribution(spec.fingerprint, 2, 1, vector(2, 1) / 0.0),
    "unknown agent": lambda spec: Contribution(spec.fingerprint, N, 1, vector(2, 1)),
    "lost": lambda spec: None,
}


@pytest.mark.parametrize("status", FAULTS)
def test_a_faulty_message_counts_as_zero_and_is_reported_to_the_owner(status: str) -> None:
    spec = make(**EXACT)
    good = messages(spec, 1)
    zero = Contribution(spec.fingerprint, 2, 1, torch.zeros(M, dtype=torch.float64))
    expected = Server(spec).round([*good[:2], zero, *good[3:]])
    server = Server(spec)
    fault = FAULTS[status](spec)
    arrived = [m for m in (*good[:2], fault, *good[3:]) if m is not None]
    broadcast = server.round(arrived)
    torch.testing.assert_close(broadcast.vectors, expected.vectors)
    (report,) = server.diagnostics
    assert report.statuses["accepted"] == N - 1
    assert report.statuses[status] == 1
    assert str(report).startswith("not private: round 1:")
    assert vars(broadcast).keys() == {"fingerprint", "round", "vectors"}


def test_a_duplicate_counts_once() -> None:
    spec = make(**EXACT)
    good = messages(spec, 1)
    server = Server(spec)
    again = Contribution(spec.fingerprint, 2, 1, 1000 * vector(2, 1))
    broadcast = server.round([*good, again])
    torch.testing.assert_close(broadcast.vectors, Server(spec).round(good).vectors)
    assert server.diagnostics[0].statuses == {"accepted": N, "lost": 0, "duplicate": 1}
    assert server.diagnostics[0].refused == ((2, "duplicate"),)


def test_an_empty_cohort_releases_noise_and_is_charged() -> None:
    spec = make(sample_rate=0.05, delta=1e-6)
    seed = next(s for s in range(99) if not SeededNoise(s).coins(1, N, spec.sample_rate).any())
    server = Server(spec, seed)
    broadcast = server.round(messages(spec, 1))
    assert server.diagnostics[0].cohort == ()
    assert broadcast.vectors.abs().min() > 0
    # The vectors that were not drawn have left no trace.
    assert torch.equal(broadcast.vectors, Server(spec, seed).round([]).vectors)
    assert server.epsilon() > 0


def test_dropouts_change_neither_noise_nor_denominator() -> None:
    spec = make(sample_rate=1.0)
    some = messages(spec, 1)[:4]
    rest = [
        Contribution(spec.fingerprint, n, 1, torch.zeros(M, dtype=torch.float64)) for n in (4, 5)
    ]
    lost, zeroed = Server(spec, seed=0).round(some), Server(spec, seed=0).round(some + rest)
    assert torch.equal(lost.vectors, zeroed.vectors)


def test_messages_may_come_in_any_order_and_precision() -> None:
    spec = make(sample_rate=1.0)
    good = messages(spec, 1)
    forward, backward = Server(spec, seed=0).round(good), Server(spec, seed=0).round(good[::-1])
    assert torch.equal(forward.vectors, backward.vectors)
    halves = [Contribution.from_bytes(m.to_bytes("float16")) for m in good]
    torch.testing.assert_close(
        Server(spec, seed=0).round(halves).vectors, forward.vectors, atol=0.02, rtol=0
    )


def test_broadcasts_are_rounded_after_the_noise() -> None:
    exact = advance(Server(make(), seed=0), 3)
    rounded = advance(Server(make(wire_dtype="float16"), seed=0), 3)
    for one, other in zip(exact, rounded, strict=True):
        assert torch.equal(one.vectors.half(), other.vectors)
    huge = advance(Server(make(wire_dtype="float16", clip_norm=1e9), seed=0), 1)
    assert huge[0].vectors.isfinite().all()


def test_averages_go_on_from_what_was_broadcast(tmp_path: Path) -> None:
    spec = make(wire_dtype="float16", averaging=0.7)
    stopped = Server(spec, seed=0, directory=tmp_path / "f")
    first = advance(stopped, 6)
    stopped.close()
    resumed = first + advance(Server.load(tmp_path / "f"), 6)
    exact = advance(Server(make(averaging=0.7), seed=0), 12)
    for one, other, fine in zip(resumed, advance(Server(spec, seed=0), 12), exact, strict=True):
        assert torch.equal(one.vectors, other.vectors)
        # Rounding errors do not add up: each is forgotten as the average moves on.
        torch.testing.assert_close(one.vectors.double(), fine.vectors, rtol=0, atol=0.02)


def test_epsilon_is_that_of_the_rounds_so_far() -> None:
    server = Server(make(), seed=0)
    assert server.epsilon() == 0.0
    advance(server, 5)
    history = [(*round_charge(server.spec, t), 1) for t in range(1, 6)]
    for delta, method in ((server.spec.delta, "pld"), (1e-5, "rdp")):
        assert server.epsilon(delta, method) == pytest.approx(epsilon_spent(history, delta, method))
    assert server.epsilon() == server.epsilon(server.spec.delta, server.spec.accountant)


def test_without_noise_epsilon_is_infinite() -> None:
    server = Server(make(**EXACT))
    advance(server, 1)
    assert server.epsilon() == math.inf


def test_it_stops_after_the_planned_rounds() -> None:
    server = Server(make(num_rounds=2), seed=0)
    advance(server, 2)
    with pytest.raises(PrivacyBudgetExceeded, match="All 2 planned rounds are done"):
        advance(server, 1)
    assert server.next_round == 3
    assert len(server.ledger) == 2


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_it_stops_before_the_round_that_would_exceed_the_target(accountant: str) -> None:
    free = Server(make(accountant=accountant), seed=0)
    advance(free, 4)
    target = free.epsilon() * 1.0001
    server = Server(make(accountant=accountant, target_epsilon=target), seed=0)
    advance(server, 4)
    with pytest.raises(PrivacyBudgetExceeded, match="target_epsilon"):
        advance(server, 1)
    assert server.next_round == 5
    assert server.epsilon() <= target


def test_where_the_noise_comes_from_is_stated() -> None:
    assert Server(make(), seed=0).noise_description == "seeded: not private"
    assert "not private" not in Server(make()).noise_description


def test_seeds() -> None:
    one, again, other = (advance(Server(make(), seed=s), 3) for s in (1, 1, 2))
    assert all(torch.equal(a.vectors, b.vectors) for a, b in zip(one, again, strict=True))
    assert not torch.equal(one[0].vectors, other[0].vectors)
    fresh = [advance(Server(make()), 1)[0].vectors for _ in range(2)]
    assert not torch.equal(*fresh)


def test_a_resumed_server_is_one_that_never_stopped(tmp_path: Path) -> None:
    spec = make()
    expected = Server(spec, seed=5)
    broadcasts = advance(expected, 12)
    server = Server(spec, seed=5, directory=tmp_path)
    done = advance(server, 7)
    server.close()
    resumed = Server.load(tmp_path)
    assert resumed.spec == spec
    assert resumed.next_round == 8
    assert torch.equal(resumed.last_broadcast.vectors, done[-1].vectors)
    done += advance(resumed, 5)
    for a, b in zip(done, broadcasts, strict=True):
        assert a.round == b.round
        assert torch.equal(a.vectors, b.vectors)
    assert resumed.epsilon() == expected.epsilon()
    resumed.close()


@pytest.mark.parametrize("seed", [None, 5])
@pytest.mark.parametrize("step", ["before recording", "after recording", "after saving"])
def test_a_crash_at_any_step_neither_redraws_nor_under_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int | None, step: str
) -> None:
    spec = make()
    server = Server(spec, seed=seed, directory=tmp_path)
    advance(server, 7)
    attempts: list[Tensor] = []

    def crash(*args: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    if step == "before recording":
        monkeypatch.setattr(server.ledger, "append", crash)
    elif step == "after recording":
        monkeypatch.setattr(server, "_release", crash)
    else:
        monkeypatch.setattr("torch_dpfts.server.RoundDiagnostics", crash)
    with pytest.raises(KeyboardInterrupt):
        advance(server, 1)
    monkeypatch.undo()
    server.close()
    resumed = Server.load(tmp_path)
    if step == "after saving":
        # The broadcast may have left: it is there to be sent again, and not drawn again.
        assert resumed.next_round == 9
        attempts.append(resumed.last_broadcast.vectors)
    else:
        assert resumed.next_round == 8
        attempts.append(advance(resumed, 1)[0].vectors)
    history = [(*round_charge(spec, t), 1) for t in range(1, 9)]
    assert resumed.epsilon() == pytest.approx(epsilon_spent(history, spec.delta, "pld"))
    assert [entry.round for entry in resumed.ledger.entries] == list(range(1, 9))
    if seed is not None:
        assert torch.equal(attempts[0], advance(Server(spec, seed=seed), 8)[-1].vectors)
    resumed.close()


def test_a_directory_in_use_is_not_overwritten(tmp_path: Path) -> None:
    Server(make(), directory=tmp_path).close()
    with pytest.raises(StateError, match="already holds a federation"):
        Server(make(), directory=tmp_path)


def test_missing_or_damaged_state_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="No saved state"):
        Server.load(tmp_path)
    server = Server(make(), seed=0, directory=tmp_path)
    advance(server, 2)
    server.close()
    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    head = json.loads(kept["server.json"])
    for name, content in {
        "server.json": b"{",
        "broadcast.bin": kept["broadcast.bin"][:-1],
        "ledger.jsonl": kept["ledger.jsonl"].split(b"\n")[0] + b"\n",
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DPFTSError):
            Server.load(tmp_path)
        (tmp_path / name).write_bytes(kept[name])
    head["spec"]["num_agents"] = 7
    (tmp_path / "server.json").write_text(json.dumps(head))
    with pytest.raises(DPFTSError, match="fingerprint"):
        Server.load(tmp_path)


def test_nothing_of_the_cohort_is_written_to_disk(tmp_path: Path) -> None:
    server = Server(make(), seed=0, directory=tmp_path)
    advance(server, 3)
    text = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"cohort" not in text
    assert b"accepted" not in text
    server.close()


ADAPTIVE = {"clip_quantile": 0.5, "sample_rate": 1.0}


def test_an_adaptive_clip_norm_moves_and_is_charged() -> None:
    spec = make(**ADAPTIVE, clip_norm=0.5, count_noise_multiplier=3.0)
    server = Server(spec, seed=0)
    norms = []
    for _ in range(8):
        stream = server.begin_round()
        norms.append(stream.clip_norm)
        stream.add(messages(spec, server.next_round))
        server.finish_round(stream)
    # Norms of the vectors are about 2 and the bound of each is S / sqrt(2): S has to grow.
    assert norms[0] == 0.5
    assert norms[-1] > norms[0]
    history = [(*round_charge(spec, t), 1) for t in range(1, 9)]
    fixed = [(*round_charge(make(sample_rate=1.0), t), 1) for t in range(1, 9)]
    assert server.epsilon() == pytest.approx(epsilon_spent(history, spec.delta, "pld"))
    assert server.epsilon() > epsilon_spent(fixed, spec.delta, "pld")


def test_an_adaptive_clip_norm_survives_a_stop_and_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = make(**ADAPTIVE)
    expected = advance(Server(spec, seed=5), 8)
    server = Server(spec, seed=5, directory=tmp_path)
    advance(server, 4)
    server.close()
    server = Server.load(tmp_path)
    advance(server, 1)

    def crash(*args: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    original = server._adapt_clip
    monkeypatch.setattr(server, "_adapt_clip", lambda stream: (original(stream), crash()))
    with pytest.raises(KeyboardInterrupt):
        advance(server, 1)
    server.close()
    resumed = Server.load(tmp_path)
    assert resumed.next_round == 6
    for again, broadcast in zip(advance(resumed, 3), expected[5:], strict=True):
        assert torch.equal(again.vectors, broadcast.vectors)
    resumed.close()


def test_a_release_beside_the_plan_counts_against_the_budget() -> None:
    spec = make(accountant="rdp", target_epsilon=12.0)
    planned = [(*round_charge(spec, t), 1) for t in range(1, 13)]
    assert epsilon_spent(planned, spec.delta, "rdp") < 12
    server = Server(spec, seed=0)
    advance(server, 1)
    server.ledger.append(round=100, sample_rate=1.0, noise_multiplier=0.2)
    assert server.epsilon() > 12
    with pytest.raises(PrivacyBudgetExceeded, match="target_epsilon"):
        advance(server, 1)


def test_a_damaged_clip_state_is_refused(tmp_path: Path) -> None:
    server = Server(make(**ADAPTIVE), seed=5, directory=tmp_path)
    advance(server, 1)
    server.close()
    (tmp_path / "clip.json").write_text("[1]")
    with pytest.raises(StateError, match="clip norm is damaged"):
        Server.load(tmp_path)
