import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from torch_dpfts import FederationSpec
from torch_dpfts.cli.demo import _plot, _print_table, _report
from torch_dpfts.experiment import ArmResult, planned_epsilon


def dpfts(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from torch_dpfts.cli import main; main()", *arguments],
        capture_output=True, text=True, timeout=300, cwd=cwd,
    )  # fmt: skip


def test_the_whole_command(tmp_path: Path) -> None:
    run = dpfts(
        "demo", "--runs", "2", "--rounds", "2", "--seed", "5", "--out", "here", "--json",
        cwd=tmp_path,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout)
    assert report == json.loads((tmp_path / "here" / "results.json").read_text())
    assert list(report["arms"]) == ["ts", "fts", "dp-fts", "noise"]
    assert report["seeds"] == [5, 6]
    assert report["settings"]["privacy"] == "seeded: not private"
    spec = FederationSpec.from_json(json.dumps(report["settings"]["spec"]))
    for name, arm in report["arms"].items():
        assert len(arm["mean"]) == len(arm["se"]) == 3
        assert arm["mean"] == sorted(arm["mean"], reverse=True)
        expected = planned_epsilon(spec.arm(name), [spec.delta, 1e-5])
        assert arm["epsilon"] == {str(delta): value for delta, value in expected.items()}
    assert (tmp_path / "here" / "convergence.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--preset", "perfect"), "preset must be one of 'paper', 'recommended', got 'perfect'"),
        (("--arms", "ts,dp-ts"), "arm must be one of .* got 'dp-ts'"),
        (("--scorer", "accuracy"), "scorer must be one of .* got 'accuracy'"),
    ],
)
def test_bad_options_end_in_one_line(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    run = dpfts("demo", *arguments, cwd=tmp_path)
    assert run.returncode == 2
    assert run.stderr.startswith("dpfts: ")
    assert re.search(message, run.stderr)
    assert list(tmp_path.iterdir()) == []


def results(runs: int) -> dict[str, ArmResult]:
    spec = FederationSpec.dp_fts(
        bounds=((0.0,), (1.0,)), num_agents=29, num_rounds=30,
        sample_rate=0.35, noise_multiplier=1.0, clip_norm=4.0,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    best = torch.rand(runs, 31, generator=generator, dtype=torch.float64).cummax(-1).values
    return {
        name: ArmResult(spec.arm(name), best, planned_epsilon(spec.arm(name), [0.1, 1e-5]))
        for name in ("ts", "dp-fts")
    }


@pytest.mark.parametrize("runs", [1, 3])
def test_table_report_and_plot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], runs: int
) -> None:
    from rich.console import Console

    arms = results(runs)
    spec = arms["dp-fts"].spec
    _print_table(Console(width=200), arms, spec, runs)
    printed = capsys.readouterr().out
    for shown in (" 0 ", " 10 ", " 20 ", " 30 ", "dp-fts", "not private", "nothing to sharing"):
        assert shown in printed
    assert f"{arms['dp-fts'].epsilon[1e-5]:.2f}" in printed
    report = _report(arms, spec, "recommended", "decision", list(range(runs)))
    se = report["arms"]["ts"]["se"]
    assert (se == [None] * 31) == (runs == 1)
    json.dumps(report, allow_nan=False)
    if runs > 1:
        best = 1 - arms["ts"].best_values[:, 30]
        assert report["arms"]["ts"]["mean"][30] == pytest.approx(float(best.mean()))
        assert se[30] == pytest.approx(float(best.std()) / math.sqrt(runs))
    _plot(arms, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 10_000
