"""``dpfts serve`` submits the app, again after a crash, and ends with the federation."""

from __future__ import annotations

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install -e '.[flower]'")

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch_dpfts import FederationSpec, Server
from torch_dpfts.errors import StateError
from torch_dpfts.flower import supervise as module
from torch_dpfts.flower.config import ServerConfig, write_failure, write_status
from torch_dpfts.flower.server_app import _only_one


@pytest.fixture
def config(tmp_path: Path) -> ServerConfig:
    (tmp_path / "state").mkdir()
    return ServerConfig(
        spec=tmp_path / "s", roster=tmp_path / "r", directory=tmp_path / "state",
        app=tmp_path / "app", flower_home=tmp_path / "flower", keys=tmp_path,
    )  # fmt: skip


@pytest.fixture
def flower(monkeypatch: pytest.MonkeyPatch, clock: Any) -> Callable[..., list[tuple[str, ...]]]:
    """Stand in for the commands of Flower: what happens at each submission is given."""
    monkeypatch.setattr(module, "time", clock)

    def flower(*events: Callable[[], None] | None) -> list[tuple[str, ...]]:
        calls: list[tuple[str, ...]] = []
        turn = iter(events)

        def flwr(config: ServerConfig, *words: str) -> bool:
            calls.append(words)
            event = next(turn)
            if event is not None:
                event()
            return event is not None

        monkeypatch.setattr(module, "_flwr", flwr)
        return calls

    return flower


def test_it_submits_until_the_federation_is_finished(
    config: ServerConfig, flower: Any, spec: FederationSpec, clock: Any
) -> None:
    server = Server(spec, seed=0)
    calls = flower(
        None,  # The SuperLink is not up yet.
        lambda: write_status(config.directory, server, "running"),  # and it dies
        lambda: write_status(config.directory, server, "finished", "All rounds are done"),
    )
    lines: list[str] = []
    module.supervise(config, lines.append)
    assert calls == [("run", str(config.app))] * 3
    assert lines[0] == "the SuperLink does not take the run yet"
    assert lines[-1].startswith("finished: round 0 of 5")
    assert clock.now >= module._START_SECONDS


def test_it_leaves_a_server_at_work_alone(
    config: ServerConfig, flower: Any, spec: FederationSpec, clock: Any, monkeypatch: Any
) -> None:
    calls = flower()
    lock = _only_one(config.directory)
    naps = iter(range(200))

    def sleep(seconds: float) -> None:
        clock.now += seconds
        if next(naps) == 150:
            lock.release()
            write_status(config.directory, Server(spec, seed=0), "finished")

    monkeypatch.setattr(clock, "sleep", sleep)
    module.supervise(config, lambda line: None)
    assert calls == []


def test_it_gives_up_when_the_server_does(config: ServerConfig, flower: Any) -> None:
    # What an earlier server left does not count.
    write_failure(config.directory, "a changed specification")
    calls = flower(lambda: write_failure(config.directory, "a bad roster"))
    with pytest.raises(StateError, match="failed: a bad roster"):
        module.supervise(config, lambda line: None)
    assert len(calls) == 1


def test_keys_are_registered(config: ServerConfig, flower: Any) -> None:
    for name in ("a.pub", "b.pub"):
        (config.keys / name).touch()
    calls = flower(lambda: None, None)
    lines: list[str] = []
    module.register_keys(config, lines.append)
    assert [call[:2] for call in calls] == [("supernode", "register")] * 2
    assert lines == ["a.pub: registered", "b.pub: not registered anew"]


def test_a_superlink_that_does_not_answer_is_asked_again(
    config: ServerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*args: Any, **options: Any) -> None:
        assert options["timeout"] > 0
        raise subprocess.TimeoutExpired("flwr", options["timeout"])

    monkeypatch.setattr(subprocess, "run", slow)
    assert not module._flwr(config, "run", "app")


def test_flower_is_kept_from_calling_home(tmp_path: Path) -> None:
    environment = module.quiet_environment(tmp_path)
    assert environment["FLWR_TELEMETRY_ENABLED"] == "0"
    assert environment["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    assert environment["FLWR_HOME"] == str(tmp_path)
