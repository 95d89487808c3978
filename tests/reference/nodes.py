"""Nodes and the power states they are in."""

from __future__ import annotations

from dataclasses import dataclass, field

from hpctwin.model import NodeGroup, to_ms

__all__ = [
    "AWAKE",
    "COMPUTING",
    "IDLE",
    "SLEEPING",
    "SWITCHING_OFF",
    "SWITCHING_ON",
    "Node",
    "Span",
]

IDLE, COMPUTING = "idle", "computing"
SWITCHING_OFF, SLEEPING, SWITCHING_ON = "switching_off", "sleeping", "switching_on"
AWAKE = (IDLE, COMPUTING)


@dataclass(frozen=True)
class Span:
    """A node in one state, from start to end in ms.

    ``which`` is the DVFS mode where the node is on, else the sleep depth.
    """

    start: int
    end: int
    state: str
    which: str | int


@dataclass(eq=False)
class Node:
    """One node. It begins on and idle, at time 0."""

    number: int
    group: int
    power: NodeGroup
    mode: str
    state: str = IDLE
    depth: int = 0
    since: int = 0  # when it came into its state
    over: int = 0  # when the transition it is in ends
    barred: bool = False  # no job may have it, as it is not on
    past: list[Span] = field(default_factory=list)
    mode_since: int = 0

    def turn(self, state: str, now: int) -> None:
        """Go into another state."""
        self.note(now)
        self.state, self.since = state, now

    def note(self, now: int) -> None:
        """Write down the time in this state, and in this mode, so far."""
        start = max(self.since, self.mode_since) if self.state in AWAKE else self.since
        if start < now:
            which = self.mode if self.state in AWAKE else self.depth
            self.past.append(Span(start, now, self.state, which))

    def switch_off(self, depth: int, now: int) -> None:
        """Begin the way into a sleep state."""
        self.turn(SWITCHING_OFF, now)
        self.depth = depth
        self.over = now + self.off_ms(depth)

    def switch_on(self, now: int) -> None:
        """Begin the way back."""
        self.turn(SWITCHING_ON, now)
        self.over = now + self.on_ms(self.depth)

    def off_ms(self, depth: int) -> int:
        return to_ms(self.power.sleep[depth].switch_off.time)

    def on_ms(self, depth: int) -> int:
        return to_ms(self.power.sleep[depth].switch_on.time)

    def on_from(self, now: int) -> int:
        """When it can be on at the earliest: what has begun goes on to its end."""
        if self.state in AWAKE:
            return now
        if self.state == SWITCHING_ON:
            return self.over
        asleep = now if self.state == SLEEPING else self.over
        return asleep + self.on_ms(self.depth)

    def watts(self, span: Span) -> float:
        """What it draws in a span of its past."""
        return self.draws(span.state, span.which)

    def draws(self, state: str, which: str | int) -> float:
        """What it draws in a state, in which mode or at which depth, W."""
        if isinstance(which, str):
            mode = self.power.modes[which]
            return mode.power_w if state == COMPUTING else mode.idle
        sleep = self.power.sleep[which]
        return {
            SWITCHING_OFF: sleep.switch_off.power_w,
            SLEEPING: sleep.power_w,
            SWITCHING_ON: sleep.switch_on.power_w,
        }[state]
