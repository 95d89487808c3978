"""Settings of a connection to an emulated cluster, and its gate for jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pydantic import Field

from hpctwin.model.settings import Duration
from hpctwin.rms.emulated.client import EmulatedManager
from hpctwin.rms.gate import Gate, JobRequest, Mark, SubmittedJob
from hpctwin.rms.manager import Outcome, ResourceManager
from hpctwin.rms.records.records import JobSpec
from hpctwin.rms.settings import ManagerSettings

__all__ = ["EmulatedGate", "EmulatedSettings"]


class EmulatedGate:
    """Gate into an emulated cluster: the key is the job's id there.

    The cluster draws the job's runtime.

    Args:
        manager: Manager of the cluster.
    """

    def __init__(self, manager: EmulatedManager) -> None:
        self.manager = manager

    def submit(self, job: JobRequest, *, delay_s: float = 0.0) -> tuple[Outcome, str]:
        """See `Gate`."""
        labels = job.model_dump(exclude={"key", "name", "script"})
        # The delay counts from the cluster's own clock, so ask for it.
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


class EmulatedSettings(ManagerSettings):
    """An emulated cluster in a separate process.

    Args:
        address: Path of its socket.
        timeout: Time limit of each call.
    """

    kind: Literal["emulated"] = "emulated"
    address: str
    timeout: Duration = Field(default=5.0, gt=0)

    def open(self, *, longest_lease_s: float = 600.0) -> ResourceManager:
        """See `ManagerSettings`."""
        from hpctwin.rms.emulated.client import EmulatedManager

        return EmulatedManager(self.address, timeout_s=self.timeout)

    def gate(
        self,
        manager: ResourceManager,
        mark: Mark,
        options: tuple[str, ...],
        changed: Callable[[], None],
    ) -> Gate:
        """See `ManagerSettings`."""
        from hpctwin.rms.emulated.client import EmulatedManager

        assert isinstance(manager, EmulatedManager)
        return EmulatedGate(manager)
