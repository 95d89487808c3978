"""From a simulation that was stopped to the records a resource manager would give of it."""

from __future__ import annotations

import numpy as np

from hpctwin import Simulation
from hpctwin.engine.state import layout
from hpctwin.model import MS_PER_S, DependencyKind
from hpctwin.rms.node_capacity import parts_of
from hpctwin.rms.records.records import (
    JobDependency,
    JobRecord,
    JobSpec,
    NodePart,
    NodeRecord,
    NodeReservation,
)
from hpctwin.simulation.lowering.shared_nodes import taken_by

EPOCH_S = 1_700_000_000.0
"""Where the records' time zero lies: real ones count from 1970."""


def node_name(number: int) -> str:
    return f"n{number:04}"


def records_of(
    simulation: Simulation,
) -> tuple[list[JobRecord], list[NodeRecord], list[NodeReservation], dict[str, float]]:
    """Jobs, nodes, reservations, and true runtimes by job id."""
    workload, sim = simulation.workload, simulation.state
    state, start = sim["state"]["phase"], sim["state"]["start"]
    edges = workload.dependencies
    jobs = []
    for row in np.flatnonzero(state <= layout.RUNNING):
        running = state[row] == layout.RUNNING
        depends = []
        for e in np.flatnonzero(edges.job == row):
            on = edges.on[e]
            if state[on] > layout.RUNNING and state[on] != layout.UNSUBMITTED:
                continue  # fulfilled, or the job would be dead
            depends.append(
                JobDependency(
                    on=str(workload.job_id[on]),
                    kind=DependencyKind(edges.kind[e]).name.lower(),
                    delay_s=edges.delay_ms[e] / MS_PER_S,
                )
            )
        spec = JobSpec(
            id=str(workload.job_id[row]),
            submit_s=EPOCH_S + workload.submit_ms[row] / MS_PER_S,
            nodes=int(workload.nodes[row]),
            walltime_s=workload.walltime_ms[row] / MS_PER_S,
            user=_label(workload.user, row),
            account=_label(workload.account, row),
            partition=_label(workload.partition, row),
            qos=_label(workload.qos, row),
            features=_label(workload.features, row),
            more_tasks=_label(workload.more_tasks, row),
            priority=float(workload.priority[row]),
            **{name: float(v[row]) for name, v in workload.per_node.items()},
            **{name: column[row].item() for name, column in workload.chunks.items()},
            resources={name: int(v[row]) for name, v in workload.resources.items()},
            dependencies=tuple(depends),
        )
        nodes = np.flatnonzero(sim["node"]["job"] == row).tolist() if running else []
        parts: tuple[NodePart, ...] = ()
        if workload.shares_nodes and running:
            taken = taken_by(sim, row)
            nodes, parts = [node for node, _ in taken], parts_of(spec, taken)
        jobs.append(
            JobRecord(
                spec=spec,
                start_s=EPOCH_S + start[row] / MS_PER_S if running else None,
                node_names=tuple(node_name(n) for n in nodes),
                parts=parts,
            )
        )
    down = sim["node"]["down"] > 0
    records = [
        NodeRecord(name=node_name(n), state="down" if down[n] else "up")
        for n in range(simulation.cluster.node_count)
    ]
    runtimes = {
        str(i): r / MS_PER_S
        for i, r in zip(workload.job_id, workload.runtime_ms.tolist(), strict=True)
    }
    return jobs, records, [], runtimes


def _label(category: object, row: int) -> str:
    code = category.codes[row]  # type: ignore[attr-defined]
    return category.labels[code] if code >= 0 else ""  # type: ignore[attr-defined]
