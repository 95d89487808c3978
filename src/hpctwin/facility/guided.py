"""Simulation-guided strategies: a job goes to the cluster whose forecast is best."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from hpctwin.errors import ConfigError, UnknownNameError
from hpctwin.facility.futures import Futures
from hpctwin.facility.moving import move_waiting
from hpctwin.facility.objective import (
    OBJECTIVES,
    PlacementForecast,
    PlacementObjective,
    parse_objective,
)
from hpctwin.facility.state import FacilityState, Knowledge
from hpctwin.facility.strategy import Strategy
from hpctwin.facility.tree import Tree
from hpctwin.facility.view import View
from hpctwin.model import NEVER_MS

__all__ = ["Guided", "Ties", "parse_objective"]

Ties = Literal["least-loaded", "random", "first"]


@dataclass(frozen=True)
class Guided(Strategy):
    """Simulation-guided scheduling: each possible cluster is simulated with the job.

    Args:
        objective: Cost that is lowest at the best cluster.
        knows: Runtimes in forecasts. ``oracle`` takes the true ones, as in CQSim+; ``walltime`` the
            walltimes; ``like-jobs`` walltimes times the share that similar jobs ran recently.
        ties: Choice among equally good clusters: the one with the least work ahead, then the first;
            a random one, as in CQSim+; or the first.
        samples: Number of futures with sampled arrivals by which a cluster is judged; 0 for one
            future without later jobs.
        horizon_s: Time from now within which arrivals are sampled, in seconds.
        batch: Number of jobs, submitted together, that a look-ahead tree places by comparing all
            combinations; 1 for one job after the other.
        move_every_s: Time between two checks of the pending jobs for a move, in seconds; 0 for no
            moves.
        move_gain_s: Minimum time by which a move must make a job end earlier, in seconds.
        label: Other name of the strategy.

    Raises:
        ConfigError, UnknownNameError: An option is out of range, or two are incompatible.
    """

    objective: PlacementObjective = field(default_factory=lambda: parse_objective("turnaround"))
    knows: Knowledge = "walltime"
    ties: Ties = "least-loaded"
    samples: int = 0
    horizon_s: float = 86_400.0
    batch: int = 1
    move_every_s: float = 0.0
    move_gain_s: float = 600.0
    label: str | None = None

    def __post_init__(self) -> None:
        for kind, value, known in (
            ("knowledge", self.knows, get_args(Knowledge)),
            ("tie rule", self.ties, get_args(Ties)),
        ):
            if value not in known:
                raise UnknownNameError(kind, value, known)
        for what, number, least in (
            ("samples", self.samples, 0),
            ("batch", self.batch, 1),
            ("move_every_s", self.move_every_s, 0),
            ("window_s", self.window_s, 0),
        ):
            if number < least:
                raise ConfigError(f"{what} is {number:g}, it must be at least {least}")
        if self.horizon_s <= 0:
            raise ConfigError(f"horizon_s is {self.horizon_s:g}, it must be above 0")
        if self.batch > 1 and (self.objective.single != "turnaround" or self.samples):
            raise ConfigError(
                "a look-ahead tree (batch above 1) takes the least sum of turnarounds, without "
                "samples: objective 'turnaround', samples 0"
            )
        object.__setattr__(self, "every_s", self.move_every_s)

    @property
    def name(self) -> str:
        """Short name with the objective and the options."""
        if self.label is not None:
            return self.label
        # `sgs-t` is the paper's name.
        short = "sgs-t" if self.objective.single == "turnaround" else f"sgs({self.objective.name})"
        parts = [short]
        if self.samples:
            parts.append(f"{self.samples} futures")
        if self.batch > 1:
            parts.append(f"tree of {self.batch}")
        if self.move_every_s:
            parts.append("moving")
        return ", ".join(parts)

    @property
    def knowledge(self) -> Knowledge | None:
        """The runtimes that forecasts know; see ``knows``."""
        return self.knows

    @property
    def spare(self) -> int:
        """Number of additional rows for sampled arrivals."""
        return Futures.MOST if self.samples else 0

    def place(self, rows: list[int], state: FacilityState) -> None:
        """Place jobs that arrive together, by a look-ahead tree if ``batch`` is above 1."""
        if self.batch == 1 or len(rows) == 1:
            Strategy.place(self, rows, state)
            return
        for first in range(0, len(rows), self.batch):
            Tree(state).place(rows[first : first + self.batch])

    def pick(self, row: int, options: list[int], state: View) -> int:
        """Return the cluster with the lowest score."""
        if self.objective.single == "turnaround" and self.samples == 0:
            ends, costs = self._by_end(row, options, state)
        else:
            ends, costs = self._by_costs(row, options, state)
        least = costs.min()
        best = [o for o, cost in zip(options, costs, strict=True) if cost <= least]
        chosen = best[0] if len(best) == 1 else self._break_tie(best, row, state)
        state.expect_end(row, ends[options.index(chosen)])
        return chosen

    def _break_tie(self, best: list[int], row: int, state: View) -> int:
        if self.ties == "first":
            return best[0]
        if self.ties == "random":
            return best[int(state.rng.integers(len(best)))]
        return min(best, key=lambda c: state.load(c, row))

    def _by_end(
        self, row: int, options: list[int], state: View
    ) -> tuple[list[int], npt.NDArray[np.float64]]:
        """Return the job's end on each cluster, and the same as scores.

        Clusters with a probable early end come first. A forecast stops early if a better end is
        known already.
        """
        ends = dict.fromkeys(options, -1)
        best = NEVER_MS
        for c in sorted(options, key=lambda c: state.likely_end_ms(row, c)):
            _, ends[c] = state.forecast_end(row, c, best)
            if ends[c] >= 0:
                best = min(best, ends[c])
        ordered = [ends[c] for c in options]
        return ordered, np.array([e if e >= 0 else np.inf for e in ordered], np.float64)

    def _by_costs(
        self, row: int, options: list[int], state: View
    ) -> tuple[list[int], npt.NDArray[np.float64]]:
        """Return the job's mean end on each cluster, and scores by the mean of each cost.

        Means are over the futures. A score is infinite if the job would never start in one of them.
        """
        forecasts = [self._forecasts(row, c, state) for c in options]
        scores = np.full(len(options), np.inf)
        ends = [-1] * len(options)
        starts = [i for i, of in enumerate(forecasts) if all(o.start_ms >= 0 for o in of)]
        if not starts:
            return ends, scores
        costs = np.empty((len(self.objective.names), len(starts)))
        for column, i in enumerate(starts):
            cluster = state.facility.clusters[options[i]]
            ends[i] = round(float(np.mean([forecast.end_ms for forecast in forecasts[i]])))
            for line, name in enumerate(self.objective.names):
                cost = OBJECTIVES[name]
                costs[line, column] = np.mean([cost(cluster, o, state) for o in forecasts[i]])
        scores[starts] = self.objective.scores(costs)
        return ends, scores

    def _forecasts(self, row: int, cluster: int, state: View) -> list[PlacementForecast]:
        """Return forecasts of a job on a cluster: one, or one per sampled future."""
        others = "total" in self.objective.names
        if self.samples == 0 and not others:
            return [PlacementForecast(row, *state.forecast_end(row, cluster))]
        assert isinstance(state, FacilityState)
        futures = Futures(state, cluster, row, self.samples, self.horizon_s)
        return futures.forecasts(others=others)

    def tick(self, state: FacilityState) -> None:
        """Move pending jobs that would now end earlier on another cluster."""
        move_waiting(state, self.move_gain_s)
