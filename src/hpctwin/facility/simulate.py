"""Simulation of a facility from decision to decision, and its result."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.errors import ConfigError, SimulationError
from hpctwin.facility.config import Facility
from hpctwin.facility.jobs import facility_jobs
from hpctwin.facility.objective import carbon_g, energy_j, price
from hpctwin.facility.state import FacilityState
from hpctwin.facility.strategies import parse_strategy
from hpctwin.facility.strategy import Strategy
from hpctwin.metrics import TAU_S, resample, series, served, with_job_metrics
from hpctwin.metrics.jobs import expression
from hpctwin.metrics.registry import main_statistics
from hpctwin.metrics.sources import JobTable
from hpctwin.model import State, Workload, to_ms
from hpctwin.model.columns import known_seconds
from hpctwin.simulation.lowering.shared_nodes import counted_nodes
from hpctwin.simulation.result.history import Course
from hpctwin.simulation.result.result import Result
from hpctwin.simulation.running.advance import run_all
from hpctwin.simulation.state.arguments import as_workload

if TYPE_CHECKING:
    from hpctwin.facility.config import Facility
    from hpctwin.facility.state import FacilityState
    from hpctwin.facility.strategy import Strategy

__all__ = [
    "FacilityResult",
    "FacilitySimulation",
    "compare_strategies",
    "make_facility_result",
    "simulate_facility",
]

WEEK_S = 7 * 86_400.0

_STATISTICS = {
    name: expression(statistic) for name, statistic in main_statistics("mean_turnaround_s").items()
}
"""Statistics of jobs in a summary, as expressions over their table."""


@dataclass(frozen=True, eq=False)
class FacilityResult:
    """Result of a simulation of a facility.

    Args:
        jobs: One row per job, by submit time. It has the columns of a cluster's result and
            ``kind``, ``origin``, ``cluster``, ``placed_s``, ``moves``, ``forecast_end_s`` and
            ``decision_ms``. ``cluster`` is null if no cluster accepted the job, and
            ``forecast_end_s`` without a forecast. ``eligible_s`` is the arrival at its cluster;
            waits are from submission.
        clusters: Result of each cluster, with the jobs that were there in the end.
        facility, workload: The simulated facility and workload.
        strategy: Name of the strategy.
        knowledge: Runtimes that forecasts used; empty without forecasts.
        seed: Seed of random choices.
    """

    jobs: pl.DataFrame
    clusters: dict[str, Result]
    facility: Facility
    workload: Workload
    strategy: str
    knowledge: str
    seed: int

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Changes and omissions of the reader, and data assumed or not used per cluster."""
        return tuple(facility_jobs(self.facility, self.workload).notes(self.facility))

    def summary(self, *, tau_s: float = TAU_S) -> dict[str, Any]:
        """Return all metrics of the run as one flat dict; see docs/how-to/simulate-several-clusters.md.

        Args:
            tau_s: Threshold of bounded slowdowns, in seconds. It is in the summary if it is not
                10 s.

        Raises:
            ConfigError: The threshold is not above 0.
        """
        ran = served(with_job_metrics(self.jobs.with_columns(counted=self._counted), tau_s))
        decision = self.jobs["decision_ms"].drop_nulls()
        known = pl.col("origin").is_not_null() & (pl.col("origin") != pl.col("cluster"))
        missed = (ran["end_s"] - ran["forecast_end_s"]).abs()
        return {
            "facility": self.facility.name,
            "workload": self.workload.name,
            "strategy": self.strategy,
            "knowledge": self.knowledge,
            "seed": self.seed,
            "jobs": len(self.jobs),
            "jobs_ran": len(ran),
            "jobs_nowhere": self.jobs["cluster"].null_count(),
            **({} if tau_s == TAU_S else {"tau_s": tau_s}),
            **ran.select(**_STATISTICS).row(0, named=True),
            "jobs_away_from_origin": len(self.jobs.filter(known)),
            "moves": int(self.jobs["moves"].sum()),
            "mean_forecast_error_s": _mean(missed.drop_nulls()),
            **{f"jobs_{name}": len(result.jobs) for name, result in self.clusters.items()},
            **{f"utilization_{name}": share for name, share in self._utilization.items()},
            "utilization_spread": self.utilization_spread,
            "energy_j": self._energy_j(ran),
            "cost": self._of_jobs(ran, price),
            "carbon_g": self._of_jobs(ran, carbon_g),
            "decision_ms_mean": _mean(decision),
            "decision_ms_p99": _number(decision.quantile(0.99, "linear")),
            "engine_s": sum(result.engine_s for result in self.clusters.values()),
        }

    @cached_property
    def weeks(self) -> pl.DataFrame:
        """Table of the weeks of each cluster.

        Its columns are ``cluster``, ``week``, ``time_s``, ``span_s``, ``utilization`` and ``jobs``.
        They cover the time from the first submission to the last end in the facility, also for a
        cluster without jobs. Weeks begin at multiples of seven days. Utilization is time-weighted.
        ``jobs`` is the number of jobs submitted in the week that ran on the cluster in the end.
        """
        first, last = _number(self.jobs["submit_s"].min()), _number(self.jobs["end_s"].max())
        tables = []
        for name, result in self.clusters.items():
            held = result.counts
            steps = series(held.jobs, held.lost, held.capacity, from_s=first, until_s=last)
            weeks = resample(steps, WEEK_S).select("time_s", "span_s", "utilization")
            came = result.jobs.group_by(
                week=(pl.col("submit_s") / WEEK_S).floor().cast(pl.Int64)
            ).agg(jobs=pl.len().cast(pl.Int64))
            tables.append(
                weeks.with_columns(week=(pl.col("time_s") / WEEK_S).floor().cast(pl.Int64))
                .join(came, on="week", how="left", maintain_order="left")
                .select(
                    pl.lit(name).alias("cluster"), "week", "time_s", "span_s", "utilization",
                    pl.col("jobs").fill_null(0),
                )
            )  # fmt: skip
        return pl.concat(tables)

    @cached_property
    def utilization_spread(self) -> float | None:
        """Largest minus smallest utilization of the clusters, as a mean over the weeks."""
        whole = (
            self.weeks.filter(pl.col("span_s") > 0)
            .group_by("week")
            .agg(
                spread=pl.col("utilization").max() - pl.col("utilization").min(),
                span_s=pl.col("span_s").max(),
            )
        )
        return _weighted(whole["spread"], whole["span_s"])

    @cached_property
    def _utilization(self) -> dict[str, float | None]:
        """Utilization of each cluster, from the first submission to the last end of all jobs."""
        of = {name: self.weeks.filter(pl.col("cluster") == name) for name in self.clusters}
        return {name: _weighted(w["utilization"], w["span_s"]) for name, w in of.items()}

    @property
    def _counted(self) -> pl.Series:
        """Number of nodes that each job counted as on its cluster [jobs]."""
        found = self.jobs["nodes"].to_numpy().astype(np.float64)
        for cluster in self.facility.clusters:
            here = (self.jobs["cluster"] == cluster.name).fill_null(False).to_numpy()
            if here.any():
                found[here] = counted_nodes(self.workload, cluster.cluster)[here]
        return pl.Series(found)

    def _energy_j(self, ran: pl.DataFrame) -> float:
        """Return the energy of the nodes, in J.

        With simulated power states, it is that of all nodes; else that of nodes in use.
        """
        known = {name: one.energy for name, one in self.clusters.items() if one.energy is not None}
        rest = ran.filter(~pl.col("cluster").is_in(list(known)))
        in_use = self._of_jobs(
            rest, lambda cluster, nodes, start, end, _: energy_j(cluster, 1, nodes @ (end - start))
        )
        return in_use + sum(energy.total_j for energy in known.values())

    def _of_jobs(self, ran: pl.DataFrame, of: Callable[..., float]) -> float:
        """Return the sum over clusters of a function of their jobs' nodes and times."""
        total = 0.0
        for cluster in self.facility.clusters:
            here = ran.filter(pl.col("cluster") == cluster.name)
            spans = [here[name].to_numpy() for name in ("counted", "start_s", "end_s")]
            total += float(of(cluster, *spans, self.workload.start_epoch_s))
        return total


def make_facility_result(
    state: FacilityState, strategy: Strategy, decision_ms: npt.NDArray[np.float64], seed: int
) -> FacilityResult:
    """Make the result from the final state of a simulation.

    Args:
        state: Final state of the facility.
        strategy: Strategy that placed the jobs.
        decision_ms: Time that placing each job took, in ms; NaN if not placed [jobs].
        seed: Seed of random choices.
    """
    jobs = state.jobs
    names = state.facility.names
    index = pl.Series("row", np.arange(len(state.workload)))
    clusters = {}
    tables = []
    for code, name in enumerate(names):
        here = state.where == code
        result = state.clusters[code].result()
        frame = result.jobs.filter(pl.Series(here)).with_columns(
            # A job that never arrived was canceled on its way.
            state=pl.when(pl.col("state") == "pending").then(pl.lit("cancelled")).otherwise("state")
        )
        clusters[name] = dataclasses.replace(
            result, course=JobTable(frame), workload=jobs.on[code].take(here)
        )
        tables.append(frame.with_columns(index.filter(pl.Series(here)), cluster=pl.lit(name)))
    nowhere = state.where < 0
    possible = state.allowed.any(axis=0)[nowhere]
    never = _never_placed(state.workload.take(nowhere), possible)
    tables.append(
        never.with_columns(index.filter(pl.Series(nowhere)), cluster=pl.lit(None, pl.String))
    )
    labels = pl.Series([*names, None], dtype=pl.String)
    about = pl.DataFrame(
        {
            "row": index,
            "kind": pl.Series(jobs.kinds).gather(jobs.kind),
            "origin": labels.gather(jobs.origin % (len(names) + 1)),
            "placed_s": known_seconds(state.placed_ms, state.placed_ms >= 0),
            "moves": state.moves,
            "forecast_end_s": known_seconds(state.forecast_end_ms, state.forecast_end_ms >= 0),
            "decision_ms": pl.Series(decision_ms).fill_nan(None),
        }
    )
    return FacilityResult(
        jobs=pl.concat(tables).join(about, on="row", maintain_order="left").sort("row").drop("row"),
        clusters=clusters,
        facility=state.facility,
        workload=state.workload,
        strategy=strategy.name,
        knowledge=strategy.knowledge or "",
        seed=seed,
    )


def _never_placed(workload: Workload, possible: npt.NDArray[np.bool_]) -> pl.DataFrame:
    """Return a table of jobs that no cluster runs, or whose queues stay full."""
    none = np.full(len(workload), -1, np.int64)
    held = np.where(workload.cancel_ms >= 0, State.CANCELLED, State.WAITING)
    states = np.where(possible, held, State.REJECTED).astype(np.int8)
    return Course(
        workload, submit=workload.submit_ms, eligible=none, start=none, end=none, state=states
    ).table


def _weighted(values: pl.Series, weights: pl.Series) -> float | None:
    weight = float(weights.sum())
    return float(values.to_numpy() @ weights.to_numpy()) / weight if weight else None


def _mean(values: pl.Series) -> float | None:
    return _number(values.mean())


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


RETRY_MS = 600_000
"""Time between two attempts to place jobs held because of full queues, in ms."""

Overrun = Literal["terminate", "continue"]


class FacilitySimulation:
    """Simulation of one workload in one facility under one strategy.

    Jobs are placed at event times: when jobs arrive, or when the strategy checks the pending ones
    again. The order at an event time is:

    1. Everything that happened earlier on the clusters is simulated.
    2. Held jobs are tried again, then the arriving jobs are placed.
    3. Placed jobs arrive at the same time, in one batch with the other events of that time.

    Args:
        facility: The clusters.
        workload: The jobs, or the path of a trace.
        strategy: A `Strategy`, or text for `parse_strategy`.
        seed: Seed of random choices.
        overrun: Whether walltimes end jobs (``terminate``) or not (``continue``).

    Raises:
        ConfigError, WorkloadError, PolicyError, UnknownNameError: The parts are incompatible.
    """

    def __init__(
        self,
        facility: Facility,
        workload: Workload | str | os.PathLike[str],
        strategy: str | Strategy = "sgs-t",
        *,
        seed: int = 0,
        overrun: Overrun = "terminate",
    ) -> None:
        workload = _given(facility, workload)
        self.strategy = parse_strategy(strategy) if isinstance(strategy, str) else strategy
        self.seed = seed
        self.state = FacilityState(
            facility,
            workload,
            knowledge=self.strategy.knowledge or "walltime",
            spare=self.strategy.spare,
            seed=seed,
            overrun=overrun,
        )
        self.decision_ms = np.full(len(workload), np.nan)
        every = to_ms(self.strategy.every_s)
        self._every_ms = every or (RETRY_MS if any(self.state.limited) else 0)

    def run(self, progress: Callable[[float], None] | None = None) -> FacilityResult:
        """Run to the end, and return the result.

        Args:
            progress: Function called from time to time with the share of jobs placed, 0 to 1.
        """
        for rows in self.placements(progress):
            self.strategy.place(rows, self.state)
        return self.result()

    def placements(self, progress: Callable[[float], None] | None = None) -> Iterator[list[int]]:
        """Yield the jobs to place, one event time after another.

        The caller must place or hold each of them before the next step, as `Strategy.place` does.

        Args:
            progress: Function called from time to time with the share of jobs placed, 0 to 1.
        """
        state = self.state
        size = max(1, len(state.workload))
        done = 0
        for now, rows in self._instants():
            state.now_ms = now
            if rows:
                state.learn(rows)
            held = self._called_up()
            if held or rows:
                begin = time.perf_counter()
                yield [*held, *rows]
                state.held.sort()
                if rows:
                    self.decision_ms[rows] = 1000 * (time.perf_counter() - begin) / len(rows)
            if self.strategy.every_s and now % self._every_ms == 0:
                self.strategy.tick(state)
            done += len(rows)
            if progress is not None and done * 50 // size != (done - len(rows)) * 50 // size:
                progress(done / size)

    def result(self) -> FacilityResult:
        """Simulate the rest after all jobs are placed, and return the result."""
        state = self.state
        for cluster in state.clusters:
            cluster.finish()
        last_s = max(cluster.simulation.now_s for cluster in state.clusters)
        for cluster in state.clusters:
            cluster.stand_by(last_s)
        return make_facility_result(state, self.strategy, self.decision_ms, self.seed)

    def _called_up(self) -> list[int]:
        """Remove and return the held jobs for which a queue has a place now."""
        state = self.state
        called = state.with_options(state.held) if state.held else []
        if called:
            state.held = np.setdiff1d(state.held, called).tolist()
        return called

    def _instants(self) -> Iterator[tuple[int, list[int]]]:
        """Yield times at which jobs arrive or are checked again, in ms, and the arrivals."""
        state = self.state
        comes = groupby(np.flatnonzero(state.allowed.any(axis=0)).tolist(), key=self._decision_time)
        now = -1
        last: tuple[int, ...] = ()
        for when, group in comes:
            yield from ((tick, []) for tick in self._ticks(now, when))
            now = when
            yield when, list(group)
        while self._every_ms and self._anyone_waits():
            now = (now // self._every_ms + 1) * self._every_ms
            yield now, []
            # If nothing will happen any more, another check cannot help.
            finished = [cluster.advance_before(now + 1) for cluster in state.clusters]
            waiting = (*state.held, *(row for c in state.clusters for row in c.waiting().tolist()))
            if all(finished) and waiting == last:
                return
            last = waiting

    def _decision_time(self, row: int) -> int:
        submit = int(self.state.workload.submit_ms[row])
        window = to_ms(self.strategy.window_s)
        return submit if window == 0 else -(-submit // window) * window

    def _ticks(self, after: int, before: int) -> Iterator[int]:
        if not self._every_ms:
            return
        for tick in range((after // self._every_ms + 1) * self._every_ms, before, self._every_ms):
            if not self._anyone_waits():
                return
            yield tick

    def _anyone_waits(self) -> bool:
        return bool(self.state.held) or any(c.queued for c in self.state.clusters)


def _given(facility: object, workload: Workload | str | os.PathLike[str]) -> Workload:
    """Return the workload after a check that the first argument is a facility."""
    if not isinstance(facility, Facility):
        raise ConfigError(
            f"{facility!r:.60} is not a facility; give a Facility first and then the "
            "workload; read one with Facility.from_yaml(path)"
        )
    return as_workload(workload)


def simulate_facility(
    facility: Facility,
    workload: Workload | str | os.PathLike[str],
    strategy: str | Strategy = "sgs-t",
    *,
    seed: int = 0,
    overrun: Overrun = "terminate",
) -> FacilityResult:
    """Simulate a workload in a facility to the end; see `FacilitySimulation`."""
    return FacilitySimulation(facility, workload, strategy, seed=seed, overrun=overrun).run()


def compare_strategies(
    facility: Facility,
    workload: Workload | str | os.PathLike[str],
    strategies: Iterable[str | Strategy],
    *,
    seed: int = 0,
    overrun: Overrun = "terminate",
    threads: int = 1,
    progress: Callable[[str], None] | None = None,
) -> dict[str, FacilityResult]:
    """Simulate a workload under several strategies.

    Args:
        facility: The clusters.
        workload: The jobs, or the path of a trace.
        strategies: Strategies, or texts for `parse_strategy`.
        seed: Seed of random choices.
        overrun: Whether walltimes end jobs (``terminate``) or not (``continue``).
        threads: Number of strategies simulated at once. With several, the measured time of a
            decision is longer.
        progress: Function called with the name of each finished strategy.

    Returns:
        Results by full name (the strategy, and the runtimes it knows), in the given order.

    Raises:
        ConfigError: There is no strategy, or one occurs twice.
    """
    workload = _given(facility, workload)
    chosen = [parse_strategy(s) if isinstance(s, str) else s for s in strategies]
    if not chosen:
        raise ConfigError("no strategy to compare; give at least one, such as 'sgs-t'")
    names = [full_name(strategy) for strategy in chosen]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"strategy {name!r} is listed twice; list it once")

    interrupted = threading.Event()

    def go_on(_: float) -> None:
        if interrupted.is_set():
            raise SimulationError("interrupted")

    def one(strategy: Strategy) -> FacilityResult:
        simulation = FacilitySimulation(facility, workload, strategy, seed=seed, overrun=overrun)
        result = simulation.run(go_on)
        if progress is not None:
            progress(full_name(strategy))
        return result

    if threads == 1:
        # An invalid strategy raises at once, not after all others have finished.
        return dict(zip(names, map(one, chosen), strict=True))
    results = run_all(one, chosen, threads=threads, stop=interrupted.set)
    return dict(zip(names, results, strict=True))


def full_name(strategy: Strategy) -> str:
    """Return the strategy's name, with the runtimes it knows if it makes forecasts."""
    if strategy.knowledge is None or not hasattr(strategy, "knows"):
        return strategy.name
    return f"{strategy.name} [{strategy.knowledge}]"
