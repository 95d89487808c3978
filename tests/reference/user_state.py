"""The state that an ordering keeps of each user or account, as plain objects."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from hpctwin.model import MS_PER_S
from tests.reference.jobs import Job, JobView

Update = Callable[[float, JobView, Any], None]


class UserState(list[tuple[int, int, Job]]):
    """An object of a class for each user, updated with each entry of the log of starts and ends.

    Args:
        kind: Class of the objects.
        started, ended: Called with the time, the job and the object of its user.
        by: ``user`` or ``account``.
    """

    def __init__(self, kind: type, started: Update, ended: Update, by: str = "user") -> None:
        self.updates = {1: started, -1: ended}
        self.by = by
        self.of: dict[int, Any] = defaultdict(kind)

    def append(self, entry: tuple[int, int, Job]) -> None:
        super().append(entry)
        now, sign, job = entry
        seconds = now / MS_PER_S
        job.view.wait = seconds - job.view.submit
        self.updates[sign](seconds, job.view, self.of_job(job.view))

    def of_job(self, view: JobView) -> Any:
        """The object of a job's user or account."""
        return self.of[int(getattr(view, self.by))]
