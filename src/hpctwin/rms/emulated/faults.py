"""The faults of real resource managers, each with a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Self

from pydantic import Field, model_validator

from hpctwin.model.input.settings import Settings
from hpctwin.rms.records.events import Event

__all__ = ["Channel", "Faults"]

LONGEST_KEPT_S = 1.0
Share = Field(default=0.0, ge=0, le=1)


class Faults(Settings):
    """What goes wrong, and how often.

    Args:
        shortest_run, longest_run: jobs submitted without a runtime run for a share of their
            walltime that is uniform between these.
        cleanup_s: nodes are free, and the end is told, at most so long after a job has ended (uniform),
            besides the machine's own cleanup.
        late_s: an event is sent at most so long after what it tells (uniform).
        late, duplicated, dropped, reordered: shares of the events to which that happens; reordered
            ones change places with the next, or are sent a second late if none comes.
        clock_skew_s: the cluster's clock is ahead by so much, or behind if negative.
        mtbf_s, mttr_s: mean time between failures of one node, and to repair (exponential); no
            failures if 0.
        requeue: whether a job whose node fails waits again, or ends.
        refused: share of actions that are refused for no reason.
        lost_answers: share of actions that are done but whose answer is lost.
        seed: of all of this.
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
                f"shortest_run is {self.shortest_run:g}, above longest_run {self.longest_run:g}"
            )
        return self

    def draws(self, what: str) -> random.Random:
        """A generator for one kind of fault, so that one kind does not change the draws of another."""
        return random.Random(f"{self.seed} {what}")


class Channel:
    """Sends events as a faulty bus would: late, twice, in another order, or not at all.

    Args:
        publish: where they go.
        faults: how often what happens.
        at: has a function called at a later time of the cluster's clock.
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
        """Send what still waits to change places."""
        kept, self._kept = self._kept, None
        if kept is not None:
            self._publish(kept)

    def last_seq(self, run: str) -> int:
        """The highest sequence number of a run that was sent so far; 0 if none was."""
        return self.last[1] if self.last[0] == run else 0

    def _publish(self, event: Event) -> None:
        self.sent += 1
        # The names of runs are numbers: a late event of an earlier run does not count.
        self.last = max(self.last, (event.run, event.seq), key=_place)
        self.publish(event)


def _place(sent: tuple[str, int]) -> tuple[int, int]:
    run, seq = sent
    return int(run or 0), seq
