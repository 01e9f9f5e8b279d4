"""One page on what a federation's releases cost, for people who answer for the data."""

from __future__ import annotations

import base64
import html
import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from torch_dpfts import checks
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.privacy.accounting import METHODS, epsilon_spent
from torch_dpfts.privacy.ledger import LedgerEntry, PrivacyLedger

_MAX_POINTS = 40
_ASSUMPTIONS = (
    "Neighbours differ in all the data of one participant (user-level privacy).",
    "The server is trusted with the vectors that participants send; the guarantee covers what it "
    "broadcasts, to participants and to everybody else.",
    "Participants are drawn by independent secret coins at the sample rate, and who was drawn is "
    "never published.",
    "Noise and coins were taken from the operating system's entropy. A run with a seed is not "
    "private, whatever the figure.",
    "Whatever else leaves a participant or the server (logs, published tables) is outside this "
    "figure.",
)


@dataclass(frozen=True, kw_only=True)
class PrivacyReport:
    """Figures of a ledger, ready to be written.

    Args:
        name: Title of the report.
        delta: The delta of the main figure.
        methods: The accountants compared; the first is the main one.
        rounds: Numbers of releases at which epsilon was computed.
        epsilons: For each method, epsilon after each of ``rounds``.
        table: Rows ``(delta, epsilon of each method)`` for the whole ledger.
        ledger: The ledger.
    """

    name: str
    delta: float
    methods: tuple[str, ...]
    rounds: tuple[int, ...]
    epsilons: dict[str, tuple[float, ...]]
    table: tuple[tuple[float, ...], ...]
    ledger: PrivacyLedger

    @property
    def epsilon(self) -> float:
        """The main figure: epsilon of the whole ledger at ``delta``, by the first method."""
        return self.epsilons[self.methods[0]][-1] if self.rounds else 0.0

    @property
    def summary(self) -> str:
        """The main figure in a sentence."""
        count = len(self.ledger)
        if math.isinf(self.epsilon):
            return f"Among {count} releases there is one without noise: nothing is guaranteed."
        return (
            f"After {count} release{'s' * (count != 1)}, the data of any one participant is "
            f"protected by ({self.epsilon:.3f}, {self.delta:.3g})-differential privacy: whatever "
            "anybody may conclude from the broadcasts is at most exp(epsilon) times as likely as "
            "without that participant's data, but for a probability of delta."
        )

    def as_dict(self) -> dict[str, Any]:
        """Return figures and entries for other programs; infinity is the string ``"inf"``."""
        spent = [
            {"delta": value, **{m: _json(e) for m, e in zip(self.methods, epsilons, strict=True)}}
            for value, *epsilons in self.table
        ]
        return {
            "delta": self.delta,
            "epsilon": _json(self.epsilon),
            "rounds": list(self.rounds),
            "epsilon_by_round": {m: [_json(e) for e in v] for m, v in self.epsilons.items()},
            "epsilon_by_delta": spent,
            "entries": json.loads(self.ledger.export_json()),
        }

    def plot(self) -> bytes:
        """Return a PNG of epsilon by round, one curve for each accountant."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7.0, 3.8), dpi=120, layout="constrained")
        axes = figure.add_subplot()
        for method, style in zip(self.methods, ("-", "--", ":", "-."), strict=False):
            axes.plot((0, *self.rounds), (0.0, *self.epsilons[method]), style, label=method)
        axes.set_xlabel("release")
        axes.set_ylabel(f"epsilon spent (delta = {self.delta:.3g})")
        axes.set_ylim(bottom=0.0)
        axes.grid(alpha=0.3)
        axes.legend(title="accountant")
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", metadata={"Software": None})
        return buffer.getvalue()

    def markdown(self, plot: str = "epsilon.png") -> str:
        """Return the page as Markdown that refers to a picture file ``plot``."""
        lines = [f"# {self.name}", "", self.summary, ""]
        lines += [f"![Epsilon by release, under each accountant]({plot})", ""]
        lines += ["## Epsilon of all releases together", ""]
        lines += _markdown_table(["delta", *self.methods], self._table_cells())
        lines += ["", "## Releases", ""]
        lines += _markdown_table(*self._release_cells())
        lines += ["", "## What the figures assume", ""]
        lines += [f"- {line}" for line in _ASSUMPTIONS]
        lines += ["", "## Record", "", *[f"- {line}" for line in self._record()], ""]
        return "\n".join(lines)

    def html(self) -> str:
        """Return the page as one self-contained HTML document."""
        picture = base64.b64encode(self.plot()).decode()
        items = "".join(f"<li>{html.escape(line)}</li>" for line in _ASSUMPTIONS)
        record = "".join(f"<li>{html.escape(line)}</li>" for line in self._record())
        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            f"<title>{html.escape(self.name)}</title><style>"
            "body{font-family:sans-serif;max-width:46em;margin:2em auto;padding:0 1em}"
            "table{border-collapse:collapse}td,th{border:1px solid #bbb;padding:.2em .6em;"
            "text-align:right}img{max-width:100%}code{word-break:break-all}</style></head><body>"
            f"<h1>{html.escape(self.name)}</h1><p>{html.escape(self.summary)}</p>"
            '<img alt="Epsilon by release, under each accountant" '
            f'src="data:image/png;base64,{picture}">'
            "<h2>Epsilon of all releases together</h2>"
            f"{_html_table(['delta', *self.methods], self._table_cells())}"
            f"<h2>Releases</h2>{_html_table(*self._release_cells())}"
            f"<h2>What the figures assume</h2><ul>{items}</ul>"
            f"<h2>Record</h2><ul>{record}</ul></body></html>\n"
        )

    def write(self, directory: str | Path, stem: str = "privacy-report") -> list[Path]:
        """Write Markdown, its picture and HTML to a directory; return the three paths."""
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"{stem}{suffix}" for suffix in (".md", ".png", ".html")]
        paths[0].write_text(self.markdown(paths[1].name), encoding="utf-8")
        paths[1].write_bytes(self.plot())
        paths[2].write_text(self.html(), encoding="utf-8")
        return paths

    def _table_cells(self) -> list[list[str]]:
        return [[f"{d:.3g}", *(f"{e:.4f}" for e in epsilons)] for d, *epsilons in self.table]

    def _release_cells(self) -> tuple[list[str], list[list[str]]]:
        """Runs of releases that were charged alike, a row each."""
        rows: list[list[str]] = []
        for cells, run in groupby(self.ledger, key=_charge_cells):
            rounds = [entry.round for entry in run]
            span = str(rounds[0]) if len(rounds) == 1 else f"{rounds[0]}-{rounds[-1]}"
            rows.append([span, *cells])
        header = ["rounds", "sample rate", "noise multiplier", "sensitivity", "charged as"]
        return header, rows

    def _record(self) -> list[str]:
        entries = self.ledger.entries
        fingerprints = sorted({entry.fingerprint for entry in entries if entry.fingerprint})
        lines = [f"Ledger: {self.ledger.path or 'in memory'}, {len(entries)} entries, chain intact"]
        lines += [f"Specification fingerprint: {value}" for value in fingerprints]
        if entries:
            lines.append(f"Hash of the last entry: {entries[-1].hash}")
        return lines


def privacy_report(
    ledger: PrivacyLedger,
    delta: float,
    methods: Sequence[str] = ("pld", "rdp"),
    name: str = "Privacy report",
) -> PrivacyReport:
    """Compute the figures of a report on a ledger.

    Args:
        ledger: The ledger; open it with ``read_only=True`` while a server runs.
        delta: The delta of the main figure.
        methods: At least one accountant; the first gives the main figure.
        name: Title of the report.

    Raises:
        InvalidInputError: If ``delta`` or a method is out of range.

    Example:
        >>> ledger = PrivacyLedger()
        >>> for t in range(1, 4):
        ...     entry = ledger.append(round=t, sample_rate=0.35, noise_multiplier=2.0)
        >>> report = privacy_report(ledger, delta=1e-2)
        >>> print(report.markdown().splitlines()[0])
        # Privacy report
    """
    delta = checks.real("delta", delta, above=0.0, below=1.0)
    if not methods:
        raise InvalidInputError(f"methods must name an accountant, got {methods!r}.")
    chosen = tuple(checks.choice("methods", method, METHODS) for method in methods)
    history = ledger.history()
    points = np.unique(np.linspace(1, len(history), _MAX_POINTS).round().astype(int))
    rounds = tuple(int(count) for count in points) if history else ()
    epsilons = {
        method: tuple(epsilon_spent(history[:count], delta, method) for count in rounds)
        for method in chosen
    }
    table = tuple(
        (value, *(epsilon_spent(history, value, method) for method in chosen))
        for value in sorted({delta, 1e-3, 1e-5, 1e-6}, reverse=True)
    )
    return PrivacyReport(
        name=name,
        delta=delta,
        methods=chosen,
        rounds=rounds,
        epsilons=epsilons,
        table=table,
        ledger=ledger,
    )


def _charge_cells(entry: LedgerEntry) -> tuple[str, ...]:
    values = entry.sample_rate, entry.noise_multiplier, entry.kappa, entry.charge[0]
    return tuple(f"{value:.4g}" for value in values)


def _json(epsilon: float) -> float | str:
    return epsilon if math.isfinite(epsilon) else "inf"


def _markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(header)} |",
        f"|{' ---: |' * len(header)}",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def _html_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
    body = "".join(
        f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"
