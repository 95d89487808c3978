"""What the twin may do now: mode, allow-list, limits, kill switch."""

from __future__ import annotations

from collections import deque

from hpctwin.twin.settings.config import ActSettings, Mode

__all__ = ["Guard"]

MINUTE_S = 60.0


class Guard:
    """Says before each action whether it may be sent, and why not.

    Args:
        settings: see `ActSettings`.
    """

    def __init__(self, settings: ActSettings) -> None:
        self.settings = settings
        self.stopped: str | None = None
        self._sent: deque[float] = deque()

    @property
    def mode(self) -> Mode:
        """The mode in force: as configured, or ``observe`` after the twin stopped itself."""
        return "observe" if self.stopped else self.settings.mode

    def killed(self) -> bool:
        """Whether the kill switch is thrown."""
        switch = self.settings.kill_switch
        return switch is not None and switch.exists()

    def in_charge(self) -> bool:
        """Whether the twin says which jobs start: by leases, or while the cluster's scheduling rests."""
        by_itself = self.settings.by != "priority" and self.mode in ("act", "approve")
        return by_itself and not self.killed()

    def reorders(self) -> bool:
        """Whether the twin puts the queue in order, and the cluster schedules."""
        return self.settings.by == "priority" and self.mode == "act" and not self.killed()

    def stop(self, reason: str) -> None:
        """Fall back to observing, until somebody resumes."""
        if self.stopped is None:
            self.stopped = reason

    def resume(self) -> None:
        """Go back to the mode configured."""
        self.stopped = None

    def watch(self, median_error: float | None) -> None:
        """Stop acting if forecasts have become too bad."""
        bound = self.settings.forecast_error
        if bound is not None and median_error is not None and median_error > bound:
            self.stop(f"the median forecast error is {median_error:.0%}, above {bound:.0%}")

    def refuses(self, kind: str, at_s: float) -> str | None:
        """Why an action of a kind may not be sent now; None if it may, and then it is counted.

        Args:
            kind: the kind of action.
            at_s: wall-clock time.
        """
        if self.killed():
            return f"the kill switch {self.settings.kill_switch} is there"
        if self.mode not in ("act", "approve"):
            return f"the mode is {self.mode}"
        if kind not in self.settings.kinds:
            return f"{kind} is not allowed"
        if kind in ("start", "set_priority"):
            while self._sent and self._sent[0] <= at_s - MINUTE_S:
                self._sent.popleft()
            if len(self._sent) >= self.settings.starts_per_minute:
                what = "starts" if kind == "start" else "changes"
                return f"more than {self.settings.starts_per_minute} {what} a minute"
            self._sent.append(at_s)
        return None
