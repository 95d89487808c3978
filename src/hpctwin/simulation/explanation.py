"""Why a job started when it did: its timeline and the short resources."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from hpctwin.engine.passes import PASSES, kept_of
from hpctwin.engine.queue.limits import reached
from hpctwin.engine.state import layout
from hpctwin.engine.state.layout import AMOUNTS
from hpctwin.errors import ConfigError
from hpctwin.model import MS_PER_S, State, format_duration
from hpctwin.model.text import count_text
from hpctwin.simulation.lowering.gpus import SingleGpus
from hpctwin.simulation.lowering.shared_nodes import ALONE, columns_of, units_of
from hpctwin.simulation.lowering.workload import limits_in
from hpctwin.simulation.running.simulation import Simulation

__all__ = ["FRAGMENTATION", "Moment", "SharedShortages", "WholeShortages", "explain"]

FRAGMENTATION = "fragmentation"
"""Name reported if each amount is free in total, but not on the same nodes."""

Rooms = npt.NDArray[np.int64]


class WholeShortages:
    """Request and shortages of a job on a cluster whose jobs all use whole nodes.

    Args:
        simulation: Simulation that holds the job.
        row: Row of the job.
    """

    def __init__(self, simulation: Simulation, row: int) -> None:
        self.simulation = simulation
        sim = simulation.state
        pools, amount = sim.pools, sim["amount"]
        self.names = ["nodes", *simulation.cluster.resources]
        self.asked = [int(sim["job"]["nodes"][row]), *sim["asks"][row].tolist()]
        self.total = [int(amount[:pools].sum()), *amount[pools:].tolist()]

    def asks(self) -> str:
        """Return the job's request in words."""
        asked = zip(self.names, self.asked, strict=True)
        return ", ".join(f"{name} {amount:,}" for name, amount in asked if amount)

    def short(self) -> tuple[str, ...]:
        """Return the resources whose free amount after this pass is below the request."""
        sim = self.simulation.state
        free = [self.simulation.free_nodes(), *sim["stock"]["free"][sim.pools :].tolist()]
        needs = zip(self.names, self.asked, free, strict=True)
        return tuple(name for name, asked, have in needs if asked > have)

    def why_pushed(self, number: int) -> str:
        """Return in words that resource ``number`` was short, so the job was pushed down."""
        return (
            f"too few {self.names[number]} were free ({self.asked[number]:,} requested, "
            f"{self.total[number]:,} in total)"
        )


class SharedShortages:
    """Request and shortages of a job on shared nodes; see `WholeShortages`."""

    def __init__(self, simulation: Simulation, row: int) -> None:
        self.simulation = simulation
        self.row = row
        self.names = ["nodes", *simulation.cluster.resources]
        self.asked = simulation.state["asks"][row].tolist()

    def asks(self) -> str:
        """Return the job's request in words; amounts are those of its first kind of task."""
        sim, cluster = self.simulation.state, self.simulation.cluster
        kind = next(self._kinds())
        shape, units = sim["shape"][kind], units_of(cluster)
        tasks = int(shape["tasks"])
        chunks = self.simulation.workload.chunks
        whole = not chunks or not chunks["tasks"][self.row]
        parts = [f"nodes {tasks:,}" if whole else f"tasks {tasks:,}"]
        for column, name, unit in columns_of(cluster):
            amount = int(sim["needs"][kind, column])
            if amount:
                parts.append(f"{name} {amount / units.get(name, unit):g} per task")
        if shape["exclusive"] and not whole:
            parts.append("exclusive nodes")
        if shape["nodes"] > 1 and not whole:
            parts.append(f"on at least {int(shape['nodes']):,} nodes")
        if len(list(self._kinds())) > 1:
            parts.append("and tasks of other kinds")
        resources = zip(self.names[1:], self.asked, strict=True)
        return ", ".join([*parts, *(f"{name} {n:,}" for name, n in resources if n)])

    def short(self) -> tuple[str, ...]:
        """Return the resources that are short for the job after this pass.

        - An amount of nodes is short if the nodes that the job may use could not hold all its tasks
          even if the tasks asked for that amount alone.
        - `FRAGMENTATION` means that each amount alone would suffice, but all of them together do
          not.
        - ``nodes`` means that too few nodes are free for exclusive use, or occupied only by jobs
          that the job may share them with.
        """
        sim = self.simulation.state
        free = sim["stock"]["free"][sim.pools :].tolist()
        needs = zip(self.names[1:], self.asked, free, strict=True)
        found = [name for name, asked, have in needs if asked > have]
        of_nodes = dict.fromkeys(name for kind in self._kinds() for name in self._short_of(kind))
        return (*of_nodes, *found)

    def why_pushed(self, number: int) -> str:
        """Return in words that resource ``number``, or space on nodes, was short."""
        if not number:
            return "no nodes had capacity for its tasks"
        return f"too few {self.names[number]} were free ({self.asked[number - 1]:,} requested)"

    def _kinds(self) -> Iterator[int]:
        """Yield the kinds of the job's tasks."""
        sim = self.simulation.state
        kind = int(sim["job"]["kind"][self.row])
        while kind >= 0:
            yield kind
            kind = int(sim["shape"]["more"][kind])

    def _short_of(self, kind: int) -> list[str]:
        """Return the resources that are short for tasks of one kind alone."""
        sim = self.simulation.state
        node, shape, needs = sim["node"], sim["shape"][kind], sim["needs"][kind]
        may = (sim["eligible"][kind][sim["pool_of"]] != 0) & (node["down"] == 0)
        may &= node["hidden"] == 0
        left, gpus = sim["left"], SingleGpus.of_sim(sim)
        most = int(shape["most"])

        def suffice(rooms: Rooms) -> bool:
            enough = int(rooms.sum()) >= shape["tasks"]
            return bool(enough and np.count_nonzero(rooms) >= shape["nodes"])

        # Each amount alone, and the minimum over all amounts: the difference is fragmentation.
        rooms = np.where(may, most, 0)
        found = []
        for column, name, _ in columns_of(self.simulation.cluster):
            if needs[column]:
                room = left[:, column] // needs[column]
                if name == "gpus" and gpus is not None:
                    room = np.minimum(room, gpus.room(needs, gpus.single(left)))
                alone = np.where(may, np.clip(room, 0, most), 0)
                rooms = np.minimum(rooms, alone)
                if not suffice(alone):
                    found.append(name)
        open_to_it = np.array([self._may_join(kind, number) for number in range(len(node))])
        if not suffice(np.where(may & open_to_it, most, 0)):
            found.append("nodes")
        if not found and not suffice(np.where(open_to_it, rooms, 0)):
            found.append(FRAGMENTATION)
        return found

    def _may_join(self, kind: int, number: int) -> bool:
        """Return whether a job of this kind may join the jobs that are on a node."""
        sim = self.simulation.state
        mine, has = sim["shape"][kind], int(sim["left"][number, AMOUNTS - 1])
        if has < (ALONE if mine["exclusive"] else 1):
            return False
        part = int(sim["share"]["part"][number])
        while part >= 0:
            other = sim["shape"][int(sim["part"]["kind"][part])]
            for with_whom, label in ((1, "user"), (2, "account")):
                asked = with_whom in (mine["shared_with"], other["shared_with"])
                if asked and mine[label] != other[label]:
                    return False
            part = int(sim["part"]["after"][part])
        return True


What = Literal[
    "submitted", "pending", "eligible", "promoted", "pushed", "aside", "waited", "started", "suspended",
    "resumed", "requeued", "ran", "slowed", "ended",
]  # fmt: skip
_FEW = 5
_UNNOTICED = 1e-6
"""Share of its time up to which a phase has lost nothing."""


@dataclass(frozen=True)
class Moment:
    """Event in the life of a job, or a period of waiting between two events.

    Args:
        time_s: when, seconds.
        what: ``submitted``, ``pending`` (it waits for other jobs), ``eligible``, ``promoted``, ``pushed``
            (down in the queue), ``aside`` (into the waiting queue), ``waited``, ``started``, ``suspended``,
            ``resumed``, ``requeued``, ``ran`` (on the network), ``slowed`` (in a phase, by other jobs) or
            ``ended``.
        text: the same in words.
        until_s: to when a stretch lasts; None for what happened at once.
        detail: what the text says, as plain values. Of a stretch: ``short_s``, for how long each
            resource was short, and ``kept_s``, for how long none was, by what kept the job back then.
    """

    time_s: float
    what: What
    text: str
    until_s: float | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """Return the moment as values that JSON can hold."""
        return dataclasses.asdict(self)


def explain(
    simulation: Simulation, job_id: str | int, progress: Callable[[float], None] | None = None
) -> list[Moment]:
    """Run a simulation until a job ends and return its timeline.

    Args:
        simulation: Simulation that has not begun. It is run one event time at a time while the
            job waits.
        job_id: Id of the job.
        progress: Function called every 100 event times with the share of jobs submitted, 0 to 1.

    Raises:
        ConfigError: there is no such job.
    """
    ids = simulation.workload.job_id
    found = np.flatnonzero(ids.astype(np.str_) == str(job_id))
    if not len(found):
        some = ", ".join(str(one) for one in ids[:_FEW])
        raise ConfigError(
            f"workload {simulation.workload.name} has no job {job_id!r}; it has "
            f"{count_text(len(ids), 'job')}, such as {some}"
        )
    story = _Story(simulation, int(found[0]))
    if simulation.network is not None:
        from hpctwin.contention.bottlenecks import Bottlenecks

        simulation.network.watched = Bottlenecks(story.row)
    submit_ms = int(simulation.workload.submit_ms[story.row])
    if submit_ms > 0:
        simulation.advance((submit_ms - 1) / MS_PER_S)
    steps = 0
    left = True
    while left and not story.ended:
        left = simulation.advance(instants=1) != "done"
        story.look()
        steps += 1
        if progress is not None and steps % 100 == 0:
            progress(int(simulation.state.clock.arrived) / len(simulation.workload))
    return story.moments


class _Story:
    """Timeline of one job, built by comparing its state at successive event times."""

    def __init__(self, simulation: Simulation, row: int) -> None:
        self.simulation = simulation
        self.row = row
        self.moments: list[Moment] = []
        self.state = int(layout.UNSUBMITTED)
        self.now = self.pushed = self.risen = self.chain = self.requeues = self.preempted = 0
        self.suspended = False
        self.where = -1
        self.stretch: _Stretch | None = None
        shares = simulation.shares_nodes
        self.shortages = (SharedShortages if shares else WholeShortages)(simulation, row)
        self.limits = limits_in(simulation.workload, simulation.cluster)
        self.thinks = bool(simulation.workload.dependencies.thinks(len(simulation.workload))[row])

    @property
    def ended(self) -> bool:
        """Whether nothing more can happen to the job."""
        return bool(layout.COMPLETED <= self.state < layout.UNSUBMITTED)

    def look(self) -> None:
        """Record what changed for the job since the last call."""
        sim = self.simulation.state
        job = sim["state"][self.row]
        before, self.state = self.state, int(job["phase"])
        self.now = int(sim.clock.now)
        if self.stretch is not None:
            self.stretch.goes_on(self.now)
        if self.state == layout.UNSUBMITTED:
            return
        eligible = int(job["eligible"])
        if before == layout.UNSUBMITTED:
            self.submitted(eligible)
        if self.thinks and eligible >= 0 and before == layout.PENDING:
            text = f"submitted after its think time; requests {self.shortages.asks()}"
            self.add("submitted", text, at_ms=eligible)
        requeues = int(job["requeues"])
        self.sent_back(requeues)
        pends = self.state == layout.PENDING and requeues > 0
        if eligible >= 0 and before in (layout.UNSUBMITTED, layout.PENDING) and not pends:
            if requeues == 0:
                self.add(
                    "eligible", "eligible: all jobs that it depends on have ended", at_ms=eligible
                )
            else:
                self.add("eligible", "eligible again")
        self.promoted()
        self.pushed_down()
        if self.state == layout.WAITING:
            if self.stretch is None:
                self.stretch = _Stretch(self.now, self.place())
            self.stretch.now_for(self.shortages.short(), self.kept_by(), self.place())
        start = int(job["start"])
        if start >= 0 and before != layout.RUNNING:
            wait = start - int(self.simulation.submit_ms[self.row])
            self.add("started", f"started after a wait of {_length(wait)}", at_ms=start)
        if self.ended:
            self.slowed()
            label = State(self.state).label
            end = int(job["end"])
            self.add("ended", f"ended: {label}", at_ms=end, state=label)

    def sent_back(self, requeues: int) -> None:
        """Tell whether the job waits again, or was suspended or resumed."""
        sim = self.simulation.state
        cut = sim["cut"][self.row] if len(sim["cut"]) else None
        preempted = 0 if cut is None else int(cut["times"])
        if requeues > self.requeues:
            text = "stopped by a node failure and requeued as if it had never started"
            if preempted > self.preempted:
                text = "preempted by another job and requeued"
            self.add("requeued", text)
            self.pushed = self.risen = 0
            self.suspended = False
        suspended = cut is not None and bool(cut["suspended"])
        if suspended != self.suspended:
            words = "suspended for another job" if suspended else "resumed"
            self.add("suspended" if suspended else "resumed", words)
        self.requeues, self.preempted, self.suspended = requeues, preempted, suspended

    def slowed(self) -> None:
        """Add how much longer the job ran than alone, and what held back each of its phases."""
        network = self.simulation.network
        if network is None or network.watched is None or not network.watched.phases:
            return
        phases = network.watched.phases
        begin_s, end_s = (
            min(p.begin_s for p in phases.values()),
            max(p.end_s for p in phases.values()),
        )
        slowdown = float(network.slowdown[self.row])
        lost_s = sum(phase.lost_s for phase in phases.values())
        text = f"ran {_length_s(end_s - begin_s)}, {slowdown:.3g} times as long as alone"
        detail: dict[str, Any] = {"contention_slowdown": slowdown, "lost_s": lost_s}
        self.moments.append(Moment(begin_s, "ran", text, end_s, detail))
        held_back = [phase for phase in phases.values() if phase.lost_s > _UNNOTICED * phase.run_s]
        ids = self.simulation.workload.job_id
        most = sorted(held_back, key=lambda phase: -phase.lost_s)[:_FEW]
        for phase in sorted(most, key=lambda phase: phase.number):
            sharers = _longest({str(ids[row]): lost_s for row, lost_s in phase.sharers.items()})
            links = _longest(phase.bottlenecks)
            text = (
                f"phase {phase.number} ({phase.kind}) took {_length_s(phase.run_s)}, of which "
                f"{_length_s(phase.lost_s)} were lost at {_parts(links)}"
            )
            if sharers:
                text += f"; shared with {_parts({f'job {one}': s for one, s in sharers.items()})}"
            detail = {
                "phase": phase.number,
                "lost_s": phase.lost_s,
                "bottlenecks_s": links,
                "sharers_s": sharers,
            }
            self.moments.append(Moment(phase.begin_s, "slowed", text, phase.end_s, detail))

    def submitted(self, eligible: int) -> None:
        workload = self.simulation.workload
        submit = int(workload.submit_ms[self.row])
        edges = workload.dependencies
        jobs = [str(one) for one in workload.job_id[edges.on[edges.job == self.row]]]
        if self.thinks and eligible != submit and not self.ended:
            text = f"not submitted yet: its user waits for {_names(jobs)} and then thinks"
            self.add("pending", text, at_ms=submit, jobs=jobs)
            return
        self.add("submitted", f"submitted; requests {self.shortages.asks()}", at_ms=submit)
        if jobs and eligible != submit:
            self.add("pending", f"waits for {_names(jobs)}", at_ms=submit, jobs=jobs)

    def promoted(self) -> None:
        chain = int(self.simulation.column("chain")[self.row])
        if chain > self.chain and self.simulation.ordering.chain:
            text = f"promoted: the longest chain of jobs behind it runs {_length(chain)}"
            self.add("promoted", text, chain_s=chain / MS_PER_S)
        self.chain = chain
        push = self.push()
        if push is None:
            return
        places = int(push["risen"]) - self.risen
        if places > 0:
            workload = self.simulation.workload
            edges = workload.dependencies
            behind = [str(one) for one in workload.job_id[edges.job[edges.on == self.row]]]
            text = f"promoted {places:,} places for {_names(behind)}"
            self.add("promoted", text, places=places, jobs=behind)
        self.risen += places

    def push(self) -> Any:
        """Return pushdown's record of the job; None under another backfill."""
        if self.simulation.policy.backfill != "pushdown":
            return None
        return kept_of(self.simulation.state, self.simulation.policy.backfill)[self.row]

    def pushed_down(self) -> None:
        push = self.push()
        if push is None:
            return
        times = int(push["pushed"])
        if times > self.pushed:
            short = int(push["blocked"])
            self.add(
                "pushed",
                f"pushed down {count_text(times, 'time')}: {self.shortages.why_pushed(short)}",
                resource=self.shortages.names[short],
                times=times,
            )
        self.pushed = times
        from hpctwin.engine.queue.pushdown_lists import ASIDE

        where = int(push["list"])
        if where == ASIDE != self.where:
            self.add("aside", "moved to the queue that is served before the main queue")
        self.where = where

    def kept_by(self) -> str:
        """Return what may hold the job back if no resource is short."""
        ceiling = reached(self.simulation.state, self.row)
        if ceiling >= 0 and self.limits is not None:
            name = self.limits.names[ceiling] or self.limits.why[self.row]
            return f"limit reached: {name}"
        policy = self.simulation.policy
        limit = policy.setting("parallel")
        running = int(self.simulation.state.clock.running)
        if policy.backfill == "pushdown" and limit is not None and running >= limit:
            return f"at most {count_text(limit, 'job')} may run at once"
        return PASSES.find(policy.backfill).keeps

    def place(self) -> tuple[int, int] | None:
        """Return the job's place in the queue and the queue's length; None if unsorted."""
        sim = self.simulation.state
        if self.simulation.ordering.changes or self.simulation.policy.backfill == "pushdown":
            return None
        queue = sim["queue"][: sim.clock.queued]
        return int(np.flatnonzero(queue == self.row)[0]) + 1, len(queue)

    def add(self, what: What, text: str, at_ms: int | None = None, **detail: Any) -> None:
        if self.stretch is not None:
            if self.now > self.stretch.since:
                self.moments.append(self.stretch.told(self.now))
            self.stretch = None
        at = self.now if at_ms is None else at_ms
        self.moments.append(Moment(at / MS_PER_S, what, text, None, detail))


class _Stretch:
    """Period of waiting in which no event happens to the job; times in ms."""

    def __init__(self, since: int, place: tuple[int, int] | None) -> None:
        self.since = self.seen = since
        self.first = self.last = place
        self.short: tuple[str, ...] = ()
        self.kept = ""
        self.short_ms: Counter[str] = Counter()
        self.kept_ms: Counter[str] = Counter()

    def goes_on(self, now: int) -> None:
        """Extend the state seen at the last event time up to now."""
        if now == self.seen:
            return
        if self.short:
            self.short_ms.update(dict.fromkeys(self.short, now - self.seen))
        else:
            self.kept_ms[self.kept] += now - self.seen
        self.seen = now

    def now_for(self, short: tuple[str, ...], kept: str, place: tuple[int, int] | None) -> None:
        """Set the state that holds from this event time on."""
        self.short, self.kept, self.last = short, kept, place

    def told(self, until: int) -> Moment:
        whole = until - self.since
        parts = []
        shares = {name: f"{ms / whole:.0%}" for name, ms in self.short_ms.most_common()}
        apart = shares.pop(FRAGMENTATION, None)
        if shares:
            parts.append(f"too few free {', '.join(map(' '.join, shares.items()))} of the time")
        if apart is not None:
            parts.append(f"enough of each resource, but not on the same nodes, {apart} of the time")
        parts += [
            f"no resource short for {_length(ms)} ({why})" for why, ms in self.kept_ms.most_common()
        ]
        if self.first is not None and self.last is not None:
            (at, size), (later, left) = self.first, self.last
            parts.append(f"position {at:,} of {size:,} at first, {later:,} of {left:,} at the end")
        return Moment(
            self.since / MS_PER_S,
            "waited",
            f"waited {_length(whole)}: {'; '.join(parts)}",
            until / MS_PER_S,
            {
                "short_s": {name: ms / MS_PER_S for name, ms in self.short_ms.items()},
                "kept_s": {why: ms / MS_PER_S for why, ms in self.kept_ms.items()},
            },
        )


def _names(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - _FEW:,} more" if len(ids) > _FEW else ""
    return f"{'job' if len(ids) == 1 else 'jobs'} {', '.join(ids[:_FEW])}{more}"


def _longest(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return times by name, the longest first."""
    return dict(sorted(seconds.items(), key=lambda one: -one[1]))


def _parts(seconds: Mapping[str, float]) -> str:
    parts = [f"{name} ({_length_s(lost_s)})" for name, lost_s in seconds.items()]
    more = f" and {len(parts) - _FEW:,} more" if len(parts) > _FEW else ""
    return f"{', '.join(parts[:_FEW])}{more}"


def _length_s(seconds: float) -> str:
    return _length(round(seconds * MS_PER_S))


def _length(ms: int) -> str:
    return f"{ms:,} ms" if ms < 10 * MS_PER_S else format_duration(round(ms / MS_PER_S))
