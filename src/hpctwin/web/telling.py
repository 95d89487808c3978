"""How a cluster stands, put into views: its jobs, its nodes, the bars of its Gantt chart, decisions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hpctwin.model import format_duration
from hpctwin.rms.records import JobRecord, JobSpec
from hpctwin.twin.forecast import Forecast
from hpctwin.twin.standing import Standing
from hpctwin.twin.words import asked_text
from hpctwin.web.history import History
from hpctwin.web.rows import Rows, numbers_of, runs_of
from hpctwin.web.timeline import KINDS, Timeline
from hpctwin.web.views import Bar, CandidateView, DecisionView, JobView, NodeView

__all__ = ["PAST_S", "bars", "decision_view", "job_views", "node_views", "timeline"]

PAST_S = 86_400.0
"""So far back history goes."""


def _ends_s(job: JobRecord, start_s: float) -> float:
    return start_s + job.spec.walltime_s


def job_views(stands: Standing) -> list[JobView]:
    """Jobs that wait, by forecast start, then those that run."""
    fits = stands.core.fits_now()
    views = [_job_view(job, stands, fits) for job in stands.core.mirror.jobs.values()]
    last = float("inf")
    return sorted(
        views,
        key=lambda one: (
            one.state == "running",
            last if one.start_s is None else one.start_s,
            one.submit_s,
        ),
    )


def _job_view(job: JobRecord, stands: Standing, fits: Callable[[JobSpec], bool]) -> JobView:
    spec = job.spec
    said: Forecast | None = stands.forecasts.get(spec.id) if job.start_s is None else None
    start_s = job.start_s if job.start_s is not None else said and said.start_s
    return JobView(
        id=spec.id,
        user=spec.user,
        account=spec.account,
        partition=spec.partition,
        nodes=spec.nodes,
        walltime_s=spec.walltime_s,
        submit_s=spec.submit_s,
        state="waiting" if job.start_s is None else "running",
        start_s=start_s,
        end_s=None if start_s is None else _ends_s(job, start_s),
        low_s=None if said is None else said.low_s,
        high_s=None if said is None else said.high_s,
        calibrated=said is not None and said.calibrated,
        why="" if job.start_s is not None else _why(job, stands, fits),
    )


def _why(job: JobRecord, stands: Standing, fits: Callable[[JobSpec], bool]) -> str:
    """Why a job does not start now, in a few words."""
    spec, now_s = job.spec, stands.now_s
    if spec.held:
        return "held"
    if spec.reason:
        return spec.reason
    if spec.dependencies:
        others = ", ".join(edge.on for edge in spec.dependencies[:2])
        return f"waits for {others}" + (" …" if len(spec.dependencies) > 2 else "")
    if spec.not_before_s is not None and spec.not_before_s > now_s:
        return f"asked to wait another {format_duration(round(spec.not_before_s - now_s))}"
    if not fits(spec):
        free = "" if spec.tasks else f", {stands.core.free_nodes()} free"
        return f"needs {asked_text(spec)}{free}"
    return "nodes are kept for jobs before it"


def node_views(stands: Standing) -> list[NodeView]:
    """All nodes, in the order of their numbers."""
    mirror = stands.core.mirror
    on: dict[str, list[JobRecord]] = {}
    for job in mirror.jobs.values():
        for name in job.node_names:
            on.setdefault(name, []).append(job)
    groups = [group.name for group in mirror.machine.nodes for _ in range(group.count)]
    return [
        NodeView(
            name=node.name,
            group=group,
            state=node.state,
            jobs=tuple(job.spec.id for job in on.get(node.name, ())),
            until_s=max(
                (_ends_s(j, j.start_s or 0.0) for j in on.get(node.name, ())), default=None
            ),
        )
        for node, group in zip(mirror.nodes.values(), groups, strict=True)
    ]


def bars(stands: Standing, history: History) -> list[Bar]:
    """What ran within `PAST_S`, what runs up to its limit, and what is forecast, on which nodes."""
    mirror, now_s = stands.core.mirror, stands.now_s
    number = {name: i for i, name in enumerate(mirror.nodes)}
    bars = [
        Bar(
            job=one.job,
            kind="ran",
            start_s=one.start_s,
            end_s=one.end_s,
            rows=runs_of(numbers_of(one.node_names, number)),
        )
        for one in history.ran
        if one.end_s > now_s - PAST_S
    ]
    free = {i: 0.0 for i, node in enumerate(mirror.nodes.values()) if node.state == "up"}
    waiting = []
    for job in mirror.jobs.values():
        if job.start_s is None:
            said = stands.forecasts.get(job.spec.id)
            if said is not None and said.start_s is not None:
                waiting.append((max(said.start_s, now_s), job))
            continue
        here = numbers_of(job.node_names, number)
        ends_s = max(now_s, _ends_s(job, job.start_s))
        bars.append(
            Bar(
                job=job.spec.id,
                kind="runs",
                start_s=job.start_s,
                end_s=ends_s,
                rows=runs_of(here),
            )
        )
        free.update({i: max(free[i], ends_s) for i in here if i in free})
    rows = Rows(free)
    for start_s, job in sorted(waiting, key=lambda one: one[0]):
        end_s = _ends_s(job, start_s)
        where = rows.place(start_s, end_s, job.spec.nodes)
        bars.append(Bar(job=job.spec.id, kind="forecast", start_s=start_s, end_s=end_s, rows=where))
    return bars


def timeline(bars: list[Bar], lanes: int) -> Timeline:
    """Bars as a browser draws them."""
    boxes = [(bar, first, count) for bar in bars for first, count in bar.rows]
    return Timeline(
        job=np.array([bar.job for bar, _, _ in boxes], "S"),
        start_s=np.array([bar.start_s for bar, _, _ in boxes], np.float64),
        end_s=np.array([bar.end_s for bar, _, _ in boxes], np.float64),
        first=np.array([first for _, first, _ in boxes], np.int64),
        count=np.array([count for _, _, count in boxes], np.int64),
        kind=np.array([KINDS.index(bar.kind) for bar, _, _ in boxes], np.uint8),
        lanes=lanes,
    )


def decision_view(found: dict[str, Any]) -> DecisionView:
    """A decision as `Journal.read_decision` gives it."""
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
    named = {key: found[key] for key in DecisionView.model_fields if key != "candidates"}
    return DecisionView(**named, candidates=candidates)
