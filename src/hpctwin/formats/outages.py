"""Recorded times when nodes were down or drained, as outages of a cluster."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import polars as pl

from hpctwin.errors import TraceError, near
from hpctwin.formats.fields import moments, zone_of
from hpctwin.formats.files import read_bytes
from hpctwin.formats.record import Tally
from hpctwin.model import MS_PER_S, Cluster, Outage, Workload
from hpctwin.model.cluster.node_group import named_nodes, numbers_of

AWAY = {"nodes": pl.String(), "start": pl.Float64(), "end": pl.Float64(), "drained": pl.Boolean()}
"""Columns of recorded times away.

- ``nodes``: node names, as traces write them.
- ``start``, ``end``: in seconds since the epoch or from the trace's time zero; null if before, or
  after, the recording.
- ``drained``: whether the node was drained, and so finished its running jobs.
"""

_HEADS = {
    "nodes": ("nodename", "node", "nodes"),
    "start": ("timestart", "start", "start_s"),
    "end": ("timeend", "end", "end_s"),
    "state": ("state",),
}
_EPOCH = 1e8
_FOR_EVER_S = 10 * 365 * 86_400.0


def read_away(path: str | Path, *, timezone: str | None = None) -> tuple[pl.DataFrame, Tally]:
    """Read times away from a table with a header: ``sacctmgr -P list events``, or CSV.

    Columns have Slurm's names (``NodeName``, ``TimeStart``, ``TimeEnd``, ``State``) or ``node``,
    ``start``, ``end``, ``state``; others are not read. Times are ISO dates, or seconds from the
    trace's time zero. Jobs finish in a state that contains ``DRAIN`` and not ``DOWN``. Rows without
    a node, as Slurm has for the whole cluster, are skipped and counted.

    Args:
        timezone: Time zone of dates that name none; by default UTC.

    Raises:
        TraceError: The file cannot be read, lacks a column, or has a time that cannot be read, or
            an end before its beginning.
        ConfigError: There is no such time zone.
    """
    path, zone, tally = Path(path), zone_of(timezone), Tally()
    text = read_bytes(path)
    first = text.split(b"\n", 1)[0]
    if not first.strip():
        raise TraceError(path, "the file is empty")
    mark = max("|,;\t", key=lambda one: first.count(one.encode()))
    try:
        table = pl.read_csv(
            text, separator=mark, infer_schema=False, quote_char='"' if mark != "|" else None,
            truncate_ragged_lines=True,
        )  # fmt: skip
    except pl.exceptions.PolarsError as error:
        raise TraceError(path, f"cannot be read as a table: {error}") from error
    heads = {name.strip().lower(): name for name in table.columns}
    found = {
        kind: next((heads[name] for name in names if name in heads), None)
        for kind, names in _HEADS.items()
    }
    for kind in ("nodes", "start", "end"):
        if found[kind] is None:
            wanted = _HEADS[kind][0 if mark == "|" else 1]
            raise TraceError(
                path,
                f"the column is missing; found {', '.join(table.columns)}.{near(wanted, table.columns)}",
                field=wanted,
            )
    frame = table.select(
        pl.col(name).alias(kind) for kind, name in found.items() if name is not None
    )
    frame = tally.drop(
        frame.with_row_index("row", 2),
        pl.col("nodes").is_null() | (pl.col("nodes").str.strip_chars() == ""),
        "event skipped: it names no node",
    )
    times = Tally()
    frame = frame.with_columns(moments(frame[name], zone, times) for name in ("start", "end"))
    for what in times.counts:
        raise TraceError(path, what)
    backwards = frame.filter(pl.col("end") <= pl.col("start"))
    if len(backwards):
        row = backwards.row(0, named=True)
        raise TraceError(
            path, "it ends at or before its start", line=row["row"], field=str(row["nodes"])
        )
    state = frame["state"].str.to_uppercase() if "state" in frame.columns else None
    drained = (
        pl.repeat(False, len(frame), eager=True)
        if state is None
        else (state.str.contains("DRAIN") & ~state.str.contains("DOWN")).fill_null(False)
    )
    return frame.with_columns(drained=drained).select(*AWAY), tally


def with_outages(cluster: Cluster, away: pl.DataFrame, workload: Workload, tally: Tally) -> Cluster:
    """Return a cluster with recorded outages, which no policy knows in advance.

    Nodes are numbered by `hpctwin.model.cluster.node_group.named_nodes`, together with the nodes
    on which jobs ran. A drained node is away from the end of the job that ran on it at that time.

    Args:
        cluster: Cluster, with or without outages of its own.
        away: Times away, with the columns `AWAY`.
        workload: Trace, for its time zero and its jobs' nodes.
    """
    zero = 0.0
    if (away["start"].fill_null(0) > _EPOCH).any() or (away["end"].fill_null(0) > _EPOCH).any():
        if workload.start_epoch_s is None:
            raise TraceError(
                workload.name, "has no start date, so outages with dates cannot be matched to it"
            )
        zero = workload.start_epoch_s
    numbers = named_nodes(away["nodes"].to_list(), workload.recorded_nodes, cluster.node_count)
    begins = away["start"].fill_null(zero).to_numpy() - zero
    ends = away["end"].fill_null(zero + _FOR_EVER_S).to_numpy() - zero
    drained = away["drained"].to_list()
    busy = _busy(
        workload,
        cluster,
        {n for one, is_so in zip(numbers, drained, strict=True) if is_so for n in one},
    )
    made, nowhere, before = [], 0, 0
    for nodes, begin_s, end_s, is_drained in zip(
        numbers, begins.tolist(), ends.tolist(), drained, strict=True
    ):
        nowhere += not nodes
        for node in nodes:
            since_s = _after(busy[node], begin_s) if is_drained else begin_s
            since_s = max(0.0, since_s)
            if end_s - since_s < 1 / MS_PER_S:
                before += 1
                continue
            made.append(Outage(node=node, start=since_s, duration=end_s - since_s))
    tally.add("event skipped: its node is not in the cluster", nowhere)
    tally.add(
        "outage skipped: it ended before the trace started, or before the node had drained",
        before,
    )
    tally.add("node outage", len(made))
    failures = cluster.failures
    failures = failures.model_copy(update={"outages": (*failures.outages, *made)})
    return cluster.model_copy(update={"failures": failures}).noted(tally.notes())


def _busy(
    workload: Workload, cluster: Cluster, nodes: Iterable[int]
) -> dict[int, list[tuple[float, float]]]:
    """Return recorded run times of jobs on some nodes, in seconds, by node."""
    found: dict[int, list[tuple[float, float]]] = defaultdict(list)
    wanted = set(nodes)
    if not wanted:
        return found
    start = workload.recorded_start_ms
    for row, own in enumerate(numbers_of(workload.recorded_nodes, cluster.node_count)):
        if own is not None and start[row] >= 0:
            span = (start[row] / MS_PER_S, (start[row] + workload.runtime_ms[row]) / MS_PER_S)
            for node in wanted.intersection(own.tolist()):
                found[node].append(span)
    return found


def _after(busy: list[tuple[float, float]], begin_s: float) -> float:
    """Return when the jobs that ran on a node at a time had ended."""
    return max((end for start, end in busy if start < begin_s < end), default=begin_s)
