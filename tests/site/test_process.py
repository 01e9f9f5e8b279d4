"""A site's search: on its own schedule, resumed after any crash, silent about its data."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from torch_dpfts import Agent, FederationSpec
from torch_dpfts.cli import app
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.protocol import Code
from torch_dpfts.site.config import SiteConfig
from torch_dpfts.site.evaluator import Evaluator
from torch_dpfts.site.local_socket import SocketClient
from torch_dpfts.site.process import Searcher, Site, summary
from torch_dpfts.site.store import SiteStore

Configure = Callable[..., SiteConfig]
Start = Callable[[SiteConfig], tuple[Site, threading.Thread]]


def values(site: Site) -> list[float | None]:
    return [trial.value for trial in site.store.trials()]


def test_it_searches_and_answers(
    configure: Configure, started: Start, until: Any, tmp_path: Path
) -> None:
    config = configure()
    site, _ = started(config)
    until(lambda: len([v for v in values(site) if v is not None]) == 3)
    points = [trial.point[0] for trial in site.store.trials()]
    assert values(site) == [-((x - 0.3) ** 2) for x in points]
    assert SocketClient(config.socket_path).contribution(1)[0] == Code.OK
    assert "3 of 3 trials done, best -" in summary(config)
    # Every point was evaluated once.
    lines = (tmp_path / "calls.txt").read_text().split("\n")[:-1]
    assert lines == [f"{word} {x:.17g}" for x in points for word in ("start", "end")]


def test_a_restarted_site_chooses_what_it_would_have_chosen(
    tmp_path: Path, spec: FederationSpec
) -> None:
    agent = Agent(spec, 1, seed=4)
    X = agent.initial_points(2)
    expected = [row.tolist() for row in X]
    store = SiteStore(tmp_path / "s", {"a": "b"})
    for number in range(6):
        if number >= 2:
            expected.append(agent.suggest().squeeze(0).tolist())
        # A new searcher for each trial: as if the site had been restarted.
        point = list(Searcher(spec, 1, 4, store, num_initial=2).choose())
        assert point == expected[number]
        store.finish(store.choose(point).number, point[0])
        row = X.new_tensor([point])
        agent.observe(row, row)
    store.close()


def test_after_a_failure_it_looks_elsewhere(tmp_path: Path, spec: FederationSpec) -> None:
    store = SiteStore(tmp_path / "s", {"a": "b"})
    searcher = Searcher(spec, 1, 4, store, num_initial=1)
    points = []
    for _ in range(4):
        trial = store.choose(searcher.choose())
        points.append(trial.point)
        store.finish(trial.number, None)
    assert len(set(points)) == 4
    store.close()


@pytest.mark.parametrize("objective", ["secret", "not_finite", "die", "hang"])
def test_an_objective_that_fails_is_recorded_as_failed(
    configure: Configure, tmp_path: Path, objective: str
) -> None:
    timeout = 1.0 if objective == "hang" else None
    evaluator = Evaluator(
        f"objectives:{objective}", tmp_path / "t", configure().spec.parent, timeout
    )
    assert evaluator.evaluate(0, (0.5,), threading.Event()) is None
    if objective == "secret":
        assert "patient 7" in (tmp_path / "t" / "000000.log").read_text()


def test_a_command_line_is_an_objective(configure: Configure, tmp_path: Path) -> None:
    config = configure("command")
    evaluator = Evaluator(config.objective, tmp_path / "t", tmp_path)
    assert evaluator.evaluate(0, (0.25,), threading.Event()) == 0.5


def test_it_gives_up_after_ten_failures_and_still_answers(
    configure: Configure, started: Start, until: Any
) -> None:
    config = configure("secret", max_trials=0)
    site, _ = started(config)
    until(lambda: len(values(site)) >= 10 and site.store.pending() is None)
    reply = SocketClient(config.socket_path).contribution(1)
    assert reply[0] == Code.OK
    assert b"secret" not in reply
    assert len(values(site)) == 10


def test_an_evaluation_survives_its_site_and_is_not_started_again(
    configure: Configure, started: Start, until: Any, tmp_path: Path
) -> None:
    config = configure("slow", max_trials=1)
    (tmp_path / "site.toml").write_text(
        'spec = "spec.json"\nagent_id = 1\nobjective = "objectives:slow"\nseed = 0\n'
        "num_initial = 2\nmax_trials = 1\n"
    )
    code = "from torch_dpfts.cli import main; main()"
    process = subprocess.Popen([sys.executable, "-c", code, "site", str(tmp_path / "site.toml")])
    calls = tmp_path / "calls.txt"
    until(calls.exists)
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    site, _ = started(config)
    until(lambda: site.store.pending() is not None)
    (tmp_path / "go").touch()
    until(lambda: values(site) and values(site)[0] is not None)
    assert [line.split()[0] for line in calls.read_text().splitlines()] == ["start", "end"]


def test_a_killed_evaluation_is_started_again_at_the_same_point(
    configure: Configure, until: Any, tmp_path: Path
) -> None:
    config = configure("slow")
    stop = threading.Event()
    first = Evaluator(config.objective, tmp_path / "t", tmp_path)
    threading.Thread(
        target=lambda: (until((tmp_path / "calls.txt").exists), stop.set()), daemon=True
    ).start()
    with pytest.raises(InterruptedError):
        first.evaluate(0, (0.5,), stop)
    assert first._child is not None
    os.kill(first._child.pid, signal.SIGKILL)
    first._child.wait(30)
    (tmp_path / "go").touch()
    second = Evaluator(config.objective, tmp_path / "t", tmp_path)
    assert second.evaluate(0, (0.5,), threading.Event()) == 0.5
    starts = (tmp_path / "calls.txt").read_text().splitlines()
    assert starts == ["start 0.5", "start 0.5", "end 0.5"]


@pytest.mark.parametrize(
    ("key", "value", "match"),
    [
        ("agent_id", 3, "below num_agents=3"),
        ("agent_id", -1, "agent_id"),
        ("objective", "nothing", "module:function"),
        ("objective", [], "command line"),
        ("num_initial", 0, "num_initial"),
        ("timeout", 0.0, "timeout"),
        ("target_epsilon", -1.0, "target_epsilon"),
        ("listener", 1, "listener"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_made(
    configure: Configure, tmp_path: Path, key: str, value: Any, match: str
) -> None:
    with pytest.raises(InvalidInputError, match=match):
        Site(replace(configure(), **{key: value}))
    assert not (tmp_path / "site").exists()


def test_configuration_files(configure: Configure, tmp_path: Path) -> None:
    configure()
    file = tmp_path / "site.toml"
    text = 'spec = "spec.json"\nagent_id = 1\nobjective = ["python3", "x.py"]\n'
    file.write_text(text)
    config = SiteConfig.read(file)
    assert config.socket_path == tmp_path / "site" / "site.sock"
    assert config.read_spec().num_agents == 3
    for bad, match in [
        (text + "colour = 1\n", "colour"),
        ("agent_id = 1\n", "lacks"),
        ("[", "read"),
    ]:
        file.write_text(bad)
        with pytest.raises(InvalidInputError, match=match):
            SiteConfig.read(file)


def test_status_on_the_command_line(configure: Configure, tmp_path: Path) -> None:
    configure()
    (tmp_path / "site.toml").write_text(
        'spec = "spec.json"\nagent_id = 1\nobjective = "objectives:square"\n'
    )
    result = CliRunner().invoke(app, ["site", str(tmp_path / "site.toml"), "--status"])
    assert result.exit_code == 1
    assert "cannot be read" in str(result.exception)
