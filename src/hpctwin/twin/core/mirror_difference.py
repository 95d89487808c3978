"""What a mirror and a snapshot disagree on, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hpctwin.rms.records.records import JobRecord, JobSpec, NodeRecord

__all__ = ["jobs_differ", "nodes_differ"]


def jobs_differ(mine: Mapping[str, JobRecord], theirs: Mapping[str, JobRecord]) -> list[str]:
    """A sentence for each job that the mirror and the snapshot do not have alike."""
    words = [f"job {i} is only in the mirror" for i in mine if i not in theirs]
    words += [f"job {i} is only in the snapshot" for i in theirs if i not in mine]
    return words + [
        f"job {i}: {_first_difference(mine[i], job)}"
        for i, job in theirs.items()
        if i in mine and mine[i] != job
    ]


def nodes_differ(mine: Mapping[str, NodeRecord], theirs: Iterable[NodeRecord]) -> list[str]:
    """A sentence for each node that is in another state in the snapshot."""
    words = []
    for node in theirs:
        own = mine.get(node.name)
        if own is None or _as_it_is(own) != _as_it_is(node):
            known = _as_it_is(own) if own else "known"
            words.append(f"node {node.name} is {_as_it_is(node)}, not {known}")
    return words


def _as_it_is(node: NodeRecord) -> str:
    """A node's state in words; since when it is in it, sources know more or less exactly."""
    power = node.power
    if power is None:
        return node.state
    return f"{node.state} and {power.state}" + (f" ({power.depth})" if power.depth else "")


def _first_difference(mine: JobRecord, theirs: JobRecord) -> str:
    pairs: Iterable[tuple[str, Any, Any]] = [
        *((f, getattr(mine.spec, f), getattr(theirs.spec, f)) for f in JobSpec.model_fields),
        *((f, getattr(mine, f), getattr(theirs, f)) for f in JobRecord.model_fields if f != "spec"),
    ]
    field, a, b = next((f, a, b) for f, a, b in pairs if a != b)
    return f"{field} is {b!r}, not {a!r}"
