"""Random schedules of faults: nothing is lost, drawn anew, unrecorded or under-reported.

Each example is a federation of three sites whose files are real, a server whose directory is
real, and up to thirty events: rounds with any mixture of faults, trials that end, sites and
servers that crash at any step. ``DPFTS_FAULT_SCHEDULES`` sets how many examples run; 1,000 take
a few minutes.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from torch_dpfts import Broadcast, FederationSpec, Server
from torch_dpfts.errors import PrivacyBudgetExceeded
from torch_dpfts.inprocess import Fault, InProcessTransport
from torch_dpfts.privacy import PrivacyLedger
from torch_dpfts.privacy.accounting import epsilon_spent
from torch_dpfts.privacy.sensitivity import round_charge
from torch_dpfts.site.calls import StoredSite
from torch_dpfts.site.store import SiteStore
from torch_dpfts.transport import Status

N = 3
SCHEDULES = int(os.environ.get("DPFTS_FAULT_SCHEDULES", "150"))
SPEC = FederationSpec.dp_fts_de(
    bounds=[[0.0], [1.0]], num_agents=N, num_rounds=8, num_regions=2, num_features=4,
    sample_rate=0.7, noise_multiplier=1.0, clip_norm=2.0, delta=1e-3, accountant="rdp",
)  # fmt: skip
FAULTS = st.lists(st.sampled_from([None, *Fault]), min_size=N, max_size=N)
CRASHES = st.sampled_from([None, "before recording", "after recording", "before saving", "saved"])


class Crash(BaseException):
    """The server's process dies."""


class Federation(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        shm = Path("/dev/shm")
        self.folder = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() else None))
        self.faults: list[Fault | None] = [None] * N
        self.outcomes: list[dict[int, float]] = [{} for _ in range(N)]
        self.stores: dict[int, SiteStore] = {}
        sites = {n: self.open_site(n) for n in range(N)}
        self.transport = InProcessTransport(
            SPEC, sites, faults=lambda t, n: self.faults[n], restart=self.restart_site
        )
        # The operating system's entropy: a noise vector drawn twice would be a different one.
        self.server = Server(SPEC, directory=self.folder / "server")
        self.released: dict[int, bytes] = {}

    def teardown(self) -> None:
        self.server.close()
        for store in self.stores.values():
            store.close()
        shutil.rmtree(self.folder)

    def open_site(self, n: int) -> StoredSite:
        identity = {"federation": SPEC.fingerprint, "agent_id": str(n)}
        self.stores[n] = SiteStore(self.folder / f"site{n}", identity)
        return StoredSite(SPEC, n, self.stores[n], seed=n)

    def restart_site(self, n: int) -> StoredSite:
        self.stores[n].close()
        return self.open_site(n)

    # --- events -------------------------------------------------------------------------

    @rule(n=st.integers(0, N - 1), y=st.floats(-5, 5))
    def a_trial_ends(self, n: int, y: float) -> None:
        store = self.stores[n]
        trial = store.pending() or store.choose([abs(y) / 5])
        store.finish(trial.number, y)
        self.outcomes[n][trial.number] = y

    @rule(n=st.integers(0, N - 1), x=st.floats(0, 1))
    def a_site_dies_in_mid_evaluation(self, n: int, x: float) -> None:
        trial = self.stores[n].pending() or self.stores[n].choose([x])
        self.transport.sites[n] = self.restart_site(n)
        assert self.stores[n].pending() == trial

    @rule(faults=FAULTS, crash=CRASHES)
    def a_round(self, faults: list[Fault | None], crash: str | None) -> None:
        self.faults = faults
        try:
            self.server.check_budget()
            exchange = self.transport.exchange(
                self.server.next_round, self.server.last_broadcast, deadline=60.0
            )
            for n, fault in enumerate(faults):
                if fault in (Fault.LOSE, Fault.DELAY, Fault.CRASH):
                    assert exchange.statuses[n] in (Status.LOST, Status.WRONG_ROUND) or (
                        n in exchange.contributions  # a delayed answer to the round repeated
                    )
            with pytest.MonkeyPatch.context() as patch:
                self.plant(patch, crash)
                broadcast = self.server.round(exchange.contributions.values())
            self.release(broadcast)
        except PrivacyBudgetExceeded:
            assert self.server.next_round == SPEC.num_rounds + 1
        except Crash:
            self.resume()

    @rule()
    def the_server_is_restarted(self) -> None:
        self.resume()

    def resume(self) -> None:
        self.server.close()
        self.server = Server.load(self.folder / "server")
        if self.server.last_broadcast is not None:
            # It may have been sent before the crash, and it will be now.
            self.release(self.server.last_broadcast)

    def plant(self, patch: pytest.MonkeyPatch, step: str | None) -> None:
        import torch_dpfts.server as module

        def die(*args: Any, **options: Any) -> None:
            raise Crash

        def then_die(call: Callable[..., Any]) -> Callable[..., None]:
            return lambda *args, **options: (call(*args, **options), die())[1]

        if step == "before recording":
            patch.setattr(self.server.ledger, "append", die)
        if step == "after recording":
            patch.setattr(self.server.ledger, "append", then_die(self.server.ledger.append))
        if step == "before saving":
            patch.setattr(module, "write_atomically", die)
        if step == "saved":
            patch.setattr(module, "write_atomically", then_die(module.write_atomically))

    def release(self, broadcast: Broadcast) -> None:
        """What leaves: the same bytes for a round whenever it leaves, and recorded before."""
        data = broadcast.to_bytes()
        assert self.released.setdefault(broadcast.round, data) == data
        on_disk = PrivacyLedger(self.folder / "server" / "ledger.jsonl", read_only=True)
        assert broadcast.round in on_disk

    # --- what must hold -----------------------------------------------------------------

    @invariant()
    def no_trial_is_lost(self) -> None:
        for n, store in self.stores.items():
            found = {t.number: t.value for t in store.trials() if t.value is not None}
            assert found == self.outcomes[n]

    @invariant()
    def no_noise_is_used_twice(self) -> None:
        rows = torch.cat([Broadcast.from_bytes(b).vectors for b in self.released.values()] or
                         [torch.zeros(0, 4, dtype=torch.float64)])  # fmt: skip
        # Exact equality of two of the noisy sums has probability below 2 ** -180.
        assert len({tuple(row) for row in rows.tolist()}) == len(rows)

    @invariant()
    def every_release_is_recorded_and_paid(self) -> None:
        recorded = [entry.round for entry in self.server.ledger]
        assert recorded == list(range(1, len(recorded) + 1))
        assert set(self.released) <= set(recorded)
        history = [(*round_charge(SPEC, t), 1) for t in sorted(self.released)]
        if history:
            assert self.server.epsilon() >= epsilon_spent(history, SPEC.delta, "rdp") * (1 - 1e-9)

    @invariant()
    def sites_hold_only_what_was_released(self) -> None:
        for store in self.stores.values():
            data = store.last_broadcast(SPEC.fingerprint)
            if data is not None:
                assert data == self.released[Broadcast.from_bytes(data).round]


Federation.TestCase.settings = settings(
    max_examples=SCHEDULES,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestFaultSchedules = Federation.TestCase
