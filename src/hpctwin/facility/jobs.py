"""A workload as each cluster of a facility sees it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpctwin.errors import WorkloadError
from hpctwin.facility.config import Facility, Kind
from hpctwin.model import Category, Cluster, Workload, to_ms
from hpctwin.model.demand import consumables_asked, totals_asked, unused
from hpctwin.simulation.lowering.shared_nodes import counted_nodes

__all__ = ["FacilityJobs", "facility_jobs"]

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class FacilityJobs:
    """A workload as each of C clusters sees it.

    Args:
        workload: The jobs as in the trace.
        kinds: Names of the kinds of jobs; the last one is ``any``.
        kind: Index of each job's kind [jobs].
        origin: Index of the cluster to which each job was really submitted; -1 if unknown [jobs].
        on: The workload on each cluster, with its factors of runtimes, walltimes and predicted
            runtimes [C].
        allowed: Whether a cluster accepts a job's kind and request [C, jobs].
        factor: Factor of each kind on each cluster [C, kinds].
        counted: Number of nodes that each job counts as on each cluster; see `counted_nodes`
            [C, jobs].
        staging_ms: Staging time from cluster to cluster, in ms [C, C].
    """

    workload: Workload
    kinds: tuple[str, ...]
    kind: IntArray
    origin: IntArray
    on: tuple[Workload, ...]
    allowed: npt.NDArray[np.bool_]
    factor: npt.NDArray[np.float64]
    counted: npt.NDArray[np.float64]
    staging_ms: IntArray

    def notes(self, facility: Facility) -> list[str]:
        """Return sentences on job data that are assumed or not used at each cluster."""
        found = self.workload.notes.sentences()
        for cluster, seen, allowed in zip(facility.clusters, self.on, self.allowed, strict=True):
            said = unused(seen.take(allowed), cluster.cluster)
            found += [f"at {cluster.name}: {one}" for one in said]
        return found


def facility_jobs(facility: Facility, workload: Workload) -> FacilityJobs:
    """Return a workload as the clusters of a facility see it.

    Raises:
        WorkloadError: Jobs depend on each other, or the origin's label names no cluster.
    """
    if len(workload.dependencies):
        raise WorkloadError(
            f"workload {workload.name!r}: dependencies are not supported, because a "
            "facility places jobs one by one; remove the dependencies"
        )
    kind = np.full(len(workload), len(facility.kinds), np.int64)
    for index in reversed(range(len(facility.kinds))):
        kind[_fits(facility.kinds[index], workload)] = index
    kinds = (*(k.name for k in facility.kinds), "any")
    factor = np.array([[c.factor_of(name) for name in kinds] for c in facility.clusters])
    allowed = np.ones((len(facility.clusters), len(workload)), bool)
    on = []
    for index, cluster in enumerate(facility.clusters):
        if cluster.kinds is not None:
            allowed[index] &= np.array([name in cluster.kinds for name in kinds])[kind]
        seen = _scaled(workload, factor[index][kind])
        machine = cluster.cluster
        for name, amount in workload.resources.items():
            if name not in machine.resources:
                allowed[index] &= amount == 0
        seen = seen.replace(
            resources={n: a for n, a in workload.resources.items() if n in machine.resources}
        )
        seen, lacks = _with_consumables(seen, machine)
        allowed[index] &= ~lacks
        if cluster.partition is not None:
            seen = seen.replace(partition=_all_in(cluster.partition, len(workload)))
        on.append(seen)
    names = facility.names
    return FacilityJobs(
        workload=workload,
        kinds=kinds,
        kind=kind,
        origin=_origin(facility, workload),
        on=tuple(on),
        allowed=allowed,
        factor=factor,
        counted=np.array(
            [counted_nodes(seen, c.cluster) for seen, c in zip(on, facility.clusters, strict=True)]
        ),
        staging_ms=np.array(
            [[to_ms(facility.staging_s(a, b)) for b in names] for a in names], np.int64
        ),
    )


def _with_consumables(
    workload: Workload, machine: Cluster
) -> tuple[Workload, npt.NDArray[np.bool_]]:
    """Remove requests for consumables that a cluster lacks.

    Returns:
        The jobs without these requests, and whether each had one [jobs].
    """
    missing = [n for n in consumables_asked(workload) if n not in machine.consumables]
    totals = totals_asked(workload)
    lacks = np.zeros(len(workload), bool)
    for name in missing:
        lacks |= totals[name] > 0
    more = workload.more_tasks
    return workload.replace(
        consumables={n: a for n, a in workload.consumables.items() if n not in missing},
        more_tasks=Category(np.where(lacks, -1, more.codes).astype(np.int32), more.labels),
    ), lacks


def _all_in(label: str, size: int) -> Category:
    return Category(np.zeros(size, np.int32), (label,))


def _scaled(workload: Workload, factor: npt.NDArray[np.float64]) -> Workload:
    if (factor == 1.0).all():
        return workload

    def times(ms: IntArray) -> IntArray:
        scaled: IntArray = np.rint(ms * factor).astype(np.int64)
        return scaled

    return workload.replace(
        runtime_ms=times(workload.runtime_ms),
        walltime_ms=np.maximum(times(workload.walltime_ms), 1),
        predicted={
            name: values * factor if name == "runtime_s" else values
            for name, values in workload.predicted.items()
        },
    )


def _fits(kind: Kind, workload: Workload) -> npt.NDArray[np.bool_]:
    fits = np.ones(len(workload), bool)
    for label in ("user", "account", "partition", "qos"):
        wanted = getattr(kind, label)
        if wanted is not None:
            fits &= getattr(workload, label).among(wanted)
    if kind.gpus is not None:
        asked = totals_asked(workload)["gpus"] > 0
        fits &= asked == kind.gpus
    return fits


def _origin(facility: Facility, workload: Workload) -> IntArray:
    if facility.origin is None:
        return np.full(len(workload), -1, np.int64)
    column: Category = getattr(workload, facility.origin.by)
    names = facility.names
    clusters = facility.origin.clusters or {name: name for name in names}
    unknown = [label for label in column.labels if label not in clusters]
    if unknown and facility.origin.clusters:
        raise WorkloadError(
            f"workload {workload.name!r}: {facility.origin.by} {unknown[0]!r} is not among the origins "
            f"of facility {facility.name!r}; known: {', '.join(clusters)}"
        )
    code = [names.index(clusters[label]) if label in clusters else -1 for label in column.labels]
    return np.array([*code, -1], np.int64)[column.codes]
