import math
from pathlib import Path

import pytest

from torch_dpfts import FederationSpec
from torch_dpfts.errors import InvalidInputError
from torch_dpfts.tune import (
    Outcome,
    ParameterSpace,
    Trial,
    TrialState,
    TuneResult,
    importance,
    plot_best,
    plot_epsilon,
    plot_importance,
    plot_summary,
)

SPACE = ParameterSpace({"a": (0.0, 1.0), "b": (0.0, 1.0)})


def trial(number: int, a: float, score: float | None) -> Trial:
    b = (number * 0.37) % 1
    state = TrialState.FAILED if score is None else TrialState.COMPLETE
    cause = "it broke" if score is None else None
    outcome = Outcome(state, score, cause, 1.0)
    return Trial(number, max(0, number - 1), {"a": a, "b": b}, (a, b), outcome)


def make(minimize: bool = False, private: bool = True) -> TuneResult:
    places = [0.1, 0.9, 0.4, 0.6, 0.2, 0.8, 0.3]
    trials = {
        0: [trial(i, a, a) for i, a in enumerate(places)],
        5: [trial(i, 0.5, None) for i in range(3)],
    }
    private_settings = {"sample_rate": 0.5, "noise_multiplier": 1.0, "clip_norm": 3.0}
    settings = {"num_agents": 6, "num_rounds": 5, **SPACE.spec_fields()}
    spec = FederationSpec.dp_fts(**settings, **private_settings)
    charges = [(1.0, 0.5, 1)] * 5 if private else []
    return TuneResult(
        spec=spec,
        space=SPACE,
        minimize=minimize,
        trials=trials,
        epsilon=3.0 if private else 0.0,
        privacy="nothing shared",
        charges=charges,
        stopped_by_budget=False,
    )


def test_frame_has_a_row_for_each_trial() -> None:
    frame = make().frame()
    assert len(frame) == 10
    assert list(frame.columns[:3]) == ["agent_id", "number", "round"]
    assert frame.params_a.tolist()[:2] == [0.1, 0.9]
    assert frame[frame.agent_id == 5].cause.tolist() == ["it broke"] * 3
    assert frame[frame.agent_id == 5].score.isna().all()


def test_best_is_by_direction_and_leaves_out_sites_without_a_score() -> None:
    for minimize, best in ((False, 0.9), (True, 0.1)):
        table = make(minimize).best()
        assert table.agent_id.tolist() == [0]
        assert table.score.tolist() == [best]
        assert table.params_a.tolist() == [best]


def test_best_scores_by_round() -> None:
    best = make().best_scores
    assert best.shape == (6, 2)
    assert best[:, 0].tolist() == [0.9] * 6
    assert best[:, 1].isnan().all()
    assert make(minimize=True).best_scores[:, 0].tolist() == [0.1] * 6


def test_epsilon_grows_with_the_rounds() -> None:
    spent = make().epsilon_by_round()
    assert len(spent) == 6
    assert spent[0] == 0.0
    assert spent == sorted(spent)
    assert make(private=False).epsilon_by_round() == [0.0]


def test_summary_is_plain() -> None:
    summary = make().summary()
    assert summary["sites"][0]["best_config"]["a"] == 0.9
    assert summary["sites"][1]["best_config"] is None
    assert summary["sites"][1]["states"] == {"failed": 3}
    assert summary["mean_best_score"] == [0.9] * 6
    assert summary["epsilon"] == 3.0


def test_importance_finds_the_parameter_that_matters() -> None:
    shares = importance(make(), agent_id=0)
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["a"] > shares["b"]
    with pytest.raises(InvalidInputError, match="agent 5 has 0"):
        importance(make(), agent_id=5)
    with pytest.raises(InvalidInputError, match=r"agent_id must be one of \[0, 5\], got 1"):
        importance(make(), agent_id=1)


def test_figures_can_be_saved(tmp_path: Path) -> None:
    result = make()
    figures = (plot_best(result), plot_importance(result), plot_epsilon(result))
    for i, figure in enumerate((*figures, plot_summary(result))):
        figure.savefig(tmp_path / f"{i}.png")
        assert (tmp_path / f"{i}.png").stat().st_size > 1000
    assert len(plot_summary(result).axes) == 3
    assert len(plot_summary(make(private=False)).axes) == 2
    line = plot_best(result).axes[0].lines[0]
    assert math.isclose(float(line.get_ydata()[0]), 0.9)


def test_epsilon_is_drawn_of_private_runs_only() -> None:
    with pytest.raises(InvalidInputError, match="no finite epsilon to draw"):
        plot_epsilon(make(private=False))
