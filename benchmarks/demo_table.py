"""Turn results.json files of ``dpfts demo`` into the Markdown tables of RESULTS.md.

Use: ``python benchmarks/demo_table.py FOLDER/results.json ...``
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated

import typer

ROUNDS = (0, 10, 20, 40, 60)
CONTROL = "noise"


def main(files: Annotated[list[Path], typer.Argument(help="Files of dpfts demo.")]) -> None:
    """Print one table for each file: mean (standard error), and epsilon at both deltas."""
    for file in files:
        report = json.loads(file.read_text())
        settings = report["settings"]
        rounds = [t for t in ROUNDS if t < len(next(iter(report["arms"].values()))["mean"])]
        first, last = report["seeds"][0], report["seeds"][-1]
        print(f"\n{settings['preset']} preset, {settings['scorer']} scorer,")
        print(f"seeds {first} to {last} ({settings['privacy']})\n")
        print("| arm |" + "".join(f" {t} |" for t in rounds) + " vs noise at the end | epsilon |")
        print("|---|" + "---|" * (len(rounds) + 2))
        control = report["arms"].get(CONTROL)
        for name, arm in report["arms"].items():
            cells = "".join(f" {arm['mean'][t]:.4f} ({arm['se'][t]:.4f}) |" for t in rounds)
            epsilon = ", ".join(
                f"{value:.2f} at {float(delta):.2g}" for delta, value in arm["epsilon"].items()
            )
            print(f"| {name} |{cells} {_against(arm, control, name)} | {epsilon or '-'} |")


def _against(arm: dict, control: dict | None, name: str) -> str:
    """Paired difference to the control after the last round, with its standard error."""
    if control is None or name == CONTROL:
        return "-"
    differences = [a - c for a, c in zip(arm["runs"], control["runs"], strict=True)]
    n = len(differences)
    mean = sum(differences) / n
    variance = sum((d - mean) ** 2 for d in differences) / (n - 1)
    return f"{mean:+.4f} ({math.sqrt(variance / n):.4f})"


if __name__ == "__main__":
    typer.run(main)
