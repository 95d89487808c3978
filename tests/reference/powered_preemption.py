"""Simulations in which jobs preempt others on nodes with power states."""

from __future__ import annotations

from tests.reference.jobs import Job
from tests.reference.power import PoweredSimulation
from tests.reference.preemption import PreemptingSimulation, SharedPreemptingSimulation
from tests.reference.shared_power import SharedPoweredSimulation
from tests.reference.suspension import SharedSuspendingSimulation, SuspendingSimulation

__all__ = ["kind_of"]


class PoweredPreemptingSimulation(PreemptingSimulation, PoweredSimulation):
    """Whole nodes; jobs are requeued or canceled for others."""

    def promised(self, waiting: list[Job]) -> list[tuple[Job, int, dict[int, int]]]:
        self.walked = False  # the manager plans by level, as the pass does
        return super().promised(waiting)


class PoweredSuspendingSimulation(SuspendingSimulation, PoweredPreemptingSimulation):
    """Whole nodes; jobs are suspended for others."""

    def last_to_leave(self) -> list[Job | None]:
        return [
            self.members(node)[0] if on is not None else None
            for node, on in enumerate(self.machine.job_on)
        ]


class SharedPoweredPreemptingSimulation(
    SharedPreemptingSimulation, SharedPoweredSimulation, PoweredPreemptingSimulation
):
    """Shared nodes; jobs are requeued or canceled for others."""


class SharedPoweredSuspendingSimulation(
    SharedSuspendingSimulation, SharedPoweredPreemptingSimulation
):
    """Shared nodes; jobs are suspended for others."""


def kind_of(*, shares: bool, interrupted: bool, suspends: bool) -> type[PoweredSimulation]:
    """Return the class that simulates nodes with power states.

    Args:
        shares: Whether jobs share nodes.
        interrupted: Whether jobs preempt others or go on from checkpoints.
        suspends: Whether jobs are suspended for others.
    """
    if suspends:
        return SharedPoweredSuspendingSimulation if shares else PoweredSuspendingSimulation
    if interrupted:
        return SharedPoweredPreemptingSimulation if shares else PoweredPreemptingSimulation
    return SharedPoweredSimulation if shares else PoweredSimulation
