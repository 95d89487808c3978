"""What ran on a cluster lately, by its events."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpctwin.rms.records import events as ev
from hpctwin.rms.records.records import JobRecord

__all__ = ["History", "Ran"]

FloatArray = npt.NDArray[np.float64]

MOST = 100_000
"""So many are kept."""

_TOLD = ('"job_started"', '"job_ended"', '"job_requeued"')


@dataclass(frozen=True)
class Ran:
    """A job that has been on nodes.

    Args:
        job: its id.
        start_s, end_s: from when to when.
        node_names: the nodes.
        amounts: cores, memory and GPUs that it held of each [nodes, 3]; None where it had them whole, or that
            was not told.
    """

    job: str
    start_s: float
    end_s: float
    node_names: tuple[str, ...]
    amounts: FloatArray | None = None


class History:
    """Stretches of jobs on nodes that are over, oldest first."""

    def __init__(self) -> None:
        self.ran: deque[Ran] = deque(maxlen=MOST)
        self._runs: dict[str, tuple[float, tuple[str, ...], FloatArray | None]] = {}

    def take(self, event: ev.Event) -> None:
        """Take in an event."""
        if isinstance(event, ev.JobStarted):
            parts = [(part.cores, part.memory_gb, part.gpus) for part in event.parts]
            self._runs[event.job_id] = (
                event.time_s, event.node_names, np.array(parts) if parts else None
            )  # fmt: skip
        elif isinstance(event, ev.JobEnded | ev.JobRequeued):
            self._over(event.job_id, event.time_s)

    def read(self, texts: Iterable[str]) -> None:
        """Take in events as the journal has them."""
        for text in texts:
            if any(kind in text for kind in _TOLD):
                self.take(ev.parse_event(text))

    def set_right(self, jobs: Mapping[str, JobRecord], time_s: float) -> None:
        """By the jobs that are known to be there: what runs no more has ended by now."""
        for job_id in [i for i in self._runs if i not in jobs or jobs[i].start_s is None]:
            self._over(job_id, time_s)
        for job_id, job in jobs.items():
            if job.start_s is not None:
                self._runs[job_id] = (job.start_s, job.node_names, job.amounts)

    def _over(self, job_id: str, end_s: float) -> None:
        found = self._runs.pop(job_id, None)
        if found is not None and found[1]:
            self.ran.append(Ran(job_id, found[0], end_s, *found[1:]))
