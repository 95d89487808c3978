"""Gantt chart: jobs on nodes over time.

If the nodes of jobs are unknown, jobs are stacked on artificial rows.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from hpctwin.report.figures.style import (
    PALETTE,
    NodeTicks,
    TimeScale,
    count_axis,
    empty_note,
    log_durations,
    new_figure,
    styled,
)

__all__ = ["pack", "plot_gantt"]


def pack(attempts: pl.DataFrame) -> pl.DataFrame:
    """Assign each attempt rows that are free from its start to its end.

    The rows are artificial: the lowest contiguous ones, or else several pieces. The number of rows
    is the maximum that attempts need at a time.

    Args:
        attempts: Columns ``job_id``, ``start_s``, ``end_s``, ``nodes``, without nulls.

    Returns:
        Segments: ``job_id``, ``start_s``, ``end_s``, ``first_node``, ``count``.
    """
    free = _FreeRows()
    ends: list[tuple[float, int]] = []
    taken: list[list[tuple[int, int]]] = []
    jobs: list[int] = []
    firsts: list[int] = []
    counts: list[int] = []
    ordered = attempts.sort("start_s", maintain_order=True)
    rows = ordered.select("start_s", "end_s", "nodes").iter_rows()
    for index, (start, end, nodes) in enumerate(rows):
        while ends and ends[0][0] <= start:
            for piece in taken[heapq.heappop(ends)[1]]:
                free.give_back(*piece)
        pieces = free.take(nodes)
        taken.append(pieces)
        heapq.heappush(ends, (end, index))
        for first, count in pieces:
            jobs.append(index)
            firsts.append(first)
            counts.append(count)
    return ordered[jobs].select("job_id", "start_s", "end_s").with_columns(
        first_node=pl.Series(firsts, dtype=pl.Int64), count=pl.Series(counts, dtype=pl.Int64)
    )  # fmt: skip


class _FreeRows:
    """Free rows as sorted pieces; all rows above the highest piece are free."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._counts: list[int] = []
        self._top = 0

    def take(self, nodes: int) -> list[tuple[int, int]]:
        for at, count in enumerate(self._counts):
            if count >= nodes:
                first = self._firsts[at]
                if count == nodes:
                    del self._firsts[at], self._counts[at]
                else:
                    self._firsts[at], self._counts[at] = first + nodes, count - nodes
                return [(first, nodes)]
        pieces = []
        used = 0
        while nodes and used < len(self._firsts):
            first, count = self._firsts[used], self._counts[used]
            part = min(nodes, count)
            pieces.append((first, part))
            nodes -= part
            if part < count:
                self._firsts[used], self._counts[used] = first + part, count - part
                break
            used += 1
        del self._firsts[:used], self._counts[:used]
        if nodes:
            if pieces and sum(pieces[-1]) == self._top:
                first, count = pieces.pop()
                pieces.append((first, count + nodes))
            else:
                pieces.append((self._top, nodes))
            self._top += nodes
        return pieces

    def give_back(self, first: int, count: int) -> None:
        at = bisect_left(self._firsts, first)
        if at < len(self._firsts) and first + count == self._firsts[at]:
            count += self._counts[at]
            del self._firsts[at], self._counts[at]
        if at and self._firsts[at - 1] + self._counts[at - 1] == first:
            self._counts[at - 1] += count
        else:
            self._firsts.insert(at, first)
            self._counts.insert(at, count)


FloatArray = npt.NDArray[np.float64]

_OUTLINED = 1500
"""Maximum number of pieces that have outlines and are drawn as vectors."""

_NAMED = 60
"""Maximum number of pieces that are labeled with their job."""

_WAITS_S = (10.0, 7 * 86400.0)
"""Ends of the color scale of waits; always the same, so that figures are comparable."""


@styled
def plot_gantt(
    jobs: pl.DataFrame,
    node_map: pl.DataFrame | None = None,
    *,
    lost: pl.DataFrame | None = None,
    nodes: int | None = None,
    of: str = "node",
    ticks: NodeTicks | None = None,
    title: str | None = None,
    color_by: Literal["job", "wait"] = "job",
    start_s: float | None = None,
    end_s: float | None = None,
    start_epoch_s: float | None = None,
) -> Figure:
    """Draw each job as rectangles over its time and its nodes.

    Args:
        jobs: Jobs of a result. Running jobs are drawn up to the end of the window.
        node_map: Nodes of jobs: ``job_id``, ``start_s``, ``end_s``, ``first_node``, ``count``, a
            row for each range of contiguous nodes. If omitted, jobs are stacked on artificial rows.
        lost: Attempts that a node failure ended; drawn hatched.
        nodes: Number of nodes of the cluster, for the height of the chart.
        of: Unit of ``node_map``'s numbers, for the axis: nodes, or cores through all nodes.
        ticks: Names of nodes along the axis; default numbers.
        title: Title of the figure.
        color_by: ``job`` distinguishes adjacent jobs; ``wait`` shows the jobs' waits.
        start_s: Beginning of the window, in seconds; default the first start.
        end_s: End of the window, in seconds; default the last end.
        start_epoch_s: Unix time of time zero, to show dates.

    Returns:
        The figure.
    """
    attempts = _attempts(jobs, lost)
    start, end = _window(attempts, start_s, end_s)
    attempts = attempts.with_columns(pl.col("end_s").fill_null(max(end, start)))
    inside = (pl.col("start_s") < end) & (pl.col("end_s") > start)
    if node_map is None:
        segments = pack(attempts.filter(inside))
    else:
        segments = node_map.with_columns(pl.col("end_s").fill_null(end)).filter(inside)
    rows = segments.join(
        attempts.select("job_id", "start_s", "wait_s", "lost").unique(["job_id", "start_s"]),
        on=["job_id", "start_s"],
        how="left",
        maintain_order="left",
    ).with_columns(pl.col("lost").fill_null(value=False))

    figure = new_figure(4.6)
    ax = figure.subplots()
    ax.set_title(title or f"Jobs on {of}s")
    ax.set_ylabel("nodes in use (stacked)" if node_map is None else f"{of} number")
    ax.grid(visible=False)
    scale = TimeScale.of(end - start, start_epoch_s)
    top = nodes or 0
    if len(rows):
        top = max(top, int((rows["first_node"] + rows["count"]).max()))  # type: ignore[arg-type]
        _draw(figure, ax, rows, top, scale, color_by)
    else:
        empty_note(ax, "no job ran in this window")
    count_axis(ax, top)
    if node_map is not None and ticks is not None:
        ax.set_yticks(ticks.at, ticks.names)
        ax.set_ylabel("node, by core" if of == "core" else "node")
    scale.apply(ax, start, end)
    return figure


def _attempts(jobs: pl.DataFrame, lost: pl.DataFrame | None) -> pl.DataFrame:
    columns = [pl.col("job_id"), *(pl.col(c).cast(pl.Float64) for c in ("start_s", "end_s"))]
    ran = jobs.filter(pl.col("start_s").is_not_null()).select(
        *columns,
        pl.col("nodes").cast(pl.Int64),
        wait_s=pl.col("start_s").cast(pl.Float64) - pl.col("submit_s"),
        lost=pl.lit(value=False),
    )
    if lost is None or not len(lost):
        return ran
    cut_off = lost.select(
        *columns,
        pl.col("nodes").cast(pl.Int64),
        wait_s=pl.lit(None, pl.Float64),
        lost=pl.lit(value=True),
    )
    return pl.concat([ran, cut_off])


def _window(
    attempts: pl.DataFrame, start_s: float | None, end_s: float | None
) -> tuple[float, float]:
    times = attempts.select(
        first=pl.col("start_s").min(), last=pl.max_horizontal("start_s", "end_s").max()
    ).row(0)
    start = start_s if start_s is not None else times[0] or 0.0
    end = end_s if end_s is not None else times[1] or start
    return float(start), float(end)


def _draw(
    figure: Figure,
    ax: Axes,
    rows: pl.DataFrame,
    top: int,
    scale: TimeScale,
    color_by: Literal["job", "wait"],
) -> None:
    left, right = scale.at(rows["start_s"].to_numpy()), scale.at(rows["end_s"].to_numpy())
    low = rows["first_node"].to_numpy().astype(np.float64)
    high = low + rows["count"].to_numpy()
    corners = np.stack(
        [
            np.stack(side, axis=1)
            for side in ((left, low), (left, high), (right, high), (right, low))
        ],
        axis=1,
    )
    cut_off = rows["lost"].to_numpy()
    few = len(rows) <= _OUTLINED
    look: dict[str, Any] = {
        "linewidths": 0.3 if few else 0.0,
        "edgecolors": "white",
        "rasterized": not few,
    }
    boxes = PolyCollection(list(corners[~cut_off]), **look)
    if color_by == "wait":
        _color_by_wait(figure, ax, boxes, rows.filter(~pl.col("lost"))["wait_s"])
    else:
        # By job and not by piece, so that pieces of one job have one color.
        number = rows.filter(~pl.col("lost"))["job_id"].rank("dense").to_numpy().astype(np.int64)
        boxes.set_facecolor([PALETTE[n % len(PALETTE)] for n in number])
    ax.add_collection(boxes)
    if cut_off.any():
        ax.add_collection(
            PolyCollection(
                list(corners[cut_off]),
                facecolors="#DDDDDD",
                edgecolors="#444444",
                hatch="////",
                linewidths=0.3,
                label="lost attempts",
            )
        )
        figure.legend(loc="outside upper right")
    if len(rows) <= _NAMED:
        _name_boxes(ax, rows, corners, top)


def _name_boxes(ax: Axes, rows: pl.DataFrame, corners: FloatArray, top: int) -> None:
    """Write job ids into the boxes that are large enough."""
    lows, highs = corners[:, 0], corners[:, 2]
    room = (highs - lows) / [np.ptp(corners[:, :, 0]), top]
    for at in np.flatnonzero((room[:, 0] > 0.03) & (room[:, 1] > 0.04)).tolist():
        x, y = (lows[at] + highs[at]) / 2
        name = ax.text(x, y, str(rows["job_id"][at]), ha="center", va="center", fontsize=7)
        name.set_bbox({"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 1})
        name.set_clip_on(True)


def _color_by_wait(figure: Figure, ax: Axes, boxes: PolyCollection, wait: pl.Series) -> None:
    boxes.set_array(np.clip(wait.fill_null(0.0).to_numpy(), *_WAITS_S))
    boxes.set_cmap("viridis")
    boxes.set_norm(LogNorm(*_WAITS_S))
    bar = figure.colorbar(boxes, ax=ax, label="wait (clipped at both ends)", pad=0.01)
    log_durations(bar.ax, "y", *_WAITS_S)
