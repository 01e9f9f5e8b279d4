import pytest

from torch_dpfts.errors import InvalidInputError
from torch_dpfts.schedules import local_probability


@pytest.mark.parametrize(
    ("schedule", "round", "expected"),
    [
        ("1-1/t^2", 1, 3 / 4),
        ("1-1/t", 1, 1 / 2),
        ("1-1/t", 59, 59 / 60),
        ("1-1/sqrt(t)", 3, 1 / 2),
        ("1", 1, 1.0),
    ],
)
def test_values(schedule: str, round: int, expected: float) -> None:
    assert local_probability(schedule, round) == pytest.approx(expected)


def test_bad_input() -> None:
    with pytest.raises(InvalidInputError, match="'1-1/t\\^3'"):
        local_probability("1-1/t^3", 1)
    with pytest.raises(InvalidInputError, match="round must be at least 1, got 0"):
        local_probability("1-1/t", 0)
