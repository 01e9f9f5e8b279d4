"""What tuning across sites found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from torch_dpfts.privacy import epsilon_spent
from torch_dpfts.spec import FederationSpec
from torch_dpfts.tune.space import ParameterSpace
from torch_dpfts.tune.trial import Trial

_COLUMNS = ("agent_id", "number", "round", "state", "score", "seconds", "cause")


@dataclass(frozen=True, eq=False)
class TuneResult:
    """The trials of all sites, and what they cost.

    In a real federation, each site has its own trials only; here they are together since the
    sites are processes of one machine.

    Args:
        spec: The federation.
        space: The hyperparameters.
        minimize: Whether small scores are good.
        trials: The trials of each agent.
        epsilon: Privacy spent at ``spec.delta``: 0 without sharing, infinite without noise.
        privacy: Where the noise came from, or that nothing was shared.
        charges: Noise multiplier and sample rate charged for each broadcast, and 1: a history as
            for :func:`~torch_dpfts.privacy.epsilon_spent`.
        stopped_by_budget: Whether the privacy budget ended the run early.
    """

    spec: FederationSpec
    space: ParameterSpace
    minimize: bool
    trials: Mapping[int, Sequence[Trial]]
    epsilon: float
    privacy: str
    charges: Sequence[tuple[float, float, int]]
    stopped_by_budget: bool

    def frame(self) -> pd.DataFrame:
        """All trials, a row each; hyperparameters in columns ``params_NAME``."""
        rows = [
            {
                **dict(zip(_COLUMNS[:4], (agent, t.number, t.round, str(t.state)), strict=True)),
                "score": t.score,
                "seconds": t.outcome.seconds,
                "cause": t.outcome.cause,
                **{f"params_{name}": value for name, value in t.config.items()},
            }
            for agent, trials in self.trials.items()
            for t in trials
        ]
        names = [f"params_{name}" for name in self.space.names]
        frame = pd.DataFrame(rows, columns=[*_COLUMNS, *names])
        return frame.astype({"score": float})

    def best(self) -> pd.DataFrame:
        """The best trial of each site, a row each; sites without any score are missing."""
        frame = self.frame().dropna(subset="score")
        best = frame.groupby("agent_id")["score"]
        rows = best.idxmin() if self.minimize else best.idxmax()
        return frame.loc[rows].drop(columns=["state", "cause"]).reset_index(drop=True)

    @property
    def best_scores(self) -> Tensor:
        """Best score of each site after each round, ``(rounds + 1) x N``; NaN before the first."""
        rounds = max((t.round for trials in self.trials.values() for t in trials), default=0)
        worst = math.inf if self.minimize else -math.inf
        best = torch.full((rounds + 1, len(self.trials)), worst, dtype=torch.float64)
        for column, trials in enumerate(self.trials.values()):
            for trial in trials:
                if trial.score is not None:
                    now = best[trial.round, column]
                    better = min if self.minimize else max
                    best[trial.round, column] = better(float(now), trial.score)
        running = best.cummin(0) if self.minimize else best.cummax(0)
        return torch.where(running.values.isfinite(), running.values, torch.nan)

    def epsilon_by_round(self) -> list[float]:
        """Epsilon at ``spec.delta`` after 0, 1, 2, ... broadcasts."""
        return [
            epsilon_spent(self.charges[:t], self.spec.delta, self.spec.accountant)
            for t in range(len(self.charges) + 1)
        ]

    def summary(self) -> dict[str, Any]:
        """What ``dpfts tune --json`` prints: plain numbers and strings."""
        frame, best = self.frame(), self.best()
        sites = []
        for agent in self.trials:
            own = frame[frame.agent_id == agent]
            top = best[best.agent_id == agent]
            sites.append(
                {
                    "agent_id": agent,
                    "trials": len(own),
                    "states": own.state.value_counts().to_dict(),
                    "best_score": None if top.empty else float(top.score.iloc[0]),
                    "best_config": self._config(agent, top),
                }
            )
        finite = math.isfinite(self.epsilon)
        return {
            "sites": sites,
            "mean_best_score": [
                None if math.isnan(value) else value
                for value in self.best_scores.nanmean(dim=1).tolist()
            ],
            "epsilon": self.epsilon if finite else None,
            "delta": self.spec.delta,
            "privacy": self.privacy,
            "stopped_by_budget": self.stopped_by_budget,
            "spec_fingerprint": self.spec.fingerprint,
        }

    def _config(self, agent: int, top: pd.DataFrame) -> dict[str, Any] | None:
        if top.empty:
            return None
        return dict(self.trials[agent][int(top.number.iloc[0])].config)
