"""See loopback.sh."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from torch_dpfts import Broadcast, FederationSpec, Server
from torch_dpfts.flower import deploy
from torch_dpfts.flower.config import ServerConfig, read_status
from torch_dpfts.flower.supervise import quiet_environment
from torch_dpfts.privacy import PrivacyLedger

SITES = 3
BIN = Path(sys.executable).parent
OBJECTIVE = '''
"""Cross-validated accuracy of a support vector machine on this site's own digits."""

import os
import time

from sklearn.datasets import load_digits
from sklearn.model_selection import cross_val_score
from sklearn.svm import SVC


def evaluate(x):
    log("start", x)
    time.sleep(3)  # an objective worth the trouble takes longer
    X, y = load_digits(return_X_y=True)
    own = slice(SITE, None, 6)
    score = cross_val_score(SVC(C=10 ** x[0], gamma=10 ** x[1]), X[own], y[own], cv=3).mean()
    log("end", x)
    return score


def log(word, x):
    with open("calls.txt", "a") as file:
        file.write(f"{word} {x[0]:.17g} {x[1]:.17g}\\n")
        os.fsync(file.fileno())
'''


class Loopback:
    """All processes of one run."""

    def __init__(self, folder: Path, rounds: int) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.started = time.monotonic()
        self.spec = FederationSpec.dp_fts_de(
            bounds=[[-1.0, -6.0], [3.0, 0.0]], num_agents=SITES, num_rounds=rounds,
            num_regions=2, num_features=32, sample_rate=0.7, noise_multiplier=1.0,
            clip_norm=3.0, delta=1e-3,
        )  # fmt: skip
        self.port = free_port()
        deploy.init(
            folder, self.spec, SITES, listeners=1, address=f"127.0.0.1:{self.port}",
            deadline=40.0, interval=2.0,
        )  # fmt: skip
        self.server = folder / "server"
        self.config = ServerConfig.read(self.server / "server.toml")
        for n in range(SITES):
            (self.site(n) / "objective.py").write_text(f"SITE = {n}\n" + OBJECTIVE)
            with open(self.site(n) / "site.toml", "a") as file:
                file.write("max_trials = 60\n")

    def site(self, n: int) -> Path:
        return self.folder / f"site-{n}"

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.started:6.1f} s  {text}", flush=True)

    def start(self, name: str, folder: Path, *command: str) -> None:
        with open(folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                [str(BIN / command[0]), *command[1:]], cwd=folder, stdout=log, stderr=log,
                env=quiet_environment(self.server / "flower"), stdin=subprocess.DEVNULL,
            )  # fmt: skip

    def start_superlink(self) -> None:
        self.start(
            "superlink", self.server, "flower-superlink", "--host", "127.0.0.1",
            "--port", str(self.port), "--ssl-certfile", "server.crt", "--ssl-keyfile",
            "server.key", "--ssl-ca-certfile", "ca.crt", "--enable-supernode-auth",
            "--disable-runtime-dependency-installation", "--database", "superlink.sqlite",
        )  # fmt: skip
        self.until(lambda: answers(self.port), 200, "the SuperLink is up")

    def start_site(self, n: int) -> None:
        self.start(f"site-{n}", self.site(n), "dpfts", "site", "site.toml")

    def start_supernode(self, n: int) -> None:
        self.start(
            f"supernode-{n}", self.site(n), "flower-supernode", "--root-certificates", "ca.crt",
            "--superlink", f"127.0.0.1:{self.port}", "--port", str(free_port()),
            "--auth-supernode-private-key", "supernode.key",
            "--node-config", f'socket="{self.site(n) / "run" / "site.sock"}"',
        )  # fmt: skip

    def until(self, condition: Callable[[], object], seconds: float, what: str) -> None:
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise SystemExit(f"waited {seconds} s in vain: {what}")
            time.sleep(0.1)
        self.say(what)

    def round(self) -> int:
        try:
            return int(read_status(self.config.directory)["round"])
        except Exception:
            return 0

    def kill(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait()
        self.say(f"SIGKILL: {name}")

    def kill_server_app(self) -> None:
        """Kill the process that holds the serving lock, whichever Flower started it as."""
        mine = {process.pid for process in self.processes.values()} | {os.getpid()}
        lock = str(self.config.directory / "serving.lock")
        holders = [pid for pid in processes_with_open(lock) if pid not in mine]
        for pid in holders:
            os.kill(pid, signal.SIGKILL)
        self.say(f"SIGKILL: ServerApp {holders} after round {self.round()}")
        if not holders:
            raise SystemExit("there was no ServerApp to kill")

    def stop(self) -> None:
        for sign in (signal.SIGTERM, signal.SIGKILL):
            for process in self.processes.values():
                if process.poll() is None:
                    process.send_signal(sign)
            end = time.monotonic() + 15
            while any(p.poll() is None for p in self.processes.values()):
                if time.monotonic() > end:
                    break
                time.sleep(0.1)
        # What Flower's processes started, and what of it did not notice that they are gone.
        mark = f"FLWR_HOME={self.server / 'flower'}".encode()
        for file in Path("/proc").glob("[0-9]*/environ"):
            try:
                if mark in file.read_bytes().split(b"\0"):
                    os.kill(int(file.parts[2]), signal.SIGKILL)
            except OSError:
                continue

    # --- what must hold -------------------------------------------------------------------

    def check(self) -> None:
        undisturbed = Server(self.spec, seed=0)
        for _ in range(self.spec.num_rounds):
            undisturbed.round([])
        ledger = PrivacyLedger(self.config.directory / "ledger.jsonl", read_only=True)
        assert ledger.export_json() == undisturbed.ledger.export_json(), "the ledgers differ"
        epsilon = ledger.epsilon(self.spec.delta)
        assert epsilon == undisturbed.epsilon()
        self.say(f"ledger and epsilon {epsilon:.4f} are those of an undisturbed run")
        versions: dict[int, set[bytes]] = {}
        for n in range(SITES):
            database = sqlite3.connect(self.site(n) / "state" / "site.sqlite")
            rows = database.execute("SELECT round, message FROM broadcasts").fetchall()
            sent = [r for (r,) in database.execute("SELECT round FROM contributions")]
            for number, message in rows:
                assert Broadcast.from_bytes(message).round == number
                versions.setdefault(number, set()).add(message)
            trials = database.execute("SELECT point, state FROM trials").fetchall()
            database.close()
            points = {tuple(f"{x:.17g}" for x in json.loads(p)): state for p, state in trials}
            states = Counter(points.values())
            calls = [line.split() for line in (self.site(n) / "calls.txt").open()]
            starts = Counter(tuple(c[1:]) for c in calls if c[0] == "start")
            ends = Counter(tuple(c[1:]) for c in calls if c[0] == "end")
            assert max(starts.values()) == max(ends.values()) == 1, "a point was evaluated twice"
            assert len(points) == len(trials) == states["done"] + states["chosen"]
            assert all(ends[point] for point, state in points.items() if state == "done")
            assert set(ends) <= set(points), "an evaluation is lost"
            self.say(
                f"site {n}: {len(ends)} evaluations, {states['done']} recorded, contributed to "
                f"{len(sent)} rounds, received {len(rows)} broadcasts"
            )
        assert sorted(versions) == list(range(1, self.spec.num_rounds + 1)), "a round is missing"
        assert all(len(v) == 1 for v in versions.values()), "a round was broadcast in two versions"
        self.say(f"{len(versions)} broadcasts, one version of each")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def processes_with_open(path: str) -> list[int]:
    found = []
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(link) == path:
                found.append(int(link.parts[2]))
        except OSError:
            continue
    return sorted(set(found))


def main(short: bool) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to stop"))
    rounds = 4 if short else 10
    with tempfile.TemporaryDirectory() as parent:
        loop = Loopback(Path(parent) / "federation", rounds)
        try:
            run(loop, short)
            loop.check()
        except BaseException:
            loop.stop()
            for log in sorted(loop.folder.glob("*/*.log")):
                print(f"--- {log.name}\n{log.read_text()[-3000:]}")
            raise
        finally:
            loop.stop()
        loop.say("passed")


def run(loop: Loopback, short: bool) -> None:
    loop.start_superlink()
    loop.start("serve", loop.server, "dpfts", "serve", "server.toml")
    loop.until(
        lambda: (loop.server / "serve.log").read_text().count("registered") > SITES, 300, "keys"
    )
    for n in range(SITES):
        loop.start_site(n)
        loop.start_supernode(n)
    loop.until(lambda: loop.round() >= 1, 400, "round 1")
    loop.until(lambda: evaluating(loop.site(1)), 200, "site 1 is evaluating")
    loop.kill("site-1")
    loop.start_site(1)
    loop.until(lambda: loop.round() >= 2, 400, "round 2, with site 1 back")
    loop.kill_server_app()
    loop.until(lambda: loop.round() >= 3, 400, "round 3, resumed")
    if not short:
        loop.until(lambda: loop.round() >= 6, 600, "round 6")
        loop.kill_server_app()
        loop.kill("superlink")
        loop.start_superlink()
        loop.until(lambda: loop.round() >= 7, 600, "round 7, resumed with a new SuperLink")
    loop.until(lambda: loop.processes["serve"].poll() is not None, 600, "dpfts serve ended")
    assert loop.processes["serve"].returncode == 0, "dpfts serve failed"
    for n in range(SITES):
        loop.processes[f"site-{n}"].terminate()
    # The evaluations under way end by themselves.
    loop.until(lambda: not any(evaluating(loop.site(n)) for n in range(SITES)), 300, "sites idle")


def evaluating(site: Path) -> bool:
    lines = (site / "calls.txt").read_text().split("\n") if (site / "calls.txt").exists() else []
    words = Counter(line.split()[0] for line in lines if line)
    return words["start"] > words["end"]


if __name__ == "__main__":
    main("--short" in sys.argv[1:])
