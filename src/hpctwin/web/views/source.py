"""State of a live cluster from its journal, as words and columns for viewers."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import numpy as np
from pydantic import TypeAdapter

from hpctwin.energy import Series
from hpctwin.energy.accounts.component_energy import ComponentEnergy
from hpctwin.errors import HpctwinError
from hpctwin.twin.forecast.accuracy import Accuracy, accuracy
from hpctwin.twin.journal.status_reader import Standing, full_id
from hpctwin.twin.service.explain import explain_decision, explain_job
from hpctwin.twin.start_times.estimate import when
from hpctwin.web.views.cluster_views import (
    bars,
    decision_view,
    held_line,
    job_views,
    node_views,
    timeline,
)
from hpctwin.web.views.follower import FollowedJournal
from hpctwin.web.views.job_history import PAST_S, Stretch, course, lanes_of
from hpctwin.web.views.power_views import Weather, energy_of, energy_view, power_lines, rates_of
from hpctwin.web.views.timeline import Timeline
from hpctwin.web.views.views import (
    Bar,
    Change,
    DecisionView,
    EnergyView,
    FigureView,
    Head,
    JobView,
    LaneGroup,
    LinesView,
    MeterView,
    NodeView,
    Shown,
    TimelineView,
    Told,
    WhatIfAnswer,
)
from hpctwin.web.views.whatif import prepare

__all__ = ["Source"]

T = TypeVar("T")

ACCURACY_EVERY_S = 10.0
_JOBS, _NODES, _BARS = (
    TypeAdapter(list[JobView]),
    TypeAdapter(list[NodeView]),
    TypeAdapter(list[Bar]),
)


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
        self._accuracy: tuple[float, list[Accuracy]] | None = None
        self._untold = ""
        super().__init__(path)

    def head(self) -> Head:
        """Return the state of the cluster and its twin."""
        with self.looking() as stands:
            core, status = stands.core, stands.status
            jobs = core.mirror.jobs
            running = sum(job.start_s is not None for job in jobs.values())
            decided, energy = self._decided, self.energy()
            return Head(
                version=self.version,
                cluster=core.mirror.cluster,
                time_s=stands.now_s,
                alive=self._alive,
                age_s=time.time() - self._said[0],
                mode=status.get("mode", ""),
                is_active=bool(status.get("is_active")) and self._alive,
                policy=stands.policy,
                policy_assumed=stands.assumed,
                trouble=self._trouble(),
                nodes=len(core.mirror.nodes),
                free_nodes=core.free_nodes(),
                running=running,
                waiting=len(jobs) - running,
                decision=None if decided is None else decided["id"],
                decided_s=None if decided is None else decided["time_s"],
                awaiting=self._awaiting,
                killed=bool(status.get("killed")),
                cycle_ms=None if decided is None else decided["took_ms"],
                energy=energy,
                meter=MeterView(**status["meter"]) if status.get("meter") else None,
                not_read=tuple(status.get("not_read", ())),
                pool=tuple(policy.name for policy in core.pool),
            )

    def shown(self, name: str) -> Shown:
        """Return the cluster's entry in the list of pages."""
        head = self.head()
        told = {
            "policy": head.policy, "running": f"{head.running:,}", "pending": f"{head.waiting:,}",
            "nodes free": f"{head.free_nodes:,} of {head.nodes:,}",
        }  # fmt: skip
        figures = tuple(FigureView(key=key, name=key, text=text) for key, text in told.items())
        return Shown(
            name=name, kind="twin", title=head.cluster, trouble=head.trouble, figures=figures
        )

    def _trouble(self) -> tuple[str, ...]:
        status = self._said[1]
        named = (("", "fault"), ("", "inactive"), ("not acting: ", "kept_out"),
                 ("stopped by itself: ", "stopped"),
                 ("the mirror waits for a snapshot: ", "waits_for_snapshot"))  # fmt: skip
        found = [f"{text}{status[key]}" for text, key in named if status.get(key)]
        if (status.get("meter") or {}).get("fault"):
            found.append(f"the meter: {status['meter']['fault']}")
        if status.get("killed"):
            found.append("the kill switch is activated")
        if not self._alive:
            found.insert(0, "the twin is not running")
        if self.fault:
            found.insert(0, self.fault)
        if self._untold:
            found.append(self._untold)
        return tuple(found)

    def jobs(self) -> bytes:
        """Return pending jobs by forecast start, then running jobs, as JSON."""
        return self._kept("jobs", lambda stands: _JOBS.dump_json(job_views(stands)))

    def job_views(self) -> list[JobView]:
        """Return the same as `jobs`, not as JSON."""
        with self.looking() as stands:
            return job_views(stands)

    def nodes(self) -> bytes:
        """Return all nodes as JSON."""
        return self._kept("nodes", lambda stands: _NODES.dump_json(node_views(stands)))

    def bars(self) -> bytes:
        """Return past, running and forecast jobs on nodes, as JSON."""
        return self._kept("bars", lambda _: _BARS.dump_json(self._bars()))

    def _bars(self) -> list[Bar]:
        return self._kept("list", lambda stands: bars(stands.core.mirror.machine, self._course()))

    def _course(self) -> list[Stretch]:
        return self._kept("course", lambda stands: course(stands, self.history))

    @property
    def _span_s(self) -> tuple[float, float]:
        """Begin and end of the shown time."""
        stands = self._stands
        all_of_it = self._course()
        first = min((one.start_s for one in all_of_it), default=stands.now_s)
        last = max((one.end_s for one in all_of_it), default=stands.now_s)
        now_s = stands.now_s
        return max(min(first, now_s - 60), now_s - PAST_S), max(last, now_s + 60)

    def timeline(self) -> Timeline:
        """Return the same as `bars`, as a browser draws it."""
        return self._kept("timeline", lambda _: timeline(self._bars(), self._lanes))

    @property
    def _groups(self) -> tuple[LaneGroup, ...]:
        machine = self._stands.core.mirror.machine
        return tuple(
            LaneGroup(name=group.name, nodes=group.count, lanes=lanes)
            for group, lanes in zip(machine.nodes, lanes_of(machine, self._course()), strict=True)
        )

    @property
    def _lanes(self) -> int:
        return sum(group.nodes * group.lanes for group in self._groups)

    def timeline_view(self) -> TimelineView:
        """Return the range of the timeline."""
        with self.looking() as stands:
            from_s, to_s = self._span_s
            shared = any(one.amounts is not None for one in self._course())
            return TimelineView(
                version=self.version,
                of="core" if shared else "node",
                lanes=self._lanes,
                groups=self._groups,
                from_s=from_s,
                to_s=to_s,
                now_s=stands.now_s,
                placed=True,
            )

    def lane_name(self, lane: int) -> str:
        """Return the node of a lane."""
        with self.looking() as stands:
            before = 0
            for group in self._groups:
                if lane < group.nodes * group.lanes:
                    at = before + lane // group.lanes
                    return next(itertools.islice(stands.core.mirror.nodes, at, None), "")
                before += group.nodes
                lane -= group.nodes * group.lanes
        return ""

    def energy(self) -> EnergyView | None:
        """Return current power and energy so far; None without a power model."""

        def of(stands: Standing) -> EnergyView | None:
            accounts = self._energy()
            if accounts is None:
                return None
            now_s = stands.now_s - self._span_s[0]
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

    def _energy(self) -> ComponentEnergy | None:
        mirror = self._stands.core.mirror
        if not mirror.machine.has_power:
            return None
        nodes = list(mirror.nodes.values())
        return self._kept(
            "energy", lambda _: energy_of(mirror.machine, self._course(), nodes, self._span_s)
        )

    def _rates(self) -> dict[str, Series]:
        try:
            return rates_of(self._stands.core.mirror.machine, self._span_s[0])
        except HpctwinError as error:
            self._untold = f"price and carbon are not shown: {error}"
            return {}

    def lines(self, bins: int) -> LinesView:
        """Return nodes in use and power over time, past and forecast.

        Args:
            bins: Number of bins, 1 or more.
        """
        with self.looking() as stands:
            from_s, to_s = self._span_s
            edges = np.linspace(0.0, to_s - from_s, bins + 1)
            told = [held_line(stands.core.mirror.machine, self._course(), from_s + edges)]
            energy = self._energy()
            if energy is not None:
                told += self._with_weather(
                    lambda weather: power_lines(energy, edges, self._rates(), weather)
                )
            return LinesView(
                edges_s=tuple((from_s + edges).tolist()), now_s=stands.now_s, lines=tuple(told)
            )

    def when(self, job_id: str) -> Told:
        """Forecast when a job starts, and explain why not now."""
        with self.looking() as stands:
            job_id = full_id(stands.core, job_id)
            found = when(stands.core, job_id, stands.now_s, stands.policy, stands.forecasts)
        return Told(**vars(found))

    def explain_job(self, job_id: str) -> Told:
        """Forecast and explain a job's start, with all its forecasts and actions."""
        with closing(self.journal()) as journal:
            return Told(lines=tuple(explain_job(journal, job_id)))

    def explain_decision(self, number: int) -> Told:
        """Explain why a decision was made.

        Raises:
            HpctwinError: There is no decision of that number.
        """
        with closing(self.journal()) as journal:
            return Told(lines=tuple(explain_decision(journal, number)))

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

    def accuracy(self) -> list[Accuracy]:
        """Return the accuracy of forecasts; a few seconds old at most."""
        known = self._accuracy
        if known is None or time.monotonic() - known[0] > ACCURACY_EVERY_S:
            with closing(self.journal()) as journal:
                rows = accuracy(journal.read_forecasts())
            known = (time.monotonic(), rows)
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

    def what_if(self, change: Change) -> WhatIfAnswer:
        """Return both futures of a change.

        Raises:
            HpctwinError: The change is not valid.
        """
        with self.looking() as stands:
            asking = prepare(stands.core, stands.now_s, stands.policy, change)
        return asking.answer()
