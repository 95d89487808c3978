"""The present of a live cluster as a simulation that starts now."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpctwin.attributes import kept
from hpctwin.model import (
    MS_PER_S,
    Cluster,
    Reservation,
    Workload,
)
from hpctwin.model.columns import every
from hpctwin.policies import Policy
from hpctwin.rms.records.columns import Jobs
from hpctwin.rms.records.records import JobRecord, JobSpec, NodeRecord, NodeReservation
from hpctwin.simulation import Simulation
from hpctwin.simulation.lowering.shared_nodes import taken_by
from hpctwin.simulation.running.incremental import Running, begin_at, go_otherwise, runs, starts_of
from hpctwin.twin.what_if.conversion import (
    Reused,
    Spare,
    as_expected,
    in_ms,
    in_order,
    may_run,
    powers_of,
    workload_of,
)  # fmt: skip

__all__ = ["Present", "present"]


@dataclass(frozen=True)
class Present:
    """The present state of a cluster as a simulation.

    Args:
        base: Simulation that starts now. Its queue is not ordered yet: `fork` it to run it.
        ids: Id of the job in each row [jobs].
        submit_s: Submission of each job, in seconds [jobs].
        running: Rows of the running jobs, rising [running].
        waiting: Rows of the pending jobs that may start, now or later, rising [waiting].
        now_ms: The present, in ms.
        spare: Finished simulations whose memory is reused by forks.
    """

    base: Simulation
    ids: tuple[str, ...]
    submit_s: npt.NDArray[np.float64]
    running: npt.NDArray[np.int64]
    waiting: npt.NDArray[np.int64]
    now_ms: int
    spare: Spare

    @kept
    def waiting_ids(self) -> tuple[str, ...]:
        """Ids of the pending jobs that may start [waiting]."""
        return tuple(map(self.ids.__getitem__, self.waiting.tolist()))

    @kept
    def others(self) -> npt.NDArray[np.int64]:
        """Rows of the pending and arriving jobs, rising [others]."""
        if len(self.running) + len(self.waiting) == len(self.ids):
            return self.waiting
        waits = np.ones(len(self.ids), bool)
        waits[self.running] = False
        return waits.nonzero()[0]

    @kept
    def of_others(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Submission (in seconds) and requested nodes of these jobs [others]."""
        nodes = self.base.workload.nodes[self.others].astype(np.float64)
        return self.submit_s[self.others], nodes

    @kept
    def running_nodes(self) -> npt.NDArray[np.float64]:
        """Number of nodes that each running job requests [running]."""
        return self.base.workload.nodes[self.running].astype(np.float64)

    @kept
    def machine_nodes(self) -> int:
        """Number of nodes of the cluster."""
        return self.base.cluster.node_count

    def fork(self, policy: Policy | None = None) -> Simulation:
        """Return a simulation that continues from now, under this or another policy."""
        return self.base.fork(policy or self.base.policy)

    def starts(self) -> list[str]:
        """Return the ids of the jobs that the policy starts now; see `given_nodes`."""
        return [self.ids[row] for row in self.given_nodes(self.fork()).tolist()]

    def futures(
        self,
        runtime_s: Mapping[str, npt.NDArray[np.float64]],
        coming: Sequence[Collection[str]],
    ) -> dict[str, npt.NDArray[np.float64]]:
        """Return the start of each pending job in several futures, by job id.

        Args:
            runtime_s: Runtime of each job in each future, by job id, in seconds [futures].
            coming: Ids of the jobs that arrive in each future [futures].

        Returns:
            Starts by job id, in seconds [futures], for jobs that start in all futures.
        """
        if not len(self.waiting):
            return {}
        workload = self.base.workload
        runtime_ms = np.rint(np.array([runtime_s[i] for i in self.ids]) * MS_PER_S).astype(np.int64)
        runtime_ms = np.clip(runtime_ms, 1, workload.walltime_ms[:, None])
        start_ms = self.base.column("start")[self.running]
        later = np.flatnonzero(workload.submit_ms > self.now_ms)
        own = set(self.waiting.tolist())
        found = np.empty((len(coming), len(self.waiting)), np.int64)
        begun = self.spare.fork(
            self.base, self.base.policy
        )  # its queue is in order, and so is that of its forks
        for number, ids in enumerate(coming):
            end_ms = remaining_end_ms(
                self.now_ms,
                start_ms,
                runtime_ms[self.running, number],
                workload.walltime_ms[self.running],
            )
            come = [row for row in later.tolist() if row in own or self.ids[row] in ids]
            simulation = self.spare.fork(begun)
            go_otherwise(
                simulation, runtime_ms[:, number], self.running, end_ms, np.array(come, np.int64)
            )
            found[number] = starts_of(simulation, self.waiting)
            self.spare.give_back(simulation)
        self.spare.give_back(begun)
        always = (found >= 0).all(axis=0)
        rows, start_s = self.waiting[always].tolist(), found.T[always] / MS_PER_S
        return dict(zip(map(self.ids.__getitem__, rows), start_s, strict=True))

    def given_nodes(self, simulation: Simulation) -> npt.NDArray[np.int64]:
        """Return rows of the pending jobs that a fork allocates nodes to now.

        Some of these nodes may have to be switched on first. The order is that of submission; on
        shared nodes it is the order of allocation. In another order the jobs would get other nodes,
        and some would not fit.
        """
        simulation.advance(self.now_ms / MS_PER_S)
        given = self.waiting[runs(simulation)[self.waiting]]
        if not simulation.workload.shares_nodes:
            return given
        # Parts of nodes are numbered in the order in which they are allocated.
        return given[simulation.column("first_node")[given].argsort()]

    def placed(self, job_ids: Collection[str]) -> dict[str, list[tuple[int, tuple[int, ...]]]]:
        """Return the numbers of the shared nodes of given jobs that the policy starts now."""
        run = self.fork()
        return {
            self.ids[row]: sorted(taken_by(run.state, row))
            for row in self.given_nodes(run).tolist()
            if self.ids[row] in job_ids
        }


def present(
    machine: Cluster,
    jobs: Sequence[JobRecord],
    nodes: Sequence[NodeRecord],
    reservations: Sequence[NodeReservation],
    now_s: float,
    policy: Policy,
    *,
    runtime_s: Mapping[str, float] | None = None,
    arrivals: Sequence[JobSpec] = (),
    reused: Reused | None = None,
    track_nodes: bool = False,
) -> Present:
    """Make a simulation of a live cluster that starts now.

    Some jobs are excluded, because it is unknown when they may start:

    - held jobs;
    - jobs that the resource manager would not start, for a reason that it reports;
    - jobs that depend on a missing job.

    If any job requests tasks, nodes are shared. If none does:

    - A node on which several jobs run belongs to the one that is expected to end last.
    - Nodes have power states, if the cluster reports how they are switched.

    A running job is expected to end after its runtime; if that has passed, see `remaining_end_ms`.
    The scheduler in the simulation plans with walltimes.

    Args:
        machine: Node groups, partitions and resources of the cluster.
        jobs: All jobs that have not ended.
        nodes: Nodes in the order of their numbers.
        reservations: Reservations that have not ended.
        now_s: The present, in seconds since the epoch.
        policy: Policy by which the simulation starts jobs.
        runtime_s: Expected runtimes by job id, in seconds; the walltime for jobs not in it.
        arrivals: Jobs that will be submitted, with ids that no other job has.
        reused: Data from earlier presents, kept by callers that make presents repeatedly.
        track_nodes: Whether forks may run a policy that needs to know the nodes of jobs.

    Raises:
        ConfigError, WorkloadError: The jobs are incompatible with the cluster.
    """
    now_ms = round(now_s * MS_PER_S)
    reused = reused or Reused()
    there = reused.rows.jobs(jobs, nodes)
    shares = "tasks" in there.known or any(spec.tasks for spec in arrivals)
    holders = np.bincount(there.held, minlength=len(nodes))
    if not shares and np.count_nonzero(holders > 1):
        there = reused.rows.jobs(_one_job_a_node(jobs, runtime_s or {}), nodes)
    may = may_run(there)
    if not every(may):
        there = there.take(may.nonzero()[0])
    by_row, here, submit_ms, rank = in_order(there, arrivals, now_s)
    rows = by_row.runs.nonzero()[0]
    workload = workload_of(by_row, submit_ms, rank, runtime_s or {}, now_s)
    start_ms = in_ms(by_row.of("start_s")[rows])
    running = Running(
        rows=rows,
        start_ms=start_ms,
        end_ms=remaining_end_ms(
            now_ms, start_ms, workload.runtime_ms[rows], workload.walltime_ms[rows]
        ),
        nodes=tuple(by_row.told("held", rows)),
    )
    machine = as_expected(machine, () if shares else nodes)
    cluster = _with_reservations(machine, nodes, reservations, running, now_s, waits=not shares)
    simulation = reused.base = _new(workload, cluster, policy, reused.base, track_nodes=track_nodes)
    gone = reused.rows.nodes.gone
    held = holders[gone] > 0
    begin_at(
        simulation,
        now_ms,
        running,
        gone[~held],
        gone[held],
        _amounts(by_row, rows, machine.consumables) if shares else (),
        powers_of(nodes, now_ms) if machine.has_power else None,
    )
    return Present(
        base=simulation,
        ids=tuple(by_row.told("id")),
        submit_s=by_row.of("submit_s"),
        running=rows,
        waiting=(here & ~by_row.runs).nonzero()[0],
        now_ms=now_ms,
        spare=reused.spare,
    )


def _amounts(
    jobs: Jobs, rows: npt.NDArray[np.int64], consumables: Sequence[str]
) -> list[npt.NDArray[np.float64] | None]:
    """Return what running jobs use on each of their nodes, for `begin_at` [rows]."""
    found: list[npt.NDArray[np.float64] | None] = jobs.told("amounts", rows)
    if not consumables:
        return found
    full: list[npt.NDArray[np.float64] | None] = []
    for amounts, record in zip(found, jobs.told("uses_up", rows), strict=True):
        if amounts is not None and record is not None:
            amounts = record.holds(consumables)
        elif amounts is not None:
            amounts = np.pad(amounts, ((0, 0), (0, len(consumables))))
        full.append(amounts)
    return full


CORRECTIONS_MS = np.array([1, 5, 15, 30, 60, 120, 300, 600, 1200, 3000, 6000]) * 60_000
"""Extensions of an expected runtime that has passed, in ms.

Source:
    Tsafrir, Etsion, Feitelson 2007, §4.2.
"""


def remaining_end_ms(
    now_ms: int,
    start_ms: npt.NDArray[np.int64],
    runtime_ms: npt.NDArray[np.int64],
    walltime_ms: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Return the expected ends of running jobs, after now, in ms [jobs].

    A job ends after its expected runtime. If that has passed, it is extended by the first of
    `CORRECTIONS_MS` that has not passed, up to the walltime. If the walltime has passed, too
    (clean-up, or a limit that is not enforced), the job ends at the next whole minute after it.
    """
    expected, limit = start_ms + runtime_ms, start_ms + walltime_ms
    corrected: npt.NDArray[np.int64] = np.minimum(expected, limit)
    if every(corrected > now_ms):
        return corrected
    late = np.maximum(now_ms - expected, 0)
    step = np.minimum(np.searchsorted(CORRECTIONS_MS, late, side="right"), len(CORRECTIONS_MS) - 1)
    corrected = np.where(expected > now_ms, expected, expected + CORRECTIONS_MS[step])
    corrected = np.minimum(corrected, limit)
    minutes = np.maximum(now_ms - limit, 0) // 60_000 + 1
    end: npt.NDArray[np.int64] = np.where(corrected > now_ms, corrected, limit + minutes * 60_000)
    return end


def _new(
    workload: Workload,
    cluster: Cluster,
    policy: Policy,
    before: Simulation | None,
    *,
    track_nodes: bool,
) -> Simulation:
    if before is None or before.cluster is not cluster or before.policy is not policy:
        return Simulation(workload, cluster, policy=policy, track_nodes=track_nodes)
    return before.with_workload(workload)


def _one_job_a_node(jobs: Sequence[JobRecord], runtime_s: Mapping[str, float]) -> list[JobRecord]:
    """Return the jobs changed so that each node belongs to one of them.

    A node belongs to the job that is expected to end last. A job without any node left is dropped.
    Jobs that depend on it depend on the owner of its first node instead.
    """
    runs = [job for job in jobs if job.start_s is not None]
    holder: dict[str, JobRecord] = {}
    # Jobs with a later end overwrite those with an earlier one.
    for job in sorted(runs, key=lambda job: _expected_end_s(job, runtime_s)):
        holder.update(dict.fromkeys(job.node_names, job))
    kept, stand_ins = [], {}
    for job in runs:
        names = tuple(n for n in job.node_names if holder[n] is job)
        if names or not job.node_names:
            fewer = names != job.node_names
            kept.append(job.model_copy(update={"node_names": names}) if fewer else job)
        else:
            stand_ins[job.spec.id] = holder[job.node_names[0]].spec.id
    left = {job.spec.id for job in kept}
    stand_ins = {i: other for i, other in stand_ins.items() if other in left}
    return kept + [_waiting_for(job, stand_ins) for job in jobs if job.start_s is None]


def _expected_end_s(job: JobRecord, runtime_s: Mapping[str, float]) -> tuple[float, str]:
    lasts_s = runtime_s.get(job.spec.id, job.spec.walltime_s)
    return (job.start_s or 0.0) + lasts_s, job.spec.id


def _waiting_for(job: JobRecord, stand_ins: Mapping[str, str]) -> JobRecord:
    """Return a job whose dependencies on dropped jobs are on their replacements."""
    if not any(edge.on in stand_ins for edge in job.spec.dependencies):
        return job
    edges = tuple(
        edge.model_copy(update={"on": stand_ins.get(edge.on, edge.on)})
        for edge in job.spec.dependencies
    )
    return job.model_copy(update={"spec": job.spec.model_copy(update={"dependencies": edges})})


def _with_reservations(
    machine: Cluster,
    nodes: Sequence[NodeRecord],
    reservations: Sequence[NodeReservation],
    running: Running,
    now_s: float,
    *,
    waits: bool,
) -> Cluster:
    """Return the cluster with its reservations; on each node they never overlap.

    Args:
        machine: The cluster.
        nodes: Nodes in the order of their numbers.
        reservations: Reservations that have not ended.
        running: The running jobs.
        now_s: The present, in seconds.
        waits: Whether a reservation in force begins on a node with a running job only when that
            job has ended.
    """
    if not reservations:
        return machine
    number = {node.name: i for i, node in enumerate(nodes)}
    used_until_s = {
        i: end_ms / MS_PER_S
        for numbers, end_ms in zip(running.nodes, running.end_ms.tolist(), strict=True)
        for i in numbers.tolist()
    }
    # Reserved spans of each node, by start; a span that overlaps the one before extends it.
    spans: dict[int, list[tuple[float, float]]] = {}
    for r in sorted(reservations, key=lambda r: (r.start_s, r.end_s)):
        for i in [number[name] for name in r.node_names] or range(len(nodes)):
            start_s = r.start_s
            if waits and i in used_until_s and start_s <= now_s:
                start_s = used_until_s[i]
                if start_s >= r.end_s:
                    continue
            known = spans.setdefault(i, [])
            if known and start_s <= known[-1][1]:
                known[-1] = (known[-1][0], max(known[-1][1], r.end_s))
            else:
                known.append((start_s, r.end_s))
    # One reservation for all nodes with the same span.
    together: dict[tuple[float, float], list[int]] = {}
    for i, windows in spans.items():
        for window in windows:
            together.setdefault(window, []).append(i)
    made = tuple(
        Reservation(
            name=f"reservation-{count}",
            start=start_s,
            end=end_s,
            nodes=",".join(map(str, sorted(members))),
        )
        for count, ((start_s, end_s), members) in enumerate(together.items())
    )
    return machine.model_copy(update={"reservations": made})
