"""What leaves a site, and what it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from torch_dpfts import Agent, Broadcast, Contribution, FederationSpec
from torch_dpfts.privacy.accounting import epsilon_spent
from torch_dpfts.privacy.sensitivity import round_charge
from torch_dpfts.protocol import Code, answer
from torch_dpfts.site.calls import StoredSite
from torch_dpfts.site.store import SiteStore
from torch_dpfts.transport import Status, read_answer

POINTS = [(0.1, 1.0), (0.4, -2.0), (0.9, 0.5)]


@pytest.fixture
def store(tmp_path: Path, spec: FederationSpec) -> Iterator[SiteStore]:
    store = SiteStore(tmp_path / "s", {"federation": spec.fingerprint})
    for x, y in POINTS:
        store.finish(store.choose([x]).number, y)
    yield store
    store.close()


def broadcast(spec: FederationSpec, round: int, value: float = 1.0, **changes: Any) -> bytes:
    vectors = torch.full((spec.num_regions, spec.num_features), value, dtype=torch.float64)
    fields = {"fingerprint": spec.fingerprint, "round": round, "vectors": vectors} | changes
    return Broadcast(**fields).to_bytes()


def test_the_contribution_is_the_agents_and_the_same_when_asked_again(
    spec: FederationSpec, store: SiteStore
) -> None:
    agent = Agent(spec, 1, seed=9)
    for x, y in POINTS:
        agent.observe(
            torch.tensor([[x]], dtype=torch.float64), torch.tensor([[y]], dtype=torch.float64)
        )
    site = StoredSite(spec, 1, store, seed=9)
    first = site.contribution(2)
    status, message = read_answer(spec, 1, 2, first)
    assert status is Status.ANSWERED
    assert isinstance(message, Contribution)
    torch.testing.assert_close(message.vector, agent.contribute(2).vector)
    store.finish(store.choose([0.7]).number, 3.0)
    assert site.contribution(2) == first
    assert site.contribution(3)[1:] != first[1:]


def test_the_contribution_is_rounded_to_the_wire(spec: FederationSpec, store: SiteStore) -> None:
    coarse = replace(spec, wire_dtype="float16")
    (exact, rounded) = (
        read_answer(public, 1, 2, StoredSite(public, 1, store, seed=9).contribution(2))[1]
        for public in (spec, coarse)
    )
    assert isinstance(exact, Contribution)
    assert isinstance(rounded, Contribution)
    assert torch.equal(rounded.vector, exact.vector.half())


@pytest.mark.parametrize("round", [0, -1, 6, 2**63, True])
def test_rounds_outside_the_plan_are_refused(
    spec: FederationSpec, store: SiteStore, round: int
) -> None:
    assert StoredSite(spec, 1, store, seed=0).contribution(round) == answer(Code.REFUSED)
    assert store.rounds_contributed(spec.fingerprint) == []


def test_an_error_becomes_a_code_and_nothing_else(
    spec: FederationSpec, store: SiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> Tensor:
        raise ValueError("the secret of patient 7")

    monkeypatch.setattr("torch_dpfts.site.calls.Fleet.contribute", fail)
    monkeypatch.setattr("torch_dpfts.site.store.SiteStore.keep_broadcast", fail)
    site = StoredSite(spec, 1, store, seed=0)
    assert site.contribution(1) == answer(Code.FAILED)
    assert site.deliver(broadcast(spec, 1)) == answer(Code.FAILED)


def test_a_broadcast_is_kept_once(spec: FederationSpec, store: SiteStore) -> None:
    site = StoredSite(spec, 1, store, seed=0)
    assert site.deliver(broadcast(spec, 1)) == answer(Code.OK)
    assert site.deliver(broadcast(spec, 1)) == answer(Code.OK)
    # A second release of a round does not exist: this one is forged, or drawn anew.
    assert site.deliver(broadcast(spec, 1, value=2.0)) == answer(Code.REFUSED)
    assert store.last_broadcast(spec.fingerprint) == broadcast(spec, 1)


@pytest.mark.parametrize(
    "forged",
    [
        lambda spec: b"",
        lambda spec: broadcast(spec, 1)[:-1],
        lambda spec: broadcast(spec, 0),
        lambda spec: broadcast(spec, 6),
        lambda spec: broadcast(spec, 1, fingerprint="f00d"),
        lambda spec: broadcast(spec, 1, vectors=torch.zeros(3, 8)),
        lambda spec: broadcast(spec, 1, value=float("nan")),
    ],
)
def test_a_broadcast_that_does_not_fit_is_refused(
    spec: FederationSpec, store: SiteStore, forged: Callable[[FederationSpec], bytes]
) -> None:
    assert StoredSite(spec, 1, store, seed=0).deliver(forged(spec)) == answer(Code.REFUSED)
    assert store.last_broadcast(spec.fingerprint) is None


def test_a_listener_receives_and_says_nothing(spec: FederationSpec, store: SiteStore) -> None:
    site = StoredSite(spec, 1, store, seed=0, listener=True)
    assert site.contribution(1) == answer(Code.LISTENING)
    assert site.deliver(broadcast(spec, 1)) == answer(Code.OK)
    assert site.epsilon() == 0.0


def test_a_site_listens_when_its_own_budget_is_spent(
    spec: FederationSpec, store: SiteStore
) -> None:
    history = [(*round_charge(spec, t), 1) for t in (1, 2, 4)]
    target = epsilon_spent(history, spec.delta, spec.accountant) * 1.0001
    site = StoredSite(spec, 1, store, seed=0, target_epsilon=target)
    codes = [site.contribution(t)[0] for t in (1, 2, 4, 5, 3)]
    assert codes == [Code.OK, Code.OK, Code.OK, Code.LISTENING, Code.LISTENING]
    assert 0.0 < site.epsilon() <= target
    # What was sent once may be sent again: it is the same message.
    assert site.contribution(2)[0] == Code.OK
    assert site.deliver(broadcast(spec, 5)) == answer(Code.OK)
