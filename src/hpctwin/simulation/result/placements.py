"""Amounts that jobs held on shared nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.engine.operations.job_history import course_of
from hpctwin.engine.operations.transfer import cut_off, had_pauses, started_ms
from hpctwin.engine.state.layout import RUNNING
from hpctwin.engine.state.sim import Sim
from hpctwin.model import MS_PER_S, Cluster, Workload
from hpctwin.model.requests.chunks import PER_TASK
from hpctwin.model.requests.resources import GPU_TYPE
from hpctwin.simulation.lowering.gpus import ONE_GPU, SingleGpus
from hpctwin.simulation.lowering.shared_nodes import columns_of
from hpctwin.simulation.result.history import stretches_of_attempts, stretches_on_nodes

__all__ = ["gpu_shares", "placement_table", "placements", "shares_held", "use_now"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


def placements(
    workload: Workload,
    cluster: Cluster,
    sim: Sim,
    *,
    now: bool = False,
    ran: bool = False,
    of: npt.NDArray[np.bool_] | None = None,
) -> pl.DataFrame:
    """Return the amounts that jobs held, one row for each node of each attempt.

    Args:
        workload: The jobs.
        cluster: The cluster.
        sim: Their simulation, on shared nodes.
        now: Include only jobs that run now and are not suspended.
        ran: Include only the times in which jobs ran and were not suspended.
        of: Whether to include each job [jobs]; by default all.

    Returns:
        ``job_id``, ``node`` (its number), ``start_s``, ``end_s`` (null while the job runs),
        ``cores``, ``memory_gb``, ``gpus`` and each consumable of the cluster's nodes: the amounts
        held there, null if not modeled. A job that was suspended has a row for each time it ran or
        was suspended, the latter without cores.
    """
    rows = _rows_begun(sim)
    if of is not None:
        rows = rows[of[sim["part"]["job"][rows]]]
    single = _on_single_gpus(sim)[sim["part"]["kind"][rows]]
    of_gpus, rows = sim["part"][rows[single]], rows[~single]
    part = sim["part"][rows]
    if now:
        own = sim["state"][part["job"]]
        runs = (own["phase"] == RUNNING) & (own["start"] <= sim.clock.now)
        if len(sim["beneath"]):
            runs &= sim["cut"]["suspended"][part["job"]] == 0
        rows = rows[runs & (started_ms(sim)[part["job"]] == part["start"])]
        part = sim["part"][rows]
    gpus = SingleGpus.of_sim(sim)

    def told(known: Any) -> pl.DataFrame:
        ends = _ends(rows, sim)
        table = placement_table(workload.job_id[part["job"]], part, ends, known, cluster)
        if gpus is None or not gpus.types:
            return table
        return _with_types(table, workload, cluster, of_gpus, gpus.of_types(sim["needs"]))

    every = sim["part"][: int(sim["sharing"]["parts"][0])][["job", "start"]]
    attempts = np.unique(every) if len(sim["beneath"]) and not now else every[:0]
    attempts = attempts[had_pauses(attempts["job"], attempts["start"], sim)]
    if not len(attempts):
        return told(sim)
    shape = sim["shape"].copy()
    shape["exclusive"] = 0
    kept = told({"shape": shape, "whole": sim["whole"], "needs": sim["needs"]})
    kept = kept.with_columns(cores=pl.lit(0.0))
    return _in_stretches(told(sim), kept.clear() if ran else kept, attempts, workload, sim)


def _in_stretches(
    table: pl.DataFrame,
    kept: pl.DataFrame,
    attempts: npt.NDArray[np.void],
    workload: Workload,
    sim: Sim,
) -> pl.DataFrame:
    """Return placements in which suspended jobs held only what they kept.

    Args:
        table: The placements.
        kept: The same, with what the jobs keep while they are suspended.
        attempts: ``job`` and ``start`` of the attempts that were suspended.
        workload: The jobs.
        sim: Their simulation.
    """
    rows, start_ms = attempts["job"], attempts["start"]
    keys = ["job_id", "attempt_s"]
    begun = pl.DataFrame({"job_id": workload.job_id[rows], "attempt_s": start_ms / MS_PER_S})
    every = stretches_of_attempts(workload, sim).select(*keys, "start_s", "end_s")
    ran = stretches_on_nodes(every).join(begun, on=keys, how="semi")
    # Suspended until the next stretch, or, if there is none, if it is suspended now.
    waits = (sim["cut"]["suspended"][rows] == 1) & (started_ms(sim)[rows] == start_ms)
    first = begun.with_columns(start_s="attempt_s", end_s="attempt_s")
    stands = (
        pl.concat([first, every.join(begun, on=keys, how="semi")])
        .sort(*keys, "start_s", "end_s", nulls_last=True, maintain_order=True)
        .select(*keys, start_s="end_s", end_s=pl.col("start_s").shift(-1).over(keys))
        .join(begun.with_columns(waits=waits), on=keys, how="left", maintain_order="left")
        .filter(
            (pl.col("end_s") > pl.col("start_s")) | (pl.col("end_s").is_null() & pl.col("waits"))
        )
    )
    # An attempt that was cut off at its start was not suspended, though the next one begins then.
    lasted = (pl.col("end_s") > pl.col("start_s")).fill_null(value=True)
    lasting = table.filter(lasted)
    others = lasting.join(begun, left_on=["job_id", "start_s"], right_on=keys, how="anti")
    parts = [table.filter(~lasted), others]
    for one, when in ((table, ran), (kept, stands)):
        of_attempt = one.filter(lasted).drop("end_s").rename({"start_s": "attempt_s"})
        apart = of_attempt.join(when, on=keys, maintain_order="left_right")
        parts.append(apart.select(table.columns))
    return pl.concat(parts).sort("start_s", "job_id", "node", maintain_order=True)


def _with_types(
    table: pl.DataFrame,
    workload: Workload,
    cluster: Cluster,
    part: npt.NDArray[Any],
    types: IntArray,
) -> pl.DataFrame:
    """Return placements with the types of GPUs for jobs that did not request a type.

    Args:
        table: Table of `placement_table`.
        workload: The jobs.
        cluster: The cluster.
        part: Records of single GPUs that were held.
        types: Amount of each type that a task of each kind holds [kinds, types].
    """
    keys = ["job_id", "node", "start_s"]
    held = part["tasks"][:, None] * types[part["kind"]] / ONE_GPU
    columns = dict(zip(cluster.gpu_types, held.T, strict=True))
    more = pl.DataFrame(
        {
            "job_id": workload.job_id[part["job"]],
            "node": part["node"].astype(np.int64),
            "start_s": part["start"] / MS_PER_S,
            **columns,
        }
    )
    summed = more.group_by(keys).agg(pl.col(name).sum() for name in columns)
    both = table.join(summed, on=keys, how="left", suffix=" more", maintain_order="left")
    added = [pl.col(name) + pl.col(f"{name} more").fill_null(0.0) for name in columns]
    return both.with_columns(added).select(table.columns)


def gpu_shares(workload: Workload, cluster: Cluster, sim: Sim) -> pl.DataFrame | None:
    """Return the shares of single GPUs that jobs held.

    Args:
        workload: The jobs.
        cluster: The cluster.
        sim: Their simulation, on shared nodes.

    Returns:
        ``job_id``, ``node``, ``gpu`` (its number on the node), ``start_s``, ``end_s`` (null while
        the job runs) and ``share``, above 0 up to 1; without exclusive jobs. If nodes have types of
        GPUs, also ``type``, null for GPUs without one. None if GPUs are not counted one by one.
    """
    if (gpus := SingleGpus.of_sim(sim)) is None:
        return None
    rows = _rows_begun(sim)
    rows = rows[_on_single_gpus(sim)[sim["part"]["kind"][rows]]]
    part, end = sim["part"][rows], _ends(rows, sim)
    held = gpus.single(sim["needs"])[part["kind"]]
    column = held.argmax(axis=1)
    number = gpus.numbers(gpus.single(sim["whole"]))[part["node"], column]
    table = pl.DataFrame(
        {
            "job_id": workload.job_id[part["job"]],
            "node": part["node"].astype(np.int64),
            "gpu": number,
            "start_s": part["start"] / MS_PER_S,
            "end_s": pl.Series(end / MS_PER_S).set(pl.Series(end < 0), None),
            "share": part["tasks"] * held.max(axis=1) / ONE_GPU,
        }
    )
    keys = ["job_id", "node", "gpu", "start_s", "end_s"]
    if gpus.types:
        names = [*(name.removeprefix(GPU_TYPE) for name in cluster.gpu_types), None]
        of_column = np.repeat(np.arange(len(names)), np.diff(gpus.at))[column]
        types = pl.Series("type", names, dtype=pl.String)[of_column]
        table, keys = table.with_columns(types), [*keys, "type"]
    summed = table.group_by(keys, maintain_order=True).agg(pl.col("share").sum())
    return summed.sort("start_s", "job_id", "node", "gpu", maintain_order=True)


def _on_single_gpus(sim: Sim) -> npt.NDArray[np.bool_]:
    """Return whether each kind describes what tasks hold of single GPUs [kinds]."""
    shape, gpus = sim["shape"], int(sim["sharing"]["gpus"][0])
    found = np.zeros(len(shape), bool)
    for name in ("part_on", "whole_on") if gpus else ():
        first = shape[name][shape[name] >= 0]
        found[(first[:, None] + np.arange(gpus)).ravel()] = True
    return found


def _rows_begun(sim: Sim) -> IntArray:
    """Return the rows of node parts, without those on which their job never began."""
    return np.flatnonzero(sim["part"]["tasks"][: int(sim["sharing"]["parts"][0])] > 0)


def _ends(rows: IntArray, sim: Sim) -> IntArray:
    """Return the end of rows of node parts, ms; -1 while the job runs [rows]."""
    part = sim["part"][rows]
    state, job, start = sim["state"], part["job"], part["start"]
    end = np.where(course_of(sim).phase[job] == RUNNING, -1, state["end"][job])
    # An attempt before its job's last start was cut off, by a failure or another job.
    ends = {(j, s): e for j, s, e in cut_off(sim)[["job", "start", "end"]].tolist()}
    started, every = started_ms(sim), sim["part"][: int(sim["sharing"]["parts"][0])]
    for row in np.flatnonzero(started[job] != start):
        end[row] = ends[int(job[row]), int(start[row])]
    # So was an earlier attempt with the same start: a job may be cut off and start again at one
    # event time. The first row of each attempt is the end of a chain.
    for j, s in {one for one in ends if started[one[0]] == one[1]}:
        mine = (every["job"] == j) & (every["start"] == s)
        last = np.flatnonzero(mine & (every["next"] < 0))[-1]
        end[(job == j) & (start == s) & (rows < last)] = s
    return end


def placement_table(
    job_id: npt.NDArray[Any], part: npt.NDArray[Any], end: IntArray, known: Any, cluster: Cluster
) -> pl.DataFrame:
    """Return the table of `placements`.

    Args:
        job_id: Id of each row's job [rows].
        part: Records with ``node``, ``tasks``, ``kind``, ``start`` (ms) [rows].
        end: End in ms; -1 while the job runs [rows].
        known: Jobs and nodes in the engine's form.
        cluster: The cluster.
    """
    exclusive = known["shape"]["exclusive"][part["kind"]] != 0
    columns = {}
    for column, name, units in columns_of(cluster):
        whole = known["whole"][part["node"], column]
        amount = np.where(exclusive, whole, part["tasks"] * known["needs"][part["kind"], column])
        held = pl.Series(amount / units)
        not_modelled = all(group.amount(name) is None for group in cluster.nodes)
        columns[name] = held.set(pl.Series(exclusive & not_modelled), None)
    table = pl.DataFrame(
        {
            "job_id": job_id,
            "node": part["node"].astype(np.int64),
            "start_s": part["start"] / MS_PER_S,
            "end_s": pl.Series(end / MS_PER_S).set(pl.Series(end < 0), None),
            **columns,
        }
    )
    if (known["shape"]["more"] >= 0).any():
        # Tasks of several kinds may run on one node.
        keys = ["job_id", "node", "start_s", "end_s"]
        summed = [
            pl.when(pl.col(n).null_count() == 0).then(pl.col(n).sum()).alias(n) for n in columns
        ]
        table = table.group_by(keys, maintain_order=True).agg(summed)
    return table.sort("start_s", "job_id", "node", maintain_order=True)


def shares_held(workload: Workload, cluster: Cluster, placed: pl.DataFrame) -> pl.DataFrame:
    """Return the nodes of jobs, with the share of each node that they used and held.

    Args:
        workload: The jobs.
        cluster: The cluster.
        placed: Table of `placements`.

    Returns:
        Columns of a result's ``node_map`` with one row per node, ``use`` and ``share``. ``use`` is
        the larger of the shares of the node's cores and GPUs; ``share`` includes memory. Both are
        from 0 to 1.
    """
    counts = [group.count for group in cluster.nodes]
    group = np.repeat(np.arange(len(counts)), counts)[placed["node"].to_numpy()]
    found = {}
    for name in PER_TASK:
        has = np.array([getattr(one, name) or 0.0 for one in cluster.nodes])[group]
        amount = placed[name].fill_null(0.0).to_numpy()
        found[name] = np.where(has > 0, amount / np.where(has > 0, has, 1.0), 0.0)
    alone = (workload.chunks["tasks"] == 0) | (workload.chunks["exclusive"] > 0)
    all_of_it = placed["job_id"].is_in(pl.Series(workload.job_id[alone]).implode()).to_numpy()
    use = np.where(all_of_it, 1.0, np.maximum(found["cores"], found["gpus"]))
    return placed.select(
        "job_id", "start_s", "end_s", first_node="node", count=pl.lit(1, pl.Int64)
    ).with_columns(
        use=np.minimum(use, 1.0), share=np.minimum(np.maximum(use, found["memory_gb"]), 1.0)
    )


def use_now(workload: Workload, cluster: Cluster, sim: Sim) -> FloatArray:
    """Return the share of each node that is used now, from 0 to 1 [nodes]."""
    held = shares_held(workload, cluster, placements(workload, cluster, sim, now=True))
    nodes, use = held["first_node"].to_numpy(), held["use"].to_numpy()
    return np.minimum(np.bincount(nodes, use, minlength=cluster.node_count), 1.0)
