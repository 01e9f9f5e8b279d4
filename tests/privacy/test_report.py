import json
import math

import pytest

from torch_dpfts.errors import InvalidInputError
from torch_dpfts.privacy import PrivacyLedger, privacy_report


def make_ledger(rounds=5, noise_multiplier=2.0):
    ledger = PrivacyLedger()
    for t in range(1, rounds + 1):
        ledger.append(
            round=t,
            sample_rate=0.35,
            noise_multiplier=noise_multiplier,
            kappa=0.5 if t < 4 else 1.0,
            fingerprint="f00d",
        )
    return ledger


def test_figures_are_the_ledgers():
    ledger = make_ledger()
    report = privacy_report(ledger, 1e-2)
    assert report.rounds == (1, 2, 3, 4, 5)
    assert report.epsilon == ledger.epsilon(1e-2, "pld")
    assert report.epsilons["rdp"][-1] == ledger.epsilon(1e-2, "rdp")
    assert list(report.epsilons["pld"]) == sorted(report.epsilons["pld"])
    assert {row[0] for row in report.table} == {1e-2, 1e-3, 1e-5, 1e-6}


def test_markdown():
    text = privacy_report(make_ledger(), 1e-2).markdown("picture.png")
    assert "(picture.png)" in text
    assert "| 1-3 | 0.35 | 2 | 0.5 | 4 |" in text
    assert "| 4-5 | 0.35 | 2 | 1 | 2 |" in text
    assert "f00d" in text
    assert "After 5 releases" in text


def test_written_files(tmp_path):
    report = privacy_report(make_ledger(), 1e-2, name="Audit <1>")
    markdown, picture, page = report.write(tmp_path / "out")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.name in markdown.read_text()
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert "Audit &lt;1&gt;" in page.read_text()
    assert "data:image/png;base64," in page.read_text()


def test_long_ledgers_are_thinned_out():
    report = privacy_report(make_ledger(200), 1e-2, methods=["rdp"])
    assert len(report.rounds) == 40
    assert report.rounds[-1] == 200


def test_empty_ledger():
    report = privacy_report(PrivacyLedger(), 1e-2)
    assert report.epsilon == 0.0
    assert "After 0 releases" in report.markdown()
    assert report.plot().startswith(b"\x89PNG")


def test_releases_without_noise():
    report = privacy_report(make_ledger(noise_multiplier=0.0), 1e-2)
    assert report.epsilon == math.inf
    assert "nothing is guaranteed" in report.html()
    assert json.loads(json.dumps(report.as_dict(), allow_nan=False))["epsilon"] == "inf"


def test_as_dict():
    figures = privacy_report(make_ledger(), 1e-2).as_dict()
    assert len(figures["entries"]) == 5
    assert figures["epsilon_by_delta"][0]["pld"] == figures["epsilon"]
    assert figures["epsilon_by_round"]["pld"][-1] == figures["epsilon"]


def test_bad_arguments_are_refused():
    with pytest.raises(InvalidInputError, match="delta"):
        privacy_report(make_ledger(), 1.0)
    with pytest.raises(InvalidInputError, match="methods"):
        privacy_report(make_ledger(), 1e-2, methods=["gdp"])
    with pytest.raises(InvalidInputError, match="methods"):
        privacy_report(make_ledger(), 1e-2, methods=[])
