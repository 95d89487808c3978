"""What the engine's simulation with power states gave, in the words of the plain reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hpctwin import Simulation, Workload
from hpctwin.energy import Energy
from hpctwin.energy.power.states import group_of_node
from hpctwin.model import Cluster
from hpctwin.policies import PowerPolicy
from tests.energy.powered import joined, powered_simulation
from tests.reference.nodes import AWAKE, SLEEPING, SWITCHING_OFF, SWITCHING_ON, Span
from tests.reference.powered import PoweredResult

KINDS = (SWITCHING_OFF, SLEEPING, SWITCHING_ON)


def powered(
    workload: Workload,
    platform: Cluster,
    power: PowerPolicy,
    cluster: Cluster | None = None,
    **options: Any,
) -> Simulation:
    """The engine's simulation at its beginning."""
    machine = joined(platform, cluster)
    return powered_simulation(workload, machine, power=power, log=True, **options)


def outcome(energy: Energy) -> dict[str, Any]:
    """Of jobs by id, of nodes by number."""
    states = state_of_row(energy)
    nodes: list[list[Span]] = [[] for _ in range(energy.cluster.node_count)]
    groups = list(group_of_node(energy.cluster))
    for node, row, start, end in sorted(energy.spans().T.tolist()):
        state, which = states[row]
        if which == "":
            which = groups[node].mode or next(iter(groups[node].modes))
        nodes[node].append(Span(start, end, state, which))
    where: dict[int, set[int]] = {}
    columns = ("job_id", "start_s", "first_node", "count")
    starts = dict(energy.jobs.select("job_id", "start_s").rows())
    for job, start, first, count in energy.node_map.select(*columns).unique().rows():
        # Not an attempt that was cut off; a job suspended as it began has only rows of later runs.
        if starts[job] is not None and start >= starts[job]:
            where.setdefault(job, set()).update(range(first, first + count))
    jobs = {
        row["job_id"]: (
            row["state"],
            ms(row["eligible_s"]),
            ms(row["start_s"]),
            ms(row["end_s"]),
            sorted(where.get(row["job_id"], [])),
        )
        for row in energy.jobs.iter_rows(named=True)
    }
    return {
        "jobs": jobs,
        "nodes": [merged(sorted(spans, key=lambda one: one.start)) for spans in nodes],
        "node_j": energy.node_j.sum(axis=0).tolist(),
        "job_j": dict(energy.jobs.select("job_id", "energy_j").rows()),
    }


def reference_outcome(workload: Workload, result: PoweredResult) -> dict[str, Any]:
    ids = workload.job_id.tolist()
    return {
        "jobs": {
            ids[job.row]: (
                job.state.name.lower(),
                none(job.eligible_ms),
                none(job.start_ms),
                none(job.end_ms),
                list(job.nodes),
            )
            for job in result.jobs
        },
        "nodes": [merged(spans) for spans in result.nodes],
        "node_j": [sum(energies.values()) for energies in result.node_j],
        "job_j": {
            ids[job.row]: joules for job, joules in zip(result.jobs, result.job_j, strict=True)
        },
    }


def state_of_row(energy: Energy) -> list[tuple[str, str | int]]:
    """State, and mode or depth, of each row of the engine's table; mode "" for that at the beginning."""
    found: list[tuple[str, str | int]] = [(state, "") for state in AWAKE]
    for depth in range(energy.cluster.depths):
        found += [(kind, depth) for kind in KINDS]
    for name in energy.states[len(found) :]:
        state, _, mode = name.partition(":")
        found.append((state, mode))
    return found


def merged(spans: Sequence[Span]) -> list[Span]:
    """Spans of one state that touch made one."""
    found: list[Span] = []
    for span in spans:
        last = found[-1] if found else None
        if last and (last.end, last.state, last.which) == (span.start, span.state, span.which):
            found[-1] = Span(last.start, span.end, span.state, span.which)
        else:
            found.append(span)
    return found


def ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(1000 * seconds)


def none(time: int) -> int | None:
    return None if time < 0 else time
