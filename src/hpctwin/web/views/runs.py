"""Views of a simulated run: read from its folder, and again after each change of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.errors import ConfigError, HpctwinError, UnknownNameError
from hpctwin.metrics import METRICS, binned
from hpctwin.report.columns import COLUMNS, NO_CURRENCY, format_metric, metric_name
from hpctwin.report.figures.gantt import pack
from hpctwin.report.pages.run import MANIFEST, VERSIONS, ReportedRun, read_run
from hpctwin.web.views.cluster_views import places
from hpctwin.web.views.job_list import Meaning, RunJobFilter, selected
from hpctwin.web.views.power_views import RATED
from hpctwin.web.views.timeline import RAN, RUNS, LaneNames, Timeline, Window
from hpctwin.web.views.views import (
    Clock,
    FigureView,
    LaneGroup,
    Line,
    LinesView,
    RunGroup,
    RunHead,
    RunJob,
    RunJobs,
    Shown,
    TimelineView,
    site_zone,
)
from hpctwin.web.views.visibility import EVERYTHING, Visibility

__all__ = ["RunSource"]

FIRST_JOBS = 500
"""Maximum number of jobs on the page of a user or a partition."""
_WIDE, _HIGH = 1600, 318
"""Size of the prepared picture: the page timeline's height, a usual screen's width."""


class RunSource:
    """Current state of a run.

    Args:
        folder: Folder written by ``hpctwin simulate --out``, finished or in progress.

    Raises:
        ConfigError: The folder is not a run's.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.version = 0
        self.fault: str | None = None
        self._read_at = 0
        self._now: _Moment
        self._read()

    def follow(self, stop: threading.Event, told: Callable[[], None], every_s: float) -> None:
        """Read the folder again after each change until `stop` is set.

        Args:
            stop: Event that ends the loop.
            told: Function called after each change.
            every_s: Time between two polls, in seconds.
        """
        while not stop.wait(every_s):
            before = self.version, self.fault
            try:
                if self._written_at() != self._read_at:
                    self._read()
                self.fault = None
            except HpctwinError as error:
                self.fault = str(error)
            if before != (self.version, self.fault):
                self.version += before[0] == self.version
                told()

    def not_ready(self) -> str | None:
        """Return why the run cannot be read; None if it can."""
        return self.fault

    def _written_at(self) -> int:
        path = self.folder / MANIFEST
        try:
            return path.stat().st_mtime_ns
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from error

    def _read(self) -> None:
        read_at = self._written_at()
        now = _Moment(read_run(self.folder), self.version + 1)
        # Computed now, so that the first viewer does not wait for it.
        _ = now.timeline_view
        self._now = now
        self._read_at = read_at
        self.version += 1

    def head(self, sees: Visibility = EVERYTHING) -> RunHead:
        """Return the run's settings and its state, the same for every visitor."""
        head = self._now.head
        trouble = () if self.fault is None else (self.fault,)
        return head.model_copy(update={"version": self.version, "trouble": trouble})

    def shown(self, name: str, sees: Visibility = EVERYTHING) -> Shown:
        """Return the run's entry in the list of pages."""
        head = self.head(sees)
        told = {one.key: one for one in head.figures}
        figures = tuple(told[column.key] for column in COLUMNS if column.key in told)
        policy = FigureView(key="policy", name="policy", text=head.policy)
        title = f"{name}: {head.workload} on {head.cluster}, {head.policy}"
        return Shown(
            name=name, kind="run", title=title, trouble=head.trouble, figures=(policy, *figures)
        )

    def timeline(self) -> Timeline:
        """Return jobs on nodes; on artificial rows if nodes were only counted."""
        return self._now.timeline

    def timeline_view(self) -> TimelineView:
        """Return the range of the timeline."""
        return self._now.timeline_view

    def lines(self, bins: int) -> LinesView:
        """Return queue, cluster and power over time."""
        return self._now.lines(bins)

    def jobs(self, asked: RunJobFilter, sees: Visibility = EVERYTHING) -> RunJobs:
        """Return a page of the jobs that match a filter.

        Args:
            asked: Filters, order and page.
            sees: Names that the visitor may see; hidden names are not found.
        """
        return self._now.find(asked, sees)

    def job(self, job_id: str, sees: Visibility = EVERYTHING) -> RunJob:
        """Return one job.

        Raises:
            UnknownNameError: There is no such job.
        """
        found = self._now.jobs.filter(pl.col("job_id").cast(pl.String) == job_id).head(1)
        if not len(found):
            raise UnknownNameError("job", job_id, [])
        return self._now.views(found, sees)[0]

    def group(self, column: str, name: str, sees: Visibility = EVERYTHING) -> RunGroup:
        """Return the jobs of a user or a partition.

        Raises:
            UnknownNameError: The run has no job of it, or the user is hidden.
        """
        if column == "user":
            sees.check(name)
        now = self._now
        found = now.jobs.filter(pl.col(column) == name)
        if not len(found):
            raise UnknownNameError(column, name, [])
        waits = found["wait_s"].drop_nulls()
        return RunGroup(
            name=name,
            found=len(found),
            states=dict(found.group_by("state").len().sort("state").iter_rows()),
            mean_wait_s=waits.mean() if len(waits) else None,
            max_wait_s=waits.max() if len(waits) else None,
            shown=tuple(now.views(found.head(FIRST_JOBS), sees)),
        )


class _Moment:
    """A run as read at one time; derived data are computed once."""

    def __init__(self, run: ReportedRun, version: int) -> None:
        assert run.cluster is not None
        self.run, self.version, self.cluster = run, version, run.cluster
        self.placed = run.lanes is not None
        start_epoch_s = run.manifest.get("start_epoch_s")
        self.offset_s = float(start_epoch_s or 0.0)
        self.clock = Clock(unix_time=start_epoch_s is not None, zone=site_zone())
        self.now_s: float | None = run.manifest.get("now_s")
        self.jobs = run.jobs
        if self.now_s is not None:
            self.jobs = self.jobs.filter(pl.col("submit_s") <= self.now_s)
        self.series = run.series
        if self.now_s is not None:
            self.series = _until(self.series, self.now_s)

    @property
    def span_s(self) -> tuple[float, float]:
        times = self.series["time_s"]
        if not len(times):
            return self.offset_s, self.offset_s + 1.0
        first, last = float(times[0]), float(times[-1])
        return self.offset_s + first, self.offset_s + max(last, first + 1e-3)

    @cached_property
    def head(self) -> RunHead:
        manifest, (first, last) = self.run.manifest, self.span_s
        figures = [
            FigureView(
                key=key,
                name=metric_name(key),
                text=format_metric(key, value),
                value=value,
                better=METRICS[key].better if key in METRICS else None,
            )
            for key, value in self.run.summary.items()
            if value is not None and not isinstance(value, str | bool)
        ]
        return RunHead(
            version=self.version,
            workload=manifest["workload"],
            cluster=self.cluster.name,
            policy=manifest["policy"],
            nodes=self.cluster.node_count,
            jobs=len(self.run.jobs),
            finished=self.now_s is None,
            clock=self.clock,
            from_s=first,
            to_s=last,
            trouble=(),
            figures=tuple(figures),
            command=manifest.get("command", ""),
            versions={name: manifest[name] for name in VERSIONS if name in manifest},
            inputs=manifest.get("inputs", {}),
        )

    @cached_property
    def groups(self) -> tuple[LaneGroup, ...]:
        of = self.run.of
        return tuple(
            LaneGroup(
                name=group.name,
                nodes=group.count,
                lanes=1 if of == "node" else max(1, round(group.cores or 0)),
            )
            for group in self.cluster.nodes
        )

    @cached_property
    def timeline(self) -> Timeline:
        last = self.span_s[1] - self.offset_s
        boxes = self.run.lanes
        if boxes is None:
            ran = self.jobs.filter(pl.col("start_s").is_not_null())
            boxes = pack(ran.select("job_id", "start_s", pl.col("end_s").fill_null(last), "nodes"))
        boxes = boxes.filter(pl.col("start_s").is_not_null() & (pl.col("start_s") >= 0))
        end = boxes["end_s"].cast(pl.Float64)
        # A job that has not ended has no end, an end before its start, or a future end.
        open_ = (end.is_null() | (end < boxes["start_s"])).to_numpy()
        if self.now_s is not None:
            open_ |= (end > self.now_s).fill_null(value=False).to_numpy()
        ids = boxes.select("job_id")

        def about(by: Meaning) -> pl.Series:
            column = {"wait": "wait_s", "size": "nodes"}.get(by, by)
            if column not in self.jobs.columns:
                return pl.Series([None] * len(ids))
            known = self.jobs.select("job_id", pl.col(column).alias("told"))
            return ids.join(known, on="job_id", how="left", maintain_order="left")["told"]

        return Timeline(
            job=_ids(boxes["job_id"]),
            start_s=boxes["start_s"].to_numpy() + self.offset_s,
            end_s=np.where(open_, last, end.fill_null(last).to_numpy()) + self.offset_s,
            first=boxes["first_node"].to_numpy().astype(np.int64),
            count=boxes["count"].to_numpy().astype(np.int64),
            kind=np.where(open_, RUNS, RAN).astype(np.uint8),
            lanes=self.run.lane_count or 1,
            about=about,
            names=self.names if self.placed else None,
        )

    @property
    def names(self) -> LaneNames:
        """Names of the lanes."""
        each = np.repeat(
            [group.lanes for group in self.groups], [group.nodes for group in self.groups]
        )
        of = [group.name for group in self.groups for _ in range(group.nodes)]
        names = [f"{group} {node}" for node, group in enumerate(of)]
        return LaneNames(names, places(self.cluster), each)

    @cached_property
    def timeline_view(self) -> TimelineView:
        first, last = self.span_s
        lanes = self.run.lane_count or 1
        size = _WIDE, min(_HIGH, lanes)
        return TimelineView(
            version=self.version,
            of="node" if self.run.of == "node" else "core",
            lanes=lanes,
            made=size if self.timeline.prepare(Window(first, last, 0, lanes, *size)) else None,
            groups=self.groups,
            clock=self.clock,
            from_s=first,
            to_s=last,
            now_s=None if self.now_s is None else self.now_s + self.offset_s,
            placed=self.placed,
        )

    def lines(self, bins: int) -> LinesView:
        first, last = self.span_s
        edges = np.linspace(first, last, bins + 1)
        if not len(self.series):
            return LinesView(edges_s=tuple(edges.tolist()), lines=())
        unit = "core" if self.run.of == "core" else "node"
        up = float(self.series[f"up_{unit}s"].max())  # type: ignore[arg-type]
        rows = [
            (self.series, f"used_{unit}s", f"{unit}s in use", f"{unit}s", up),
            (self.series, "queue_length", "waiting jobs", "jobs", None),
            (self.series, f"queued_{unit}s", f"requested {unit}s", f"{unit}s", None),
        ]
        if self.run.power is not None:
            rows.append((self.run.power, "total_w", "power drawn", "W", None))
        if self.run.cooling is not None:
            rows.append((self.run.cooling, "pue", "power usage effectiveness (PUE)", "", None))
        if self.run.costs is not None:
            for column in self.run.costs.columns[1:]:
                what, unit, *_ = column.split("_")
                unit = unit if what == "carbon" else unit.upper().replace("CURRENCY", NO_CURRENCY)
                rows.append((self.run.costs, column, RATED[what], f"{unit}/h", None))
        lines = []
        for table, column, name, of, most in rows:
            time_s = table["time_s"].to_numpy() + self.offset_s
            level = table[column].to_numpy().astype(np.float64)
            # A series known for a part of the time is 0 before it, and constant after it.
            time_s = np.concatenate([[first - 1.0], time_s, [max(last, time_s[-1]) + 1.0]])
            level = np.concatenate([[0.0], level, level[-1:]])
            mean, peak = binned(time_s, level, edges)
            least = float(column == "pue")
            lines.append(
                Line(name=name, unit=of, mean=tuple(mean), peak=tuple(peak), most=most, least=least)
            )
        return LinesView(edges_s=tuple(edges.tolist()), lines=tuple(lines))

    def find(self, asked: RunJobFilter, sees: Visibility) -> RunJobs:
        jobs = self.jobs.with_columns(id="job_id")
        if not sees.names:
            own = (pl.col("user") == sees.user) & (pl.col("user") != "")
            names = pl.col("user", "account")
            jobs = jobs.with_columns(pl.when(own).then(names).otherwise(pl.lit("")))
        found, page = selected(jobs, asked)
        return RunJobs(version=self.version, found=found, shown=tuple(self.views(page, sees)))

    def views(self, found: pl.DataFrame, sees: Visibility) -> list[RunJob]:
        at = [pl.col(name) + self.offset_s for name in ("submit_s", "start_s", "end_s")]
        rows = found.with_columns(at).iter_rows(named=True)
        names = [name for name in RunJob.model_fields if name != "id"]
        views = (
            RunJob(id=str(row["job_id"]), **{name: row[name] for name in names}) for row in rows
        )
        return [sees.of(view, view.user) for view in views]


def _until(series: pl.DataFrame, now_s: float) -> pl.DataFrame:
    """Return a series up to now."""
    if not len(series):
        return series
    inside = series.filter(pl.col("time_s") <= now_s)
    last = inside[-1:] if len(inside) else series[:1]
    return pl.concat([inside, last.with_columns(time_s=pl.lit(now_s, pl.Float64))])


def _ids(jobs: pl.Series) -> npt.NDArray[Any]:
    if jobs.dtype.is_integer():
        return jobs.to_numpy()
    return np.array(jobs.cast(pl.String).to_list(), "S")
