"""What jobs can request by name: the resources, consumables and partitions that a cluster reports."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from hpctwin.model import Cluster
from hpctwin.model.requests.chunks import more_tasks_text, read_more_tasks
from hpctwin.rms.records.records import JobRecord, JobSpec

__all__ = ["Reported"]


class Reported:
    """Names that a cluster reports.

    Args:
        machine: The cluster.
    """

    def __init__(self, machine: Cluster) -> None:
        self._resources = dict.fromkeys(machine.resources)
        self._consumables = dict.fromkeys(machine.consumables)
        self._partitions = [one.name for one in machine.partitions]
        self._default = next((one.name for one in machine.partitions if one.default), "")

    def lacks(self, spec: JobSpec) -> str:
        """Return a request of a job that the cluster does not report, as text; empty if none."""
        if text := _unknown("resource", spec.resources.items(), self._resources):
            return text
        more = read_more_tasks(spec.more_tasks) if spec.more_tasks else ()
        asked = [*spec.consumables.items(), *(one for kind in more for one in kind.consumables)]
        if text := _unknown("consumable", asked, self._consumables):
            return text
        if self._partitions and (spec.partition or self._default) not in self._partitions:
            named = f"partition {spec.partition!r}" if spec.partition else "no partition"
            return f"it names {named}, but the cluster reports {', '.join(self._partitions)}"
        return ""

    def modeled(self, job: JobRecord) -> JobRecord:
        """Return a job that requests an unknown name in a form that can be simulated.

        A pending one does not start. A running one holds its nodes and all that is known.
        """
        spec = job.spec
        if job.start_s is None:
            return _with(job, reason=spec.reason or f"policy: {self.lacks(spec)}"[:128])
        known = self._consumables
        more = [
            replace(kind, consumables=tuple(one for one in kind.consumables if one[0] in known))
            for kind in spec.kinds[1:]
        ]
        partitions = ["", *self._partitions] if self._default else self._partitions
        return _with(
            job,
            resources={name: n for name, n in spec.resources.items() if name in self._resources},
            consumables={name: n for name, n in spec.consumables.items() if name in known},
            more_tasks=more_tasks_text(more),
            partition=spec.partition if spec.partition in partitions else (*partitions, "")[0],
        )


def _with(job: JobRecord, **changes: Any) -> JobRecord:
    return job.model_copy(update={"spec": job.spec.model_copy(update=changes)})


def _unknown(what: str, asked: Iterable[tuple[str, float]], known: Collection[str]) -> str:
    """Return the first unknown name with an amount, as text; empty if all are known."""
    name = next((name for name, amount in asked if amount and name not in known), None)
    if name is None:
        return ""
    return f"it requests {what} {name!r}, but the cluster reports {', '.join(known) or 'none'}"
