"""Which limits of users, accounts, QOS and partitions jobs are under, and the reasons that Slurm gives."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hpctwin.model import Cluster, Limit
from hpctwin.model.cluster.limits import MEASURES, ROOT, WALL, line_of

__all__ = ["JOBS", "UNITS", "JobClass", "Rule", "RuleFinder", "most_of", "rules_of_use"]

UNITS = {"jobs": 1, "nodes": 1, "cores": 1000, "gpus": 1000, "memory_gb": 1024}
JOBS = MEASURES.index("jobs")
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
class JobClass:
    """What jobs of a user, account, QOS and partition are under: rules, and whether each holds them back."""

    running: list[tuple[Rule, bool]] = field(default_factory=list)
    submitted: list[tuple[Rule, bool]] = field(default_factory=list)
    alone: list[tuple[Limit, str, str]] = field(default_factory=list)  # limit, measure, name
    deny: bool = False


def most_of(value: float, measure: str) -> int:
    """Return the value of a limit in the engine's units, rounded down."""
    units = UNITS[measure]
    return math.floor(value * units + 1e-6 * units)


class RuleFinder:
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

    def of(
        self, partition: int, qos: str | None, account: str | None, user: str | None
    ) -> JobClass:
        """Return what jobs of a partition, QOS, account and user are under."""
        found = JobClass()
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
        found: JobClass,
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
        self, account: str | None, user: str | None, found: JobClass, taken: set[tuple[str, str]]
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
        self, name: str | None, account: str | None, user: str | None, found: JobClass
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
                    found.alone.append((limit, measure, f"{_words(measure)} per job{of}"))
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
        return f"{amount} per node"
    said = {"minutes": f"minutes of {amount}", "used": f"used {amount}", "least": f"least {amount}"}
    return said.get(kind, amount)


def _rules(
    number: int, limit: Limit, counted: tuple[str, ...], of: str
) -> Iterator[tuple[str, Rule]]:
    """Yield what a limit over several jobs restricts, with its rule."""
    if limit.jobs is not None:
        yield "jobs", Rule(number, (*counted, "running"), JOBS, limit.jobs, None,
                           _reason(of, limit.per, "jobs", own=limit.user))  # fmt: skip
    if limit.submitted is not None:
        yield "submitted", Rule(number, (*counted, "submitted"), JOBS, limit.submitted, None,
                                _reason(of, limit.per, "submitted", own=limit.user))  # fmt: skip
    for name, value in limit.amounts.items():
        yield name, Rule(number, counted, MEASURES.index(name), most_of(value, name), None,
                         _reason(of, limit.per, name))  # fmt: skip
    for name, value in limit.minutes.items():
        yield f"minutes {name}", Rule(number, counted, MEASURES.index(name), 60 * most_of(value, name), _LEFT,
                                      _reason(of, limit.per, f"minutes {name}"))  # fmt: skip
    for what, value in limit.used_minutes.items():
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
                60 * most_of(value, name),
                terms,
                reason,
            ),
        )


def rules_of_use(limits: Sequence[Limit]) -> Iterator[Rule]:
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
    yield from (f"least {name}" for name in limit.min_request)
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
