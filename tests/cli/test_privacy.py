import json

import pytest
from typer.testing import CliRunner

from torch_dpfts.cli import app
from torch_dpfts.errors import InvalidInputError, LedgerError
from torch_dpfts.privacy import PrivacyLedger

# sample rate, noise multiplier, published epsilon, epsilon with the exact sensitivity; all nine
# are in the tests of the accountants
PUBLISHED = [(0.35, 1.0, 15.17, 6.21), (0.35, 4.0, 2.16, 0.70), (0.10, 1.0, 3.75, 1.20)]


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def figures(*arguments):
    return json.loads(run(*arguments, "--json").stdout)


@pytest.mark.parametrize(("rate", "multiplier", "published", "exact"), PUBLISHED)
def test_table_of_epsilons(rate, multiplier, published, exact):
    settings = ["--sample-rate", rate, "--noise-multiplier", multiplier]
    told = figures(
        "privacy", "--num-agents", 29, "--num-rounds", 60, *settings, "--method", "moments"
    )
    assert round(told["epsilon"], 2) == published
    told = figures(
        "privacy", "--preset", "paper", "--method", "pld", "--sensitivity", "exact", *settings
    )
    assert told["epsilon"] == pytest.approx(exact, rel=0.01)
    assert told["num_regions"] == 4


def test_sentence():
    told = run("privacy", "--preset", "paper", "--method", "moments").stdout
    assert told.startswith("epsilon = 15.17 at delta = 0.0246")


def test_limits():
    settings = ["privacy", "--num-agents", 29, "--sample-rate", 1.0]
    assert figures(*settings, "--noise-multiplier", 1, "--num-rounds", 0)["epsilon"] == 0.0
    assert figures(*settings, "--noise-multiplier", 0, "--num-rounds", 1)["epsilon"] == "inf"
    small = [*settings[:3], "--sample-rate", 0.1, "--delta", 1e-5]
    told = figures(*small, "--noise-multiplier", 40, "--num-rounds", 60, "--method", "rdp")
    assert told["epsilon"] == pytest.approx(0.064, rel=0.01)
    assert told["delta"] == 1e-5


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num-agents", 0),
        ("num-rounds", -1),
        ("sample-rate", 0),
        ("sample-rate", "nan"),
        ("noise-multiplier", -1),
        ("noise-multiplier", "nan"),
        ("delta", 1.0),
        ("method", "gdp"),
        ("sensitivity", "none"),
        ("preset", "none"),
        ("num-regions", 0),
    ],
)
def test_bad_values_are_refused(name, value):
    with pytest.raises(InvalidInputError, match=name.replace("-", "_")):
        run("privacy", "--preset", "paper", f"--{name}", value)


def test_missing_values_are_named():
    with pytest.raises(InvalidInputError, match="num_rounds"):
        run("privacy", "--num-agents", 29)
    with pytest.raises(InvalidInputError, match="sample_rate"):
        run("privacy", "--num-agents", 29, "--num-rounds", 60)


def test_plan():
    arguments = ["plan", "--epsilon", 1, "--num-agents", 29, "--num-rounds", 3]
    told = figures(*arguments, "--sample-rate", 0.35, "--method", "rdp")
    assert told["solved_for"] == "noise_multiplier"
    assert 0.99 <= told["epsilon"] <= 1.0
    assert [option["option"] for option in told["options"]][:2] == ["this plan", "M / 4"]
    text = run(*arguments, "--sample-rate", 0.35, "--method", "rdp").stdout
    assert "noise_multiplier = " in text
    assert "This plan: " in text


def test_impossible_plan():
    with pytest.raises(InvalidInputError, match=r"No num_rounds keeps epsilon=0\.01"):
        run(
            *("plan", "--epsilon", 0.01, "--num-agents", 29, "--sample-rate", 0.35),
            *("--noise-multiplier", 1, "--method", "rdp"),
        )


def test_report(tmp_path):
    path = tmp_path / "ledger.jsonl"
    with PrivacyLedger(path) as ledger:
        for t in (1, 2):
            ledger.append(round=t, sample_rate=0.35, noise_multiplier=2.0)
        told = run("privacy-report", path, "--out", tmp_path / "out").stdout
        assert "After 2 releases" in told
        written = sorted(file.name for file in (tmp_path / "out").iterdir())
        assert written == ["privacy-report.html", "privacy-report.md", "privacy-report.png"]
        assert figures("privacy-report", path)["delta"] == 1e-5
        (tmp_path / "server.json").write_text('{"spec": {"delta": 0.02}}')
        assert figures("privacy-report", path)["epsilon"] == ledger.epsilon(0.02)
        assert figures("privacy-report", path, "--delta", 0.03)["delta"] == 0.03
    with pytest.raises(LedgerError):
        run("privacy-report", tmp_path / "missing.jsonl")
