"""The twin's core: events and snapshots in, decisions out.

No clock, no file, no socket: what it does depends on its inputs and their order alone, so that any
decision can be made again from the journal, bit for bit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hpctwin.policies import Policy, parse_policy
from hpctwin.rms import events as ev
from hpctwin.rms.columns import SpecRows
from hpctwin.rms.records import JobRecord, JobSpec, Snapshot
from hpctwin.rms.room import Room, parts_of
from hpctwin.twin.ahead import Past, WhatIf, look_ahead
from hpctwin.twin.blocked import Blocked
from hpctwin.twin.choice import Decision, choose, judge, tie_order
from hpctwin.twin.config import CoreSettings
from hpctwin.twin.expect import Expectations
from hpctwin.twin.forecast import Forecaster
from hpctwin.twin.mirror import Mirror, Taken
from hpctwin.twin.objective import Objective
from hpctwin.twin.refusals import check_told

if TYPE_CHECKING:
    from hpctwin.twin.present import Present

__all__ = ["Core", "StartedJob"]

# Kinds of events after which a job may be able to start.
_OPPORTUNITY = (
    ev.JobSubmitted, ev.JobModified, ev.JobReleased, ev.JobEnded, ev.JobRequeued, ev.JobDeleted,
    ev.JobHeld, ev.NodeUp, ev.NodePowered, ev.ReservationSet, ev.ReservationRemoved,
)  # fmt: skip


@dataclass(frozen=True)
class StartedJob:
    """A job that has started: what the objective remembers of it.

    Args:
        id: the job's.
        submit_s, start_s: when it was submitted and started, seconds since the epoch.
        nodes: how many it has.
        end_s: when it ended; None while it runs.
    """

    id: str
    submit_s: float
    start_s: float
    nodes: int
    end_s: float | None = None


@dataclass
class _Memory:
    """What the core knows besides the mirror."""

    policy: str
    policy_since_s: float = 0.0
    decisions: int = 0
    asked: dict[str, float] = field(default_factory=dict)
    put_off: dict[str, float] = field(default_factory=dict)
    past: deque[StartedJob] = field(default_factory=deque)
    running: dict[str, StartedJob] = field(default_factory=dict)


class Core:
    """The live twin without its surroundings.

    Args:
        settings: the pool, the objective, what is expected.
        threads: for what-ifs at once; the result does not depend on it.
    """

    def __init__(self, settings: CoreSettings, threads: Executor | None = None) -> None:
        self.settings = settings
        self.threads = threads
        self.pool: list[Policy] = [parse_policy(text) for text in settings.pool]
        self.objective = Objective(
            settings.objective.weights,
            normalise=settings.objective.normalise,
            function=settings.objective.function,
        )
        own = settings.own_policy
        self.own = None if own is None else parse_policy(own)
        self._ties = tie_order(settings.objective.ties, self.pool)
        self.mirror = Mirror()
        self.expectations = Expectations(settings.predictor)
        self.forecaster = Forecaster()
        self._memory = _Memory(policy=self._ties[0])
        self._rows = SpecRows()
        self.opportunity = False
        self._told = 0

    def warm_up(self) -> None:
        """Compile the pool now, so that the first decision does not wait for it.

        Raises:
            PolicyError: a policy cannot be compiled.
        """
        for policy in (*self.pool, *([] if self.own is None else [self.own])):
            policy.compile()

    # --- what comes in ---------------------------------------------------------------------------

    def take_event(self, event: ev.Event) -> Taken:
        """Take in an event; see `Mirror.take`."""
        taken, applied = self.mirror.take(event)
        for one, before in applied:
            self._learn(one, before)
        return taken

    def take_snapshot(self, snapshot: Snapshot) -> bool:
        """Take a snapshot as the truth; False if the mirror is newer.

        Jobs that are gone without an event count as ended at an unknown time: nothing is learnt.
        """
        taken, applied = self.mirror.adopt(snapshot)
        if not taken:
            return False
        memory = self._memory
        jobs = self.mirror.jobs
        # What was asked so long ago and is not seen in a snapshot was not done: the manager does not
        # start it, for reasons of its own.
        oldest_s = snapshot.time_s - self.settings.start_patience
        asked = {
            i: t for i, t in memory.asked.items() if _waits(jobs.get(i)) and not jobs[i].spec.reason
        }
        memory.asked = {i: t for i, t in asked.items() if t > oldest_s}
        late = asked.keys() - memory.asked.keys()
        memory.put_off = {i: t for i, t in memory.put_off.items() if _waits(jobs.get(i))}
        for job_id in late:
            memory.put_off[job_id] = snapshot.time_s + self.settings.retry
        for job_id in [i for i in memory.running if i not in jobs]:
            self._remember(memory.running.pop(job_id))
        for job_id, job in jobs.items():
            if job.start_s is not None and job_id not in memory.running:
                self._saw_start(job)
        self.forecaster.keep(jobs)
        for one, before in applied:
            self._learn(one, before)
        self.opportunity = True
        return True

    def asked_to_start(self, job_id: str, time_s: float) -> None:
        """The cluster was asked to start a job; until it says so, the job holds nodes here."""
        self._memory.asked[job_id] = time_s

    def refused(self, job_id: str, time_s: float) -> None:
        """The cluster refused; the job is left alone for a while."""
        self._memory.asked.pop(job_id, None)
        self._memory.put_off[job_id] = time_s + self.settings.retry
        self.opportunity = True

    def waits(self, job_id: str) -> bool:
        """Whether a job waits, and was not asked to start."""
        return _waits(self.mirror.jobs.get(job_id)) and job_id not in self._memory.asked

    def put_off(self, job_id: str) -> float | None:
        """Until when a job is left alone because its start was refused."""
        return self._memory.put_off.get(job_id)

    def overdue(self, now_s: float) -> list[str]:
        """Jobs asked to start long ago of which nothing was heard."""
        patience = self.settings.start_patience
        return [i for i, t in self._memory.asked.items() if now_s - t > patience]

    # --- what goes out ---------------------------------------------------------------------------

    @property
    def policy(self) -> str:
        """The policy in force."""
        return self._memory.policy

    def decide(
        self, now_s: float, *, dwell_s: float = 0.0, in_charge: bool = True
    ) -> Decision | None:
        """Look ahead and choose.

        Args:
            now_s: the present by the cluster's clock.
            dwell_s: a policy stays in force at least so long.
            in_charge: whether the twin starts the jobs; else forecasts are made for the cluster's
                own policy, where the settings name one.

        Returns:
            None if the mirror waits for a snapshot, or no job waits.
        """
        self.opportunity = False
        if self.mirror.needs_snapshot is not None:
            return None
        self.check_told()
        jobs = self._jobs_as_of(now_s)
        waiting = [job for job in jobs if job.start_s is None]
        if not waiting:
            return None
        memory = self._memory
        free, fits = self.free_nodes(jobs), self.fits_now(jobs)
        choice = any(fits(j.spec) for j in waiting if not j.spec.held and not j.spec.reason)
        kept = choice and now_s - memory.policy_since_s < dwell_s and memory.decisions > 0
        pool = self.pool if choice and not kept else [self._policy(memory.policy)]
        seed = self.settings.seed + memory.decisions
        futures = self._look(jobs, now_s, pool, seed)
        candidates = judge(self.objective, [policy.name for policy in pool], futures)
        number, reason = choose(
            candidates,
            current=memory.policy if memory.decisions else None,
            hysteresis=self.settings.objective.hysteresis,
            ties=self._ties,
            free=choice and not kept,
        )
        chosen = candidates[number]
        if chosen.policy != memory.policy or memory.decisions == 0:
            memory.policy_since_s = now_s
        before, memory.policy = memory.policy, chosen.policy
        memory.decisions += 1
        expected, forecast_by = futures[0][number].start_s, chosen.policy
        if self.own is not None and not in_charge:
            now = self.simulated(jobs, now_s)
            expected = look_ahead(now, [self.own], past=Past.none())[0].start_s
            forecast_by = self.own.name
        return Decision(
            number=memory.decisions,
            time_s=now_s,
            seq=self.mirror.seq or 0,
            state=self.mirror.digest,
            seed=seed,
            policy=chosen.policy,
            reason=reason,
            before=before,
            candidates=tuple(candidates),
            starts=chosen.starts,
            forecasts=self.forecaster.forecast(waiting, expected, now_s),
            waiting=len(waiting),
            free_nodes=free,
            forecast_by=forecast_by,
        )

    def check_told(self) -> None:
        """Once for each snapshot, whether the cluster tells what policies and objective need to know.

        Raises:
            ConfigError: it does not.
        """
        if self._told != self.mirror.snapshots:
            policies = [*self.pool, *([] if self.own is None else [self.own])]
            check_told(policies, self.objective, self.mirror.cluster, self.mirror.nodes.values())
            self._told = self.mirror.snapshots

    def present(self, now_s: float, policy: str | Policy | None = None) -> Present:
        """The mirror as a simulation under a policy, with walltimes or predictions as runtimes."""
        jobs = self._jobs_as_of(now_s)
        if not isinstance(policy, Policy):
            policy = self._policy(policy or self._memory.policy)
        return self.simulated(jobs, now_s, policy)

    def free_nodes(self, jobs: Sequence[JobRecord] | None = None, *, on: bool = False) -> int:
        """Nodes that are up and held by no job; only those that are switched on, if that is asked for."""
        up = {
            name
            for name, node in self.mirror.nodes.items()
            if node.state == "up" and not (on and node.power and node.power.state != "on")
        }
        for job in self.mirror.jobs.values() if jobs is None else jobs:
            if job.node_names:
                up.difference_update(job.node_names)
        return len(up)

    def fits_now(self, jobs: Sequence[JobRecord] | None = None) -> Callable[[JobSpec], bool]:
        """What tells whether a job finds room on what is up and free now, whatever is kept for others."""
        if jobs is None:
            jobs = list(self.mirror.jobs.values())
        if any(job.spec.tasks for job in jobs):
            return self._room(jobs).fits
        free = self.free_nodes(jobs)
        return lambda spec: spec.nodes <= free

    def changed(self, snapshot: Snapshot) -> Core:
        """A core that expects the same of jobs, for a cluster that is otherwise than this one's."""
        other = Core(self.settings)
        other.expectations = self.expectations
        other.take_snapshot(snapshot)
        return other

    # --- saving ----------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything that decisions depend on, as plain values; the mirror must have a snapshot."""
        memory = asdict(self._memory)
        memory["past"] = [asdict(job) for job in self._memory.past]
        return {
            "snapshot": self.mirror.snapshot().model_dump(mode="json"),
            "expectations": self.expectations.state(),
            "forecaster": self.forecaster.state(),
            "memory": memory,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` gave.

        A policy in force that these settings do not know any more gives way to the first of the pool.
        """
        self.mirror = Mirror(Snapshot.model_validate(state["snapshot"]))
        self.expectations.restore(state["expectations"])
        self.forecaster.restore(state["forecaster"])
        memory = dict(state["memory"])
        memory["past"] = deque(StartedJob(**job) for job in memory["past"])
        memory["running"] = {i: StartedJob(**job) for i, job in memory["running"].items()}
        self._memory = _Memory(**memory)
        if self._memory.policy not in self._ties:
            self._memory.policy = self._ties[0]
        self.opportunity = True

    # --- inside ----------------------------------------------------------------------------------

    def _learn(self, event: ev.Event, job: JobRecord | None) -> None:
        memory = self._memory
        if isinstance(event, _OPPORTUNITY):
            self.opportunity = True
        match event:
            case ev.JobSubmitted():
                self.expectations.saw_submission(event.job)
            case ev.JobStarted():
                memory.asked.pop(event.job_id, None)
                memory.put_off.pop(event.job_id, None)
                self._saw_start(self.mirror.jobs.get(event.job_id))
                start_s = event.time_s if event.begins_s is None else event.begins_s
                self.forecaster.came_true(event.job_id, start_s)
            case ev.JobEnded() | ev.JobRequeued():
                started = memory.running.pop(event.job_id, None)
                if started is not None and isinstance(event, ev.JobEnded):
                    self._remember(started, event.time_s)
                    if job is not None and event.reason in ("exit", "walltime"):
                        self.expectations.saw_end(job, event.time_s)
            case ev.JobModified() if event.job.reason:
                # The manager says why it does not start: it holds nothing any more.
                memory.asked.pop(event.job.id, None)
            case ev.JobDeleted():
                memory.put_off.pop(event.job_id, None)
                memory.asked.pop(event.job_id, None)
                self.forecaster.forget(event.job_id)
            case _:
                pass

    def _saw_start(self, job: JobRecord | None) -> None:
        if job is None or job.start_s is None:
            return
        spec = job.spec
        self._memory.running[spec.id] = StartedJob(spec.id, spec.submit_s, job.start_s, spec.nodes)

    def _remember(self, job: StartedJob, end_s: float | None = None) -> None:
        """Keep a job that has ended as long as the objective looks back."""
        memory = self._memory
        window_s = self.settings.objective.past
        if window_s <= 0:
            return
        end_s = self.mirror.time_s if end_s is None else end_s
        memory.past.append(StartedJob(job.id, job.submit_s, job.start_s, job.nodes, end_s))
        while memory.past and (memory.past[0].end_s or 0.0) < self.mirror.time_s - window_s:
            memory.past.popleft()

    def _jobs_as_of(self, now_s: float) -> list[JobRecord]:
        """The mirror's jobs, with those asked to start as running, and those as blocked that are.

        A job that the manager would not start holds nothing, nor do those like it; see `Blocked`.
        """
        memory = self._memory
        jobs = list(self.mirror.jobs.values())
        blocked = self._blocked(now_s)
        if not memory.asked and not memory.put_off and not blocked:
            return jobs
        room, names = self._room(jobs), tuple(self.mirror.nodes)
        for i, job in enumerate(jobs):
            job_id = job.spec.id
            if job.start_s is not None or job.spec.reason:
                continue
            if job_id in memory.asked and (taken := room.place(job.spec)):
                jobs[i] = job.model_copy(
                    update={
                        "start_s": memory.asked[job_id],
                        "node_names": tuple(names[node] for node, _ in taken),
                        "parts": parts_of(job.spec, taken),
                    }
                )
                room.hold([node for node, _ in taken], jobs[i].amounts)
            elif memory.put_off.get(job_id, now_s) > now_s:
                spec = job.spec.model_copy(update={"not_before_s": memory.put_off[job_id]})
                jobs[i] = job.model_copy(update={"spec": spec})
            elif blocked and (as_other := blocked.like(job.spec)):
                spec = job.spec.model_copy(update={"reason": f"policy: as job {as_other}"})
                jobs[i] = job.model_copy(update={"spec": spec})
        return jobs

    def _room(self, jobs: Sequence[JobRecord]) -> Room:
        nodes = self.mirror.nodes
        states = [node.state for node in nodes.values()]
        return Room.of(self.mirror.machine, states, jobs, {name: i for i, name in enumerate(nodes)})

    def _blocked(self, now_s: float) -> Blocked:
        """The jobs that the manager would not start, and those that it did not start when asked."""
        put_off = self._memory.put_off
        jobs = self.mirror.jobs
        late = [jobs[i].spec for i, t in put_off.items() if t > now_s and _waits(jobs.get(i))]
        return Blocked([j.spec for j in jobs.values() if j.start_s is None and j.spec.reason], late)

    def left_to_manager(self, now_s: float, never: Collection[str] = ()) -> set[str]:
        """Waiting jobs that are not to be kept from starting.

        Those asked to start, those that the manager would not start or has not started when asked, and
        those that no forecast sees starting, unless they only wait behind a blocked one like them.

        Args:
            now_s: the present.
            never: jobs that the last decision sees never starting.
        """
        memory = self._memory
        blocked = self._blocked(now_s)
        found = set()
        for job_id, job in self.mirror.jobs.items():
            spec = job.spec
            if job.start_s is None and (
                spec.reason
                or spec.held
                or job_id in memory.asked
                or memory.put_off.get(job_id, 0.0) > now_s
                or (job_id in never and blocked.like(spec) is None)
            ):
                found.add(job_id)
        return found

    def simulated(
        self,
        jobs: Sequence[JobRecord],
        now_s: float,
        policy: Policy | None = None,
        arrivals: Sequence[JobSpec] = (),
        runtime_s: Mapping[str, float] | None = None,
    ) -> Present:
        """The mirror's nodes with some jobs, as a simulation.

        Args:
            jobs: the jobs that are there.
            now_s: the present.
            policy: what starts jobs; the one in force if left out.
            arrivals: jobs that will be submitted.
            runtime_s: how long jobs run, by id; as is expected if left out.
        """
        # Who only asks how things stand does not wait for the simulator to be loaded.
        from hpctwin.twin.present import present

        mirror = self.mirror
        expected = runtime_s
        if expected is None:
            coming = [JobRecord(spec=spec) for spec in arrivals]
            expected = self.expectations.runtime_s([*jobs, *coming])
        return present(
            mirror.machine,
            jobs,
            tuple(mirror.nodes.values()),
            [r for r in mirror.reservations.values() if r.end_s > now_s],
            now_s,
            policy or self._policy(self._memory.policy),
            runtime_s=expected,
            arrivals=arrivals,
            known=self._rows,
        )

    def _look(
        self, jobs: list[JobRecord], now_s: float, pool: Sequence[Policy], seed: int
    ) -> list[list[WhatIf]]:
        """What-ifs by future and policy. The first future takes what is expected, without arrivals."""
        settings = self.settings
        past = self._past(jobs)
        horizon_s = settings.horizon
        first = self.simulated(jobs, now_s)
        futures = [look_ahead(first, pool, past=past, horizon_s=horizon_s, threads=self.threads)]
        if len(pool) == 1 or settings.samples == 0:
            return futures
        for number in range(settings.samples):
            rng = np.random.default_rng([seed, number])
            runtime_s, arrivals = self.expectations.sample(jobs, now_s, settings.arrivals, rng)
            sampled = self.simulated(jobs, now_s, None, arrivals, runtime_s)
            futures.append(
                look_ahead(sampled, pool, past=past, horizon_s=horizon_s, threads=self.threads)
            )
        return futures

    def _past(self, jobs: Sequence[JobRecord]) -> Past:
        memory = self._memory
        if self.settings.objective.past <= 0:
            return Past.none()
        expected = self.expectations.runtime_s(jobs)
        rows = [(j.submit_s, j.start_s, j.end_s or j.start_s, j.nodes) for j in memory.past]
        for job in jobs:
            if job.start_s is not None:
                spec = job.spec
                runtime_s = expected.get(spec.id, spec.walltime_s)
                rows.append((spec.submit_s, job.start_s, job.start_s + runtime_s, spec.nodes))
        table = np.array(rows, np.float64).reshape(-1, 4).T
        return Past(*table)

    def _policy(self, name: str) -> Policy:
        if self.own is not None and self.own.name == name:
            return self.own
        return next(policy for policy in self.pool if policy.name == name)


def _waits(job: JobRecord | None) -> bool:
    return job is not None and job.start_s is None
