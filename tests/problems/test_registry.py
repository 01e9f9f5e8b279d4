from importlib.util import find_spec

import pytest

from torch_dpfts.errors import InvalidInputError
from torch_dpfts.problems import Landmine
from torch_dpfts.problems.registry import (
    PROBLEMS,
    is_drawn_by_seed,
    make_problem,
    problem_factory,
)


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_name_leads_to_a_module(name: str) -> None:
    module, _, attribute = PROBLEMS[name].partition(":")
    assert attribute.isidentifier()
    if find_spec(module) is not None:
        assert callable(problem_factory(name))


def test_a_problem_is_made_with_its_settings() -> None:
    made = make_problem("landmine", {"scorer": "probability"}, seed=3)
    assert isinstance(made, Landmine)
    assert made.scorer == "probability"


def test_scores_from_0_to_1_have_a_name() -> None:
    names = {
        name: getattr(make_problem(name, {}), "score", None) for name in ("landmine", "digits")
    }
    assert names == {"landmine": "AUC", "digits": "accuracy"}


def test_a_problem_of_ones_own_by_module_and_factory() -> None:
    name = "tests.benchmark.valley:Valley"
    assert is_drawn_by_seed(name)
    assert not is_drawn_by_seed("landmine")
    first, second = (make_problem(name, {"num_agents": 2}, seed=seed) for seed in (0, 1))
    assert first.num_agents == 2
    assert not (first.best == second.best).all()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ackley", "problem must be one of 'landmine', .* or 'package.module:factory'"),
        (3, "got 3"),
        ("no_such_module:f", "'no_such_module:f' cannot be imported: No module named"),
        ("torch_dpfts.problems:Lan", "cannot be imported: .*'Lan'"),
        (":f", "':f' cannot be imported"),
        ("torch_dpfts.problems.registry:PROBLEMS", "must be callable"),
    ],
)
def test_an_unknown_problem_is_refused(name: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        problem_factory(name)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"score": "decision"}, "must be among 'scorer', 'data', got 'score'"),
        ({"scorer": "accuracy"}, "cannot be made with scorer = 'accuracy': scorer must be one of"),
        ({"data": "none.mat"}, "cannot be made with data = 'none.mat'"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        make_problem("landmine", settings)
