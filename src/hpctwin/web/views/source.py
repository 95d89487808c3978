"""State of a live cluster from its journal, as words and columns for viewers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from pydantic import TypeAdapter

from hpctwin.energy import Series
from hpctwin.energy.accounts.component_energy import ComponentEnergy
from hpctwin.errors import HpctwinError
from hpctwin.twin.forecast.accuracy import accuracy
from hpctwin.twin.forecast.forecaster import LEVELS, Forecast
from hpctwin.twin.journal.restore import Standing, full_id
from hpctwin.twin.service.explain import explain_decision, job_records
from hpctwin.twin.start_times.estimate import when
from hpctwin.twin.what_if.pool import StoppableRuns
from hpctwin.web.views.cluster_views import (
    bars,
    decision_view,
    held_line,
    job_views,
    node_views,
    places,
    timeline,
)
from hpctwin.web.views.follower import FollowedJournal
from hpctwin.web.views.job_history import PAST_S, Stretch, ends_s, lanes_of, past, placed
from hpctwin.web.views.job_list import LiveJobFilter, job_table, selected
from hpctwin.web.views.power_views import Weather, energy_of, energy_view, power_lines, rates_of
from hpctwin.web.views.timeline import LaneNames, Timeline
from hpctwin.web.views.views import (
    AccuracyView,
    Bar,
    Change,
    Clock,
    DecisionView,
    EnergyView,
    Explanation,
    FigureView,
    Head,
    JobExplanation,
    JobForecast,
    JobList,
    JobView,
    LaneGroup,
    LinesView,
    MeterView,
    NodeView,
    ScheduleView,
    Shown,
    TimelineView,
    WhatIfAnswer,
    site_zone,
)
from hpctwin.web.views.visibility import EVERYTHING, Visibility
from hpctwin.web.views.whatif import Question, Schedule, schedule_of

__all__ = ["Source"]

T = TypeVar("T")

ACCURACY_EVERY_S = 10.0
_FAST_S = 0.2
_HEAD_S = 0.1
"""Time that `Source.head` waits for another answer, in seconds."""
_REST = 5.0
"""A schedule that takes longer than `_FAST_S` is kept for this multiple of the time that it took."""
_RUNTIMES = {
    "walltime": "their walltimes",
    "recent": "the mean of their users' last two runtimes, up to their walltimes",
}
_NODES, _BARS = TypeAdapter(list[NodeView]), TypeAdapter(list[Bar])


class Source(FollowedJournal):
    """Current state of a cluster.

    Args:
        path: Journal of the twin.
        weather: Wet-bulb temperature in °C, or a file of weather, for cooling; None without
            cooling.

    Raises:
        HpctwinError: The journal does not exist, or has no snapshot of the cluster yet.
    """

    def __init__(self, path: Path, weather: Weather = None) -> None:
        self.weather = weather
        self._accuracy: tuple[float, list[AccuracyView]] | None = None
        self._heads: dict[bool, Head] = {}
        self._untold = self._unscheduled = ""
        self._scheduled = Schedule("", {}, 0, {}, [])
        self._scheduled_for = 0
        self._scheduled_until = 0.0
        self._forecasts_of: tuple[Standing, dict[str, Forecast]] | None = None
        # These are taken before the lock of the state, never while it is held.
        self._scheduling, self._asking = threading.Lock(), threading.Lock()
        self._counting = threading.Lock()
        super().__init__(path)

    def head(self, sees: Visibility = EVERYTHING) -> Head:
        """Return the state of the cluster and its twin.

        While another answer takes long, this is the last one that was made.
        """
        known = self._heads.get(sees.names)
        if not self._lock.acquire(timeout=-1 if known is None else _HEAD_S):
            assert known is not None
            return known.model_copy(update={"age_s": time.time() - self._said[0]})
        try:
            self._heads[sees.names] = self._head(sees)
            return self._heads[sees.names]
        finally:
            self._lock.release()

    def _head(self, sees: Visibility) -> Head:
        with self.looking() as stands:
            core, status = stands.core, stands.status
            jobs = core.mirror.jobs
            running = sum(job.start_s is not None for job in jobs.values())
            decided, energy = self._decided, self.energy()
            return Head(
                version=self.version,
                cluster=core.mirror.cluster,
                time_s=stands.now_s,
                clock=self._clock,
                alive=self._alive,
                age_s=time.time() - self._said[0],
                mode=status.get("mode", ""),
                is_active=bool(status.get("is_active")) and self._alive,
                policy=stands.policy,
                policy_assumed=stands.assumed,
                trouble=self._trouble(sees),
                nodes=len(core.mirror.nodes),
                free_nodes=core.free_nodes(),
                running=running,
                waiting=len(jobs) - running,
                decision=None if decided is None else decided["id"],
                decided_s=None if decided is None else decided["time_s"],
                awaiting=self._awaiting,
                killed=bool(status.get("killed")),
                cycle_s=None if decided is None else decided["took_ms"] / 1000,
                energy=energy,
                meter=MeterView(**status["meter"]) if status.get("meter") else None,
                not_read=tuple(status.get("not_read", ())) if sees.names else (),
                pool=tuple(policy.name for policy in core.pool),
            )

    def shown(self, name: str, sees: Visibility = EVERYTHING) -> Shown:
        """Return the cluster's entry in the list of pages."""
        head = self.head(sees)
        told = {
            "policy": head.policy, "running": f"{head.running:,}", "pending": f"{head.waiting:,}",
            "nodes free": f"{head.free_nodes:,} of {head.nodes:,}",
        }  # fmt: skip
        figures = tuple(FigureView(key=key, name=key, text=text) for key, text in told.items())
        return Shown(
            name=name, kind="twin", title=head.cluster, trouble=head.trouble, figures=figures
        )

    def _trouble(self, sees: Visibility) -> tuple[str, ...]:
        status = self._said[1]
        named = (("", "fault"), ("", "inactive"), ("not acting: ", "kept_out"),
                 ("stopped by itself: ", "stopped"),
                 ("the mirror waits for a snapshot: ", "waits_for_snapshot"))  # fmt: skip
        found = [f"{text}{status[key]}" for text, key in named if status.get(key)]
        if found and not sees.names:
            # The manager's own words may name users and accounts.
            found = ["the twin reports an error; operators see it"]
        if (status.get("meter") or {}).get("fault"):
            found.append(f"the meter: {status['meter']['fault']}")
        if status.get("killed"):
            found.append("the kill switch is activated")
        if not self._alive:
            found.insert(0, "the twin is not running")
        if self.fault:
            found.insert(0, self.fault)
        found += [text for text in (self._untold, self._unscheduled) if text]
        return tuple(found)

    def job_views(self, sees: Visibility = EVERYTHING) -> list[JobView]:
        """Return pending jobs by forecast start, then running jobs."""
        self.update_starts()
        return self.current_views(sees)

    def update_starts(self) -> None:
        """Update the schedule if a pending job has no forecast; see `update_schedule`."""
        with self.looking() as stands:
            jobs, known = stands.core.mirror.jobs.items(), stands.forecasts
            late = any(job.start_s is None and i not in known for i, job in jobs)
        if late:
            self.update_schedule()

    def current_views(self, sees: Visibility = EVERYTHING) -> list[JobView]:
        """Return the same as `job_views`, after `update_starts`."""
        return self._kept("jobs", lambda now: job_views(now, self._scheduled.starts_s, sees), sees)

    def jobs(self, asked: LiveJobFilter, sees: Visibility = EVERYTHING) -> JobList:
        """Return a page of the jobs that match a filter.

        Args:
            asked: Filters, order and page.
            sees: Names that the visitor may see; hidden names are not found.
        """
        self.update_starts()
        with self.looking():
            version, views = self.version, self.current_views(sees)
            table = self._kept("job table", lambda _: job_table(views), sees)
        found, page = selected(table, asked)
        return JobList(version=version, found=found, shown=tuple(views[i] for i in page["at"]))

    def nodes(self) -> bytes:
        """Return all nodes as JSON."""
        return self._kept("nodes", lambda stands: _NODES.dump_json(node_views(stands)))

    def bars(self) -> bytes:
        """Return past, running and forecast jobs on nodes, as JSON."""
        self.update_schedule()
        return self._kept("bars", lambda _: _BARS.dump_json(self._bars()))

    def _bars(self) -> list[Bar]:
        return self._kept(
            "list",
            lambda stands: bars(stands.core.mirror.machine, self.course(), stands.forecasts),
        )

    def update_schedule(self) -> None:
        """Update the schedule, without holding up other answers; not while the state is locked.

        One that took long is kept while it is still young.
        """
        with self._scheduling:
            with self.looking() as stands:
                version = self.version
                if version == self._scheduled_for or time.monotonic() < self._scheduled_until:
                    return
                scene = stands.core.scene(stands.now_s)
                policy = stands.core.policy_named(stands.policy)
            begin, trouble = time.monotonic(), ""
            try:
                made = schedule_of(scene.present(policy), scene)
            except HpctwinError as error:
                trouble = f"the schedule is not shown: {error}"
                made = Schedule(stands.policy, {}, 0, {}, [])
            took_s = time.monotonic() - begin
            with self.looking():
                self._scheduled, self._scheduled_for = made, version
                self._unscheduled = trouble
                self._scheduled_until = begin + (_REST * took_s if took_s > _FAST_S else 0.0)

    def _past(self) -> list[Stretch]:
        return self._kept("past", lambda stands: past(self.history, stands.now_s, self._numbers))

    def _running(self) -> list[Stretch]:
        now_s, jobs = self._stands.now_s, self._stands.core.mirror.jobs.values()
        until_s = {one.job: one.end_s for one in self._scheduled.stretches if one.kind == "runs"}
        return [
            placed(
                job,
                max(now_s, until_s.get(job.spec.id, ends_s(job, job.start_s))),
                self._numbers,
            )
            for job in jobs
            if job.start_s is not None
        ]

    @property
    def _numbers(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self._stands.core.mirror.nodes)}

    def course(self) -> list[Stretch]:
        """Return recent, running and scheduled jobs on nodes; see `update_schedule`."""

        def of(stands: Standing) -> list[Stretch]:
            # The schedule may be older than the state: jobs may have started or gone since.
            waiting = {i for i, job in stands.core.mirror.jobs.items() if job.start_s is None}
            made = self._scheduled.stretches
            coming = [one for one in made if one.kind == "forecast" and one.job in waiting]
            return [*self._past(), *self._running(), *coming]

        return self._kept("course", of)

    @property
    def _from_s(self) -> float:
        """Begin of the shown time."""
        now_s, jobs = self._stands.now_s, self._stands.core.mirror.jobs.values()
        starts = [job.start_s for job in jobs if job.start_s is not None]
        first = min([one.start_s for one in self._past()] + starts, default=now_s)
        return max(min(first, now_s - 60), now_s - PAST_S)

    @property
    def _span_s(self) -> tuple[float, float]:
        """Begin and end of the shown time."""
        now_s = self._stands.now_s
        last = max((one.end_s for one in self.course()), default=now_s)
        return self._from_s, max(last, now_s + 60)

    def timeline(self) -> Timeline:
        """Return the same as `bars`, as a browser draws it."""
        self.update_schedule()
        return self._kept(
            "timeline", lambda _: timeline(self._bars(), self.course(), self._names, self._lanes)
        )

    @property
    def _names(self) -> LaneNames:
        mirror = self._stands.core.mirror
        each = np.repeat(
            lanes_of(mirror.machine, self.course()), [one.count for one in mirror.machine.nodes]
        )
        return LaneNames(list(mirror.nodes), places(mirror.machine), each)

    @property
    def _clock(self) -> Clock:
        return Clock(unix_time=self._stands.core.mirror.unix_time, zone=site_zone())

    @property
    def _groups(self) -> tuple[LaneGroup, ...]:
        machine = self._stands.core.mirror.machine
        return tuple(
            LaneGroup(name=group.name, nodes=group.count, lanes=lanes)
            for group, lanes in zip(machine.nodes, lanes_of(machine, self.course()), strict=True)
        )

    @property
    def _lanes(self) -> int:
        return sum(group.nodes * group.lanes for group in self._groups)

    def timeline_view(self) -> TimelineView:
        """Return the range of the timeline."""
        self.update_schedule()
        with self.looking() as stands:
            from_s, to_s = self._span_s
            shared = any(one.amounts is not None for one in self.course())
            return TimelineView(
                version=self.version,
                of="core" if shared else "node",
                lanes=self._lanes,
                groups=self._groups,
                from_s=from_s,
                to_s=to_s,
                now_s=stands.now_s,
                clock=self._clock,
                schedule=ScheduleView(
                    policy=self._scheduled.policy,
                    runtimes=_RUNTIMES[stands.core.settings.predictor],
                    never=self._scheduled.never,
                ),
                placed=True,
            )

    def energy(self) -> EnergyView | None:
        """Return current power and energy so far; None without a power model."""

        def of(stands: Standing) -> EnergyView | None:
            span_s = self._from_s, stands.now_s + 60
            # The future has no effect on it, so nothing is simulated.
            accounts = self._energy([*self._past(), *self._running()], span_s)
            if accounts is None:
                return None
            now_s = stands.now_s - span_s[0]
            return self._with_weather(
                lambda weather: energy_view(accounts, now_s, self._rates(), weather)
            )

        return self._kept("drawn", of)

    def _with_weather(self, told: Callable[[Weather], T]) -> T:
        """Call with the weather, or without it once the weather cannot be used."""
        try:
            return told(self.weather)
        except HpctwinError as error:
            self._untold = f"cooling is not shown: {error}"
            self.weather = None
        return told(None)

    def _energy(
        self, stretches: Sequence[Stretch], span_s: tuple[float, float]
    ) -> ComponentEnergy | None:
        mirror = self._stands.core.mirror
        if not mirror.machine.has_power:
            return None
        nodes = list(mirror.nodes.values())
        return energy_of(mirror.machine, stretches, nodes, span_s, unix_time=mirror.unix_time)

    def _rates(self) -> dict[str, Series]:
        try:
            mirror = self._stands.core.mirror
            return rates_of(mirror.machine, self._from_s, unix_time=mirror.unix_time)
        except HpctwinError as error:
            self._untold = f"price and carbon are not shown: {error}"
            return {}

    def lines(self, bins: int) -> LinesView:
        """Return nodes in use and power over time, past and forecast."""
        self.update_schedule()
        with self.looking() as stands:
            from_s, to_s = self._span_s
            edges = np.linspace(0.0, to_s - from_s, bins + 1)
            told = [held_line(stands.core.mirror.machine, self.course(), from_s + edges)]
            energy = self._kept("energy", lambda _: self._energy(self.course(), self._span_s))
            if energy is not None:
                told += self._with_weather(
                    lambda weather: power_lines(energy, edges, self._rates(), weather)
                )
            return LinesView(
                edges_s=tuple((from_s + edges).tolist()), now_s=stands.now_s, lines=tuple(told)
            )

    def when(self, job_id: str) -> JobForecast:
        """Forecast when a job starts, and explain why not now."""
        # A copy, because forecasts of all jobs may take long: other answers need the state.
        stands = self._kept("copy", lambda now: replace(now, core=now.core.copy()))
        job_id, known = full_id(stands.core, job_id), stands.forecasts
        with self._asking:
            if job_id in stands.core.mirror.jobs and job_id not in known:
                if self._forecasts_of is None or self._forecasts_of[0] is not stands:
                    self._forecasts_of = stands, _forecasts(stands)
                known = self._forecasts_of[1]
            found = when(stands.core, job_id, stands.now_s, stands.policy, known)
        quantiles = dict(zip(map(str, LEVELS), found.quantiles_s, strict=False))
        return JobForecast(
            job=job_id, as_of_s=stands.now_s, **vars(found) | {"quantiles_s": quantiles}
        )

    def explain_job(self, job_id: str, sees: Visibility = EVERYTHING) -> JobExplanation:
        """Forecast and explain a job's start, with all its forecasts and actions."""
        told = self.when(job_id)
        with self.looking() as stands:
            unix_time = stands.core.mirror.unix_time
        own_words = sees.shows(self._user_of(told.job))
        with closing(self.journal()) as journal:
            records = job_records(journal, told.job, unix_time=unix_time, own_words=own_words)
        return JobExplanation(job=told.job, state=told.state, why=(*told.why, *records))

    def _user_of(self, job_id: str) -> str | None:
        """Return the user of a pending, running or recent job; None if it is not known."""
        with self.looking() as stands:
            job = stands.core.mirror.jobs.get(job_id)
            if job is not None:
                return job.spec.user
            past = self.history.last(job_id)
            return None if past is None or past.spec is None else past.spec.user

    def explain_decision(self, number: int, sees: Visibility = EVERYTHING) -> Explanation:
        """Explain why a decision was made.

        Raises:
            HpctwinError: There is no decision of that number.
        """
        with closing(self.journal()) as journal:
            lines = explain_decision(journal, number, own_words=sees.names)
            return Explanation(why=tuple(lines))

    def decisions(self, limit: int, before: int | None = None) -> list[DecisionView]:
        """Return the last decisions, newest first."""
        with closing(self.journal()) as journal:
            found = (journal.read_decision(i) for i in journal.decision_ids(limit, before))
            return [decision_view(one) for one in found if one is not None]

    def decision(self, number: int) -> DecisionView | None:
        """Return one decision; None if it does not exist."""
        with closing(self.journal()) as journal:
            found = journal.read_decision(number) if number > 0 else None
        return None if found is None else decision_view(found)

    def accuracy(self) -> list[AccuracyView]:
        """Return the accuracy of forecasts; a few seconds old at most."""
        with self._counting:
            known = self._accuracy
            if known is None or time.monotonic() - known[0] > ACCURACY_EVERY_S:
                with closing(self.journal()) as journal:
                    rows = accuracy(journal.read_forecasts())
                known = time.monotonic(), [AccuracyView(**asdict(row)) for row in rows]
                self._accuracy = known
            return known[1]

    def counts(self) -> dict[str, int]:
        """Return the twin's counters since its start, as last reported."""
        with self.looking() as stands:
            return dict(stands.status.get("counts", {}))

    def decisions_by_policy(self) -> dict[str, int]:
        """Return the number of the journal's decisions for each policy."""
        with self.looking():
            return dict(self._by_policy)

    def what_if(
        self, change: Change, sees: Visibility = EVERYTHING, runs: StoppableRuns | None = None
    ) -> WhatIfAnswer:
        """Return both futures of a change.

        Args:
            change: Changes to simulate.
            sees: Names that the visitor may see.
            runs: With which the what-if can be stopped.

        Raises:
            HpctwinError: The change is not valid, names a user that is hidden, takes too long, or
                was stopped.
        """
        if change.job is not None and change.job.user:
            # Its start would show that user's priority and limits.
            sees.check(change.job.user)
        with self.looking() as stands:
            question = Question.of(stands.core, stands.now_s, stands.policy, change)
        return question.answer(runs)


def _forecasts(stands: Standing) -> dict[str, Forecast]:
    """Return forecasts of all pending jobs, including jobs that the twin has not seen yet."""
    new = stands.core.forecasts(stands.now_s, stands.policy)
    return {one.job_id: one for one in new} | dict(stands.forecasts)
