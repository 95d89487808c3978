"""Core of the live twin: events and snapshots in, decisions out.

The core has no clock, file or socket. Its results depend only on its inputs and their order, so any
decision can be repeated from the journal, bit for bit.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hpctwin.policies import Policy, compile_policies, parse_policy
from hpctwin.rms.manager import Where
from hpctwin.rms.records import events as ev
from hpctwin.rms.records.columns import Jobs
from hpctwin.rms.records.records import JobRecord, JobSpec, Snapshot
from hpctwin.twin.core.decision import (
    Actions,
    Decision,
    LeaseRule,
    PendingJob,
    choose,
    judge,
    leases_due,
    tie_order,
)
from hpctwin.twin.core.memory import Memory, room_of, waits
from hpctwin.twin.core.mirror import Mirror, Taken
from hpctwin.twin.forecast.forecaster import Forecast, Forecaster
from hpctwin.twin.forecast.learned_runtimes import read_quantiles
from hpctwin.twin.forecast.workload_model import Expectations
from hpctwin.twin.settings.config import CoreSettings, check_told
from hpctwin.twin.what_if.conversion import Reused
from hpctwin.twin.what_if.objective import Objective
from hpctwin.twin.what_if.pool import Answers, LocalPool, Request, Scene, WhatIfs
from hpctwin.twin.what_if.run import Past, WhatIf, look_ahead

if TYPE_CHECKING:
    from hpctwin.simulation import Simulation
    from hpctwin.twin.what_if.present import Present

__all__ = ["Core"]

# Kinds of events after which a job may be able to start.
_OPPORTUNITY = (
    ev.JobSubmitted, ev.JobModified, ev.JobReleased, ev.JobEnded, ev.JobRequeued, ev.JobDeleted,
    ev.JobHeld, ev.NodeUp, ev.NodePowered, ev.ReservationSet, ev.ReservationRemoved,
)  # fmt: skip

_FORECASTS = 1 << 20
"""Part of the seed of forecasts.

With it they draw other numbers than the comparison of policies.
"""


class Core:
    """Decision maker of the live twin, without clock or connections.

    Args:
        settings: Pool of policies, objective and expectations.
        what_ifs: Runner of the what-ifs. If it waits for all of them, results do not depend on it.
            Otherwise a decision records the ones without an answer, and is repeated without them.
    """

    def __init__(self, settings: CoreSettings, what_ifs: WhatIfs | None = None) -> None:
        self.settings = settings
        self.what_ifs = what_ifs or LocalPool()
        self.pool: list[Policy] = [parse_policy(text) for text in settings.pool]
        self.objective = Objective(
            settings.objective.weights,
            normalize=settings.objective.normalize,
            function=settings.objective.function,
            tau_s=settings.objective.tau,
        )
        own = settings.site_policy
        self.own = None if own is None else parse_policy(own)
        policies = [*self.pool, *([] if self.own is None else [self.own])]
        self._track_nodes = any(policy.placement.needs_nodes for policy in policies)
        self._ties = tie_order(settings.objective.tie_break, self.pool)
        self.mirror = Mirror()
        learned = None if settings.learned is None else read_quantiles(settings.learned)
        self.expectations = Expectations(settings.predictor, learned)
        self.forecaster = Forecaster()
        self._memory = Memory(policy=self._ties[0])
        self._reused = Reused()
        self.opportunity = False
        self._told = 0

    def warm_up(self) -> None:
        """Compile the pool now: no decision may wait for the compiler.

        Raises:
            PolicyError: A policy cannot be compiled.
        """
        pool = [*self.pool, *([] if self.own is None else [self.own])]
        compile_policies(pool, Policy.kernels_on_any_cluster)

    # --- inputs -----------------------------------------------------------------------------------

    def take_event(self, event: ev.Event) -> Taken:
        """Process an event; see `Mirror.take`."""
        taken, applied = self.mirror.take(event)
        for one, before in applied:
            self._learn(one, before)
        return taken

    def take_snapshot(self, snapshot: Snapshot) -> bool:
        """Replace the mirror's state with a snapshot; return False if the mirror is newer.

        The end time of a job that disappears without an event is unknown: nothing is learned from
        it.
        """
        taken, applied = self.mirror.adopt(snapshot)
        if not taken:
            return False
        self._memory.saw_all(self.mirror, snapshot.time_s, self.settings)
        self.forecaster.keep(self.mirror.jobs)
        self.expectations.saw_all(self.mirror.jobs)
        for one, before in applied:
            self._learn(one, before)
        self.opportunity = True
        return True

    def asked_to_start(self, job_id: str, time_s: float, where: Where = ()) -> None:
        """Record that the cluster was asked to start a job.

        The job holds nodes in the core's view until the cluster reports its start.

        Args:
            job_id: The job.
            time_s: Time of the request.
            where: The nodes given in the request, if any.
        """
        self._memory.asked[job_id] = time_s
        self._memory.told[job_id] = where

    def refused(self, job_id: str, time_s: float) -> None:
        """Record that the cluster refused a start; the job is deferred for the retry time."""
        self._memory.asked.pop(job_id, None)
        self._memory.put_off[job_id] = time_s + self.settings.retry_after
        self.opportunity = True

    @property
    def under_way(self) -> frozenset[str]:
        """Jobs that were asked to start and whose start has not been seen yet."""
        return frozenset(self._memory.asked)

    def waits(self, job_id: str) -> bool:
        """Return whether a job is pending and was not asked to start."""
        return waits(self.mirror.jobs.get(job_id)) and job_id not in self._memory.asked

    def put_off(self, job_id: str) -> float | None:
        """Return when a job may be asked again after a refusal; None if not refused."""
        return self._memory.put_off.get(job_id)

    def overdue(self, now_s: float) -> list[str]:
        """Return the jobs that were asked to start and did not within the start patience."""
        patience = self.settings.start_timeout
        return [i for i, t in self._memory.asked.items() if now_s - t > patience]

    # --- outputs ----------------------------------------------------------------------------------

    @property
    def policy(self) -> str:
        """Name of the policy in force."""
        return self._memory.policy

    def decide(
        self,
        now_s: float,
        *,
        dwell_s: float = 0.0,
        is_active: bool = True,
        unanswered: Sequence[tuple[int, str]] | None = None,
        chosen_now: Callable[[], None] = lambda: None,
    ) -> Decision | None:
        """Look ahead and choose a policy.

        Args:
            now_s: The present by the cluster's clock.
            dwell_s: Minimum time that a policy stays in force.
            is_active: Whether the twin starts the jobs. If not, forecasts are made for the
                cluster's own policy, if the settings name one.
            unanswered: Future and policy of the what-ifs that did not answer in time when this
                decision was made; None if it is made for the first time.
            chosen_now: Called once the policy is chosen, before the forecasts are made.

        Returns:
            The decision; None if the mirror needs a snapshot, or no job is pending.
        """
        self.opportunity = False
        if self.mirror.needs_snapshot is not None:
            return None
        self.check_told()
        jobs = self._memory.jobs_as_of(self.mirror, now_s)
        waiting = self._seen(jobs).waiting
        if not waiting:
            return None
        memory = self._memory
        free = self.free_nodes(jobs)
        choice = self._any_fits(jobs, free)
        kept = choice and now_s - memory.policy_since_s < dwell_s and memory.decisions > 0
        pool = self.pool if choice and not kept else [self.policy_named(memory.policy)]
        seed = self.settings.seed + memory.decisions
        answers = self._look(jobs, now_s, pool, seed, unanswered)
        late = tuple(
            (number, policy.name)
            for number, row in enumerate(answers)
            for policy, answer in zip(pool, row, strict=True)
            if answer is None
        )
        pool, futures = _answered(pool, answers)
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
        expected, by = futures[0][number].start_s, pool[number]
        if self.own is not None and not is_active:
            now = self.simulated(jobs, now_s)
            expected, by = look_ahead(now, [self.own], past=Past.none())[0].start_s, self.own
        chosen_now()
        due = self.forecaster.is_due(expected, now_s)
        drawn = self.draw(jobs, now_s, by, seed) if due else None
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
            forecasts=self.forecaster.forecast(waiting, expected, now_s, drawn),
            waiting=len(waiting),
            free_nodes=free,
            forecast_by=by.name,
            unanswered=late,
        )

    def actions(
        self,
        now_s: float,
        starts: Sequence[str],
        where: Mapping[str, Where] = MappingProxyType({}),
        most: int = sys.maxsize,
        *,
        leases: Mapping[str, float] = MappingProxyType({}),
        rule: LeaseRule | None = None,
        decision: Decision | None = None,
    ) -> Actions:
        """Return the jobs that the cluster is asked to start now, and the leases due.

        Args:
            now_s: The present by the cluster's clock.
            starts: Ids of pending jobs to start, the most important first.
            where: Nodes of the jobs that start on given nodes, by id.
            most: Maximum number of jobs that start now; the others are leased.
            leases: End of the lease of each of the twin's pending jobs, by id.
            rule: Lengths of leases; without it, none are due.
            decision: The last one; its forecasts say which jobs cannot start soon.
        """
        memory, mirror = self._memory, self.mirror
        told = memory.told_together(mirror, starts, where)
        due: dict[str, float] = {}
        if leases and rule is not None:
            forecasts = () if decision is None else decision.forecasts
            expected = {f.job_id: f.start_s for f in forecasts}
            never = {job_id for job_id, start_s in expected.items() if start_s is None}
            fits = self.fits_now()
            pending = {
                job_id: PendingJob(until_s, expected.get(job_id), fits(job.spec))
                for job_id, until_s in leases.items()
                if (job := mirror.jobs.get(job_id)) is not None and job.start_s is None
            }
            released = memory.left_to_manager(mirror, now_s, never).union(told[:most])
            due = leases_due(now_s, pending, released, rule)
        return Actions(told, frozenset(starts).difference(told), due)

    def places(self, starts: Collection[str], now_s: float, policy: str) -> dict[str, Where]:
        """Return where a policy places the jobs that start now on parts of nodes.

        Args:
            starts: Ids of the jobs.
            now_s: The present; the core must be as it was when it decided.
            policy: The policy chosen.
        """
        shared = {i for i in starts if self.mirror.jobs[i].spec.tasks}
        if not shared:
            return {}
        names = list(self.mirror.nodes)
        return {
            job_id: [(names[node], tasks) for node, tasks in taken]
            for job_id, taken in self.present(now_s, policy).placed(shared).items()
        }

    def forecasts(self, now_s: float, policy: str | None = None) -> list[Forecast]:
        """Return forecasts under a policy, by default the one in force.

        Nothing is learned from them.
        """
        jobs, by = (
            self._memory.jobs_as_of(self.mirror, now_s),
            self.policy_named(policy or self.policy),
        )
        expected = look_ahead(self.simulated(jobs, now_s), [by], past=Past.none())[0].start_s
        drawn = self.draw(jobs, now_s, by, self.settings.seed)
        return self.forecaster.preview(self._seen(jobs).waiting, expected, now_s, drawn)

    def draw(
        self, jobs: Sequence[JobRecord], now_s: float, policy: Policy, seed: int
    ) -> dict[str, npt.NDArray[np.float64]]:
        """Return the start of each pending job in each sampled future, by id [futures].

        A job that does not start in all of them is omitted.
        """
        settings = self.settings
        if not settings.futures:
            return {}
        rng = np.random.default_rng([seed, _FORECASTS])
        drawn = self.expectations.futures(jobs, now_s, settings.futures, settings.arrivals, rng)
        now = self.simulated(jobs, now_s, policy, drawn.arriving, {})
        return now.futures(drawn.runtime_s, drawn.coming)

    def check_told(self) -> None:
        """Check, once per snapshot, that the cluster reports what the policies need.

        The needs of the objective are checked too.

        Raises:
            ConfigError: The cluster does not report something that they need.
        """
        if self._told != self.mirror.snapshots:
            policies = [*self.pool, *([] if self.own is None else [self.own])]
            check_told(policies, self.objective, self.mirror.cluster, self.mirror.nodes.values())
            self._told = self.mirror.snapshots

    def present(self, now_s: float, policy: str | Policy | None = None) -> Present:
        """Return the mirror as a simulation, with walltimes or predictions as runtimes."""
        jobs = self._memory.jobs_as_of(self.mirror, now_s)
        if not isinstance(policy, Policy):
            policy = self.policy_named(policy or self._memory.policy)
        return self.simulated(jobs, now_s, policy)

    def free_nodes(self, jobs: Sequence[JobRecord] | None = None, *, on: bool = False) -> int:
        """Return the number of nodes that are up and hold no job.

        With ``on``, only nodes that are powered on count.
        """
        if jobs is None:
            jobs = list(self.mirror.jobs.values())
        there, places = self._seen(jobs), self._reused.rows.nodes
        free = (places.on if on else places.up).copy()
        free[there.held] = False
        return int(np.count_nonzero(free))

    def fits_now(self, jobs: Sequence[JobRecord] | None = None) -> Callable[[JobSpec], bool]:
        """Return a function that says whether a job fits the nodes up and free now.

        Nodes held back for other jobs count as free.

        Args:
            jobs: All jobs; by default those of the mirror.
        """
        if jobs is None:
            jobs = list(self.mirror.jobs.values())
        if "tasks" in self._seen(jobs).known:
            return room_of(self.mirror, jobs).fits
        free = self.free_nodes(jobs)
        return lambda spec: spec.nodes <= free

    def simulating(self) -> list[Simulation]:
        """Return the simulations that run now; a caller in another thread may stop them."""
        return self._reused.spare.running()

    def scene(self, now_s: float) -> Scene:
        """Return the input of a simulation of the mirror, independent of its later changes."""
        return self._scene(self._memory.jobs_as_of(self.mirror, now_s), now_s)

    def copy(self) -> Core:
        """Return a core for questions in another thread, independent of later changes of this one."""
        other = copy.copy(self)
        other.mirror = self.mirror.copy()
        other.expectations = self.expectations.copy()
        other.forecaster = self.forecaster.copy()
        other._memory = self._memory.copy()
        other._reused = Reused()
        return other

    # --- saving ----------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return everything that decisions depend on, as plain values; needs a snapshot."""
        return {
            "snapshot": self.mirror.snapshot().model_dump(mode="json"),
            "expectations": self.expectations.state(),
            "forecaster": self.forecaster.state(),
            "memory": self._memory.plain(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a value of `state`.

        If the policy in force is not in these settings, the first of the pool replaces it.
        """
        self.mirror = Mirror(Snapshot.model_validate(state["snapshot"]))
        self.expectations.restore(state["expectations"])
        self.forecaster.restore(state["forecaster"])
        self._memory = Memory.of(state["memory"])
        if self._memory.policy not in self._ties:
            self._memory.policy = self._ties[0]
        self.opportunity = True

    # --- internals --------------------------------------------------------------------------------

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
                memory.saw_start(self.mirror.jobs.get(event.job_id))
                start_s = event.time_s if event.begins_s is None else event.begins_s
                self.forecaster.came_true(event.job_id, start_s)
            case ev.JobEnded() | ev.JobRequeued():
                started = memory.running.pop(event.job_id, None)
                if started is not None and isinstance(event, ev.JobEnded):
                    memory.remember(started, event.time_s, self.mirror.time_s, self.settings)
                    if job is not None and event.reason in ("exit", "walltime"):
                        self.expectations.saw_end(job, event.time_s)
            case ev.JobModified() if event.job.reason:
                # The manager gives a reason why the job does not start, so it holds no nodes any
                # more.
                memory.asked.pop(event.job.id, None)
            case ev.JobDeleted():
                memory.put_off.pop(event.job_id, None)
                memory.asked.pop(event.job_id, None)
                self.forecaster.forget(event.job_id)
            case _:
                pass

    def simulated(
        self,
        jobs: Sequence[JobRecord],
        now_s: float,
        policy: Policy | None = None,
        arrivals: Sequence[JobSpec] = (),
        runtime_s: Mapping[str, float] | None = None,
    ) -> Present:
        """Return the mirror's nodes with given jobs, as a simulation.

        Args:
            jobs: Running and pending jobs.
            now_s: The present.
            policy: The policy that starts jobs; by default the one in force.
            arrivals: Jobs that will be submitted.
            runtime_s: Runtimes by id; by default the expected ones.
        """
        by = policy or self.policy_named(self._memory.policy)
        return self._scene(jobs, now_s, arrivals, runtime_s).present(by, self._reused)

    def _scene(
        self,
        jobs: Sequence[JobRecord],
        now_s: float,
        arrivals: Sequence[JobSpec] = (),
        runtime_s: Mapping[str, float] | None = None,
    ) -> Scene:
        """Return the input of `simulated`."""
        mirror = self.mirror
        jobs = mirror.modeled(jobs)
        arrivals = [spec for spec in arrivals if not mirror.reported.lacks(spec)]
        if runtime_s is None:
            coming = [JobRecord(spec=spec) for spec in arrivals]
            runtime_s = self.expectations.runtime_s([*jobs, *coming])
        return Scene(
            machine=mirror.machine,
            jobs=jobs,
            nodes=mirror.node_records,
            reservations=[r for r in mirror.reservations.values() if r.end_s > now_s],
            now_s=now_s,
            runtime_s=runtime_s,
            arrivals=arrivals,
            track_nodes=self._track_nodes,
        )

    def _look(
        self,
        jobs: Sequence[JobRecord],
        now_s: float,
        pool: Sequence[Policy],
        seed: int,
        unanswered: Sequence[tuple[int, str]] | None,
    ) -> Answers:
        """Return what-ifs by future and policy.

        The first future has the expected runtimes and no arrivals.
        """
        settings, force = self.settings, self._memory.policy

        def sampled(number: int) -> Scene:
            rng = np.random.default_rng([seed, number])
            runtime_s, arrivals = self.expectations.sample(jobs, now_s, settings.arrivals, rng)
            return self._scene(jobs, now_s, arrivals, runtime_s)

        samples = settings.samples if len(pool) > 1 else 0
        asked = Request(
            futures=[
                partial(self._scene, jobs, now_s),
                *(partial(sampled, number) for number in range(samples)),
            ],
            pool=pool,
            first=next((i for i, policy in enumerate(pool) if policy.name == force), 0),
            past=self._memory.past_of(jobs, self.expectations, settings),
            horizon_s=settings.horizon,
            reused=self._reused,
            unanswered=None if unanswered is None else {(n, name) for n, name in unanswered},
        )
        return self.what_ifs.run(asked)

    def _seen(self, jobs: Sequence[JobRecord]) -> Jobs:
        return self._reused.rows.jobs(jobs, self.mirror.node_records)

    def _any_fits(self, jobs: Sequence[JobRecord], free_nodes: int) -> bool:
        """Return whether any pending job that may start fits the free nodes now."""
        there = self._seen(jobs)
        if "tasks" in there.known:
            fits, waiting = self.fits_now(jobs), [job.spec for job in jobs if job.start_s is None]
            return any(fits(spec) for spec in waiting if not spec.held and not spec.reason)
        may = ~there.runs & (there.of("barred") == 0)
        return bool(np.count_nonzero(there.of("nodes")[may] <= free_nodes))

    def policy_named(self, name: str) -> Policy:
        """Return a policy of the pool, or the cluster's own, by its name."""
        if self.own is not None and self.own.name == name:
            return self.own
        return next(policy for policy in self.pool if policy.name == name)


def _answered(pool: Sequence[Policy], answers: Answers) -> tuple[list[Policy], list[list[WhatIf]]]:
    """Return the policies with an expected future, and the complete futures.

    A future is complete if all of these policies answered.
    """
    there = [i for i, answer in enumerate(answers[0]) if answer is not None]
    rows = [[answer for i in there if (answer := row[i]) is not None] for row in answers]
    return [pool[i] for i in there], [row for row in rows if len(row) == len(there)]
