import pytest

from torch_dpfts import FederationSpec
from torch_dpfts.clip_state import ClipState
from torch_dpfts.errors import StateError


def spec(clip_quantile: float | None) -> FederationSpec:
    return FederationSpec.dp_fts(
        bounds=((0.0,), (1.0,)), num_agents=4, num_rounds=3, sample_rate=0.5,
        noise_multiplier=1.0, clip_norm=2.0, clip_quantile=clip_quantile,
    )  # fmt: skip


def test_a_fixed_clip_norm_has_no_state() -> None:
    assert ClipState.first(spec(None)) is None
    assert ClipState.first(spec(0.5)) == ClipState(0, 2.0, 2.0)


def test_a_round_done_again_keeps_its_clip_norm() -> None:
    state = ClipState(3, 2.0, 2.5)
    assert (state.of_round(3), state.of_round(4)) == (2.0, 2.5)
    assert ClipState.from_json(state.to_json()) == state


@pytest.mark.parametrize("data", [b"{", b"[1]", b'{"round": 1}'])
def test_damaged_state_is_refused(data: bytes) -> None:
    with pytest.raises(StateError, match="damaged"):
        ClipState.from_json(data)
