"""Submitting jobs to an emulated cluster."""

from __future__ import annotations

from hpctwin.rms.emulated.client import EmulatedManager
from hpctwin.rms.gate import JobRequest, SubmittedJob
from hpctwin.rms.manager import Outcome
from hpctwin.rms.records.records import JobSpec

__all__ = ["EmulatedGate"]


class EmulatedGate:
    """The key is the job's id there; how long the job runs is drawn by the cluster.

    Args:
        manager: the cluster.
    """

    def __init__(self, manager: EmulatedManager) -> None:
        self.manager = manager

    def submit(self, job: JobRequest, *, delay_s: float = 0.0) -> tuple[Outcome, str]:
        """See `Gate`."""
        labels = job.model_dump(exclude={"key", "name", "script"})
        # Its own clock is asked for: the delay is counted from there.
        now_s = float(self.manager.ask("state")["now_s"]) if delay_s else 0.0
        spec = JobSpec(
            id=job.key,
            submit_s=0.0,
            not_before_s=now_s + delay_s if delay_s else None,
            held=True,
            **labels,
        )
        return self.manager.submit(spec), job.key

    def jobs(self) -> dict[str, list[SubmittedJob]]:
        """See `Gate`."""
        return {
            job.spec.id: [SubmittedJob(job.spec.id, job.spec.held)]
            for job in self.manager.snapshot().jobs
        }

    def admit(self, job_id: str) -> Outcome:
        """See `Gate`."""
        return self.manager.release(job_id)

    def cancel(self, job_id: str) -> Outcome:
        """See `Gate`."""
        return self.manager.cancel(job_id)
