"""Result of a simulation: the jobs, metrics, and tables over time."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin import metrics
from hpctwin.attributes import Attached, kept
from hpctwin.engine.operations.transfer import cut_off, had_pauses, started_ms
from hpctwin.engine.state.sim import Sim, records
from hpctwin.errors import ConfigError
from hpctwin.guesses import ATTRIBUTES, GuessedType
from hpctwin.metrics.sources import JobTable
from hpctwin.metrics.summary import NamedMetrics
from hpctwin.model import MS_PER_S, Cluster, Workload, format_duration
from hpctwin.model.arguments import check_arguments
from hpctwin.model.columns import as_pandas
from hpctwin.model.demand import assumptions
from hpctwin.model.text import Shown
from hpctwin.simulation.result.counts import CoreCount, NodeCount, PreemptionSums, held_s
from hpctwin.simulation.result.history import (
    Course,
    attempts_of,
    capacity_over_time,
    course_so_far,
    lost_stretches,
    sized_course,
    stretches_of,
    stretches_of_attempts,
    stretches_on_nodes,
)
from hpctwin.simulation.state.base import SimulationBase

if TYPE_CHECKING:
    import pandas as pd

    from hpctwin.energy import Energy
    from hpctwin.metrics import Accounts, AccountsBy, By
    from hpctwin.simulation.lowering.cluster import Outages
    from hpctwin.simulation.result.link_use import LinkUse

__all__ = ["Result", "course_of_jobs", "lost_so_far", "make_result", "no_lost"]

IntArray = npt.NDArray[np.int64]


MANY = 0.05
"""Share of jobs ended by their walltime from which a note says so."""


def walltime_notes(figures: Mapping[str, Any]) -> list[str]:
    """Return a sentence on jobs that their walltime ended, if these are many.

    Args:
        figures: Metrics of jobs.
    """
    ended, jobs = figures.get("jobs_walltime", 0), figures["jobs"]
    if not ended or ended < MANY * jobs:
        return []
    return [
        f"{ended:,} of {jobs:,} jobs ({ended / jobs:.0%}) ran into their walltime, which ended them; "
        'with --overrun continue (in Python overrun="continue") they run as long as in the trace'
    ]


def unshared_notes(workload: Workload) -> list[str]:
    """Return a sentence on jobs that would communicate if jobs shared the network, if any."""
    if not workload.demands:
        return []
    return [
        "columns of computation, communication, reads and writes are ignored, because jobs do not "
        'share the network; add --sharing fair (in Python sharing="fair")'
    ]


def unstarted_notes(figures: Mapping[str, Any]) -> list[str]:
    """Return a sentence on jobs that a whole simulation has never started, if there are any.

    Args:
        figures: Metrics of jobs.
    """
    # Waiting jobs are eligible; pending ones wait for a job that they depend on.
    left = figures.get("jobs_waiting", 0) + figures.get("jobs_pending", 0)
    jobs = figures["jobs"]
    if not left:
        return []
    return [
        f"{left:,} of {jobs:,} jobs never started: a limit, a dependency or the policy kept them "
        "pending; metrics of waits and slowdowns are those of the other jobs"
    ]


@dataclass(frozen=True, eq=False, repr=False)
class Result(Shown, metaclass=GuessedType):
    """The outcome of a simulation, or of the part of it that has run.

    Args:
        course: History of the jobs; see `jobs`.
        lost: Attempts cut off by node failures or for other jobs, and run again: ``job_id``,
            ``start_s``, ``end_s``, ``nodes``; if jobs write checkpoints, ``kept_s`` of it was not
            lost.
        capacity: Nodes that are up, over time: ``time_s``, ``nodes``.
        node_map: Nodes of the jobs, if nodes have identity: ``job_id``, ``start_s``, ``end_s``,
            ``first_node``, ``count``; one row for each run of node numbers.
        placements: Amounts that jobs held on nodes, if jobs share nodes: ``job_id``, ``node``,
            ``start_s``, ``end_s``, ``cores``, ``memory_gb``, ``gpus``; one row for each node of a
            job.
        gpu_shares: Shares of single GPUs, if any job requests a part of one: ``job_id``, ``node``,
            ``gpu`` (its number on the node), ``start_s``, ``end_s``, ``share``; without exclusive
            jobs.
        capacity_cores: Thousandths of cores that are up, over time, if jobs share nodes.
        stretches: Number of nodes of each job over time, if sizes were decided or jobs are
            suspended for others: ``job_id``, ``start_s``, ``end_s``, ``nodes``.
        workload, cluster: The simulated jobs and cluster.
        policy: Name of the policy.
        engine_s: Time spent in the engine, in seconds.
        instants: Number of event times processed.
        energy: Time and energy of nodes, jobs, users and accounts, if nodes have a power model.
        link_use: What links carried, if jobs share a network and the simulation had ``log=True``.
        tau_s: Threshold of bounded slowdowns, in seconds.
    """

    course: Course | JobTable
    lost: pl.DataFrame
    capacity: pl.DataFrame
    workload: Workload
    cluster: Cluster
    policy: str
    engine_s: float
    instants: int
    node_map: pl.DataFrame | None = None
    energy: Energy | None = None
    placements: pl.DataFrame | None = None
    gpu_shares: pl.DataFrame | None = None
    capacity_cores: pl.DataFrame | None = None
    stretches: pl.DataFrame | None = None
    link_use: LinkUse | None = None
    tau_s: float = metrics.TAU_S

    @property
    def jobs(self) -> pl.DataFrame:
        """One row per job, by submit time.

        ``job_id``, ``submit_s``, ``eligible_s``, ``start_s``, ``end_s``, ``wait_s``,
        ``turnaround_s``, ``nodes``, ``state``, … (docs/reference/metrics.md). The table is made on first use.
        """
        return self.course.table

    def to_pandas(self) -> pd.DataFrame:
        """Return `jobs` as a table of pandas.

        Raises:
            ConfigError: pandas is not installed.
        """
        return as_pandas(self.jobs)

    if not TYPE_CHECKING:

        def __getitem__(self, name: object) -> Any:
            raise TypeError(f"Result has no item {name!r}; use {ATTRIBUTES['Result']['[]']}")

    def shown(self) -> tuple[str, dict[str, str]]:
        """Return title and lines of the summary; see `Shown`."""
        counts = sorted(self.course.source.counts().items(), key=lambda one: -one[1])
        return f"{self.workload.name} under {self.policy}", {
            **{f"jobs {state}": f"{count:,}" for state, count in counts},
            "nodes": f"{self.cluster.node_count:,}",
        }

    def shown_more(self) -> dict[str, str]:
        """Return title and lines of the summary; see `Shown`."""
        found = self.summary()
        waits = {
            name: "–" if found.get(key) is None else format_duration(found[key])
            for name, key in (
                ("mean wait", "mean_wait_s"),
                ("median wait", "median_wait_s"),
                ("p95 wait", "p95_wait_s"),
                ("makespan", "makespan_s"),
            )
        }
        used = found.get("utilization")
        return {**waits, "utilization": "–" if used is None else f"{used:.1%}"}

    @check_arguments()
    def summary(self, *, tau_s: float | None = None) -> dict[str, Any]:
        """Return all metrics of the run in one flat dict; see docs/reference/metrics.md.

        Args:
            tau_s: Threshold of bounded slowdowns, in seconds; default that of the simulation. It is
                in the summary if it is not 10 s.

        Raises:
            ConfigError: The threshold is not above 0.
        """
        if tau_s is not None and tau_s != self.tau_s:
            return dataclasses.replace(self, tau_s=tau_s).summary()
        why = {}
        if self.rejection_reasons:
            reasons = [f"{count:,} {clause}" for clause, count in self.rejection_reasons.items()]
            why["rejection_reasons"] = "; ".join(reasons)
        found = {
            "workload": self.workload.name,
            "cluster": self.cluster.name,
            "nodes": self.cluster.node_count,
            "policy": self.policy,
            **self.figures,
            **self._preempted_figures(),
            **self._contention_figures(),
            **why,
            **({} if self.energy is None else self.energy.figures()),
            "engine_s": self.engine_s,
            "instants": self.instants,
        }
        return NamedMetrics(found)

    def _preempted_figures(self) -> dict[str, Any]:
        """Return the metrics of `PreemptionSums`; none if no job may be preempted."""
        if self.cluster.preemption is None:
            return {}
        sums = PreemptionSums()
        sums.add(self.jobs)
        return sums.figures()

    def _contention_figures(self) -> dict[str, Any]:
        """Return statistics of contention slowdowns; none if no job shares the network."""
        values = (
            self.course.more.get("contention_slowdown") if isinstance(self.course, Course) else None
        )
        if not isinstance(values, pl.Series):
            return {}
        return {
            "mean_contention_slowdown": values.mean(),
            "p95_contention_slowdown": values.quantile(0.95, "linear"),
            "max_contention_slowdown": values.max(),
        }

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on what was changed, omitted, assumed or not used."""
        return (
            *assumptions(self.workload, self.cluster),
            *unshared_notes(self.workload),
            *walltime_notes(self.figures),
        )

    @kept
    def rejection_reasons(self) -> dict[str, int]:
        """Number of jobs that can never run on the cluster, by reason."""
        rejected = self.course.source.rejected()
        if not rejected.any():
            return {}
        from hpctwin.simulation.lowering.rejected_jobs import why_rejected

        return why_rejected(self.workload, self.cluster, rejected)

    @kept
    def counts(self) -> NodeCount:
        """Counts of the run in nodes, or in cores if jobs share nodes."""
        if self.placements is None:
            parts = self.course, self.lost, self.capacity, self.stretches
            return NodeCount(*parts, self.cluster.node_count, self.tau_s)
        assert self.capacity_cores is not None
        return CoreCount(
            self.workload,
            self.cluster,
            self.jobs,
            self.lost,
            self.capacity_cores,
            self.stretches,
            self.placements,
            self.tau_s,
        )

    @kept
    def figures(self) -> dict[str, Any]:
        """Metrics of jobs and nodes of `summary`, without energy and preemption."""
        return self.counts.figures()

    @kept
    def series(self) -> pl.DataFrame:
        """Queue, running jobs and nodes over time, a row at each change.

        If jobs share nodes, it counts cores instead of nodes.
        """
        return self.counts.series()

    @property
    def attempts(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Jobs as they ran last, and their attempts before that.

        These are tables like `jobs` and `lost`.
        """
        if self.stretches is None:
            return self.jobs, self.lost
        return attempts_of(self.jobs, self.stretches, self.lost)

    @check_arguments()
    def accounts(self, by: AccountsBy = "account") -> Accounts:
        """Return what each user or account used, spent and waited.

        Accounts of several runs can be added up. If jobs share nodes, a job counts with its share
        of the cores of a mean node.

        Args:
            by: ``account`` or ``user``.

        Raises:
            UnknownNameError: ``by`` is neither.
            ConfigError: The sizes of jobs were decided while they ran.
        """
        self._check_rigid("what accounts used")
        figures, counts = self.figures, self.counts
        there = (figures["availability"] or 0.0) * (figures["makespan_s"] or 0.0)
        jobs = self.jobs if self.energy is None else self.energy.jobs
        return metrics.collect_accounts(
            jobs.with_columns(counts.in_nodes(counts.jobs)["nodes"]),
            by,
            lost=counts.in_nodes(counts.lost),
            there_node_s=there * self.cluster.node_count,
            core_s=self._held_s("cores"),
            gpu_s=self._held_s("gpus"),
            tau_s=self.tau_s,
        )

    def _held_s(self, what: Literal["cores", "gpus"]) -> npt.NDArray[np.float64] | None:
        return held_s(self.jobs, self.lost, self.cluster, what, self.node_map, self.placements)

    @check_arguments()
    def breakdown(self, by: By) -> pl.DataFrame:
        """Return metrics by class of jobs; see `hpctwin.metrics.jobs`.

        If jobs share nodes, sizes are the cores that they held, and ``core_hours`` replaces
        ``node_hours``.

        Args:
            by: ``size``, ``walltime``, ``user``, ``account``, ``partition`` or ``state``.

        Raises:
            UnknownNameError: ``by`` is none of these.
        """
        self._check_rigid("figures by class")
        return self.counts.breakdown(by)

    def node_use(self, steps: int = 200) -> pl.DataFrame:
        """Return the mean share of each amount held on each node, in steps.

        See `node_use.node_use`.

        Args:
            steps: Number of steps, 1 or more.

        Raises:
            ConfigError: Jobs do not share nodes, or there is no step.
        """
        from hpctwin.simulation.result.node_use import node_use

        return node_use(self.cluster, self._shared_placements(), steps)

    def fragmentation(self, steps: int = 200) -> pl.DataFrame:
        """Return free amounts of shared nodes that could not be used.

        See `node_use.fragmentation`.

        Args:
            steps: Number of steps, 1 or more.

        Raises:
            ConfigError: Jobs do not share nodes, or there is no step.
        """
        from hpctwin.simulation.result.node_use import fragmentation

        placed = self._shared_placements()
        return fragmentation(self.workload, self.cluster, self.jobs, placed, steps, self.gpu_shares)

    def _check_rigid(self, what: str) -> None:
        if self.stretches is not None:
            raise ConfigError(
                f"{what} is not available, because jobs changed their sizes or were "
                "suspended while they ran; use the result's 'stretches' and 'energy'"
            )

    def _shared_placements(self) -> pl.DataFrame:
        if self.placements is None:
            raise ConfigError(
                f"jobs of {self.workload.name!r} request exclusive nodes, so no use of "
                "parts of nodes is recorded; use a workload whose jobs request tasks"
            )
        return self.placements

    plot = Attached()
    """Charts: ``plot.gantt()``, ``plot.utilization()``, ``plot.queue()``.

    See `hpctwin.report.accessor`.
    """


def course_of_jobs(simulation: SimulationBase) -> Course:
    """Return what happened to all jobs, with their slowdown by contention if it is known."""
    workload, sim = simulation.workload, simulation.state
    if simulation.sizing is not None:
        course = sized_course(workload, sim)
    else:
        course = course_so_far(workload, sim)
    if simulation.network is None:
        return course
    slowdown = pl.Series(simulation.network.slowdown).fill_nan(None)
    return dataclasses.replace(course, more=course.more | {"contention_slowdown": slowdown})


def make_result(simulation: SimulationBase) -> Result:
    """Return the result of a simulation's state."""
    workload = simulation.workload
    sim = simulation.state
    cluster = simulation.cluster
    sized = simulation.sizing is not None
    suspends = len(sim["beneath"]) > 0
    course = course_of_jobs(simulation)
    outages = simulation.outages_so_far()
    held, ran = _held(workload, cluster, sim, outages)
    network, link_use = simulation.network, None
    if network is not None and cluster.platform is not None:
        from hpctwin.simulation.result.link_use import LinkUse

        loads = network.link_loads(int(sim.clock.now))
        link_use = None if loads is None else LinkUse(cluster.platform, loads)
    energy = None
    if cluster.has_power:
        from hpctwin.simulation.result.energy import energy_so_far

        assert ran is not None
        energy = energy_so_far(simulation, course.table, ran)
    return Result(
        course=course,
        lost=lost_stretches(workload, sim) if sized else lost_so_far(workload, sim),
        capacity=capacity_over_time(sim, outages),
        workload=workload,
        cluster=cluster,
        policy=simulation.policy_name,
        engine_s=simulation.engine_s,
        instants=int(sim.clock.instants),
        energy=energy,
        stretches=stretches_of(workload, sim) if sized or suspends else None,
        link_use=link_use,
        tau_s=simulation.tau_s,
        **held,
    )


def _held(
    workload: Workload, cluster: Cluster, sim: Sim, outages: Outages
) -> tuple[dict[str, pl.DataFrame | None], pl.DataFrame | None]:
    """Return a result's tables of the nodes that jobs held, and where jobs ran.

    The second is None if the nodes of the jobs are not known or not needed.
    """
    if not workload.shares_nodes:
        node_map = _node_map(workload, sim) if len(sim["node"]) else None
        return {"node_map": node_map}, node_map
    from hpctwin.simulation.lowering.shared_nodes import amounts_of_pools
    from hpctwin.simulation.result.placements import gpu_shares, placements, shares_held

    placed = placements(workload, cluster, sim)
    held = {
        "placements": placed,
        "gpu_shares": gpu_shares(workload, cluster, sim),
        "capacity_cores": capacity_over_time(sim, outages, amounts_of_pools(sim)["cores"]),
    }
    if not cluster.has_power:
        return held, None
    if len(sim["beneath"]):
        placed = placements(workload, cluster, sim, ran=True)
    return held, shares_held(workload, cluster, placed)


def lost_so_far(workload: Workload, sim: Sim) -> pl.DataFrame:
    """Return the table ``lost`` of `Result`: attempts cut off by node failures."""
    lost = cut_off(sim)
    if not len(lost):
        return _none_lost(workload.job_id.dtype.kind, bool(len(sim["cut"])))
    columns: dict[str, Any] = {
        "job_id": workload.job_id[lost["job"]],
        "start_s": lost["start"] / MS_PER_S,
        "end_s": lost["end"] / MS_PER_S,
        "nodes": workload.nodes[lost["job"]],
    }
    if len(sim["cut"]):
        columns["kept_s"] = lost["kept"] / MS_PER_S
    return pl.DataFrame(columns)


@lru_cache(maxsize=8)
def _none_lost(ids: str, kept: bool) -> pl.DataFrame:
    """Return an empty table of lost attempts, for a kind of job ids.

    It is the same object for all runs.
    """
    columns: dict[str, Any] = {
        "job_id": pl.Int64 if ids == "i" else pl.String,
        "start_s": pl.Float64,
        "end_s": pl.Float64,
        "nodes": pl.Int64,
    }
    return pl.DataFrame(schema=columns | ({"kept_s": pl.Float64} if kept else {}))


def no_lost(jobs: pl.DataFrame) -> pl.DataFrame:
    """Return the table of lost attempts when there are none."""
    return jobs.select("job_id", "start_s", "end_s", "nodes").clear()


def _node_map(workload: Workload, sim: Sim) -> pl.DataFrame:
    segment = _segments(sim)
    starts = started_ms(sim)
    job, start = segment["job"], segment["start"]
    end = sim["state"]["end"][job]
    # An attempt before its job's last start was cut off by a failure, and is among the lost
    # attempts.
    ends = {(j, s): e for j, s, e in cut_off(sim)[["job", "start", "end"]].tolist()}
    for row in np.flatnonzero(starts[job] != start):
        end[row] = ends[int(job[row]), int(start[row])]
    # So was an earlier attempt with the same start: a job may be cut off and start again at one
    # event time.
    for j, s in {one for one in ends if starts[one[0]] == one[1]}:
        rows = np.flatnonzero((job == j) & (start == s))
        given = np.cumsum(segment["nodes"][rows])
        end[rows[given <= given[-1] - int(workload.nodes[j])]] = s
    found = pl.DataFrame(
        {
            "job_id": workload.job_id[job],
            "start_s": start / MS_PER_S,
            "end_s": end / MS_PER_S,
            "first_node": segment["first"].copy(),
            "count": segment["nodes"].copy(),
        }
    )
    paused = had_pauses(job, start, sim) & (end != start)
    return _in_stretches(found, paused, workload, sim) if paused.any() else found


def _segments(sim: Sim) -> npt.NDArray[Any]:
    """Return where jobs of whole nodes ran, as runs of node numbers, attempt by attempt."""
    if not len(sim["share"]):
        known: npt.NDArray[Any] = sim["segment"][: sim.clock.segments]
        return known[known["nodes"] > 0]
    part = sim["part"][: int(sim["sharing"]["parts"][0])]
    part = part[part["tasks"] > 0]
    attempt = np.cumsum(part["next"] < 0)  # the first row of each has no next
    order = np.lexsort((part["node"], attempt))
    part, attempt = part[order], attempt[order]
    goes_on = (np.diff(part["node"], prepend=-1) == 1) & (np.diff(attempt, prepend=0) == 0)
    first = np.flatnonzero(~goes_on)
    nodes = np.diff(first, append=len(part))
    one = part[first]
    return records(
        "segment", len(first), job=one["job"], start=one["start"], first=one["node"], nodes=nodes
    )


def _in_stretches(
    node_map: pl.DataFrame, paused: npt.NDArray[np.bool_], workload: Workload, sim: Sim
) -> pl.DataFrame:
    """Return the node map, with attempts that were suspended only while they ran."""
    ran = stretches_on_nodes(stretches_of_attempts(workload, sim)).drop("nodes")
    of_job = node_map.filter(paused).drop("end_s").rename({"start_s": "attempt_s"})
    apart = of_job.join(ran, on=["job_id", "attempt_s"], maintain_order="left_right")
    return pl.concat([node_map.filter(~paused), apart.select(node_map.columns)])
