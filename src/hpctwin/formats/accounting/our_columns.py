"""From accounting records to the columns of workloads.

On shared nodes, the recorded request of a job replaces its share of each node, if hpctwin
understands the request.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace

import polars as pl

from hpctwin.errors import WorkloadError
from hpctwin.formats.record import LABELS, Machine, Tally, count_of
from hpctwin.model.requests.chunks import PER_TASK, more_tasks_text, read_more_tasks
from hpctwin.model.requests.pbs_requests import is_consumable
from hpctwin.model.requests.requests import parse_request
from hpctwin.model.requests.resources import COLUMN, GPU_TYPE, amount_of


def had_of(frame: pl.DataFrame, names: Collection[str]) -> tuple[list[pl.Expr], dict[str, int]]:
    """Return each job's consumables of nodes, as columns with the amount per node.

    Args:
        frame: Columns ``consumables`` and ``nodes``, as in `RECORD`.
        names: Consumables that the cluster's nodes have.

    Returns:
        The columns, and the number of jobs that had other consumables, by the remark to report.
    """
    of_jobs, others = _amounts(frame["consumables"], names)
    found = []
    for name, amount in of_jobs.items():
        each = pl.lit(amount / frame["nodes"])
        if name.startswith(GPU_TYPE):  # whole on each node, as GPUs are
            each = pl.when(each > 1).then(each.ceil()).otherwise(each)
        found.append(each.alias(f"{COLUMN}{name}"))
    # The type of a GPU needs no remark if the cluster has only one type.
    others = {name: jobs for name, jobs in others.items() if not name.startswith(GPU_TYPE)}
    why = "job with {}, which no node has: request ignored"
    return found, {why.format(name): jobs for name, jobs in others.items()}


def held_of(frame: pl.DataFrame, names: Collection[str]) -> tuple[list[pl.Expr], dict[str, int]]:
    """Return the cluster's licenses that each job held, as columns of its resources.

    Args:
        frame: Column ``licenses``, as in `RECORD`.

    Returns:
        The columns, and the number of jobs that held other licenses, by the remark to report.
    """
    of_jobs, others = _amounts(frame["licenses"], names)
    found = [pl.lit(held.cast(pl.Int64)).alias(f"res_{name}") for name, held in of_jobs.items()]
    why = "job with license {}, which the settings do not have: request ignored"
    return found, {why.format(name): jobs for name, jobs in others.items()}


def _amounts(
    texts: pl.Series, names: Collection[str]
) -> tuple[dict[str, pl.Series], dict[str, int]]:
    """Return the amounts that jobs had by name, and job counts of other names.

    A name that no job had is omitted.
    """
    had = {
        text: dict(pair.split("=", 1) for pair in text.split(",") if "=" in pair)
        for text in texts.unique().drop_nulls().to_list()
    }
    others = {
        name: int(texts.is_in([text for text, one in had.items() if name in one]).sum())
        for name in sorted({name for one in had.values() for name in one} - set(names))
    }
    found = {}
    for name in names:
        of_job = {text: _amount(one[name]) for text, one in had.items() if name in one}
        if of_job:
            found[name] = texts.replace_strict(of_job, default=0.0, return_dtype=pl.Float64)
    return found, others


def _amount(text: str) -> float:
    try:
        return amount_of(text)
    except ValueError:
        return 0.0


def as_asked(
    jobs: pl.DataFrame, request: pl.Series, consumables: Collection[str] = ()
) -> pl.DataFrame:
    """Return jobs with a ``request`` in place of tasks, if it is understood.

    Args:
        jobs: Jobs in hpctwin's columns, each with its share of each of its nodes as a task.
        request: Request of each job, as `hpctwin.model.requests.requests` reads it; null if
            unknown.
        consumables: Consumables that nodes have; others in chunks are ignored.
    """
    texts = {text: _known_alone(text, consumables) for text in request.unique().drop_nulls()}
    request = request.replace_strict(texts, default=None, return_dtype=pl.String)
    understood = {text: _is_understood(text) for text in set(texts.values())}
    told = request.replace_strict(understood, default=False, return_dtype=pl.Boolean)
    if not told.any():
        return jobs
    shares = [name for name in jobs.columns if name in ("nodes", "tasks") or "_per_task" in name]
    return jobs.with_columns(
        request.zip_with(told, pl.Series([None], dtype=pl.String)).alias("request"),
        *(pl.when(~told).then(pl.col(name)).alias(name) for name in shares),
    )


def _known_alone(text: str, consumables: Collection[str]) -> str:
    """Return a request without the consumables that no node has."""
    return re.sub(
        r":([\w.-]+)=([^:+\s]*)",
        lambda m: "" if m[1] not in consumables and is_consumable(m[1], m[2]) else m[0],
        text,
    )


def _is_understood(text: str) -> bool:
    try:
        parse_request(text)
    except WorkloadError:
        return False
    return True


def in_our_columns(frame: pl.DataFrame, tally: Tally, machine: Machine) -> pl.DataFrame:
    """Return records in hpctwin's columns, with the requests of the jobs."""
    each = "task" if machine.shared else "node"
    asked = (
        ("cores", "gpus", "memory_gb")
        if machine.memory or not machine.shared
        else ("cores", "gpus")
    )
    sized = pl.col("nodes") >= 1
    tally.add(
        "job with an unknown number of nodes, given one node",
        count_of(frame, ~sized.fill_null(False)),
    )
    nodes = pl.when(sized).then(pl.col("nodes").ceil()).otherwise(1.0)
    frame = frame.with_columns(nodes=nodes)
    failed = pl.col("state").cast(pl.String) == "failed"
    columns = [
        pl.col("job_id"),
        pl.col("submit").alias("submit_s"),
        pl.col("runtime").alias("runtime_s"),
        pl.col("walltime").alias("walltime_s"),
        pl.col("nodes").cast(pl.Int64),
        *(pl.col(name) for name in (*LABELS, "features", "priority") if frame[name].count()),
        *(
            _per_node(name).fill_null(_least(name, each)).alias(f"{name}_per_{each}")
            for name in asked
            if (frame[name] > 0).any()
        ),
    ]
    if each == "task":
        columns.append(pl.col("nodes").cast(pl.Int64).alias("tasks"))
        had, others = had_of(frame, machine.consumables)
        columns += had
        for why, count in others.items():
            tally.add(why, count)
        if frame["group_by"].count():
            columns.append(pl.col("group_by"))
    else:
        tally.add(
            "job that requests nodes of one group: ignored, as group_by needs shared nodes",
            frame["group_by"].count(),
        )
    held, others = held_of(frame, machine.licenses)
    columns += held
    for why, count in others.items():
        tally.add(why, count)
    if frame["start"].count():
        columns.append(pl.col("start").alias("recorded_start_s"))
    if measured := frame["used_memory_gb"].count():
        tally.add("job with recorded memory use", measured)
        columns.append(pl.col("used_memory_gb"))
    if count_of(frame, failed):
        columns.append(failed.fill_null(False).cast(pl.Int8).alias("fails"))
    if frame["recorded_nodes"].count():
        columns.append(pl.col("recorded_nodes"))
    if frame["row"].count():
        columns.append(pl.col("row"))
    found = frame.select(columns)
    several = machine.shared and frame["kinds"].count() > 0
    if several:
        found = _of_several_kinds(found, frame, asked, machine.consumables)
    if not (machine.shared and machine.memory):
        return found
    alike = frame.select(pl.when(pl.col("kinds").is_null()).then("request"))["request"]
    return as_asked(found, alike, machine.consumables)


def _of_several_kinds(
    found: pl.DataFrame, frame: pl.DataFrame, asked: Collection[str], consumables: Collection[str]
) -> pl.DataFrame:
    """Return the jobs; those with several kinds of tasks request these.

    They do so on any nodes.
    """
    texts = frame["kinds"].unique().drop_nulls().to_list()
    kinds = [
        [
            replace(
                one,
                memory_gb=one.memory_gb if "memory_gb" in asked else 0.0,
                consumables=tuple(pair for pair in one.consumables if pair[0] in consumables),
            )
            for one in each
        ]
        for each in map(read_more_tasks, texts)
    ]
    first = {f"{name}_per_task": [one[0].asks(name) for one in kinds] for name in PER_TASK}
    first |= {
        f"{COLUMN}{name}": [one[0].asks(name) for one in kinds]
        for name in consumables
        if any(dict(one[0].consumables).get(name) for one in kinds)
    }
    about = pl.DataFrame(
        {
            "kinds": texts,
            "nodes": [1] * len(texts),
            "tasks": [one[0].tasks for one in kinds],
            **first,
            "more_tasks": [more_tasks_text(one[1:]) for one in kinds],
        },
        schema_overrides={"kinds": pl.String, **dict.fromkeys(first, pl.Float64)},
    )
    told = frame.select("kinds", "tasks_per_node").join(
        about, on="kinds", how="left", maintain_order="left"
    )
    return found.with_columns(
        pl.Series(told[name]).fill_null(found[name]) if name in found.columns else told[name]
        for name in ("nodes", "tasks", *first, "more_tasks", "tasks_per_node")
    )


def _least(name: str, each: str) -> float:
    """Return the request if none is known: at least a core per task, nothing per node."""
    return 1.0 if (name, each) == ("cores", "task") else 0.0


def _per_node(name: str) -> pl.Expr:
    """Return the share of each node; above 1, cores and GPUs are rounded up."""
    share = pl.col(name) / pl.col("nodes")
    return share if name == "memory_gb" else pl.when(share > 1).then(share.ceil()).otherwise(share)
