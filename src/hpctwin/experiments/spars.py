"""SPARS: six schedulers with node power states on the NASA workload, beside the published figures.

Source: Amrizal et al., SoftwareX 34, 102693, 2026.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hpctwin.energy import Energy, Platform, PoweredSimulation, PowerPolicy
from hpctwin.energy.power import Rule
from hpctwin.errors import UnknownNameError, WorkloadError
from hpctwin.experiments.spars_published import TIMEOUTS_S, Cell, published
from hpctwin.experiments.traces import find_trace
from hpctwin.formats import read_workload
from hpctwin.model import Workload

__all__ = ["PLATFORM", "SCHEDULERS", "Row", "run", "simulate_cell", "workload"]

PLATFORM = Platform.uniform(
    128, active_w=190, sleep_w=9, off_s=1800, off_w=9, on_s=2700, on_w=190, name="nasa-128"
)
"""The platform of the published runs."""

SCHEDULERS = {
    "fcfs-psus": ("none", "psus"),
    "easy-psus": ("easy", "psus"),
    "fcfs-auto": ("none", "psas-auto"),
    "easy-auto": ("easy", "psas-auto"),
    "fcfs-ipm": ("none", "psas-ipm"),
    "easy-ipm": ("easy", "psas-ipm"),
}
"""Backfill and kind of power policy of each scheduler."""

_TRACE = "NASA-iPSC-1993-3.1-cln.swf"


def workload() -> Workload:
    """The last fifth of the cleaned NASA iPSC/860 log, as SPARS has it (``nasa-20-back``).

    Jobs without length are left out; walltimes are the runtimes, as the log has none; the first job
    comes at time zero.

    Raises:
        WorkloadError: the log is not in the trace folder.
    """
    path = find_trace(_TRACE)
    if path is None:
        raise WorkloadError(
            f"SPARS's experiment needs the log {_TRACE} of the Parallel Workloads Archive: put it into "
            "the folder that HPCTWIN_TRACES names"
        )
    log = read_workload(path)
    log = log.take(np.flatnonzero(log.runtime_ms > 0))
    last = log.take(np.arange(len(log) - len(log) // 5 - 1, len(log)))
    return last.replace(submit_ms=last.submit_ms - last.submit_ms[0], name="nasa-20-back")


@dataclass(frozen=True)
class Row:
    """One scheduler with one timeout.

    Args:
        scheduler: one of `SCHEDULERS`, or another policy's name.
        timeout_s: idle so long, a node is switched off.
        total_energy_j, wasted_energy_j, mean_wait_s: of the run.
        rule: ``as-published`` or ``sound``.
        max_wait_s: the longest wait.
        state_s: node-seconds by state.
        run_s: time the run took.
        published: what SPARS's authors published for the cell.
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
        """As JSON can hold it."""
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
        jobs: the workload.
        scheduler: one of `SCHEDULERS`.
        timeout_s: idle so long, a node is switched off; None for never.
        rule: ``sound`` or ``as-published``.
        fault: one of `hpctwin.energy.power.FAULTS` on top of the sound rule.
        options: further ones of `PoweredSimulation`.

    Raises:
        UnknownNameError: there is no such scheduler.
    """
    if scheduler not in SCHEDULERS:
        raise UnknownNameError("scheduler", scheduler, SCHEDULERS)
    backfill, kind = SCHEDULERS[scheduler]
    power = PowerPolicy(kind, timeout_s, rule=rule, fault=fault)
    simulation = PoweredSimulation(jobs, PLATFORM, "fcfs", backfill, power=power, **options)
    simulation.run()
    return simulation.energy()


def run(
    jobs: Workload,
    *,
    schedulers: Sequence[str] = tuple(SCHEDULERS),
    timeouts_s: Sequence[float] = TIMEOUTS_S,
    progress: Callable[[float], None] | None = None,
) -> Iterator[Row]:
    """All cells; the FCFS forms by the published rule too, which is sound for them.

    Args:
        jobs: the workload.
        schedulers: some of `SCHEDULERS`.
        timeouts_s: seconds.
        progress: called with the share done.
    """
    cells: list[tuple[str, Rule, float]] = [
        (scheduler, rule, timeout_s)
        for scheduler in schedulers
        for rule in (("as-published", "sound") if scheduler.startswith("fcfs") else ("sound",))
        for timeout_s in timeouts_s
    ]
    for number, (scheduler, rule, timeout_s) in enumerate(cells):
        begin = time.perf_counter()
        energy = simulate_cell(jobs, scheduler, timeout_s, rule)
        yield make_row(scheduler, timeout_s, rule, energy, time.perf_counter() - begin)
        if progress is not None:
            progress((number + 1) / len(cells))


def make_row(scheduler: str, timeout_s: float, rule: str, energy: Energy, run_s: float) -> Row:
    """The figures of one run."""
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
