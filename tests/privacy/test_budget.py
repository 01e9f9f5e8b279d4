"""The budget of a whole server: it stops in time, and no crash makes it forget."""

import sys
from pathlib import Path

import pytest
import torch
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant

import torch_dpfts
from torch_dpfts.errors import PrivacyBudgetExceeded
from torch_dpfts.messages import Broadcast, Contribution
from torch_dpfts.privacy import epsilon_spent, round_charge
from torch_dpfts.server import Server
from torch_dpfts.spec import FederationSpec

PACKAGE = Path(torch_dpfts.__file__).parent
TRACED = {
    str(PACKAGE / name)
    for name in (
        "server.py",
        "streaming.py",
        "files.py",
        "privacy/ledger.py",
        "privacy/mechanism.py",
    )
}


def make_spec(**settings):
    settings = {"num_regions": 2, "target_epsilon": 1.5, "accountant": "rdp"} | settings
    return FederationSpec.dp_fts_de(
        bounds=[[0.0], [1.0]],
        num_agents=4,
        num_rounds=50,
        num_features=2,
        sample_rate=0.5,
        noise_multiplier=1.5,
        clip_norm=1.0,
        region_hold=1,
        region_decay=2,
        **settings,
    )


def send(spec, round):
    vector = torch.ones(2, dtype=torch.float64)
    return [Contribution(spec.fingerprint, n, round, vector) for n in range(4)]


def run_to_the_end(server):
    released = []
    try:
        while True:
            released.append(server.round(send(server.spec, server.next_round)))
    except PrivacyBudgetExceeded:
        return released


@pytest.mark.parametrize(
    ("accountant", "sensitivity", "target"),
    [
        ("pld", "exact", 0.7),
        ("pld", "paper", 1.0),
        ("rdp", "exact", 1.5),
        ("prv", "paper", 0.8),
        ("moments", "exact", 3.0),
    ],
)
def test_every_accountant_stops_before_the_budget_is_exceeded(accountant, sensitivity, target):
    spec = make_spec(accountant=accountant, sensitivity=sensitivity, target_epsilon=target)
    server = Server(spec, seed=0)
    rounds = len(run_to_the_end(server))
    assert 1 <= rounds < spec.num_rounds
    history = [(*round_charge(spec, t), 1) for t in range(1, rounds + 2)]
    assert server.ledger.history() == history[:-1]
    assert server.epsilon() == epsilon_spent(history[:-1], spec.delta, accountant) <= target
    assert epsilon_spent(history, spec.delta, accountant) > target


def test_independent_accountant_agrees_that_the_budget_was_kept():
    spec = make_spec(accountant="pld", target_epsilon=0.7)
    server = Server(spec, seed=0)
    run_to_the_end(server)
    accountant = PLDAccountant(value_discretization_interval=1e-3)
    for multiplier, rate, _ in server.ledger.history():
        accountant.compose(
            dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(multiplier))
        )
    assert accountant.get_epsilon(spec.delta) <= spec.target_epsilon + 1e-3
    assert server.epsilon() == pytest.approx(accountant.get_epsilon(spec.delta), rel=2e-3)


def test_epsilon_is_that_of_a_server_that_never_stopped(tmp_path):
    spec = make_spec()
    straight = run_to_the_end(Server(spec, seed=0))
    server = Server(spec, seed=0, directory=tmp_path / "federation")
    released = []
    for round in range(1, len(straight) + 1):
        released.append(server.round(send(spec, round)))
        server.close()
        server = Server.load(tmp_path / "federation")
    assert server.epsilon() == epsilon_spent(server.ledger.history(), spec.delta, "rdp")
    assert all(
        torch.equal(first.vectors, second.vectors)
        for first, second in zip(straight, released, strict=True)
    )
    with pytest.raises(PrivacyBudgetExceeded):
        server.round(send(spec, server.next_round))


class Crash(BaseException):
    """The process dies."""


def crash_at(step, action):
    """Run ``action`` and die at the given executed line of the traced files.

    Returns whether it died; if not, there are no more lines.
    """
    count = 0

    def local(frame, event, argument):
        nonlocal count
        if event == "line":
            count += 1
            if count == step:
                raise Crash
        return local

    def trace(frame, event, argument):
        return local if frame.f_code.co_filename in TRACED else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    except Crash:
        return True
    finally:
        sys.settrace(before)
    return False


def saved_broadcast(directory):
    path = directory / "broadcast.bin"
    return Broadcast.from_bytes(path.read_bytes()) if path.exists() else None


def test_crash_at_every_executed_line_of_a_round(tmp_path, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda descriptor: None)  # the machine itself stays up
    spec = make_spec()
    undisturbed = len(run_to_the_end(Server(spec, seed=0)))
    step, died = 1, True
    while died:
        directory = tmp_path / str(step)
        server = Server(spec, directory=directory)  # noise that cannot be drawn again
        released = [server.round(send(spec, 1))]
        died = crash_at(step, lambda s=server, r=released: r.append(s.round(send(spec, 2))))
        server.close()  # as the operating system does when a process dies
        left = saved_broadcast(directory)
        resumed = Server.load(directory)
        # What left, or may have left, is recorded and is not released in another version.
        assert left is not None
        assert {1, left.round} <= {entry.round for entry in resumed.ledger}
        assert resumed.next_round == left.round + 1
        assert torch.equal(resumed.last_broadcast.vectors, left.vectors)
        if len(released) == 2:
            assert torch.equal(released[1].vectors, left.vectors)
        assert resumed.epsilon() >= epsilon_spent(
            [(*round_charge(spec, t), 1) for t in range(1, left.round + 1)], spec.delta, "rdp"
        )
        if step % 20 == 1:  # the rest of the run, now and then
            run_to_the_end(resumed)
            assert resumed.next_round == undisturbed + 1
            assert len(resumed.ledger) == undisturbed
            assert resumed.epsilon() <= spec.target_epsilon
        resumed.close()
        step += 1
    assert step > 60  # lines were indeed counted
