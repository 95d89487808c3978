"""Jobs for which Slurm makes room by preemption: the twin keeps none of them waiting.

A lease would keep such a job from preempting, which its partition or QOS was promised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Preempting", "preempting_partitions", "preempting_qos"]


@dataclass(frozen=True)
class Preempting:
    """Whose jobs preempt others.

    Args:
        partitions: names.
        qos: names; None if they could not be asked, so that any may be one.
    """

    partitions: frozenset[str] = frozenset()
    qos: frozenset[str] | None = frozenset()

    def holds(self, row: Mapping[str, Any]) -> bool:
        """Whether Slurm may preempt for a job, a row of ``squeue --json``."""
        if self.qos is None or str(row.get("qos") or "") in self.qos:
            return True
        return not self.partitions.isdisjoint(str(row.get("partition") or "").split(","))


def preempting_partitions(
    members: Mapping[str, Sequence[str]], tiers: Mapping[str, float]
) -> frozenset[str]:
    """Partitions of a higher ``PriorityTier`` than another one on the same nodes.

    Args:
        members: groups of nodes of each partition.
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
    """Names of those that may preempt another, of ``sacctmgr -nP show qos format=Name,Preempt``."""
    rows = (line.partition("|") for line in said.decode(errors="replace").splitlines())
    return frozenset(name.strip() for name, _, others in rows if others.strip())
