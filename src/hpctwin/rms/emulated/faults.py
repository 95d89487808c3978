"""Faults of real resource managers, each with a seed.

Nodes of an emulated cluster fail and recover, by a plan or by chance.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, Self

from pydantic import Field, model_validator

from hpctwin.model.cluster.cluster import Failures
from hpctwin.model.settings import Settings
from hpctwin.model.text import since, to_ms
from hpctwin.rms.emulated.agenda import NODE, Agenda
from hpctwin.rms.emulated.nodes import Nodes
from hpctwin.rms.records.events import Event

LONGEST_KEPT_S = 1.0
Share = Field(default=0.0, ge=0, le=1)


class Faults(Settings):
    """Kinds of faults, and their frequency.

    Args:
        shortest_run, longest_run: Bounds of the uniform share of its walltime that a job submitted
            without a runtime runs.
        cleanup_s: Maximum delay of freeing nodes and reporting a job's end (uniform), added to the
            cluster's own cleanup.
        late_s: Maximum delay of a late event (uniform).
        late, duplicated, dropped, reordered: Shares of events affected. A reordered event changes
            places with the next one, or is sent a second late if none comes.
        clock_skew_s: Seconds that the cluster's clock is ahead, or behind if negative.
        mtbf_s, mttr_s: Mean time between failures of one node, and to repair (exponential); no
            failures if 0.
        requeue: Whether a job is requeued after a node failure; otherwise it ends.
        refused: Share of actions refused without a reason.
        lost_answers: Share of actions that are done but whose answer is lost.
        seed: Seed of all draws.
    """

    shortest_run: float = Field(default=1.0, gt=0, le=1)
    longest_run: float = Field(default=1.0, gt=0, le=1)
    cleanup_s: float = Field(default=0.0, ge=0)
    late_s: float = Field(default=0.0, ge=0)
    late: float = Share
    duplicated: float = Share
    dropped: float = Share
    reordered: float = Share
    clock_skew_s: float = Field(default=0.0, allow_inf_nan=False)
    mtbf_s: float = Field(default=0.0, ge=0)
    mttr_s: float = Field(default=600.0, gt=0)
    requeue: bool = True
    refused: float = Share
    lost_answers: float = Share
    seed: int = 0

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.shortest_run > self.longest_run:
            raise ValueError(
                f"shortest_run is {self.shortest_run:g}, expected at most longest_run ({self.longest_run:g})"
            )
        return self

    def draws(self, what: str) -> random.Random:
        """Return a generator for one kind of fault; kinds do not affect each other."""
        return random.Random(f"{self.seed} {what}")


class Channel:
    """Sends events as a faulty bus would: late, twice, out of order, or not at all.

    Args:
        publish: Function that takes the events.
        faults: Frequency of each fault.
        at: Function that has a function called at a later time of the cluster's clock.
    """

    def __init__(
        self,
        publish: Callable[[Event], None],
        faults: Faults,
        at: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self.publish = publish
        self.faults = faults
        self.sent = 0
        self.dropped = 0
        self.last: tuple[str, int] = ("", 0)
        self._at = at
        self._random = faults.draws("channel")
        self._kept: Event | None = None
        self._plain = not (faults.late or faults.duplicated or faults.dropped or faults.reordered)

    def send(self, event: Event, now_s: float) -> None:
        """Send one event."""
        if self._plain:
            self._publish(event)
            return
        draw, faults = self._random.random, self.faults
        if draw() < faults.dropped:
            self.dropped += 1
            return
        copies = 2 if draw() < faults.duplicated else 1
        for _ in range(copies):
            if draw() < faults.late:
                self._at(now_s + draw() * faults.late_s, lambda: self._publish(event))
            elif self._kept is None and draw() < faults.reordered:
                self._kept = event
                self._at(now_s + LONGEST_KEPT_S, self.flush)
            else:
                self._publish(event)
                self.flush()

    def flush(self) -> None:
        """Send an event that still waits to change places."""
        kept, self._kept = self._kept, None
        if kept is not None:
            self._publish(kept)

    def last_seq(self, run: str) -> int:
        """Return the highest sequence number of a run that was sent so far; 0 if none was."""
        return self.last[1] if self.last[0] == run else 0

    def _publish(self, event: Event) -> None:
        self.sent += 1
        # Runs have numbers as names: a late event of an earlier run does not count.
        self.last = max(self.last, (event.run, event.seq), key=_place)
        self.publish(event)


def _place(sent: tuple[str, int]) -> tuple[int, int]:
    run, seq = sent
    return int(run or 0), seq


class Failing(Protocol):
    """A cluster whose nodes fail.

    Args:
        now_s: Time of its clock.
        faults: Frequency and length of node failures.
        agenda: Its future actions.
        nodes: Its nodes.
        jobs: Jobs that have not ended, by id.
    """

    now_s: float
    faults: Faults
    agenda: Agenda
    nodes: Nodes
    jobs: dict[str, Any]

    def node_down(self, name: str) -> object:
        """Fail a node."""

    def node_up(self, name: str) -> object:
        """Let a node accept jobs again."""


class NodeFailures:
    """Lets the nodes of a cluster fail.

    Args:
        cluster: Cluster at the start of its clock.
        planned: Outages that its description names.
    """

    def __init__(self, cluster: Failing, planned: Failures) -> None:
        self._cluster = cluster
        self._faults = cluster.faults
        self._agenda = cluster.agenda
        self._draws = cluster.faults.draws("failures")
        zero_s, names = cluster.now_s, cluster.nodes.names
        for node, fails_s, back_s in _outages(planned):
            for at_s, action in ((fails_s, cluster.node_down), (back_s, cluster.node_up)):
                self._agenda.put(NODE, zero_s + at_s, partial(action, names[node]), counts=False)
        if self._faults.mtbf_s > 0:
            for name in names:
                self._expect(name)

    def _expect(self, name: str) -> None:
        fails_s = self._cluster.now_s + self._draws.expovariate(1 / self._faults.mtbf_s)
        self._agenda.put(NODE, fails_s, partial(self._fail, name), counts=False)

    def _fail(self, name: str) -> None:
        if not self._cluster.jobs and not self._agenda.due:
            # Without any jobs, no failure is reported.
            self._expect(name)
            return
        self._cluster.node_down(name)
        back_s = self._cluster.now_s + self._draws.expovariate(1 / self._faults.mttr_s)
        self._agenda.put(NODE, back_s, partial(self._repair, name), counts=False)

    def _repair(self, name: str) -> None:
        # An operator may have drained it meanwhile.
        nodes = self._cluster.nodes
        if nodes.records[nodes.number[name]].state == "down":
            self._cluster.node_up(name)
        self._expect(name)


def with_failures(faults: Faults, failures: Failures) -> Faults:
    """Return faults that use the cluster description's failures if they have none."""
    if faults.mtbf_s > 0:
        return faults
    changes: dict[str, Any] = (
        {"requeue": failures.on_failure == "requeue"} if failures.outages else {}
    )
    if failures.mtbf is not None:
        changes = {"mtbf_s": failures.mtbf, "mttr_s": failures.mttr,
                   "requeue": failures.on_failure == "requeue"}  # fmt: skip
    return faults.model_copy(update=changes)


def _outages(failures: Failures) -> list[tuple[int, float, float]]:
    """Return node, start and end of each outage; touching ones of one node are merged."""
    merged: list[tuple[int, float, float]] = []
    for outage in sorted(failures.outages, key=lambda o: (o.node, to_ms(o.start))):
        node, start_s = outage.node, since(outage.start, None, "the emulated cluster")
        end_s = start_s + outage.duration
        if merged and merged[-1][0] == node and start_s <= merged[-1][2]:
            _, start_s, known_s = merged.pop()
            end_s = max(end_s, known_s)
        merged.append((node, start_s, end_s))
    return merged
