"""Limits of users, accounts and QOS, from the section of that name."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from hpctwin.model import Limit, NodeGroup, State, Workload, to_ms
from tests.reference.jobs import Job, label_of
from tests.reference.machine import Machine

LOOK_MS = 60_000
UNITS = {"jobs": 1, "nodes": 1, "cores": 1000, "gpus": 1000, "memory_gb": 1024}

FINE = {"jobs": 1000, "nodes": 1000}  # where use counts by QOS, in such parts

WHOLE = UNITS | {"memory_gb": 1}


@dataclass(frozen=True)
class Who:
    """What limits go by."""

    partition_qos: str | None
    qos: str | None
    account: str | None
    user: str | None
    partition: str | None


def units(amount: Fraction, measure: str) -> Fraction:
    return amount * UNITS[measure]


class Limits:
    """All limits of a cluster, and the jobs they are of."""

    def __init__(self, workload: Workload, machine: Machine, jobs: list[Job]) -> None:
        self.cluster = cluster = machine.cluster
        self.parent = {account.name: account.parent for account in cluster.accounts}
        self.log: list[tuple[int, int, Job]] = []  # when which job began (1) or ended (-1)
        self.jobs = jobs
        self.resets = [to_ms(time) for time in cluster.fairshare.resets]
        self.decay = math.log(2) / to_ms(cluster.fairshare.half_life)
        self.every = to_ms(cluster.fairshare.every)
        self.who = {}
        self.amounts = {}
        for job in jobs:
            partition = cluster.partitions[job.partition] if cluster.partitions else None
            self.who[job] = Who(
                partition.qos if partition else None,
                *(
                    label_of(getattr(workload, name), job.row)
                    for name in ("qos", "account", "user")
                ),
                partition.name if partition else None,
            )
            groups = {machine.pools[pool].group for pool in job.pools}
            self.amounts[job] = self.amounts_of(workload, [cluster.nodes[g] for g in groups], job)

    # -- how often use counts --

    def factor(self, job: Job) -> Fraction:
        """How often use of a job counts."""
        return Fraction(str(self.cluster.fairshare.factor_of(self.who[job].qos)))

    def ahead(self, job: Job) -> Fraction:
        """How often its walltime does, before it starts."""
        safe = self.who[job].qos in self.cluster.fairshare.safe_factors
        return self.factor(job) if safe else Fraction(1)

    def weighed(self, job: Job, measure: str, factor: Fraction) -> Fraction:
        """What it counts, so many times."""
        parts = FINE.get(measure, 1)
        return Fraction(round(self.amounts[job][measure] * factor * parts), parts)

    def used_by(self, job: Job, measure: str) -> Fraction:
        return self.weighed(job, measure, self.factor(job))

    def amounts_of(self, workload: Workload, groups: list[NodeGroup], job: Job) -> dict[str, int]:
        """What a job counts: what it asks; alone on its nodes, all that these have if that is more."""
        tasks = int(workload.chunks["tasks"][job.row]) if workload.shares_nodes else 0
        alone = not tasks or bool(workload.chunks["exclusive"][job.row])
        found = {"jobs": 1, "nodes": job.width}
        for name in ("cores", "gpus", "memory_gb"):
            if tasks:
                asked = Fraction(float(workload.chunks[f"{name}_per_task"][job.row])) * tasks
            else:
                per_node = workload.per_node.get(name)
                asked = Fraction(0 if per_node is None else float(per_node[job.row])) * job.width
            if alone:
                has = [getattr(group, name) for group in groups]
                known = [Fraction(amount) for amount in has if amount is not None]
                asked = max(asked, min(known, default=Fraction(0)) * job.width)
            found[name] = math.ceil(units(asked, name))
        return found

    # -- which limits a job is under --

    def line(self, account: str | None) -> list[str]:
        """An account, and those above it."""
        found = []
        while account is not None and account != "root":
            found.append(account)
            account = self.parent.get(account, "root")
        return [*found, "root"]

    def holding(self, job: Job) -> list[tuple[Limit, str]]:
        """The limits that keep a job back, and of what each."""
        who = self.who[job]
        found: list[tuple[Limit, str]] = []
        said: set[tuple[str, str]] = set()
        for qos in dict.fromkeys((who.partition_qos, who.qos)):
            if qos is None:
                continue
            here = [
                (limit, what)
                for limit in self.cluster.limits
                if limit.qos == qos
                for what in said_by(limit)
            ]
            found += [
                (limit, what)
                for limit, what in here
                if (limit.per, what) not in said and self.is_known(limit, who)
            ]
            said |= {(limit.per, what) for limit, what in here}
        places = [(one, None) for one in self.line(who.account)]
        if who.user is not None:
            places = [(who.account, who.user)] * (who.account is not None) + [
                (None, who.user), *places
            ]  # fmt: skip
        near: set[str] = set()  # what a nearer place says of each user or job
        for place in places:
            here = [
                (limit, what)
                for limit in self.cluster.limits
                if limit.qos is None and limit.partitions is None and self.place(limit) == place
                for what in said_by(limit)
                if limit.per != "user" or (who.user is not None and who.account is not None)
            ]
            for limit, what in here:
                if limit.per == "job":
                    holds = ("job", what) not in said and f"job {what}" not in near
                elif self.of_each_user(limit, what):
                    by_qos = {("user", what), ("account", what)} & said
                    holds = not by_qos and what not in near
                else:
                    holds = ("all", what) not in said
                if holds:
                    found.append((limit, what))
            near |= {f"job {what}" for limit, what in here if limit.per == "job"}
            near |= {what for limit, what in here if self.of_each_user(limit, what)}
        return found + self.of_partitions(who)

    def of_partitions(self, who: Who) -> list[tuple[Limit, str]]:
        """Those of a job's partition: all of them, but of each user only what none of his own replaces."""
        here = [
            (limit, what)
            for limit in self.cluster.limits
            if self.is_in(limit, who) and self.is_of(limit, who) and self.is_known(limit, who)
            for what in said_by(limit)
        ]
        own = [
            (kind, set(limit.partitions), limit.partitions == "all", what)
            for limit, what in here
            for kind, label in (("user", limit.user), ("account", limit.account))
            if label is not None and label == getattr(who, kind) and limit.per == "all"
        ]
        return [
            (limit, what)
            for limit, what in here
            if (limit.per, set(limit.partitions), limit.partitions == "all", what) not in own
        ]

    def is_of(self, limit: Limit, who: Who) -> bool:
        """Whether a limit of partitions is of a job's user and account."""
        of_account = limit.account is None or limit.account in self.line(who.account)
        return limit.user in (None, who.user) and of_account

    def is_in(self, limit: Limit, who: Who) -> bool:
        if limit.partitions is None:
            return False
        return limit.partitions == "all" or who.partition in limit.partitions

    def is_known(self, limit: Limit, who: Who) -> bool:
        return {"user": who.user, "account": who.account}.get(limit.per, "") is not None

    def place(self, limit: Limit) -> tuple[str | None, str | None]:
        if limit.account is None and limit.user is None:
            return ("root", None)
        return (limit.account, limit.user)

    def of_each_user(self, limit: Limit, what: str) -> bool:
        own = limit.account is not None and limit.user is not None
        return limit.per != "job" and what in ("jobs", "submitted") and (own or limit.per == "user")

    # -- who is counted together --

    def together(self, limit: Limit, job: Job, others: Iterable[Job]) -> list[Job]:
        """Those of some jobs that count with a job under a limit."""
        mine = self.who[job]
        found = []
        for other in others:
            who = self.who[other]
            if limit.qos is not None:
                if limit.qos not in (who.partition_qos, who.qos):
                    continue
            elif limit.partitions is not None:
                if not self.is_in(limit, who) or not self.is_of(limit, who):
                    continue
            else:
                account, user = self.place(limit)
                if (
                    account is not None
                    and limit.user is None
                    and account not in self.line(who.account)
                ):
                    continue
                if limit.user is not None and account is not None and who.account != account:
                    continue
                if user is not None and who.user != user:
                    continue
            same_user = who.user == mine.user
            same_account = who.account == mine.account
            if limit.per == "user" and not same_user:
                continue
            of_account = limit.qos is None and limit.partitions is None
            if limit.per == "user" and of_account and not same_account:
                continue
            if limit.per == "account" and not same_account:
                continue
            found.append(other)
        return found

    # -- what they say --

    def over(self, job: Job, running: list[Job], now: int) -> bool:
        """Whether a job would break a limit if it started now, or never may start."""
        if not self.cluster.limits:
            return False
        if self.never(job):
            return True
        for limit, what in self.holding(job):
            if limit.per == "job" or what == "submitted":
                continue
            if what.startswith("used"):
                if self.used_up(limit, what, job, running, now):
                    return True
                continue
            with_it = self.together(limit, job, running)
            if what == "jobs":
                if len(with_it) + 1 > limit.jobs:
                    return True
            elif what.startswith("minutes"):
                measure = what.split()[1]
                left = sum(
                    self.used_by(other, measure) * self.seconds_left(other, now)
                    for other in with_it
                )
                if self.factor(job) == 0:
                    left = 0
                own = self.weighed(job, measure, self.ahead(job)) * (
                    math.ceil((now + job.walltime) / 1000) - now // 1000
                )
                if left + own > 60 * self.most(limit.minutes[measure], measure):
                    return True
            else:
                used = sum(self.amounts[other][what] for other in with_it)
                if used + self.amounts[job][what] > self.most(getattr(limit, what), what):
                    return True
        return False

    # -- what has been used --

    def used_up(self, limit: Limit, what: str, job: Job, running: list[Job], now: int) -> bool:
        """Whether so much has been used that a job may not start."""
        measure, most = self.of_use(limit, what)
        if self.amounts[job][measure] == 0:
            return False
        there = Fraction(0)
        if self.factor(job) > 0 or what == "used wall":
            if self.used(limit, what, job, now) >= most:
                return True
            there = self.reckoned(limit, what, job, running, now)
        seconds = math.ceil((now + job.walltime) / 1000) - now // 1000
        own = self.weighed(job, measure, self.ahead(job)) * seconds
        return limit.safe and there + own > most

    def of_use(self, limit: Limit, what: str) -> tuple[str, int]:
        """What is counted, and how much of it times seconds may be used."""
        name = what.split()[1]
        measure = "jobs" if name == "wall" else name
        return measure, 60 * self.most(limit.used_minutes[name], measure)

    def used(self, limit: Limit, what: str, job: Job, now: int) -> int:
        """What has been used by now, in whole minutes of whole units."""
        measure, _ = self.of_use(limit, what)
        since = max((time for time in self.resets if time <= now), default=None)
        total = 0.0
        for number, (begin, sign, one) in enumerate(self.log):
            if sign < 0 or not self.together(limit, job, [one]):
                continue
            end = next((t for t, s, o in self.log[number + 1 :] if s < 0 and o is one), now)
            begin = begin if since is None else max(begin, since)
            if end <= begin:
                continue
            if limit.decays:
                after, before = (math.exp(-self.decay * (now - t)) for t in (end, begin))
                total += float(self.used_by(one, measure)) * (after - before) / self.decay
            else:
                total += float(self.used_by(one, measure)) * (end - begin)
        unit = WHOLE[measure]
        return int(total // (60_000 * unit)) * 60 * unit

    def reckoned(self, limit: Limit, what: str, job: Job, running: list[Job], now: int) -> Fraction:
        """What has been used, and what running jobs still may."""
        measure, _ = self.of_use(limit, what)
        found = Fraction(self.used(limit, what, job, now))
        if limit.safe and what != "used wall":
            for other in self.together(limit, job, running):
                found += self.used_by(other, measure) * self.seconds_left(other, now)
        return found

    def seconds_left(self, job: Job, now: int) -> int:
        """What is left of a walltime if suspensions count in it: nothing after its end."""
        left = math.ceil((job.start + job.walltime) / 1000) - now // 1000
        suspends = self.cluster.preemption is not None and self.cluster.preemption.suspends
        return max(left, 0) if suspends else left

    def next_decay(self, running: list[Job], now: int) -> int | None:
        """When it is next looked at whether use has decayed so far that a job may start."""
        for limit in self.cluster.limits:
            for what in [one for one in said_by(limit) if one.startswith("used") and limit.decays]:
                _, most = self.of_use(limit, what)
                least = Fraction(1, 1000) if limit.safe else most
                for job in [one for one in self.jobs if self.counted(limit, one)]:
                    if most > 0 and self.reckoned(limit, what, job, running, now) >= least:
                        return (now // self.every + 1) * self.every
        return None

    def most(self, value: float, measure: str) -> int:
        return math.floor(units(Fraction(value), measure))

    def alone_breaks(self, limit: Limit, what: str, job: Job) -> bool:
        """Whether a job breaks a limit though nothing else runs."""
        own = self.amounts[job]
        walltime = round(job.walltime * self.ahead(job))
        if what == "walltime":
            return walltime > to_ms(limit.walltime)
        if what in ("jobs", "submitted"):
            return False
        kind, _, measure = what.rpartition(" ")
        if kind == "per_node":
            whole = own[measure] // WHOLE[measure] // own["nodes"]
            return whole * WHOLE[measure] > self.most(limit.per_node[measure], measure)
        if kind == "used":
            name, most = self.of_use(limit, what)
            ahead = self.weighed(job, name, self.ahead(job))
            return ahead * math.ceil(job.walltime / 1000) > most
        if kind == "least":
            return own[measure] < self.most(limit.min_request[measure], measure)
        if kind == "minutes":
            most = 60 * self.most(limit.minutes[measure], measure)
            if limit.per == "job":
                return own[measure] * math.ceil(walltime / 1000) > most
            ahead = self.weighed(job, measure, self.ahead(job))
            return ahead * math.ceil(job.walltime / 1000) > most
        return own[what] > self.most(getattr(limit, what), what)

    def denies(self, job: Job) -> bool:
        who = self.who[job]
        return any(
            limit.deny and limit.qos in (who.partition_qos, who.qos)
            for limit in self.cluster.limits
            if limit.qos is not None
        )

    def rejected(self, job: Job) -> bool:
        """Whether a job is not let in as it could never start."""
        return self.denies(job) and any(
            self.alone_breaks(limit, what, job) for limit, what in self.holding(job)
        )

    def never(self, job: Job) -> bool:
        """Whether a job that was let in can never start, by what each job may have."""
        return any(
            self.alone_breaks(limit, what, job)
            for limit, what in self.holding(job)
            if limit.per == "job"
        )

    def too_many(self, job: Job, there: list[Job]) -> bool:
        """Whether as many jobs as may be wait and run."""
        return any(
            len(self.together(limit, job, there)) >= limit.submitted
            for limit, what in self.holding(job)
            if what == "submitted"
        )

    def next_look(self, jobs: list[Job], now: int) -> int | None:
        """While jobs wait, and some run that count under minutes that are left: the next whole minute."""
        if not any(job.state == State.WAITING for job in jobs):
            return None
        found = [self.next_minute(jobs, now)]
        found += [self.next_decay([job for job in jobs if job.state == State.RUNNING], now)]
        return min((time for time in found if time is not None), default=None)

    def next_minute(self, jobs: list[Job], now: int) -> int | None:
        timed = [limit for limit in self.cluster.limits if limit.minutes and limit.per != "job"]
        running = [job for job in jobs if job.state == State.RUNNING]
        if any(self.counted(limit, job) for limit in timed for job in running):
            return (now // LOOK_MS + 1) * LOOK_MS
        return None

    def counted(self, limit: Limit, job: Job) -> bool:
        return job in self.together(limit, job, [job])


def said_by(limit: Limit) -> list[str]:
    """Of what a limit says something."""
    names = ("jobs", "submitted", "nodes", "cores", "gpus", "memory_gb", "walltime")
    found = [name for name in names if getattr(limit, name) is not None]
    found += [f"minutes {name}" for name in limit.minutes]
    found += [f"used {name}" for name in limit.used_minutes]
    found += [f"per_node {name}" for name in limit.per_node]
    return found + [f"least {name}" for name in limit.min_request]
