"""A period of a trace, begun with its running and pending jobs and cut at its end."""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.energy.accounts.component_energy import ComponentEnergy
from hpctwin.energy.prices.series import Series
from hpctwin.engine.operations.clock import stand_until
from hpctwin.errors import ConfigError, WorkloadError
from hpctwin.metrics import summarize
from hpctwin.model import MS_PER_S, Dependencies, Workload
from hpctwin.model.text import parse_moment, since
from hpctwin.simulation.result.result import Result
from hpctwin.simulation.running.simulation import Simulation

__all__ = ["Window", "from_its_first_job", "moment", "window"]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

_OF_JOBS = re.compile(r"^jobs|^tau_s$|_(wait_s|turnaround_s|slowdown)$")


@dataclass(frozen=True, eq=False)
class Window:
    """Jobs of a period of a trace; time zero is that of the trace.

    ``w.run(Simulation(w.workload, cluster, policy, begin_s=w.not_before_s))`` simulates it. Jobs
    running at the beginning count as submitted when they started, so that they start then under any
    policy. Pending jobs keep their submit times, and compete from the beginning of the window.

    Args:
        workload: Jobs that ran or were pending at the beginning, or were submitted in the window.
        begin_s: Beginning of the window, in seconds.
        end_s: End of the window, in seconds.
        running: Whether each job was running at the beginning [jobs].
        waiting: Whether each job was pending at the beginning [jobs].
        omitted: Number of jobs of the trace that are not in the window, by reason.
    """

    workload: Workload
    begin_s: float
    end_s: float
    running: BoolArray
    waiting: BoolArray
    omitted: dict[str, int]

    @property
    def not_before_s(self) -> FloatArray:
        """Earliest start of each job, in seconds [jobs]."""
        return np.where(self.waiting, self.begin_s, 0.0)

    def run(self, simulation: Simulation) -> Result:
        """Advance a simulation to the window's end; an empty cluster idles until then.

        Nodes that a power policy would switch off later stay as they are when the last job ends.
        """
        simulation.start_no_later(self.begin_s)
        if simulation.advance(self.end_s) == "done":
            stand_until(simulation.state, round(self.end_s * MS_PER_S))
        return simulation.result()

    def summary(self, result: Result, series: Mapping[str, Series] | None = None) -> dict[str, Any]:
        """Return the window's metrics: jobs, node-seconds, and energy if known over time.

        Job and wait metrics cover the jobs that had not started when the window began.

        Args:
            result: Result of `run`, or of a replay up to the window's end.
            series: ``price`` and ``carbon``, for the cost of energy.
        """
        jobs = result.jobs
        start = jobs["start_s"].fill_null(np.inf).to_numpy()
        end = np.minimum(jobs["end_s"].fill_null(np.inf).to_numpy(), self.end_s)
        nodes = jobs["nodes"].to_numpy()
        in_window = np.maximum(end - np.maximum(start, self.begin_s), 0.0)
        up = result.capacity
        times = np.append(up["time_s"].to_numpy(), np.inf)
        times = np.clip(times, self.begin_s, self.end_s)
        there = float(np.diff(times) @ up["nodes"].to_numpy())
        submitted = self.workload.submit_ms[self.running] / MS_PER_S
        fresh = jobs.filter(~pl.Series(self.running))
        of_jobs = summarize(
            fresh, result.lost, result.capacity, result.cluster.node_count, result.tau_s
        )
        figures: dict[str, Any] = {
            "workload": self.workload.name,
            "cluster": result.cluster.name,
            "nodes": result.cluster.node_count,
            "policy": result.policy,
            **{name: value for name, value in of_jobs.items() if _OF_JOBS.search(name)},
            **dict.fromkeys(("interval_begin_s", "window_begin_s"), self.begin_s),
            **dict.fromkeys(("interval_end_s", "window_end_s"), self.end_s),
            "window_prepopulated": int(self.running.sum()),
            "window_prepopulated_late": int((start[self.running] > submitted).sum()),
            "window_waiting": int(self.waiting.sum()),
            "window_submitted": int((~self.running & ~self.waiting).sum()),
            "window_started": int(((start >= self.begin_s) & (start <= self.end_s)).sum()),
            "window_utilization": float(nodes @ in_window) / there if there else None,
        }
        energy = result.energy
        if energy is not None and (energy.log is not None or isinstance(energy, ComponentEnergy)):
            times, watts = energy.power_over_time()
            inside = np.clip(times, self.begin_s, self.end_s)
            joules = float(np.diff(inside) @ watts[:-1])
            figures["window_energy_j"] = joules
            figures["window_mean_power_w"] = joules / (self.end_s - self.begin_s)
            for name, one in (series or {}).items():
                cost = float(np.diff(one.integral(inside)) @ watts[:-1])
                if name == "carbon":
                    figures["window_emissions_kg"] = cost / 1000
                else:
                    figures[f"window_cost_{one.unit.lower() or 'currency'}"] = cost
        return figures


def window(workload: Workload, begin_s: float, end_s: float) -> Window:
    """Cut a period out of a trace with recorded starts.

    A job without a recorded start belongs to the window if it was submitted in it.

    Args:
        workload: The trace.
        begin_s: Beginning, in seconds from the trace's time zero.
        end_s: End, in seconds from the trace's time zero.

    Raises:
        ConfigError: The end is not after the beginning.
        WorkloadError: The window has no job.
    """
    if not 0 <= begin_s < end_s:
        raise ConfigError(
            f"window from {begin_s:g} to {end_s:g} s is invalid; it must start at 0 or "
            "later and end after its start"
        )
    begin, end = round(begin_s * MS_PER_S), round(end_s * MS_PER_S)
    submit, start = workload.submit_ms, workload.recorded_start_ms
    known = start >= 0
    over = start + workload.runtime_ms <= begin
    running = known & (start < begin) & ~over
    waiting = known & (submit < begin) & (start >= begin)
    fresh = (submit >= begin) & (submit < end)
    chosen = running | waiting | fresh
    if not chosen.any():
        raise WorkloadError(
            f"window from {begin_s:g} to {end_s:g} s: no job of {workload.name} ran, was "
            "pending or was submitted in it; choose one within "
            f"{submit.min(initial=0) / MS_PER_S:g} to {submit.max(initial=0) / MS_PER_S:g} "
            "s"
        )
    omitted = {
        "jobs skipped: ended before the window": int((known & (start < begin) & over).sum()),
        "jobs skipped: submitted after the window": int((submit >= end).sum()),
        "jobs skipped: submitted before the window without a recorded start": int(
            (~known & (submit < begin)).sum()
        ),
    }
    # Dependencies of a running job are already satisfied.
    edges = workload.dependencies
    left = ~running[edges.job]
    moved = workload.replace(
        submit_ms=np.where(running, start, submit),
        dependencies=Dependencies(
            edges.job[left], edges.on[left], edges.kind[left], edges.delay_ms[left]
        ),
    )
    # Rows are ordered by submit time, and running jobs now have another one.
    order = np.lexsort((workload.job_id, moved.submit_ms))
    order = order[chosen[order]]
    part = moved.in_order(order)
    counts = {what: count for what, count in omitted.items() if count}
    notes = dataclasses.replace(part.notes, counts={**part.notes.counts, **counts})
    return Window(part.replace(notes=notes), begin_s, end_s, running[order], waiting[order], counts)


def moment(given: object, workload: Workload) -> float:
    """Return the seconds from a workload's time zero to a time given by a user.

    Args:
        given: Date such as ``2020-10-10T00:00`` (UTC if it has no time zone), time from time zero
            such as ``30d``, or seconds.
        workload: Workload whose start date, if known, is the date of time zero.

    Raises:
        ConfigError: It is no time, or a date that the workload does not have or begins after.
    """
    found = parse_moment(given)
    since_s = since(found, workload.start_epoch_s, workload.name)
    if isinstance(found, dt.datetime) and since_s < 0:
        first = dt.datetime.fromtimestamp(workload.start_epoch_s or 0, dt.UTC)
        raise ConfigError(
            f"{given} is before the start of {workload.name} at {first:%Y-%m-%dT%H:%M:%S} "
            "UTC; give a later time"
        )
    return since_s


def from_its_first_job(workload: Workload) -> Workload:
    """Return the same jobs with time zero at the first submission."""
    first_ms = int(workload.submit_ms[0])
    epoch_s = workload.start_epoch_s
    started = workload.recorded_start_ms
    return workload.replace(
        submit_ms=workload.submit_ms - first_ms,
        recorded_start_ms=np.where(started >= 0, started - first_ms, started),
        cancel_ms=np.where(
            workload.cancel_ms >= 0, workload.cancel_ms - first_ms, workload.cancel_ms
        ),
        start_epoch_s=None if epoch_s is None else epoch_s + first_ms / MS_PER_S,
    )
