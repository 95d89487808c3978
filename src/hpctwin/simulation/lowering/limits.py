"""Limits of users, accounts and QOS in the engine's form."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hpctwin.engine.queue.limits import SECOND_MS
from hpctwin.engine.state.layout import LAYOUT
from hpctwin.engine.state.sim import records
from hpctwin.model import Cluster, Limit, Workload, to_ms
from hpctwin.model.cluster.limits import ROOT, WALL, line_of
from hpctwin.model.columns import Category
from hpctwin.model.demand.requested_totals import totals_asked

__all__ = ["Limits", "limits_of", "no_limits"]

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

MEASURES = ("jobs", "nodes", "cores", "gpus", "memory_gb")
_UNITS = {"jobs": 1, "nodes": 1, "cores": 1000, "gpus": 1000, "memory_gb": 1024}
_WHOLE = {**_UNITS, "memory_gb": 1}
"""Slurm's counting unit of each measure: memory counts in MB."""
_JOBS = MEASURES.index("jobs")
_NEVER = -1  # ceiling that no job can meet
_FINE = 1000
"""Factor for nodes and jobs where QOS weights usage: thousandths, as for cores."""
_LONG = {"cores": "Cpu", "nodes": "Node", "memory_gb": "Mem", "gpus": "GRES", "jobs": "Jobs"}


class Terms(NamedTuple):
    """Terms that add up to a limit on amounts times seconds.

    Args:
        left: Whether the remaining walltimes of running jobs count.
        used: Whether past usage counts.
        own: Whether the walltime of the job about to start counts.
        decays: Whether past usage decays.
    """

    left: bool
    used: bool
    own: bool
    decays: bool = False


_LEFT = Terms(left=True, used=False, own=True)


class Rule(NamedTuple):
    """A limit on one measure for jobs of a user, account and QOS.

    Args:
        limit: Number of the limit in the cluster's list.
        counted: Further labels of the group whose jobs are counted together.
        measure: Index into `MEASURES`.
        most: Largest amount, in the engine's units.
        terms: Terms of a limit on amounts times seconds; None for a limit on amounts.
        name: Slurm's name of the reason that a job waits.
    """

    limit: int
    counted: tuple[str, ...]
    measure: int
    most: int
    terms: Terms | None
    name: str


@dataclass
class _Class:
    """Limits of all jobs with one user, account, QOS and partition.

    Each rule comes with whether it holds jobs back; other rules only count the jobs.
    """

    running: list[tuple[Rule, bool]] = field(default_factory=list)
    submitted: list[tuple[Rule, bool]] = field(default_factory=list)
    alone: list[tuple[Limit, str, str]] = field(default_factory=list)  # limit, measure, name
    deny: bool = False


@dataclass(frozen=True, eq=False)
class Limits:
    """The engine's arrays of limits; see `engine.state.layout.Known`.

    Args:
        arrays: ``bound``, ``bounds``, ``charge``, ``ceiling``.
        rejected: Jobs rejected at submission because they could never start [jobs].
        why: Reason, for rejected jobs and jobs that wait forever; otherwise empty [jobs].
        names: Reason that ``squeue`` prints for jobs waiting under each ceiling.
    """

    arrays: dict[str, npt.NDArray[Any]]
    rejected: BoolArray
    why: npt.NDArray[np.object_]
    names: tuple[str, ...]

    def submitted(self, row: int) -> str:
        """Return the name of the first limit on submitted jobs; empty if there is none."""
        _, first, last = self.arrays["bounds"][row]
        for bound in self.arrays["bound"][first:last]:
            if bound["holds"]:
                return self.names[int(bound["ceiling"])]
        return ""


@cache
def no_limits() -> dict[str, npt.NDArray[Any]]:
    """Return the engine's arrays for a cluster without limits."""
    return {
        "bound": records("bound", 0),
        "bounds": np.zeros((0, 3), np.int64),
        "charge": np.zeros((0, len(MEASURES)), np.int64),
        "ceiling": records("ceiling", 0),
    }


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
    finder = _Finder(cluster)
    # Rules on usage come first and do not depend on the jobs, so that later jobs count under the
    # same rows.
    ceilings = {rule: number for number, rule in enumerate(_rules_of_use(cluster.limits))}
    bound: list[tuple[int, int, int, float, float, int]] = []
    spans = np.zeros((len(found), 2, 3), np.int64)  # jobs that can start, that cannot
    rejected = np.zeros(len(workload), bool)
    why = np.full(len(workload), "", object)
    stuck = np.zeros(len(workload), bool)
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
        first = len(bound)
        # Slurm checks the number of running jobs before their resources; this decides the reason it
        # reports.
        for rule, holds in sorted(one.running, key=lambda pair: pair[0].measure != _JOBS):
            scale = _scale(rule, cluster)
            weights = (factor * scale, ahead * scale) if rule.terms else (1.0, 1.0)
            # A limit on used wall time holds every job back, even with a usage factor of 0, as in
            # Slurm.
            seen = rule.terms is None or factor > 0 or (rule.terms.used and rule.measure == _JOBS)
            row_of = ceilings.setdefault(rule, len(ceilings))
            bound.append((row_of, rule.measure, holds, *weights, seen))
            if one.deny and holds and rule.measure != _JOBS:
                own = np.rint(charge[rows, rule.measure] * weights[1])
                if rule.terms:
                    own = own * -(-workload.walltime_ms[rows] // SECOND_MS)
                broken = rows[own > rule.most * scale]
                why[broken[why[broken] == ""]] = rule.name
                stuck[broken] = True
        middle = len(bound)
        for rule, holds in one.submitted:
            bound.append((ceilings.setdefault(rule, len(ceilings)), _JOBS, holds, 1.0, 1.0, 1))
        spans[number, 0] = first, middle, len(bound)
        if one.deny:
            rejected[rows] = stuck[rows]
        elif stuck[rows].any():
            # Such jobs count as submitted, but are under a ceiling that no job can meet.
            later = len(bound)
            bound.append((-1, _JOBS, 1, 1.0, 1.0, 1))
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
    )


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
    whole = _UNITS[MEASURES[rule.measure]] == 1
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
    units = np.array([_UNITS[name] for name in MEASURES])
    charge: IntArray = np.ceil(np.column_stack(columns) * units - 1e-6 * units).astype(np.int64)
    return charge


def _most(value: float, measure: str) -> int:
    units = _UNITS[measure]
    return math.floor(value * units + 1e-6 * units)


def _breaks(limit: Limit, measure: str, charge: IntArray, walltime_ms: IntArray) -> BoolArray:
    """Return which jobs break a limit that applies to each job alone."""
    if measure == "walltime":
        assert limit.walltime is not None
        found: BoolArray = walltime_ms > to_ms(limit.walltime)
        return found
    kind, _, name = measure.partition(" ")
    own = charge[:, MEASURES.index(name or kind)]
    if kind == "least":
        found = own < _most(limit.least[name], name)  # type: ignore[index]
    elif kind == "per_node":
        one = _WHOLE[name]
        nodes = charge[:, MEASURES.index("nodes")]
        found = own // one // nodes * one > _most(limit.per_node[name], name)  # type: ignore[index]
    elif kind == "minutes":
        seconds = -(-walltime_ms // SECOND_MS)
        found = own * seconds > 60 * _most(limit.minutes[name], name)  # type: ignore[index]
    else:
        found = own > _most(limit.amounts[kind], kind)
    return found


class _Finder:
    """Finder of the limits of a job by partition, QOS, account and user."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.parents = {account.name: account.parent for account in cluster.accounts}
        self.of_qos: dict[str, list[int]] = defaultdict(list)
        self.of_account: dict[tuple[str | None, str | None], list[int]] = defaultdict(list)
        self.of_partitions = [
            (number, limit)
            for number, limit in enumerate(cluster.limits)
            if limit.partitions is not None
        ]
        for number, limit in enumerate(cluster.limits):
            if limit.partitions is not None:
                continue
            if limit.qos is not None:
                self.of_qos[limit.qos].append(number)
            elif limit.account is None and limit.user is None:
                self.of_account[ROOT, None].append(number)
            else:
                self.of_account[limit.account, limit.user].append(number)

    def of(self, partition: int, qos: str | None, account: str | None, user: str | None) -> _Class:
        found = _Class()
        taken: set[tuple[str, str]] = set()  # pairs (per what, measure) that a QOS has limited
        at = self.cluster.partitions[partition] if self.cluster.partitions else None
        of_partition = None if at is None else at.qos
        for name in dict.fromkeys((of_partition, qos)):
            if name is not None:
                self._add_qos(self.of_qos.get(name, ()), name, account, user, found, taken)
        self._add_accounts(account, user, found, taken)
        self._add_partitions(None if at is None else at.name, account, user, found)
        return found

    def _add_qos(
        self,
        numbers: Sequence[int],
        qos: str,
        account: str | None,
        user: str | None,
        found: _Class,
        taken: set[tuple[str, str]],
    ) -> None:
        limits = [(number, self.cluster.limits[number]) for number in numbers]
        before = set(taken)
        for number, limit in limits:
            found.deny = found.deny or limit.deny
            counted = {"all": (), "user": (user,), "account": (account,), "job": ()}[limit.per]
            known = None not in counted
            if limit.per == "job":
                for measure in _alone(limit):
                    if ("job", measure) not in before:
                        taken.add(("job", measure))
                        found.alone.append((limit, measure, _reason("QOS", limit.per, measure)))
                continue
            for what, rule in _rules(number, limit, ("qos", qos, *map(str, counted)), "QOS"):
                holds = known and (limit.per, what) not in before
                taken.add((limit.per, what))
                if known:
                    (found.submitted if what == "submitted" else found.running).append(
                        (rule, holds)
                    )

    def _add_accounts(
        self, account: str | None, user: str | None, found: _Class, taken: set[tuple[str, str]]
    ) -> None:
        line = line_of(account, self.parents)
        nearest: set[str] = set()  # what a nearer account already limits
        places: list[tuple[str | None, str | None]] = [(one, None) for one in line]
        if user is not None:
            places.insert(0, (None, user))
            if account is not None:
                places.insert(0, (account, user))
        for place in places:
            limits = [(n, self.cluster.limits[n]) for n in self.of_account.get(place, ())]
            said = set(nearest)
            for number, limit in limits:
                if limit.per == "job":
                    for measure in _alone(limit):
                        nearest.add(measure)
                        if ("job", measure) not in taken and measure not in said:
                            name = _reason("Assoc", "job", measure)
                            found.alone.append((limit, measure, name))
                    continue
                own = limit.account is not None and limit.user is not None
                each = limit.per == "user"
                if each and (user is None or account is None):
                    continue
                counted = ("user", str(account), str(user)) if each or own else (
                    "account", str(limit.account), str(limit.user)
                )  # fmt: skip
                for what, rule in _rules(number, limit, counted, "Assoc"):
                    ours = (each or own) and what in ("jobs", "submitted")
                    holds = ("all", what) not in taken
                    if ours:
                        holds = not {("user", what), ("account", what)} & taken and what not in said
                        nearest.add(what)
                    (found.submitted if what == "submitted" else found.running).append(
                        (rule, holds)
                    )

    def _add_partitions(
        self, name: str | None, account: str | None, user: str | None, found: _Class
    ) -> None:
        """Add the limits of the job's partition, which hold in addition to all others."""
        line = line_of(account, self.parents)
        here = [
            (number, limit)
            for number, limit in self.of_partitions
            if (limit.partitions == "all" or name in (limit.partitions or ()))
            and limit.user in (None, user)
            and limit.account in (None, *line)
        ]
        # A limit that names a user or account replaces the limit for each user or account.
        named = {
            (kind, _together(limit), what)
            for number, limit in here
            for kind, label in (("user", user), ("account", account))
            if label is not None and getattr(limit, kind) == label and limit.per == "all"
            for what, _ in _rules(number, limit, (), "")
        }
        for number, limit in here:
            of = _of_partitions(limit)
            if limit.per == "job":
                for measure in _alone(limit):
                    found.alone.append((limit, measure, f"{_words(measure)} of a job{of}"))
                continue
            each = {"all": "", "user": user, "account": account}[limit.per]
            if each is None:
                continue
            counted = ("partitions",) if limit.per == "all" else ("partitions", limit.per, each)
            for what, rule in _rules(number, limit, counted, ""):
                if (limit.per, _together(limit), what) in named:
                    continue
                whose = "" if limit.per == "all" else f" of each {limit.per}"
                told = rule._replace(name=f"{_words(what)}{whose}{of}")
                (found.submitted if what == "submitted" else found.running).append((told, True))


def _together(limit: Limit) -> frozenset[str]:
    """Return the partitions whose jobs are counted together."""
    return frozenset(
        [limit.partitions] if isinstance(limit.partitions, str) else limit.partitions or ()
    )


def _of_partitions(limit: Limit) -> str:
    """Return in words whose jobs a limit covers, and in which partitions."""
    who = limit.user if limit.account is None else f"account {limit.account}"
    whose = "" if who is None else f" of {who}"
    where = limit.partitions
    return f"{whose} in {'all partitions' if isinstance(where, str) else ', '.join(where or ())}"


def _words(measure: str) -> str:
    """Return in words what a limit restricts."""
    kind, _, name = measure.partition(" ")
    amount = {"memory_gb": "memory", "submitted": "submitted jobs"}.get(name or kind, name or kind)
    if kind == "per_node":
        return f"{amount} of each node"
    said = {"minutes": f"minutes of {amount}", "used": f"used {amount}", "least": f"least {amount}"}
    return said.get(kind, amount)


def _rules(
    number: int, limit: Limit, counted: tuple[str, ...], of: str
) -> Iterator[tuple[str, Rule]]:
    """Yield what a limit over several jobs restricts, with its rule."""
    if limit.jobs is not None:
        yield "jobs", Rule(number, (*counted, "running"), _JOBS, limit.jobs, None,
                           _reason(of, limit.per, "jobs", own=limit.user))  # fmt: skip
    if limit.submitted is not None:
        yield "submitted", Rule(number, (*counted, "submitted"), _JOBS, limit.submitted, None,
                                _reason(of, limit.per, "submitted", own=limit.user))  # fmt: skip
    for name, value in limit.amounts.items():
        yield name, Rule(number, counted, MEASURES.index(name), _most(value, name), None,
                         _reason(of, limit.per, name))  # fmt: skip
    for name, value in limit.minutes.items():
        yield f"minutes {name}", Rule(number, counted, MEASURES.index(name), 60 * _most(value, name), _LEFT,
                                      _reason(of, limit.per, f"minutes {name}"))  # fmt: skip
    for what, value in limit.used.items():
        # Slurm ignores the remaining walltimes of jobs where it limits the wall time used.
        terms = Terms(limit.safe and what != WALL, True, limit.safe, limit.decays)
        name = "jobs" if what == WALL else what
        reason = _reason(of, limit.per, f"used {what}")
        yield (
            f"used {what}",
            Rule(
                number,
                (*counted, what),
                MEASURES.index(name),
                60 * _most(value, name),
                terms,
                reason,
            ),
        )


def _rules_of_use(limits: Sequence[Limit]) -> Iterator[Rule]:
    """Yield all rules on past usage, equal to the rules that `_Finder` finds for jobs."""
    counted: tuple[str, ...]
    for number, limit in enumerate(limits):
        if limit.qos is not None:
            counted, of = ("qos", limit.qos), "QOS"
        elif limit.partitions is not None:
            counted, of = ("partitions",), ""
        else:
            own = limit.account is not None and limit.user is not None
            kind = "user" if own else "account"
            counted, of = (kind, str(limit.account), str(limit.user)), "Assoc"
        for what, rule in _rules(number, limit, counted, of):
            if rule.terms and rule.terms.used:
                told = f"{_words(what)}{_of_partitions(limit)}"
                yield rule if of else rule._replace(name=told)


def _alone(limit: Limit) -> Iterator[str]:
    """Yield what a limit on each job alone restricts."""
    if limit.walltime is not None:
        yield "walltime"
    yield from limit.amounts
    yield from (f"minutes {name}" for name in limit.minutes)
    yield from (f"least {name}" for name in limit.least)
    yield from (f"per_node {name}" for name in limit.per_node)


def _reason(of: str, per: str, measure: str, own: str | None = None) -> str:
    """Return the reason that ``squeue`` prints for a job that waits under a limit."""
    kind, _, name = measure.partition(" ")
    long = _LONG.get(name or kind, "")
    if kind == "submitted":
        of_user = {"user": f"{of}MaxSubmitJobPerUserLimit", "account": "MaxSubmitJobsPerAccount"}
        if of == "Assoc":
            return "AssocMaxSubmitJobLimit" if per == "user" or own else "AssocGrpSubmitJobsLimit"
        return of_user.get(per, "QOSGrpSubmitJobsLimit")
    if kind == "jobs":
        if of == "Assoc":
            return "AssocMaxJobsLimit" if per == "user" or own else "AssocGrpJobsLimit"
        return {"user": "QOSMaxJobsPerUserLimit", "account": "MaxJobsPerAccount"}.get(
            per, "QOSGrpJobsLimit"
        )
    if kind == "walltime":
        return f"{of}MaxWallDurationPerJobLimit"
    if kind == "least":
        return f"QOSMin{long}NotSatisfied" if long == "Cpu" else f"QOSMin{long}"
    short = {"Mem": "Memory"}.get(long, long) if of == "QOS" else long
    if kind == "per_node":
        return f"{of}Max{short}PerNode"
    if kind == "used" and name == WALL:
        return f"{of}GrpWallLimit"
    if kind in ("minutes", "used"):
        end = "Limit" if long == "Cpu" else ""
        if per == "job":
            return f"{of}Max{short}MinutesPerJob{end}"
        upper = "CPU" if long == "Cpu" else short
        return f"{of}Grp{upper}{'Run' if kind == 'minutes' else ''}Minutes{end}"
    if per == "user":
        return f"{of}Max{short}PerUser" + ("Limit" if long in ("Cpu", "Node") else "")
    if per == "account":
        return f"Max{short}PerAccount"
    if per == "job":
        return f"{of}Max{short}PerJob" + ("Limit" if long in ("Cpu", "Node") else "")
    return f"{of}Grp{long}" + ("" if long == "GRES" else "Limit")
