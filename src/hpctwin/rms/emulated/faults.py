"""The faults of real resource managers, each with a seed."""

from __future__ import annotations

import random
from collections.abc import Callable

from pydantic import BaseModel, ConfigDict, Field

from hpctwin.rms.events import Event

__all__ = ["Channel", "Faults"]

LONGEST_KEPT_S = 1.0

Share = Field(default=0.0, ge=0, le=1)


class Faults(BaseModel):
    """What goes wrong, and how often.

    Args:
        cleanup_s: nodes are free, and the end is told, at most so long after a job has ended.
        late_s: an event is sent at most so long after what it tells.
        late, duplicated, dropped, reordered: shares of the events to which that happens; reordered
            ones change places with the next.
        clock_skew_s: added to all times that events and snapshots tell.
        mtbf_s, mttr_s: mean time between failures of one node, and to repair; none if 0.
        requeue: whether a job whose node fails waits again, or ends.
        refused: share of starts that are refused for no reason.
        lost_answers: share of starts that are done but reported as unknown.
        seed: of all of this.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    cleanup_s: float = Field(default=0.0, ge=0)
    late_s: float = Field(default=0.0, ge=0)
    late: float = Share
    duplicated: float = Share
    dropped: float = Share
    reordered: float = Share
    clock_skew_s: float = 0.0
    mtbf_s: float = Field(default=0.0, ge=0)
    mttr_s: float = Field(default=600.0, gt=0)
    requeue: bool = True
    refused: float = Share
    lost_answers: float = Share
    seed: int = 0


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
        at: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self.publish = publish
        self.faults = faults
        self.sent = 0
        self.dropped = 0
        self._at = at
        self._random = random.Random(faults.seed)
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
                # Where no other event follows, it is only late.
                self._at(now_s + LONGEST_KEPT_S, self.flush)
            else:
                self._publish(event)
                kept, self._kept = self._kept, None
                if kept is not None:
                    self._publish(kept)

    def flush(self) -> None:
        """Send what still waits to change places."""
        kept, self._kept = self._kept, None
        if kept is not None:
            self._publish(kept)

    def _publish(self, event: Event) -> None:
        self.sent += 1
        self.publish(event)
