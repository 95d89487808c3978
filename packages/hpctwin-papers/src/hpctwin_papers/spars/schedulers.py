"""SPARS's six schedulers with node power states on the NASA workload, and its results.

Source: Amrizal et al., SoftwareX 34, 102693, 2026.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Literal

import numpy as np

from hpctwin.energy import Energy
from hpctwin.errors import UnknownNameError
from hpctwin.formats import read_workload
from hpctwin.formats.spars_config import PUBLISHED
from hpctwin.model import Cluster, Workload
from hpctwin.policies import PowerPolicy
from hpctwin.simulation import simulate
from hpctwin_papers.spars.published import Cell, published
from hpctwin_papers.traces import need_trace

Rule = Literal["sound", "as-published"]

MACHINE = Cluster.uniform(
    128, active_w=190, sleep_w=9, off_s=1800, off_w=9, on_s=2700, on_w=190, name="nasa-128"
)
"""The cluster of the published runs."""

SCHEDULERS = {
    "fcfs-psus": ("fcfs", "none", "psus"),
    "easy-psus": ("fcfs", "easy", "psus"),
    "fcfs-auto": ("fcfs", "none", "psas-auto"),
    "easy-auto": ("fcfs", "easy", "psas-auto"),
    "fcfs-ipm": ("fcfs", "none", "psas-ipm"),
    "easy-ipm": ("fcfs", "easy", "psas-ipm"),
}
"""Ordering, backfill and kind of power policy of SPARS's six schedulers."""

BEST = "wfp-ipm"
"""Scheduler of hpctwin that beats all of them on the NASA workload."""
_KNOWN = {**SCHEDULERS, BEST: ("wfp", "easy", "psas-ipm")}

FAULTS = (
    ("easy-psus", "three-waiting"),
    ("easy-auto", "three-waiting"),
    ("fcfs-auto", "sleepers-first"),
    ("easy-auto", "sleepers-first"),
    ("fcfs-auto", "hides-switching-off"),
    ("easy-auto", "hides-switching-off"),
    ("easy-ipm", "lost-reservation"),
    ("easy-ipm", "stops-while-off"),
)
"""Schedulers with the published faults that are shown on them."""

_ROUND_S = tuple(60 * m for m in (5, 10, 15, 20, 30, 45)) + tuple(
    3600 * h for h in (1, 2, 3, 4, 6, 8, 12, 18, 24, 36, 48, 72, 96, 120)
)

TRACE = "NASA-iPSC-1993-3.1-cln.swf"


@cache
def workload() -> Workload:
    """Return the last fifth of the cleaned NASA iPSC/860 log, SPARS's ``nasa-20-back``.

    Jobs of length zero are excluded. Walltimes are the runtimes, because the log has none. The
    first job arrives at time zero.
    """
    log = read_workload(need_trace(TRACE))
    log = log.take(np.flatnonzero(log.runtime_ms > 0))
    last = log.take(np.arange(len(log) - len(log) // 5 - 1, len(log)))
    first_ms = int(last.submit_ms[0])
    return last.replace(
        submit_ms=last.submit_ms - first_ms,
        start_epoch_s=None if last.start_epoch_s is None else last.start_epoch_s + first_ms / 1000,
        name="nasa-20-back",
    )


@dataclass(frozen=True)
class Row:
    """One scheduler with one timeout.

    Args:
        scheduler: One of `SCHEDULERS`, or `BEST`.
        timeout_s: Idle time before switch-off, in seconds.
        total_energy_j, wasted_energy_j, mean_wait_s: Metrics of the run.
        rule: ``as-published`` or ``sound``.
        max_wait_s: Longest wait, in seconds.
        state_s: Node-seconds by state.
        run_s: Duration of the run, in seconds.
        published: Published result; None without one.
    """

    scheduler: str
    timeout_s: float
    total_energy_j: float
    wasted_energy_j: float
    mean_wait_s: float
    rule: str
    max_wait_s: float
    state_s: dict[str, float]
    run_s: float
    published: Cell | None

    def plain(self) -> dict[str, Any]:
        """Return the row in a form for JSON."""
        found = asdict(self)
        found["published"] = None if self.published is None else self.published._asdict()
        return found


def simulate_cell(
    jobs: Workload,
    scheduler: str,
    timeout_s: float | None,
    rule: Rule = "sound",
    fault: str | None = None,
    **options: Any,
) -> Energy:
    """Simulate the workload under one scheduler.

    Args:
        scheduler: One of `SCHEDULERS`, or `BEST`.
        timeout_s: Idle time before switch-off, in seconds; None for never.
        rule: ``sound`` or ``as-published``.
        fault: One of `hpctwin_papers.spars.faults` in addition to the sound rule; None for none.
        options: Further options of `Simulation`.
    """
    if scheduler not in _KNOWN:
        raise UnknownNameError("scheduler", scheduler, _KNOWN)
    order, backfill, kind = _KNOWN[scheduler]
    if rule == "as-published":
        kind = PUBLISHED.get(kind, kind)
    if fault is not None:
        from hpctwin_papers.spars.faults import FAULTY_BACKFILLS, FAULTY_POWERS

        if fault not in (*FAULTY_BACKFILLS, *FAULTY_POWERS):
            raise UnknownNameError("fault", fault, [*FAULTY_BACKFILLS, *FAULTY_POWERS])
        backfill, kind = FAULTY_BACKFILLS.get(fault, backfill), FAULTY_POWERS.get(fault, kind)
    power = PowerPolicy(kind, timeout_s)
    energy = simulate(jobs, MACHINE, order, backfill, power=power, **options).energy
    assert energy is not None
    return energy


def make_row(scheduler: str, timeout_s: float, rule: str, energy: Energy, run_s: float) -> Row:
    """Return the metrics of one run."""
    waits = energy.jobs["wait_s"].to_numpy()
    return Row(
        scheduler=scheduler,
        timeout_s=timeout_s,
        total_energy_j=energy.total_j,
        wasted_energy_j=energy.wasted_j,
        mean_wait_s=float(waits.mean()),
        rule=rule,
        max_wait_s=float(waits.max()),
        state_s=energy.state_s(),
        run_s=run_s,
        published=published(scheduler, timeout_s),
    )


def overestimated(jobs: Workload, *, factor: float = 5.0, seed: int = 0) -> Workload:
    """Return the jobs with typical walltimes of users: too long, and round.

    A walltime is drawn evenly between the runtime and ``factor`` times it (the f-model of Mu'alem
    and Feitelson, IEEE TPDS 12(6), 2001). It is then rounded up to the next of twenty round times,
    because users request few different ones (Tsafrir, Etsion, Feitelson, JSSPP 2005).

    Args:
        factor: Maximum overestimation factor, at least 1.
    """
    draw = np.random.default_rng(seed)
    asked_s = jobs.runtime_ms / 1000 * draw.uniform(1, factor, len(jobs))
    longest = max(_ROUND_S[-1], int(asked_s.max(initial=0)) + 1)
    choices = np.array((*_ROUND_S, longest))
    walltime_s = choices[np.searchsorted(choices, asked_s)]
    return jobs.replace(walltime_ms=walltime_s * 1000, name=f"{jobs.name}, walltimes overestimated")
