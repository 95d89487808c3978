"""Limits of users, accounts and QOS in the engine's form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.engine.queue.limits import SECOND_MS
from hpctwin.engine.state.layout import LAYOUT, NEVER
from hpctwin.engine.state.sim import records
from hpctwin.model import Cluster, Limit, Workload, to_ms
from hpctwin.model.cluster.limits import MEASURES
from hpctwin.model.columns import Category
from hpctwin.model.demand import totals_asked
from hpctwin.simulation.lowering.limit_rules import (
    JOBS,
    UNITS,
    Rule,
    RuleFinder,
    most_of,
    rules_of_use,
)

__all__ = ["Limits", "limits_of"]

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_NEVER = -1  # ceiling that no job can meet
_FINE = 1000
"""Factor for nodes and jobs where QOS weights usage: thousandths, as for cores."""
_WHOLE = {**UNITS, "memory_gb": 1}
"""Slurm's counting unit of each measure: memory counts in MB."""


@dataclass(frozen=True, eq=False)
class Limits:
    """The engine's arrays of limits; see `engine.state.layout.Known`.

    Args:
        arrays: ``bound``, ``bounds``, ``charge``, ``ceiling``.
        rejected: Jobs rejected at submission because they could never start [jobs].
        why: Reason, for rejected jobs and jobs that wait forever; otherwise empty [jobs].
        names: Reason that ``squeue`` prints for jobs waiting under each ceiling.
        largest: Largest number of nodes on which each job alone is within limits on amounts [jobs].
    """

    arrays: dict[str, npt.NDArray[Any]]
    rejected: BoolArray
    why: npt.NDArray[np.object_]
    names: tuple[str, ...]
    largest: IntArray

    def submitted(self, row: int) -> str:
        """Return the name of the first limit on submitted jobs; empty if there is none."""
        _, first, last = self.arrays["bounds"][row]
        for bound in self.arrays["bound"][first:last]:
            if bound["holds"]:
                return self.names[int(bound["ceiling"])]
        return ""


def limits_of(workload: Workload, cluster: Cluster, partition: IntArray, smallest: Any) -> Limits:
    """Return the engine's arrays for the limits of a cluster.

    Args:
        workload: The jobs.
        cluster: The cluster.
        partition: Index of each job's partition [jobs].
        smallest: ``cores``, ``gpus``, ``memory_gb`` of the smallest node that each job may use;
            infinite if unknown [jobs].
    """
    charge = _charges(workload, smallest)
    labels = [workload.qos, workload.account, workload.user]
    codes = np.column_stack([partition, *(one.codes for one in labels)]).astype(np.int64)
    found, of_job = np.unique(codes, axis=0, return_inverse=True)
    of_job = of_job.ravel()
    finder = RuleFinder(cluster)
    # Rules on usage come first and do not depend on the jobs, so that later jobs count under the
    # same rows.
    ceilings = {rule: number for number, rule in enumerate(rules_of_use(cluster.limits))}
    bound: list[tuple[int, int, int, float, float, int]] = []
    spans = np.zeros((len(found), 2, 3), np.int64)  # jobs that can start, that cannot
    rejected = np.zeros(len(workload), bool)
    why = np.full(len(workload), "", object)
    stuck = np.zeros(len(workload), bool)
    largest = np.full(len(workload), NEVER)
    jobs_of = np.split(np.argsort(of_job, kind="stable"), np.cumsum(np.bincount(of_job))[:-1])
    for number, row in enumerate(found.tolist()):
        names = [_label(one, code) for one, code in zip(labels, row[1:], strict=True)]
        one = finder.of(row[0], *names)
        rows = jobs_of[number]
        share = cluster.fairshare
        factor = share.factor_of(names[0])
        ahead = factor if names[0] in share.safe_factors else 1.0
        walltime = np.rint(ahead * workload.walltime_ms[rows]).astype(np.int64)
        for limit, measure, name in one.alone:
            broken = rows[_breaks(limit, measure, charge[rows], walltime)]
            why[broken[why[broken] == ""]] = name
            stuck[broken] = True
            if measure in limit.amounts:
                most = most_of(limit.amounts[measure], measure)
                nodes = _nodes(most, charge[rows], MEASURES.index(measure))
                largest[rows] = np.minimum(largest[rows], nodes)
        first = len(bound)
        # Slurm checks the number of running jobs before their resources; this decides the reason it
        # reports.
        for rule, holds in sorted(one.running, key=lambda pair: pair[0].measure != JOBS):
            scale = _scale(rule, cluster)
            weights = (factor * scale, ahead * scale) if rule.terms else (1.0, 1.0)
            # A limit on used wall time holds every job back, even with a usage factor of 0, as in
            # Slurm.
            seen = rule.terms is None or factor > 0 or (rule.terms.used and rule.measure == JOBS)
            row_of = ceilings.setdefault(rule, len(ceilings))
            bound.append((row_of, rule.measure, holds, *weights, seen))
            if holds and rule.terms is None and rule.measure != JOBS:
                nodes = _nodes(rule.most, charge[rows], rule.measure)
                largest[rows] = np.minimum(largest[rows], nodes)
            if one.deny and holds and rule.measure != JOBS:
                own = np.rint(charge[rows, rule.measure] * weights[1])
                if rule.terms:
                    own = own * -(-workload.walltime_ms[rows] // SECOND_MS)
                broken = rows[own > rule.most * scale]
                why[broken[why[broken] == ""]] = rule.name
                stuck[broken] = True
        middle = len(bound)
        for rule, holds in one.submitted:
            bound.append((ceilings.setdefault(rule, len(ceilings)), JOBS, holds, 1.0, 1.0, 1))
        spans[number, 0] = first, middle, len(bound)
        if one.deny:
            rejected[rows] = stuck[rows]
        elif stuck[rows].any():
            # Such jobs count as submitted, but are under a ceiling that no job can meet.
            later = len(bound)
            bound.append((-1, JOBS, 1, 1.0, 1.0, 1))
            bound += bound[middle:later]
            spans[number, 1] = later, later + 1, len(bound)
    table = np.array(bound, LAYOUT["bound"][0])
    table["ceiling"][table["ceiling"] < 0] = len(ceilings)
    rules = list(ceilings)
    bounds = spans[of_job, (stuck & ~rejected).astype(np.int64)]
    return Limits(
        {
            "bound": table,
            "bounds": bounds,
            "charge": charge,
            "ceiling": _ceilings(rules, cluster),
        },
        rejected,
        why,
        (*(rule.name for rule in rules), ""),
        largest,
    )


def _nodes(most: int, charge: IntArray, measure: int) -> IntArray:
    """Return on how many nodes jobs count at most an amount; on a node each counts the same."""
    nodes, counted = charge[:, MEASURES.index("nodes")], charge[:, measure]
    found: IntArray = np.where(counted > 0, most * nodes // np.maximum(counted, 1), NEVER)
    return found


def _ceilings(rules: Sequence[Rule], cluster: Cluster) -> npt.NDArray[Any]:
    """Return the rules in the engine's form, and one more that no job can meet."""
    table = records("ceiling", len(rules) + 1, most=_NEVER, minute=1)
    decay = math.log(2) / (cluster.fairshare.half_life * 1000)
    for row, rule in enumerate(rules):
        at = table[row : row + 1]
        scale = _scale(rule, cluster)
        at["most"] = rule.most * scale
        if rule.terms is None:
            continue
        for name in ("left", "used", "own"):
            at[name] = getattr(rule.terms, name)
        at["timed"] = 1
        if rule.terms.used:
            at["minute"] = 60_000 * _WHOLE[MEASURES[rule.measure]] * scale
            at["decay"] = decay if rule.terms.decays else 0.0
    return table


def _scale(rule: Rule, cluster: Cluster) -> int:
    """Return the factor from the units of jobs to the units of a rule's ceiling."""
    whole = UNITS[MEASURES[rule.measure]] == 1
    return _FINE if rule.terms and whole and cluster.fairshare.factors else 1


def _label(category: Category, code: int) -> str | None:
    return None if code < 0 else category.labels[code]


def _charges(workload: Workload, smallest: Any) -> IntArray:
    """Return what each job counts, in the engine's units, rounded up [jobs, measures]."""
    asked = totals_asked(workload)
    alone = np.ones(len(workload), bool)
    if workload.shares_nodes:
        alone = (workload.chunks["tasks"] == 0) | (workload.chunks["exclusive"] > 0)
    columns = [np.ones(len(workload)), workload.nodes.astype(np.float64)]
    for name in MEASURES[2:]:
        has = smallest[name]
        whole = np.where(np.isfinite(has), has, 0.0) * workload.nodes
        columns.append(np.where(alone, np.maximum(asked[name], whole), asked[name]))
    units = np.array([UNITS[name] for name in MEASURES])
    charge: IntArray = np.ceil(np.column_stack(columns) * units - 1e-6 * units).astype(np.int64)
    return charge


def _breaks(limit: Limit, measure: str, charge: IntArray, walltime_ms: IntArray) -> BoolArray:
    """Return which jobs break a limit that applies to each job alone."""
    if measure == "walltime":
        assert limit.walltime is not None
        found: BoolArray = walltime_ms > to_ms(limit.walltime)
        return found
    kind, _, name = measure.partition(" ")
    own = charge[:, MEASURES.index(name or kind)]
    if kind == "least":
        found = own < most_of(limit.min_request[name], name)  # type: ignore[index]
    elif kind == "per_node":
        one = _WHOLE[name]
        nodes = charge[:, MEASURES.index("nodes")]
        found = own // one // nodes * one > most_of(limit.per_node[name], name)  # type: ignore[index]
    elif kind == "minutes":
        seconds = -(-walltime_ms // SECOND_MS)
        found = own * seconds > 60 * most_of(limit.minutes[name], name)  # type: ignore[index]
    else:
        found = own > most_of(limit.amounts[kind], kind)
    return found
