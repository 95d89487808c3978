"""The schedule of a cluster: one simulated future of its present jobs under a policy.

Running and pending jobs run for their walltimes, or for the runtimes that the twin predicts, and
no job is submitted later. The live timeline and what-if show the same schedule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hpctwin.model import MS_PER_S
from hpctwin.rms.records.records import JobSpec
from hpctwin.simulation import Simulation
from hpctwin.simulation.result.node_use import AMOUNTS
from hpctwin.twin.what_if.objective import METRICS
from hpctwin.twin.what_if.pool import Scene, StoppableRuns
from hpctwin.twin.what_if.present import Present
from hpctwin.twin.what_if.run import Past, course_of, outlooks_of
from hpctwin.web.views.job_history import Rows, Stretch, ends_s, placed

__all__ = ["Schedule", "schedule_of"]


@dataclass(frozen=True)
class Schedule:
    """Starts of the pending jobs, if each job runs as long as expected.

    Args:
        policy: Policy of the schedule.
        metrics: Metrics of the pending jobs, by name.
        never: Number of pending jobs that would never start.
        starts_s: Start of each other pending job, by id, in seconds; the first ones first.
        stretches: Running jobs up to their expected ends, then pending jobs.
    """

    policy: str
    metrics: Mapping[str, float]
    never: int
    starts_s: Mapping[str, float]
    stretches: Sequence[Stretch]


def schedule_of(now: Present, scene: Scene, runs: StoppableRuns | None = None) -> Schedule:
    """Run a present ahead until its queue is empty.

    Args:
        now: The present as a simulation.
        scene: The same present as records.
        runs: With which the simulation can be stopped.
    """
    simulation = now.fork()
    if runs is not None:
        runs.begin(simulation)
    simulation.advance()
    start, end = simulation.column("start"), simulation.column("end")
    (outlook,) = outlooks_of([course_of(now, simulation, Past.none(), None)])[0].each()
    metrics = {name: float(outlook.value(name)) for name in METRICS}
    rows = now.waiting[np.argsort(start[now.waiting], kind="stable")]
    started = rows[start[rows] >= 0]
    spans = {
        now.ids[row]: (float(start[row]) / MS_PER_S, float(end[row]) / MS_PER_S)
        for row in started.tolist()
    }
    number = {node.name: i for i, node in enumerate(scene.nodes)}
    until_s = {now.ids[row]: float(end[row]) / MS_PER_S for row in now.running.tolist()}
    running = [
        placed(job, max(scene.now_s, until_s.get(job.spec.id, ends_s(job, job.start_s))), number)
        for job in scene.jobs
        if job.start_s is not None
    ]
    specs = {job.spec.id: job.spec for job in scene.jobs}
    if simulation.workload.shares_nodes:
        pending = _in_parts(simulation, now, spans, specs)
    else:
        pending = _guessed(scene, running, spans, specs)
    return Schedule(
        policy=simulation.policy.name,
        metrics={name: value for name, value in metrics.items() if math.isfinite(value)},
        never=len(rows) - len(started),
        starts_s={job: span[0] for job, span in spans.items()},
        stretches=[*running, *pending],
    )


Spans = Mapping[str, tuple[float, float]]


def _guessed(
    scene: Scene, running: Sequence[Stretch], spans: Spans, specs: Mapping[str, JobSpec]
) -> list[Stretch]:
    """Return pending jobs on guessed nodes, because whole nodes are only counted."""
    free = {i: 0.0 for i, node in enumerate(scene.nodes) if node.state == "up"}
    for one in running:
        free.update({i: max(free[i], one.end_s) for i in one.nodes.tolist() if i in free})
    rows = Rows(free)
    return [
        Stretch(
            job, "forecast", *span, rows.place(*span, specs[job].nodes), None, specs[job], "pending"
        )
        for job, span in spans.items()
    ]


def _in_parts(
    simulation: Simulation, now: Present, spans: Spans, specs: Mapping[str, JobSpec]
) -> list[Stretch]:
    """Return pending jobs with the parts of nodes that the simulation gave them."""
    placements = simulation.result().placements
    assert placements is not None
    name = dict(zip(simulation.workload.job_id.tolist(), now.ids, strict=True))
    found = []
    for (number,), rows in placements.sort("node").group_by("job_id", maintain_order=True):
        job = name[number]
        if job in spans:
            nodes = rows["node"].to_numpy().astype(np.int64)
            amounts = rows.select(AMOUNTS).fill_null(0.0).to_numpy().astype(np.float64)
            found.append(
                Stretch(job, "forecast", *spans[job], nodes, amounts, specs[job], "pending")
            )
    return sorted(found, key=lambda one: one.start_s)
