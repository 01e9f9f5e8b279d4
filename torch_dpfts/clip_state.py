"""Where the server's adaptive clip norm stands, so that a resumed server goes on with it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from torch_dpfts.errors import StateError
from torch_dpfts.spec import FederationSpec


@dataclass(frozen=True)
class ClipState:
    """The clip norms of a round that was recorded and of the round after it.

    Both are kept, since a crash may fall between the saving of this state and that of the
    broadcast, and the round is then done again with the clip norm it had.
    """

    round: int
    clip_norm: float
    next_clip_norm: float

    @classmethod
    def first(cls, spec: FederationSpec) -> ClipState | None:
        """The state before round 1; ``None`` if the clip norm is fixed."""
        return None if spec.clip_quantile is None else cls(0, spec.clip_norm, spec.clip_norm)

    def of_round(self, round: int) -> float:
        """The clip norm of ``round``, which is this state's round or the one after it."""
        return self.clip_norm if round == self.round else self.next_clip_norm

    def to_json(self) -> bytes:
        """Encode for the server's directory."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, data: bytes) -> ClipState:
        """Decode.

        Raises:
            StateError: If the state is damaged.
        """
        try:
            return cls(**json.loads(data))
        except (ValueError, TypeError) as error:
            raise StateError(f"The state of the clip norm is damaged: {error}.") from None
