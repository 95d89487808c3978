"""Incentives, as S-RAPS's figure 8 (Maiterth et al., SC25-W, §4.3): accounts collected, then redeemed.

The paper's day of measured power is not to be had here. So jobs, users and times are Theta's of 2023, on as
many of Frontier's nodes, and how much each account uses its nodes is drawn with a seed: what the figure
shows, who is sooner under which incentive, depends on that only by who draws how much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from hpctwin.experiments.traces import find_trace
from hpctwin.formats import read_workload
from hpctwin.formats.systems import read_system
from hpctwin.generate import generate
from hpctwin.metrics import INCENTIVES
from hpctwin.model import Category, Cluster, Workload
from hpctwin.model.usage import Usage
from hpctwin.sweep.incentives import Redeemed, from_its_first_job, redeem

__all__ = ["DAYS", "NAMES", "NODES", "machine", "run", "workload"]

NODES = 4392
DAYS = 28.0
NAMES = tuple(name for name in INCENTIVES if name != "budget")
_DAY_MS = 86_400_000


def workload(seed: int = 0) -> tuple[Workload, str]:
    """Four weeks of Theta's jobs with drawn use of nodes, and where the jobs are from.

    Args:
        seed: of what is drawn.
    """
    path = find_trace("Theta-2023-lumos.swf")
    rng = np.random.default_rng(seed)
    if path is not None:
        jobs, origin = read_workload(path), "Theta's jobs of 2023"
        jobs = jobs.replace(account=jobs.user)
    else:
        jobs = generate("theta-year", seed=seed)
        origin = (
            "a generated year of Theta (set HPCTWIN_TRACES to a folder with Theta-2023-lumos.swf)"
        )
        names = [f"account{number}" for number in range(46)]
        jobs = jobs.replace(account=Category.of(rng.choice(names, len(jobs))))
    begin_ms = jobs.submit_ms[0] + 28 * _DAY_MS
    inside = (jobs.submit_ms >= begin_ms) & (jobs.submit_ms < begin_ms + DAYS * _DAY_MS)
    jobs = from_its_first_job(jobs.take(inside))
    used = rng.beta(2.0, 2.0, len(jobs.account.labels) + 1)
    jitter = rng.normal(0.0, 0.05, len(jobs))
    use = Usage.averages(np.clip(used[jobs.account.codes] + jitter, 0.0, 1.0))
    return jobs.replace(usage={"cpu": use, "gpu": use}), origin


def machine() -> Cluster:
    """As many of Frontier's nodes as Theta has nodes."""
    group = read_system("frontier").nodes[0]
    return Cluster(
        name="theta-of-frontiers", nodes=[group.model_copy(update={"count": NODES, "racks": None})]
    )


def run(
    jobs: Workload,
    names: Iterable[str] = NAMES,
    *,
    same: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Redeemed:
    """Collect in the first two weeks and redeem in the others; ``same`` as the paper did."""
    return redeem(jobs, machine(), names, same=same, progress=progress, log=True)
