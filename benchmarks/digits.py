"""Compare the arms on the digits problem: a private federation, tuning alone, random search, noise.

    python benchmarks/digits.py

Runs every arm ten times with the same seeds on the table of digits and writes
benchmarks/results/digits.md (a table for RESULTS.md) and digits.json.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import Tensor

from torch_dpfts import run_federations
from torch_dpfts.experiment import ArmResult, planned_epsilon
from torch_dpfts.fleet import Fleet, agent_seed
from torch_dpfts.problems import DigitsTable
from torch_dpfts.problems.digits import from_cube
from torch_dpfts.rng import derived_generator
from torch_dpfts.spec import FederationSpec
from torch_dpfts.tune.digits import digits_spec

RESULTS = Path(__file__).parent / "results"
ARMS = ("ts", "noise", "dp-fts", "fts")
LABELS = {
    "random": "random search",
    "ts": "`ts`, each site alone",
    "noise": "`noise`, the control",
    "dp-fts": "`dp-fts`, private",
    "fts": "`fts`, not private",
}


def random_search(
    spec: FederationSpec, problem: DigitsTable, seeds: list[int], num_initial: int
) -> ArmResult:
    """Uniform draws after the initial points of the other arms."""
    curves = []
    for seed in seeds:
        ids = range(spec.num_agents)
        fleet = Fleet(spec, list(ids), [agent_seed(seed, n) for n in ids])
        draws = [
            from_cube(
                torch.rand(
                    spec.num_rounds,
                    spec.dim,
                    generator=derived_generator(agent_seed(seed, n), "random search"),
                    dtype=torch.float64,
                )
            )
            for n in ids
        ]
        X = torch.cat([fleet.initial_points(num_initial), torch.stack(draws)], dim=1)
        best = problem(X, fleet.agent_ids).squeeze(-1).cummax(-1).values
        curves.append(best[:, num_initial - 1 :].mean(0))
    return ArmResult(spec, torch.stack(curves))


def difference(a: Tensor, b: Tensor) -> str:
    """Mean and standard error of paired differences of two arms' final accuracies."""
    gap = a[:, -1] - b[:, -1]
    error = gap.std() / math.sqrt(len(gap))
    return f"{gap.mean():+.4f} ({error:.4f}; better in {int((gap > 0).sum())} of {len(gap)} runs)"


def markdown(
    results: dict[str, ArmResult], spec: FederationSpec, num_initial: int, seeds: list[int]
) -> str:
    """The section for RESULTS.md."""
    runs = len(results["ts"].best_values)
    shown = sorted({0, 2, 5, 10, 15, 20, spec.num_rounds} & set(range(spec.num_rounds + 1)))
    lines = [
        "## Digits: tuning a small network across ten sites",
        "",
        f"Mean best accuracy of the {spec.num_agents} sites after each round, mean (standard "
        f"error) of {runs} paired runs; six hyperparameters, {num_initial} initial trials at "
        "each site, the table of `benchmarks/digits_table.py`.",
        "",
        "| arm | " + " | ".join(f"round {t}" for t in shown) + " | epsilon |",
        "|---|" + "---|" * (len(shown) + 1),
    ]
    for name, label in LABELS.items():
        result = results[name]
        cells = [f"{result.mean[t]:.4f} ({result.standard_error[t]:.4f})" for t in shown]
        epsilon = next((f"{value:.2f}" for value in result.epsilon.values()), "-")
        lines.append(f"| {label} | " + " | ".join(cells) + f" | {epsilon} |")
    private = results["dp-fts"].best_values
    gaps = [
        f"{LABELS[name]} {difference(private, results[name].best_values)}"
        for name in ("ts", "random", "noise")
    ]
    lines += [
        "",
        f"Epsilon at delta = {spec.delta:.3f}. Paired differences after the last round, the "
        f"private arm less the other, with standard errors: {'; '.join(gaps)}. What does not beat "
        "the control owes nothing to sharing.",
        "",
        "Settings: `FederationSpec.recommended` with its target epsilon of 3, that is z = "
        f"{spec.noise_multiplier}; seeds {seeds[0]} to {seeds[-1]} (seeded: not private). Made by "
        "`python benchmarks/digits.py`.",
    ]
    return "\n".join(lines) + "\n"


def main(
    runs: Annotated[int, typer.Option(help="Paired runs of each arm.")] = 10,
    rounds: Annotated[int, typer.Option(help="Rounds of each run.")] = 20,
    initial: Annotated[int, typer.Option(help="Initial trials of each site.")] = 3,
    seed: Annotated[int, typer.Option(help="Seed of the first run.")] = 0,
    settings: Annotated[str, typer.Option(help="Changes to the settings, as JSON.")] = "{}",
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = RESULTS,
) -> None:
    problem = DigitsTable()
    spec = digits_spec(problem.num_agents, rounds, **json.loads(settings))
    seeds = list(range(seed, seed + runs))
    results = {}
    for name in ARMS:
        arm = spec.arm(name)
        done = run_federations(arm, problem, seeds, num_initial=initial)
        best = torch.stack([result.best_values.mean(-1) for result in done])
        results[name] = ArmResult(arm, best, planned_epsilon(arm, [spec.delta]))
    results["random"] = random_search(spec, problem, seeds, initial)
    out.mkdir(exist_ok=True, parents=True)
    text = markdown(results, spec, initial, seeds)
    (out / "digits.md").write_text(text)
    curves = {
        name: {"best": result.best_values.tolist(), "epsilon": list(result.epsilon.values())}
        for name, result in results.items()
    }
    report = {"arms": curves, "seeds": seeds, "spec": json.loads(spec.to_json())}
    (out / "digits.json").write_text(json.dumps(report) + "\n")
    print(text)


if __name__ == "__main__":
    typer.run(main)
