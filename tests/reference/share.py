"""Fair share: what each user or account has used of late."""

from __future__ import annotations

import math

from hpctwin.model import MS_PER_S, FairShare, Workload
from tests.reference.jobs import share_category


class Usage:
    """Decaying node-seconds by label. While n nodes are in use, dU/dt = n - λU."""

    def __init__(self, workload: Workload, share: FairShare) -> None:
        category = share_category(workload, share)
        self.decay = math.log(2) / share.half_life
        self.shares = {
            code: share.shares.get(label, 1.0) for code, label in enumerate(category.labels)
        }
        if (category.codes < 0).any():
            self.shares[-1] = 1.0
        self.used = dict.fromkeys(self.shares, 0.0)
        self.nodes = dict.fromkeys(self.shares, 0)
        self.since = dict.fromkeys(self.shares, 0)

    def at(self, label: int, now: int) -> float:
        level = self.nodes[label] / self.decay
        elapsed = (now - self.since[label]) / MS_PER_S
        return (self.used[label] - level) * math.exp(-self.decay * elapsed) + level

    def change(self, label: int, now: int, nodes: int) -> None:
        self.used[label] = self.at(label, now)
        self.since[label] = now
        self.nodes[label] += nodes

    def forget(self, now: int) -> None:
        """What was used until now counts no more."""
        self.used = dict.fromkeys(self.used, 0.0)
        self.since = dict.fromkeys(self.since, now)

    def factors(self, now: int) -> dict[int, tuple[float, float]]:
        """Fair-share factor and usage of each label."""
        used = {label: self.at(label, now) for label in self.shares}
        total = sum(used.values())
        promised = sum(self.shares.values())
        return {
            label: (
                1.0 if total == 0 else 2 ** (-(u / total) / (self.shares[label] / promised)),
                u,
            )
            for label, u in used.items()
        }
