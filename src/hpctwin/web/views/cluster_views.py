"""Views of a cluster: its jobs, its nodes, the bars of its Gantt chart, decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from hpctwin.metrics import binned
from hpctwin.model import Cluster, format_duration
from hpctwin.model.text import compact, parse_nodes
from hpctwin.rms.node_capacity import Room
from hpctwin.rms.records.records import JobRecord, JobSpec
from hpctwin.twin.forecast.forecaster import Forecast
from hpctwin.twin.journal.history import MOST_PARTITIONS, OTHERS
from hpctwin.twin.journal.restore import Standing
from hpctwin.twin.words import asked_text
from hpctwin.web.views.job_history import FloatArray, Stretch, ends_s, lanes_of, rows_of
from hpctwin.web.views.job_list import Meaning
from hpctwin.web.views.timeline import KINDS, LaneNames, Timeline
from hpctwin.web.views.views import Bar, CandidateView, DecisionView, JobView, Line, NodeView
from hpctwin.web.views.visibility import EVERYTHING, Visibility

__all__ = [
    "bars",
    "decision_view",
    "held_line",
    "job_view",
    "job_views",
    "jobs_by_partition",
    "node_views",
    "nodes_by_state",
    "places",
    "queue_by_reason",
    "reason_kind",
    "timeline",
]


def job_views(
    stands: Standing,
    starts_s: Mapping[str, float] | None = None,
    sees: Visibility = EVERYTHING,
) -> list[JobView]:
    """Return pending jobs by forecast start, then running jobs.

    Args:
        stands: State of the cluster.
        starts_s: Scheduled starts of pending jobs, by id, used for jobs without a forecast.
        sees: Names that the visitor may see.
    """
    fits, jobs = stands.core.fits_now(), stands.core.mirror.jobs.values()
    views = [job_view(job, stands, fits, starts_s or {}, sees) for job in jobs]
    last = float("inf")
    return sorted(
        views,
        key=lambda one: (
            one.state == "running",
            last if one.start_s is None else one.start_s,
            one.submit_s,
        ),
    )


def job_view(
    job: JobRecord,
    stands: Standing,
    fits: Callable[[JobSpec], bool],
    starts_s: Mapping[str, float],
    sees: Visibility = EVERYTHING,
) -> JobView:
    """Return the view of a pending or running job; see `job_views`."""
    spec = job.spec
    said: Forecast | None = stands.forecasts.get(spec.id) if job.start_s is None else None
    start_s = job.start_s
    if start_s is None:
        start_s = starts_s.get(spec.id) if said is None else said.start_s
    view = JobView(
        id=spec.id,
        user=spec.user,
        account=spec.account,
        partition=spec.partition,
        qos=spec.qos,
        nodes=spec.nodes,
        walltime_s=spec.walltime_s,
        submit_s=spec.submit_s,
        wait_s=max(0.0, (stands.now_s if job.start_s is None else job.start_s) - spec.submit_s),
        state="waiting" if job.start_s is None else "running",
        start_s=start_s,
        end_s=None if start_s is None else ends_s(job, start_s),
        low_s=None if said is None else said.low_s,
        high_s=None if said is None else said.high_s,
        calibrated=said is not None and said.calibrated,
        why="" if job.start_s is not None else _why(job, stands, fits, sees),
        reason="" if job.start_s is not None else reason_kind(spec),
        node_list=compact(job.node_names),
    )
    return sees.of(view, spec.user)


def reason_kind(spec: JobSpec) -> str:
    """Return the kind of a pending job's reason: ``hold``, one of `REASONS`, or ``turn``."""
    return "hold" if spec.held else spec.reason.partition(":")[0] or "turn"


def _why(
    job: JobRecord, stands: Standing, fits: Callable[[JobSpec], bool], sees: Visibility
) -> str:
    """Return in a few words why a job does not start now."""
    spec, now_s = job.spec, stands.now_s
    if spec.held:
        return "held"
    if spec.reason:
        return sees.reason(spec.reason, spec.user)
    if spec.dependencies:
        others = ", ".join(edge.on for edge in spec.dependencies[:2])
        return f"waits for {others}" + (" …" if len(spec.dependencies) > 2 else "")
    if spec.not_before_s is not None and spec.not_before_s > now_s:
        return (
            f"submitted to start after another {format_duration(round(spec.not_before_s - now_s))}"
        )
    if not fits(spec):
        free = "" if spec.tasks else f", {stands.core.free_nodes()} free"
        return f"needs {asked_text(spec)}{free}"
    said = stands.forecasts.get(spec.id)
    if said is not None and said.start_s is not None and said.start_s <= now_s:
        approved = stands.status.get("mode") == "approve"
        return "its start needs an approval" if approved else "starts now"
    return "nodes are reserved for earlier jobs"


def node_views(stands: Standing) -> list[NodeView]:
    """Return all nodes by number."""
    mirror = stands.core.mirror
    nodes = list(mirror.nodes.values())
    on: list[list[JobRecord]] = [[] for _ in nodes]
    number = {node.name: i for i, node in enumerate(nodes)}
    jobs = [job for job in mirror.jobs.values() if job.start_s is not None]
    for job in jobs:
        for name in job.node_names:
            on[number[name]].append(job)
    room = Room.of(mirror.machine, [node.state for node in nodes], jobs, number)
    known = np.isfinite(room.whole) & (room.whole > 0)
    held = 1 - np.divide(room.free, room.whole, out=np.ones_like(room.free), where=known)
    held[room.alone] = 1.0
    return [
        NodeView(
            name=node.name,
            place=place,
            state=node.state,
            power="" if node.power is None else node.power.state.replace("_", " "),
            jobs=tuple(job.spec.id for job in here),
            until_s=max((ends_s(job, job.start_s or 0.0) for job in here), default=None),
            load={
                name: round(min(1.0, max(0.0, share)), 4)
                for name, share, told in zip(room.names, shares, tells, strict=True)
                if told
            },
        )
        for node, place, here, shares, tells in zip(
            nodes, places(mirror.machine), on, held.tolist(), known.tolist(), strict=True
        )
    ]


def places(machine: Cluster) -> list[str]:
    """Return each node's place: its switch if described, else its rack, else its group."""
    if machine.switches:
        at = {
            node: switch.name
            for switch in machine.switches
            if switch.nodes is not None
            for node in parse_nodes(switch.nodes, machine.node_count)
        }
        return [at[node] for node in range(machine.node_count)]
    found: list[str] = []
    for group in machine.nodes:
        if group.racks is None:
            found += [group.name] * group.count
            continue
        racks = group.racks
        there = sorted(set(range(racks.cdus * racks.racks_per_cdu)) - set(racks.missing))
        each = racks.chassis_per_rack * racks.nodes_per_chassis
        found += [f"{group.name}, rack {there[node // each]}" for node in range(group.count)]
    return found


def nodes_by_state(stands: Standing) -> dict[str, int]:
    """Return the numbers of free, busy, drained (with or without a job) and down nodes."""
    found = {"free": 0, "busy": 0, "drained": 0, "down": 0}
    mirror = stands.core.mirror
    used = {name for job in mirror.jobs.values() for name in job.node_names}
    for name, node in mirror.nodes.items():
        what = node.state if node.state != "up" else "busy" if name in used else "free"
        found[what] += 1
    return found


def jobs_by_partition(stands: Standing) -> dict[tuple[str, str], int]:
    """Return the numbers of jobs by partition and state; small partitions are one."""
    found: Counter[tuple[str, str]] = Counter()
    for job in stands.core.mirror.jobs.values():
        found[job.spec.partition, "waiting" if job.start_s is None else "running"] += 1
    sizes: Counter[str] = Counter()
    for (name, _), number in found.items():
        sizes[name] += number
    named = {name for name, _ in sizes.most_common(MOST_PARTITIONS)}
    joined: Counter[tuple[str, str]] = Counter()
    for (name, state), number in sorted(found.items()):
        joined[name if name in named else OTHERS, state] += number
    return dict(joined)


def queue_by_reason(stands: Standing) -> dict[str, int]:
    """Return the numbers of pending jobs by reason."""
    found: dict[str, int] = {}
    for job in stands.core.mirror.jobs.values():
        if job.start_s is None:
            reason = reason_kind(job.spec)
            found[reason] = found.get(reason, 0) + 1
    return found


Forecasts = Mapping[str, Forecast]


def bars(
    machine: Cluster, stretches: Sequence[Stretch], forecasts: Forecasts | None = None
) -> list[Bar]:
    """Return jobs on nodes as bars on the lanes of a Gantt chart.

    Args:
        machine: Nodes of the cluster.
        stretches: Jobs on nodes.
        forecasts: Forecasts of pending jobs, whose intervals the bars have.
    """
    told = [_interval(one, forecasts or {}) for one in stretches]
    return [
        Bar(
            job=one.job,
            kind=one.kind,
            start_s=one.start_s,
            end_s=one.end_s,
            rows=rows,
            low_s=low_s,
            high_s=high_s,
        )
        for one, rows, (low_s, high_s) in zip(
            stretches, rows_of(machine, stretches), told, strict=True
        )
    ]


def _interval(one: Stretch, forecasts: Forecasts) -> tuple[float | None, float | None]:
    found = forecasts.get(one.job) if one.kind == "forecast" else None
    return (None, None) if found is None else (found.low_s, found.high_s)


def held_line(machine: Cluster, stretches: Sequence[Stretch], edges_s: FloatArray) -> Line:
    """Return nodes in use over time; cores if jobs hold parts of nodes."""
    shared = any(one.amounts is not None for one in stretches)
    lanes = np.repeat(lanes_of(machine, stretches), [group.count for group in machine.nodes])
    held = [
        lanes[one.nodes].sum() if one.amounts is None else one.amounts[:, 0].sum()
        for one in stretches
    ]
    span = np.clip([(one.start_s, one.end_s) for one in stretches], edges_s[0], edges_s[-1])
    times = np.concatenate([edges_s[:1], *span.reshape(-1, 2).T, edges_s[-1:]])
    change = np.concatenate([[0.0], held, np.negative(held), [0.0]])
    order = np.argsort(times, kind="stable")
    # Until the next forecast, a future job may overlap a job that runs up to its limit.
    level = np.minimum(np.cumsum(change[order]), lanes.sum())
    mean, peak = binned(times[order], level, edges_s)
    unit = "cores" if shared else "nodes"
    return Line(
        name=f"{unit} in use",
        unit=unit,
        mean=tuple(mean),
        peak=tuple(peak),
        most=float(lanes.sum()),
    )


def timeline(
    bars: Sequence[Bar], stretches: Sequence[Stretch], names: LaneNames, lanes: int
) -> Timeline:
    """Return bars as a browser draws them."""
    row = np.repeat(np.arange(len(bars)), [len(bar.rows) for bar in bars])
    places = np.array([place for bar in bars for place in bar.rows], np.int64).reshape(-1, 2)
    within_s = np.array([(bar.low_s, bar.high_s) for bar in bars], np.float64).reshape(-1, 2)

    def about(by: Meaning) -> pl.Series:
        return pl.Series([_told_of(one, by) for one in stretches], strict=False)[row]

    return Timeline(
        job=np.array([bar.job for bar in bars], "S")[row],
        start_s=np.array([bar.start_s for bar in bars], np.float64)[row],
        end_s=np.array([bar.end_s for bar in bars], np.float64)[row],
        first=places[:, 0],
        count=places[:, 1],
        kind=np.array([KINDS.index(bar.kind) for bar in bars], np.uint8)[row],
        lanes=lanes,
        about=about,
        names=names,
        within_s=within_s[row].T,
    )


def _told_of(one: Stretch, by: Meaning) -> str | float | None:
    if by == "state" or one.spec is None:
        return one.state if by == "state" else None
    if by == "wait":
        return one.start_s - one.spec.submit_s
    return one.spec.nodes if by == "size" else str(getattr(one.spec, by))


def decision_view(found: dict[str, Any]) -> DecisionView:
    """Return the view of a decision from `Journal.read_decision`."""
    candidates = tuple(
        CandidateView(
            policy=one.policy,
            score=one.score,
            metrics=one.metrics,
            starts=len(one.starts),
            never=one.never,
        )
        for one in found["candidates"]
    )
    named = {key: found[key] for key in DecisionView.model_fields if key in found}
    return DecisionView(**named | {"candidates": candidates}, took_s=found["took_ms"] / 1000)
