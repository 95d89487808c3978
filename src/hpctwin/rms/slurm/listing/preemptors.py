"""Jobs for which Slurm preempts others: the twin keeps none of them waiting.

A lease would keep such a job from preempting, which its partition or QOS was promised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Preempting", "preempting_partitions", "preempting_qos"]


@dataclass(frozen=True)
class Preempting:
    """Partitions and QOS whose jobs preempt others.

    Args:
        partitions: Names of partitions.
        qos: Names of QOS; None if the query failed, so that any may be one.
    """

    partitions: frozenset[str] = frozenset()
    qos: frozenset[str] | None = frozenset()

    def holds(self, row: Mapping[str, Any]) -> bool:
        """Return whether Slurm may preempt for a job, a row of ``squeue --json``."""
        if self.qos is None or str(row.get("qos") or "") in self.qos:
            return True
        return not self.partitions.isdisjoint(str(row.get("partition") or "").split(","))


def preempting_partitions(
    members: Mapping[str, Sequence[str]], tiers: Mapping[str, float]
) -> frozenset[str]:
    """Return partitions with a higher ``PriorityTier`` than another on the same nodes.

    Args:
        members: Groups of nodes of each partition.
        tiers: ``PriorityTier`` of each partition.
    """
    return frozenset(
        name
        for name, groups in members.items()
        if any(
            tiers.get(other, 0.0) < tiers.get(name, 0.0) and set(groups) & set(members[other])
            for other in members
        )
    )


def preempting_qos(said: bytes) -> frozenset[str]:
    """Return the QOS that may preempt others.

    The text is the output of ``sacctmgr -nP show qos format=Name,Preempt``.
    """
    rows = (line.partition("|") for line in said.decode(errors="replace").splitlines())
    return frozenset(name.strip() for name, _, others in rows if others.strip())
