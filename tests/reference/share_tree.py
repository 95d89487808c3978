"""Fair shares as a tree, from Slurm's page "Fair Tree Fairshare Algorithm"."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field

from hpctwin.model import Cluster, Workload, to_ms
from tests.reference.jobs import Job, label_of
from tests.reference.share import Usage

Pair = tuple[str, str]  # account and user; empty where a job names none
NEAR = 1e-9


@dataclass
class Branch:
    """An account, or a user in it."""

    share: float | str
    user: Pair | None = None
    below: list[Branch] = field(default_factory=list)
    used: float = 0.0
    level: float = 0.0
    history: tuple = ()  # of use; two branches with the same one have used the same to the last bit


class TreeUsage(Usage):
    """Decaying use of users in accounts; their factors are ranks, made anew once in a period."""

    def __init__(self, workload: Workload, cluster: Cluster, jobs: list[Job]) -> None:
        share = cluster.fairshare
        self.decay = math.log(2) / share.half_life
        self.every = to_ms(share.every)
        self.period: int | None = None
        self.unclear = False  # whether rounding may have decided who is as good as another
        accounts = {account.name: account for account in cluster.accounts}
        pairs = [(account.name, user) for account in cluster.accounts for user in account.users]
        for job in jobs:
            account = label_of(workload.account, job.row) or ""
            job.share_label = (account, label_of(workload.user, job.row) or "")
            if job.share_label not in pairs:
                pairs.append(job.share_label)
        self.shares = dict.fromkeys(pairs, 1.0)
        self.used = dict.fromkeys(pairs, 0.0)
        self.nodes = dict.fromkeys(pairs, 0)
        self.since = dict.fromkeys(pairs, 0)
        self.changes: dict[Pair, list[tuple[int, float]]] = {pair: [] for pair in pairs}
        self.root = Branch("root")
        branches = {"root": self.root}
        for name, account in accounts.items():
            branches.setdefault(name, Branch(account.share))
        for name, _ in pairs:
            branches.setdefault(name, Branch(1.0))

        def home(name: str) -> Branch:
            """What is below an account with the share of its parent, is below that."""
            while name in accounts and accounts[name].share == "parent":
                name = accounts[name].parent
            return branches[name]

        for name, branch in branches.items():
            if name != "root" and branch.share != "parent":
                home(accounts[name].parent if name in accounts else "root").below.append(branch)
        for account, user in pairs:
            share = accounts[account].users.get(user, 1.0) if account in accounts else 1.0
            home(account).below.append(Branch(share, (account, user)))
        self.rank: dict[Pair, float] = {}

    def change(self, label: Pair, now: int, nodes: float) -> None:
        super().change(label, now, nodes)
        self.changes[label].append((now, nodes))

    def forget(self, now: int) -> None:
        super().forget(now)
        # Who has as many nodes from now on uses the same.
        self.changes = {pair: [(now, float(nodes))] for pair, nodes in self.nodes.items()}
        self.period = None

    def factors(self, now: int) -> dict[Pair, tuple[float, float]]:
        if now // self.every != self.period:
            self.period = now // self.every
            self.add_up(self.root, now)
            groups = self.ranked([self.root])
            left = len(self.shares)
            for group in groups:
                for pair in group:
                    self.rank[pair] = left / len(self.shares)
                left -= len(group)
        return {pair: (self.rank[pair], self.at(pair, now)) for pair in self.shares}

    def add_up(self, branch: Branch, now: int) -> None:
        if branch.user is not None:
            branch.used = self.at(branch.user, now)
            branch.history = tuple(self.changes[branch.user])
            return
        for one in branch.below:
            self.add_up(one, now)
        branch.used = sum(one.used for one in branch.below)
        branch.history = tuple(one.history for one in branch.below)

    def ranked(self, accounts: list[Branch]) -> list[list[Pair]]:
        """All users below some accounts that count as one, the best first; those that tie together."""
        siblings = []
        for account in accounts:
            whole = sum(one.share for one in account.below if one.share != "parent")
            for one in account.below:
                one.level = self.level(one, whole, account.used)
                siblings.append(one)
        siblings.sort(key=lambda one: -one.level)
        for a, b in itertools.combinations(siblings, 2):
            near = a.level != math.inf and abs(a.level - b.level) <= NEAR * abs(a.level)
            alike = (a.share, a.history) == (b.share, b.history)
            if near and a.level > 0 and not alike:
                self.unclear = True
        found: list[list[Pair]] = []
        for _, same in itertools.groupby(siblings, key=lambda one: one.level):
            tied = list(same)
            users = [one.user for one in tied if one.user is not None]
            deeper = self.ranked([one for one in tied if one.user is None])
            if users and deeper:
                users += deeper.pop(0)
            if users:
                found.append(users)
            found += deeper
        return found

    def level(self, one: Branch, whole: float, by_all: float) -> float:
        """LF = S / U: the share over the part of the use."""
        if one.share == "parent":
            return math.inf
        if one.share == 0:
            return 0.0
        if one.used <= 0 or by_all <= 0:
            return math.inf
        return (one.share / whole) / (one.used / by_all)


def usage_of(workload: Workload, cluster: Cluster, jobs: list[Job]) -> Usage:
    """The use that a cluster's fair shares go by."""
    if cluster.fairshare.kind == "tree":
        return TreeUsage(workload, cluster, jobs)
    return Usage(workload, cluster.fairshare)
