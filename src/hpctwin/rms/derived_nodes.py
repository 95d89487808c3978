"""Nodes derived from accounting: number, sizes, and whether jobs share them.

The sizes are cores, GPUs and memory. A node has at least what jobs had allocated on it at once.
Nodes whose names differ in numbers only are alike: a size that several of them reached and did not
exceed is taken as theirs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import polars as pl

from hpctwin.errors import FormatError
from hpctwin.model import Cluster, Workload
from hpctwin.model.text import expand
from hpctwin.rms.records.records import NodeRecord
from hpctwin.rms.site import ListedNode, equal_nodes, group_nodes, named_cluster

_SIZES = ("cores", "gpus", "memory_gb")
_OVERLAP = 0.01
"""Share of jobs that must start next to another job for nodes to count as shared."""
_LEVEL = 0.2
"""Share of nodes that must have reached a size for it to count as one."""
_GREW = 0.1


class Kind(NamedTuple):
    """A kind of node.

    Args:
        stem: Names of its nodes, with ``#`` in place of numbers.
        cores, gpus, memory_gb: Sizes of each node; None if not recorded.
    """

    stem: str
    cores: float | None = None
    gpus: float | None = None
    memory_gb: float | None = None


@dataclass(frozen=True)
class Derived:
    """What accounting shows of a cluster.

    Args:
        nodes: Nodes; if there are several kinds, with the partitions whose jobs ran on such nodes.
        shared: Whether jobs share nodes.
        memory: Whether jobs are allocated memory.
        notes: Facts derived and how certain they are, one sentence each.
    """

    nodes: Sequence[ListedNode]
    shared: bool
    memory: bool
    notes: Sequence[str] = field(default=())


def derived_nodes(jobs: pl.LazyFrame, manager: str = "slurm") -> Derived | None:
    """Derive nodes from where and when jobs ran; None if no job has a recorded start.

    Args:
        manager: ``slurm`` or ``pbs``: syntax of node names.
    """
    names = jobs.collect_schema().names()
    if "recorded_start_s" not in names:
        return None
    sizes = {
        one: next(
            (f"{one}_per_{each}" for each in ("task", "node") if f"{one}_per_{each}" in names), None
        )
        for one in _SIZES
    }
    ran = (
        jobs.filter(pl.col("recorded_start_s").is_not_null())
        .select(
            pl.col("recorded_start_s").alias("start"),
            (pl.col("recorded_start_s") + pl.col("runtime_s")).alias("end"),
            pl.col("nodes").cast(pl.Float64).fill_null(1),
            *(
                (pl.col(column).fill_null(0.0) if column else pl.lit(0.0))
                .cast(pl.Float64)
                .alias(one)
                for one, column in sizes.items()
            ),
            *(
                (pl.col(name).cast(pl.String) if name in names else pl.lit(None, pl.String)).alias(
                    name
                )
                for name in ("recorded_nodes", "partition")
            ),
        )
        .collect()
    )
    if not len(ran):
        return None
    listed, unread = _expanded(ran["recorded_nodes"], manager)
    if not len(listed):
        return _without_names(ran)
    placed = ran.with_row_index("job").join(listed, on="recorded_nodes")
    use = _most_at_once(placed, "node")
    shared, how = _sharing(placed)
    kinds = _kinds(use)
    notes = [how, *_told_kinds(kinds, use), *_told_growth(placed)]
    unlisted = len(ran) - placed["job"].n_unique()
    if unlisted:
        notes.append(
            f"{unlisted:,} of {len(ran):,} jobs that ran have no node list"
            + (f" or an unreadable one, such as {unread!r}" if unread else "")
            + ": they are ignored for the node sizes"
        )
    if shared and (placed["cores"] > 1).any() and (placed["cores"] % 2 == 0).all():
        notes.append(
            "every job has an even number of CPUs on each node: they may be hardware threads, two per core"
        )
    partitions = _partitions(placed, ran["partition"], kinds)
    often = Counter(kinds.values())
    nodes = [
        ListedNode(
            NodeRecord(name=name), kind.cores, kind.gpus, kind.memory_gb, partitions.get(kind, ())
        )
        for name, kind in sorted(kinds.items(), key=lambda one: -often[one[1]])
    ]
    widest = int(ran["nodes"].max() or 1)  # type: ignore[arg-type]
    if widest > len(nodes):
        notes.append(
            f"the node lists contain {len(nodes):,} nodes, but one job had {widest:,}: the missing nodes "
            "are assumed to equal the most frequent kind"
        )
        more = range(widest - len(nodes))
        nodes += [nodes[0]._replace(record=NodeRecord(name=f"unnamed{i}")) for i in more]
    return Derived(nodes, shared, bool((ran["memory_gb"] > 0).any()), notes)


def derived_cluster(derived: Derived, name: str) -> Cluster:
    """Return the cluster of derived nodes."""
    grouped = group_nodes(derived.nodes)
    fields = {
        "name": name,
        "nodes": [group.model_dump(exclude_defaults=True) for group in grouped.groups],
        "partitions": [
            {"name": one, "groups": list(groups)} for one, groups in sorted(grouped.members.items())
        ],
    }
    return named_cluster(fields, grouped.names, name)[0]


def as_derived(workload: Workload, derived: Derived) -> Workload:
    """Return the same jobs with notes on what was derived.

    If nodes are shared, jobs have tasks in place of whole nodes.
    """
    notes = replace(workload.notes, remarks=(*workload.notes.remarks, *derived.notes))
    frame = workload.to_frame()
    if not derived.shared or "tasks" in frame.columns:
        return replace(workload, notes=notes)
    frame = frame.rename(
        {
            f"{one}_per_node": f"{one}_per_task"
            for one in _SIZES
            if f"{one}_per_node" in frame.columns
        }
    )
    frame = frame.with_columns(tasks=pl.col("nodes"))
    if "cores_per_task" in frame.columns:
        frame = frame.with_columns(pl.col("cores_per_task").replace(0.0, 1.0))
    return Workload.from_frame(
        frame,
        name=workload.name,
        start_epoch_s=workload.start_epoch_s,
        header=workload.header,
        nodes_hint=workload.nodes_hint,
        notes=notes,
    )


def in_partitions(nodes: Iterable[ListedNode], partitions: Iterable[str]) -> list[ListedNode]:
    """Return derived nodes in a site's partitions.

    A node is in the partitions whose jobs ran on such nodes, and in every partition without such
    jobs.
    """
    nodes, names = list(nodes), sorted(partitions)
    seen = {name for node in nodes for name in node.partitions}
    return [
        node._replace(partitions=tuple(p for p in names if p not in seen or p in node.partitions))
        for node in nodes
    ]


def names_in(manager: str, text: str | None) -> Sequence[str]:
    """Return the node names that accounting records; none if they cannot be read."""
    if text is None:
        return ()
    if manager == "pbs":
        return text.split(",")
    try:
        return expand(text)
    except FormatError:
        return ()


def _expanded(texts: pl.Series, manager: str) -> tuple[pl.DataFrame, str]:
    """Return each list of nodes with each of its nodes, and one unreadable list."""
    unique = texts.drop_nulls().unique().to_list()
    names = {text: list(dict.fromkeys(names_in(manager, text))) for text in unique}
    unread = next((text[:40] for text, found in names.items() if not found), "")
    table = pl.DataFrame(
        {"recorded_nodes": list(names), "node": list(names.values())},
        schema={"recorded_nodes": pl.String, "node": pl.List(pl.String)},
    )
    return table.explode("node").drop_nulls(), unread


def _most_at_once(placed: pl.DataFrame, by: str) -> pl.DataFrame:
    """Return the most cores, GPUs, memory and jobs at once, for each node."""
    columns = (*_SIZES, "jobs")
    last = pl.max_horizontal(
        "start", pl.col("end") - 1
    )  # a job that ends in the second of a start is gone
    lasting = placed.filter(pl.col("end") > pl.col("start")).with_columns(jobs=pl.lit(1.0))
    change = [
        lasting.select(by, pl.col("start").alias("time"), *columns),
        lasting.select(by, last.alias("time"), *(-pl.col(name) for name in columns)),
    ]
    within = (
        pl.concat(change)
        .sort(by, "time", "jobs")
        .with_columns(pl.col(name).cum_sum().over(by) for name in columns)
    )
    alone = placed.group_by(by).agg(pl.col(name).max().alias(f"{name}_alone") for name in _SIZES)
    most = within.group_by(by).agg(pl.col(name).max() for name in columns)
    return (
        alone.join(most, on=by, how="left")
        .with_columns(
            # Rounded, since sums of parts differ in their last digits; a negative zero becomes zero.
            *(pl.max_horizontal(name, f"{name}_alone").round(6) + 0.0 for name in _SIZES),
            pl.col("jobs").fill_null(1.0),
        )
        .sort(by)
    )


def _sharing(placed: pl.DataFrame) -> tuple[bool, str]:
    """Return whether jobs share nodes, and the evidence."""
    lasting = placed.filter(pl.col("end") - 1 > pl.col("start"))
    before = pl.col("end").cum_max().shift(1).over("node")
    beside = lasting.sort("node", "start").filter(before - 1 > pl.col("start"))
    count, of = beside["job"].n_unique(), placed["job"].n_unique()
    if not (placed["cores"] > 0).any():
        return False, "cores are not recorded: jobs are assumed to have exclusive nodes"
    if count and count >= _OVERLAP * of:
        return True, (
            f"jobs share nodes: {count:,} of {of:,} jobs started on a node where another job ran"
        )
    how = f"jobs have exclusive nodes: {count:,} of {of:,} jobs started on a node where another job ran"
    if placed.group_by("node").agg(pl.col("cores").n_unique())["cores"].max() != 1:
        how += "; jobs with different core counts ran on the same node, so jobs may share nodes in reality"
    return False, how


def _kinds(use: pl.DataFrame) -> dict[str, Kind]:
    """Return the kind of each node, by its name."""
    seen = {row["node"]: row for row in use.iter_rows(named=True)}
    found = {name: Kind(re.sub(r"\d+", "#", name)) for name in seen}
    for one in _SIZES:
        if one != "gpus" and not use[one].max():
            continue
        alike: dict[Kind, list[str]] = {}
        for name, kind in found.items():
            alike.setdefault(kind, []).append(name)
        for kind, names in alike.items():
            most = [seen[name][one] for name in names]
            levels = [max(most)] if one == "memory_gb" else _levels(most)
            for name in names:
                size = next(level for level in levels if level >= seen[name][one])
                sized: dict[str, Any] = {one: size}
                found[name] = kind._replace(**sized)
    return found


def _levels(seen: Iterable[float]) -> list[float]:
    """Return sizes that several nodes reached and did not exceed, smallest first."""
    counts = Counter(seen)
    least, largest = max(2, _LEVEL * counts.total()), max(counts)
    return sorted(size for size, nodes in counts.items() if nodes >= least or size == largest)


def _told_kinds(kinds: Mapping[str, Kind], use: pl.DataFrame) -> list[str]:
    """Return notes on what was derived about the nodes, and how certain it is."""
    full = Counter(
        kinds[name]
        for name, cores in use.select("node", "cores").iter_rows()
        if kinds[name].cores == cores
    )
    notes = []
    for kind, count in Counter(kinds.values()).items():
        size = [] if kind.cores is None else [f"{kind.cores:g} cores"]
        size += [f"{kind.gpus:g} GPUs"] if kind.gpus else []
        size += [f"{kind.memory_gb:.4g} GiB"] if kind.memory_gb else []
        notes.append(
            f"{count:,} node{'' if count == 1 else 's'} {kind.stem.replace('#', 'N')}"
            + (f" with {', '.join(size)}" if size else "")
            + ", derived from the nodes of jobs and their simultaneous allocations"
            + ("" if kind.cores is None else f": {full[kind]:,} had all cores in use at least once")
        )
    notes.append(
        "these node counts and sizes are lower bounds: nodes, cores and memory that no job used are unknown"
    )
    return notes


def _told_growth(placed: pl.DataFrame) -> list[str]:
    """Return a note if nodes came or went."""
    first, last = placed["start"].min(), placed["end"].max()
    middle = (float(first) + float(last)) / 2  # type: ignore[arg-type]
    early = set(placed.filter(pl.col("start") < middle)["node"].unique())
    late = set(placed.filter(pl.col("end") > middle)["node"].unique())
    if min(len(early), len(late)) >= (1 - _GREW) * len(early | late):
        return []
    return [
        f"{len(early):,} of {len(early | late):,} nodes ran jobs in the first half of the time and "
        f"{len(late):,} in the second: the cluster may have changed its size; in cluster.yaml it is constant"
    ]


def _partitions(
    placed: pl.DataFrame, labels: pl.Series, kinds: Mapping[str, Kind]
) -> dict[Kind, tuple[str, ...]]:
    """Return the partitions of each kind of node.

    There are none if all nodes are alike or a job has no partition.
    """
    every = set(kinds.values())
    if len(every) < 2 or labels.null_count():
        return {}
    ran: dict[str, set[Kind]] = {name: set() for name in labels.unique().to_list()}
    for name, node in placed.select("partition", "node").unique().iter_rows():
        ran[name].add(kinds[node])
    return {
        kind: tuple(sorted(name for name, where in ran.items() if kind in (where or every)))
        for kind in every
    }


def _without_names(ran: pl.DataFrame) -> Derived:
    """Return equal nodes, if accounting has no names of nodes."""
    total = ran.with_columns(
        whole=pl.lit(""), **{name: pl.col(name) * pl.col("nodes") for name in _SIZES}
    )
    at_once = _most_at_once(total.with_columns(gpus=pl.col("nodes")), "whole").row(0, named=True)
    each = ran.select(pl.col(name).max() for name in _SIZES).row(0, named=True)
    widest = int(ran["nodes"].max() or 1)  # type: ignore[arg-type]
    count = max(int(at_once["gpus"]), widest)
    unknown = "node lists are not recorded, so it is uncertain whether jobs share nodes"
    shared = ran.filter(pl.col("cores") > 0)["cores"].n_unique() > 1
    if shared:
        count = max(-int(-at_once["cores"] // each["cores"]), widest)
        how = (
            f"jobs have different core counts, so jobs are assumed to share {count:,} equal nodes with "
            f"{each['cores']:g} cores, the maximum of a job on a node"
        )
    else:
        how = f"jobs are assumed to have exclusive nodes, on {count:,} equal nodes, the most in use at once"
    size = [each["cores"] or None, each["gpus"], each["memory_gb"] or None]
    nodes = [
        node._replace(**dict(zip(_SIZES, size, strict=True))) for node in equal_nodes(count, ())
    ]
    return Derived(
        nodes,
        shared,
        bool(each["memory_gb"]),
        [f"{unknown}; {how}; add NodeList to the columns of sacct"],
    )
