"""Simulation-guided strategies: a job goes to the cluster whose forecast is best.

Forecasts of a job on a cluster, with later arrivals sampled from the past.

Moves of pending jobs to a cluster where they now end earlier.

A look-ahead tree that places jobs with the least sum of turnarounds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from hpctwin.errors import ConfigError, UnknownNameError
from hpctwin.facility.objective import (
    OBJECTIVES,
    PlacementForecast,
    PlacementObjective,
    parse_objective,
)
from hpctwin.facility.state import FacilityState, Knowledge
from hpctwin.facility.strategy import Strategy, View
from hpctwin.model import NEVER_MS

__all__ = ["Futures", "Guided", "Ties", "Tree", "move_waiting", "parse_objective"]

IntArray = npt.NDArray[np.int64]
NOBODY = np.zeros(0, np.int64)


class Futures:
    """Forecasts of a job on a cluster, over samples of the jobs that arrive later.

    A sample is a block of the cluster's past (moving-block bootstrap). It begins at a job placed
    there, drawn with equal probability. It has all jobs placed within the horizon after that one,
    at the same distances in time. This keeps bursts and the mix of jobs.

    Args:
        state: The facility.
        cluster: Index of the cluster.
        row: Row of the job, which arrives now.
        samples: Number of samples; 0 for one future without later jobs.
        horizon_s: Time within which arrivals are sampled, in seconds.
    """

    MOST = 256
    """Maximum number of arrivals in a sample."""

    def __init__(
        self, state: FacilityState, cluster: int, row: int, samples: int, horizon_s: float
    ) -> None:
        self.state = state
        self.site = state.clusters[cluster]
        self.row = row
        self.arrival_ms = state.arrival_ms(row, cluster)
        self.past = state.placed[cluster]
        self.samples = samples if self.past else 0
        self.horizon_ms = round(1000 * horizon_s)

    def forecasts(self, *, others: bool) -> list[PlacementForecast]:
        """Return the job's start and end in each sample.

        Args:
            others: Whether to also compute the time that the job adds to the turnarounds of all
                other jobs. This takes a second forecast per sample, without the job.
        """
        if self.samples == 0:
            return [self._with(NOBODY, others)]
        return [self._with(self._sample(), others) for _ in range(self.samples)]

    def _sample(self) -> IntArray:
        """Draw arrivals, and return their rows in the cluster's forecasts."""
        first = int(self.state.rng.integers(len(self.past)))
        block = np.array(self.past[first : first + self.MOST])
        when = self.state.placed_ms[block]
        block = block[when <= when[0] + self.horizon_ms]
        gaps = self.state.placed_ms[block] - when[0]
        return self.site.tell(block, self.state.now_ms + 1 + gaps)

    def _with(self, later: IntArray, others: bool) -> PlacementForecast:
        own = np.array([self.row])
        present = NOBODY
        if others:
            self.site.advance_before(self.state.now_ms)
            present = np.concatenate([self.site.waiting(), self.site.on_their_way(), later])
        found = self._forecast(np.concatenate([own, later]), np.concatenate([own, present]))
        added = 0.0
        if len(present):
            without = self._forecast(later, present)
            added = float((found[1, 1:] - without[1]).sum()) / 1000
        return PlacementForecast(self.row, int(found[0, 0]), int(found[1, 0]), added)

    def _forecast(self, coming: IntArray, watched: IntArray) -> IntArray:
        return self.site.forecast(self.state.now_ms, coming, watched, arrival_ms=self.arrival_ms)


def move_waiting(state: FacilityState, gain_s: float) -> None:
    """Move each pending job that would end much earlier on another cluster.

    Jobs are checked in the order of the queues, and each move is made before the next check. A
    moved job queues on the new cluster like a new arrival.

    Args:
        state: The facility.
        gain_s: Minimum time by which the job must end earlier, including its staging, in seconds.
    """
    state.advance_all()
    gain_ms = round(1000 * gain_s)
    for here, cluster in enumerate(state.clusters):
        rows = cluster.waiting()
        ends: dict[int, int] = {}
        for row in rows.tolist():
            options = [c for c in state.options(row) if c != here]
            if not options:
                continue
            if not ends:
                found = cluster.forecast(state.now_ms, rows[:0], rows)[1]
                ends = dict(zip(rows.tolist(), found.tolist(), strict=True))
            if ends[row] < 0:
                continue
            best, where = ends[row] - gain_ms, here
            for other in options:
                _, end = state.forecast_end(row, other, best)
                if end >= 0 and (where == here or end < best):
                    best, where = end, other
            if where != here:
                state.move(row, where, best)
                rows = rows[rows != row]
                ends = {}  # the remaining jobs may start earlier now


MOST_FORECASTS = 512
"""Number of forecasts after which the best combination found so far is taken."""


class Tree:
    """Depth-first search with a bound over all combinations of clusters for some jobs.

    A forecast of one cluster depends only on the set of jobs that go there, so each set is forecast
    once. The first descent takes for each job the cluster that adds the least. The result is
    therefore never worse than placing one job after the other. A branch is cut when its sum so far
    is no better than the best complete combination.
    """

    def __init__(self, state: FacilityState) -> None:
        self.state = state
        self._known: dict[tuple[int, tuple[int, ...]], int] = {}
        self._best_ms: int | None = None
        self._best: tuple[int, ...] = ()

    def place(self, rows: list[int]) -> None:
        """Place or hold jobs, in the given order."""
        free = [row for row in rows if self.state.options(row)]
        self.search(free)
        for row, cluster in zip(free, self._best, strict=True):
            # Jobs placed before this one may have filled the queue.
            if cluster in self.state.options(row):
                self.state.place(row, cluster)
            else:
                self.state.hold(row)
        for row in rows:
            if row not in free:
                self.state.hold(row)

    def search(self, rows: list[int]) -> tuple[tuple[int, ...], int]:
        """Return the best cluster for each job, and the sum of the jobs' ends, in ms."""
        self._descend(rows, (), {})
        return self._best, self._best_ms or 0

    def _descend(
        self, rows: list[int], chosen: tuple[int, ...], there: dict[int, tuple[int, ...]]
    ) -> None:
        so_far = sum(self._ends_ms(c, jobs) for c, jobs in there.items())
        if self._best_ms is not None and so_far >= self._best_ms:
            return
        if len(chosen) == len(rows):
            self._best, self._best_ms = chosen, so_far
            return
        row = rows[len(chosen)]
        branches = []
        for cluster in self.state.options(row):
            jobs = (*there.get(cluster, ()), row)
            added = self._ends_ms(cluster, jobs) - self._ends_ms(cluster, jobs[:-1])
            branches.append((added, cluster, jobs))
        for _, cluster, jobs in sorted(branches):
            if self._best_ms is not None and len(self._known) > MOST_FORECASTS:
                return
            self._descend(rows, (*chosen, cluster), {**there, cluster: jobs})

    def _ends_ms(self, cluster: int, jobs: tuple[int, ...]) -> int:
        """Return the sum of the ends of jobs sent to a cluster together, in ms."""
        if not jobs:
            return 0
        if (cluster, jobs) not in self._known:
            rows = np.array(jobs)
            arrival = np.array([self.state.arrival_ms(row, cluster) for row in jobs])
            found = self.state.clusters[cluster].forecast(
                self.state.now_ms, rows, rows, arrival_ms=arrival
            )
            self._known[cluster, jobs] = int(found[1].sum())
        return self._known[cluster, jobs]


Ties = Literal["least-loaded", "random", "first"]


@dataclass(frozen=True)
class Guided(Strategy):
    """Simulation-guided scheduling: each possible cluster is simulated with the job.

    Args:
        objective: Cost that is lowest at the best cluster.
        knows: Runtimes in forecasts. ``oracle`` takes the true ones, as in CQSim+; ``walltime`` the
            walltimes; ``like-jobs`` walltimes times the share that similar jobs ran recently.
        tie_break: Choice among equally good clusters: the one with the least work ahead, then the first;
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
    tie_break: Ties = "least-loaded"
    samples: int = 0
    horizon_s: float = 86_400.0
    batch: int = 1
    move_every_s: float = 0.0
    move_gain_s: float = 600.0
    label: str | None = None

    def __post_init__(self) -> None:
        for kind, value, known in (
            ("knowledge", self.knows, get_args(Knowledge)),
            ("tie rule", self.tie_break, get_args(Ties)),
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
                raise ConfigError(f"{what} is {number:g}; it must be at least {least}")
        if self.horizon_s <= 0:
            raise ConfigError(f"horizon_s is {self.horizon_s:g}; it must be above 0")
        if self.batch > 1 and (self.objective.single != "turnaround" or self.samples):
            raise ConfigError(
                "look-ahead tree (batch above 1) supports only the sum of turnarounds "
                "without samples; use objective 'turnaround' and samples 0"
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
        if self.tie_break == "first":
            return best[0]
        if self.tie_break == "random":
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
