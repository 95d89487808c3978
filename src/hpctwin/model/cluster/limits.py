"""Accounts, and limits on what jobs of a user, account or QOS may have at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from hpctwin.errors import near
from hpctwin.model.settings import Duration, Settings

ROOT = "root"
"""The account above all others."""

Share = Annotated[float, Field(ge=0)] | Literal["parent"]
Measure = Literal["nodes", "cores", "gpus", "memory_gb"]
Amounts = dict[Measure, Annotated[float, Field(ge=0)]]
MEASURES = ("jobs", "nodes", "cores", "gpus", "memory_gb")
"""What limits count; the engine numbers them in this order."""
WALL = "wall"
Used = dict[Measure | Literal["wall"], Annotated[float, Field(ge=0)]]


class Account(Settings):
    """An account in the tree of accounts.

    Args:
        name: Name that jobs give.
        parent: Account that it is part of; by default ``root``.
        share: Its share of its parent's share, in the unit of its siblings. ``parent``: its
            accounts and users count as those of its parent.
        users: Shares of its users. ``parent``: a user comes before the others. Account ``root`` has
            no further fields.
    """

    name: str
    parent: str = ROOT
    share: Share = 1.0
    users: dict[str, Share] = Field(default_factory=dict)


class Limit(Settings):
    """Upper bound on what some jobs may have, together or each.

    Args:
        qos: Jobs of a quality of service, or of a partition that has it.
        account: Jobs of an account and of those below it; ``root`` means all. With ``partitions``,
            only in these.
        user: Jobs of a user. With ``account``, only in this account; with ``partitions``, only in
            these.
        partitions: Jobs in these partitions together, or in ``all``; such a limit holds in addition
            to all others.
        per: Jobs that are counted together: ``all`` of these jobs, those of each ``user`` (with an
            account: in each account) or ``account`` (of a QOS or of partitions), or each ``job``
            alone.
        jobs: Largest number of running jobs.
        submitted: Largest number of pending and running jobs; one more is rejected.
        nodes, cores, gpus, memory_gb: Largest amount in use.
        minutes: Amounts times the remaining minutes of running jobs' walltimes; for a job alone,
            times its walltime.
        used_minutes: Amounts times minutes that jobs have used; ``wall`` is the minutes that they ran. This
            use decays and is forgotten as `FairShare` says.
        decays: Whether past use decays.
        safe: For ``used_minutes``: a job starts only if it and all running jobs can run for their
            walltimes.
        walltime: Longest walltime of a job alone.
        min_request: Smallest request of a job alone.
        per_node: Largest request of a job alone per node, as the mean over its nodes, rounded down.
        deny: Whether jobs of this QOS that could never start under their limits are rejected;
            otherwise they wait forever.
    """

    qos: str | None = None
    account: str | None = None
    user: str | None = None
    partitions: Annotated[tuple[str, ...], Field(min_length=1)] | Literal["all"] | None = None
    per: Literal["all", "user", "account", "job"] = "all"
    jobs: int | None = Field(default=None, ge=0)
    submitted: int | None = Field(default=None, ge=0)
    nodes: int | None = Field(default=None, ge=0)
    cores: float | None = Field(default=None, ge=0)
    gpus: float | None = Field(default=None, ge=0)
    memory_gb: float | None = Field(default=None, ge=0)
    minutes: Amounts = Field(default_factory=dict)
    used_minutes: Used = Field(default_factory=dict)
    decays: bool = True
    safe: bool = False
    walltime: Duration | None = Field(default=None, gt=0)
    min_request: Amounts = Field(default_factory=dict)
    per_node: Amounts = Field(default_factory=dict)
    deny: bool = False

    @property
    def amounts(self) -> dict[str, float]:
        """Upper bounds on amounts in use, by name."""
        said = {name: getattr(self, name) for name in ("nodes", "cores", "gpus", "memory_gb")}
        return {name: value for name, value in said.items() if value is not None}

    @property
    def is_timed(self) -> bool:
        """Whether the remaining minutes of running jobs' walltimes count."""
        return bool(self.minutes or (self.used_minutes and self.safe)) and self.per != "job"

    @model_validator(mode="after")
    def _one_thing(self) -> Self:
        if self.qos is not None and (self.account is not None or self.user is not None):
            raise ValueError(
                "a limit applies to a QOS, an account or a user: give only one of them"
            )
        if self.partitions is not None and self.qos is not None:
            raise ValueError("a limit of partitions applies to jobs of every QOS: remove qos")
        if self.partitions is not None and self.account is not None and self.user is not None:
            raise ValueError(
                "a limit of partitions applies to a user or an account: give only one of them"
            )
        if self.qos is None and self.partitions is None and self.per == "account":
            raise ValueError("per: account is only valid for limits of a QOS or of partitions")
        if self.account is not None and self.per == "account":
            raise ValueError(
                f"per: account has no effect on a limit of account {self.account!r}; remove it"
            )
        if self.partitions is not None and self.account is not None and self.per == "user":
            raise ValueError(
                "a limit of an account in partitions applies to all its jobs or to each "
                "job: remove per: user"
            )
        if self.user is not None and self.per == "user":
            raise ValueError(f"per: user has no effect on a limit of user {self.user!r}; remove it")
        if self.per == "job" and (self.jobs is not None or self.submitted is not None):
            raise ValueError(
                "per: job limits a single job; 'jobs' and 'submitted' count several: remove them"
            )
        if self.per != "job" and (self.walltime is not None or self.min_request or self.per_node):
            raise ValueError(
                "'walltime', 'min_request' and 'per_node' limit a single job: set per: job"
            )
        if self.per in ("user", "account") and self.minutes:
            raise ValueError(
                "'minutes' limits all jobs together or each job, not each user or account"
            )
        if self.per != "all" and self.used_minutes:
            raise ValueError("'used_minutes' limits the usage of all jobs together: remove per")
        if not self.used_minutes and (self.safe or not self.decays):
            raise ValueError("'safe' and 'decays' are only valid with 'used_minutes'")
        if self.qos is None and self.partitions is None and self.per == "user" and self.amounts:
            raise ValueError(
                f"{', '.join(self.amounts)} per user is only valid for a QOS or partitions; "
                "otherwise name the user"
            )
        if self.deny and self.qos is None:
            raise ValueError("'deny' is only valid for a QOS")
        numbers = (self.jobs, self.submitted, self.walltime)
        amounts = (
            self.amounts or self.minutes or self.used_minutes or self.min_request or self.per_node
        )
        if not (self.deny or amounts) and numbers == (None,) * 3:
            raise ValueError(
                "the limit is empty: give jobs, submitted, nodes, cores, gpus, memory_gb, "
                "minutes, used_minutes, walltime, min_request or per_node"
            )
        return self


def line_of(account: str | None, parents: Mapping[str, str]) -> list[str]:
    """Return an account and those above it, up to the root.

    Args:
        account: Account; None if unknown, which gives the root only.
    """
    line = [] if account in (None, ROOT) else [str(account)]
    while line and parents.get(line[-1], ROOT) != ROOT:
        line.append(parents[line[-1]])
    return [*line, ROOT]


def check_accounts(accounts: Iterable[Account]) -> None:
    """Check that accounts are a tree."""
    accounts = list(accounts)
    parents = {account.name: account.parent for account in accounts}
    if any(a.name == ROOT and (a.parent != ROOT or a.share != 1) for a in accounts):
        raise ValueError(
            f"account {ROOT!r} is the root of all accounts; it can have users, but no parent "
            "and no share"
        )
    for name, parent in parents.items():
        if name == ROOT:
            continue
        if parent != ROOT and parent not in parents:
            raise ValueError(f"account {name!r}: unknown parent {parent!r}.{near(parent, parents)}")
        seen = [name]
        while (above := parents[seen[-1]]) != ROOT:
            if above in seen:
                raise ValueError(
                    f"account {name!r} is its own ancestor: {' in '.join([*seen, above])}"
                )
            seen.append(above)


def check_limits(
    limits: Iterable[Limit], accounts: Iterable[Account], partitions: Collection[str]
) -> None:
    """Check that partitions of limits exist, and accounts if any are defined."""
    names = {account.name for account in accounts}
    for limit in limits:
        if limit.account not in (None, ROOT, *names) and names:
            hint = near(str(limit.account), names)
            raise ValueError(f"a limit names the unknown account {limit.account!r}.{hint}")
        for name in () if limit.partitions in (None, "all") else limit.partitions or ():
            if name not in partitions:
                hint = near(name, partitions)
                raise ValueError(f"a limit names the unknown partition {name!r}.{hint}")


def idle_limits(
    limits: Collection[Limit],
    factors: Collection[str],
    labels: Mapping[str, Collection[str]],
    listed_qos: Collection[str],
) -> Iterator[str]:
    """Yield sentences on limits and use factors that apply to no job.

    Args:
        labels: Labels of the jobs, by ``qos``, ``account`` and ``user``.
        listed_qos: QOS of the cluster and of its partitions.
    """
    named = {
        kind: {getattr(limit, kind) for limit in limits} - {None, ROOT}
        for kind in ("qos", "account", "user")
    }
    known = {*labels["qos"], *listed_qos}
    for name in sorted(named["qos"] - known):
        hint = near(name, known)
        yield f"a limit names QOS {name!r}, which no job has and the cluster does not list.{hint}"
    for name in sorted({*factors} - known):
        hint = near(name, known)
        yield (
            f"a usage factor names QOS {name!r}, which no job has and the cluster does not "
            f"list.{hint}"
        )
    for kind in ("account", "user"):
        if named[kind] and not labels[kind]:
            first = min(named[kind])
            yield (
                f"a limit names {kind} {first!r}, but jobs have no {kind}: the limit has no effect"
            )
