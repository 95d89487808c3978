"""Built-in orderings. Smallest score first; times in seconds."""

from __future__ import annotations

import dataclasses
import math

from hpctwin.engine.compile.policy_views import JobView
from hpctwin.policies.orderings.ordering import Ordering, ordering

__all__ = ["BUILT_IN"]


def fcfs(now: float, job: JobView) -> float:
    """First come, first served."""
    return job.submit


def lcfs(now: float, job: JobView) -> float:
    """Last come, first served."""
    return -job.submit


def sjf(now: float, job: JobView) -> float:
    """Shortest expected runtime first (the walltime, unless runtimes are predicted)."""
    return job.expected


def spf(now: float, job: JobView) -> float:
    """Shortest predicted runtime first, whatever plans use (default: the walltime)."""
    return job.predicted_runtime


def ljf(now: float, job: JobView) -> float:
    """Longest expected runtime first."""
    return -job.expected


def smallest(now: float, job: JobView) -> float:
    """Fewest nodes first."""
    return job.nodes


def largest(now: float, job: JobView) -> float:
    """Most nodes first."""
    return -job.nodes


def smallest_area(now: float, job: JobView) -> float:
    """Smallest expected runtime × nodes first."""
    return job.expected * job.nodes


def largest_area(now: float, job: JobView) -> float:
    """Largest expected runtime × nodes first."""
    return -job.expected * job.nodes


def expansion(now: float, job: JobView) -> float:
    """Largest expansion factor first: (wait + walltime) / walltime."""
    return -(job.wait + job.walltime) / job.walltime


def wfp(now: float, job: JobView) -> float:
    """WFP, as at ALCF: largest (wait / walltime)³ × nodes first (Tang et al., Cluster 2009)."""
    return -((job.wait / job.walltime) ** 3) * job.nodes


def unicef(now: float, job: JobView) -> float:
    """UNICEF: largest wait / (log2(nodes) × walltime) first (Tang et al., Cluster 2009).

    Jobs of one node count as two: their logarithm would be zero.
    """
    return -job.wait / (math.log2(max(job.nodes, 2.0)) * job.walltime)


def f1(now: float, job: JobView) -> float:
    """F1 of Carastan-Santos and de Camargo (SC'17): log10(r)·n + 870·log10(s)."""
    return math.log10(job.expected) * job.nodes + 870.0 * math.log10(max(job.submit, 1.0))


def f2(now: float, job: JobView) -> float:
    """F2 of Carastan-Santos and de Camargo (SC'17): √r·n + 25600·log10(s)."""
    return math.sqrt(job.expected) * job.nodes + 25600.0 * math.log10(max(job.submit, 1.0))


def f3(now: float, job: JobView) -> float:
    """F3 of Carastan-Santos and de Camargo (SC'17): r·n + 6860000·log10(s)."""
    return job.expected * job.nodes + 6860000.0 * math.log10(max(job.submit, 1.0))


def f4(now: float, job: JobView) -> float:
    """F4 of Carastan-Santos and de Camargo (SC'17): r·√n + 530000·log10(s)."""
    return job.expected * math.sqrt(job.nodes) + 530000.0 * math.log10(max(job.submit, 1.0))


def priority(now: float, job: JobView) -> float:
    """The trace's own priority, largest first."""
    return -job.priority


def fairshare(now: float, job: JobView) -> float:
    """Largest fair-share factor first: jobs with the least decayed use of their share."""
    return -job.fairshare


def _built_in(function: object, power: float = 0.0) -> Ordering:
    made: Ordering = ordering(function)  # type: ignore[arg-type]
    return dataclasses.replace(made, kept=True, power=power)


BUILT_IN = {
    made.name: made
    for made in (
        _built_in(fcfs), _built_in(lcfs), _built_in(sjf), _built_in(spf), _built_in(ljf),
        _built_in(smallest), _built_in(largest), _built_in(smallest_area), _built_in(largest_area),
        _built_in(expansion, 1), _built_in(wfp, 3), _built_in(unicef, 1),
        _built_in(f1), _built_in(f2), _built_in(f3), _built_in(f4),
        _built_in(priority), _built_in(fairshare, 1),
    )
}  # fmt: skip
"""Orderings by name."""
