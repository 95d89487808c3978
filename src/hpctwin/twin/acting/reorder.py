"""The least changes of priority after which a queue is in a given order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["MOST_JOBS", "raised"]

MOST_JOBS = 20
"""So many jobs at the head of the order are looked after; those behind come to the head in time."""


def raised(
    order: Sequence[str], priority: Mapping[str, float], step: float = 1.0
) -> list[tuple[str, float]]:
    """Which jobs get a higher priority so that the first of an order go first, in that order.

    Priorities are only raised, and only where they must be: a job that starts or arrives at the end
    changes nothing.

    Args:
        order: waiting jobs, the first to go first.
        priority: of all waiting jobs.
        step: by so much a job is put above the one that follows.

    Returns:
        Job and new priority, those that go last first.
    """
    head = order[:MOST_JOBS]
    behind = priority.keys() - set(head)
    floor = max((priority[i] for i in behind), default=-float("inf"))
    changes = []
    for job_id in reversed(head):
        if priority[job_id] <= floor:
            floor += step
            changes.append((job_id, floor))
        else:
            floor = priority[job_id]
    return changes
