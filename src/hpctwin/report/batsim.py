"""Batsim's result files: jobs, schedule, and machines over time. Evalys reads them.

Source:
    https://batsim.readthedocs.io/en/latest/output-jobs.html, and the other pages on outputs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

from hpctwin._version import __version__
from hpctwin.energy.power.states import state_names
from hpctwin.formats.json.batsim import FINAL_STATES
from hpctwin.model import Cluster
from hpctwin.model.cluster.node_group import NodeGroup
from hpctwin.report.pages.run import ReportedRun

__all__ = [
    "TABLES",
    "consumed_energy",
    "jobs",
    "jobs_that_ran",
    "machine_states",
    "pstate_changes",
    "schedule",
]

_SWITCHING = {"switching_on": -1, "switching_off": -2}
"""Batsim's numbers of power states during a transition."""
_KINDS = ("sleeping", *_SWITCHING, "idle", "computing")


def jobs(run: ReportedRun) -> pl.DataFrame:
    """Return ``jobs.csv``: all jobs.

    Jobs that did not run have no times. Names of profiles are empty if the workload has none.
    Energy is -1 if it is not known, as in Batsim.

    Args:
        run: A run; nodes of jobs are empty if they were only counted.
    """
    execution = pl.col("end_s") - pl.col("start_s")
    energy = pl.col("energy_j") if "energy_j" in run.jobs.columns else pl.lit(-1.0)
    profile = pl.col("profile") if "profile" in run.jobs.columns else pl.lit("").alias("profile")
    table = run.jobs.select(
        pl.col("job_id"),
        pl.lit("w0").alias("workload_name"),
        profile,
        pl.col("submit_s").alias("submission_time"),
        pl.col("nodes").alias("requested_number_of_resources"),
        pl.col("walltime_s").alias("requested_time"),
        (pl.col("state") == "completed").cast(pl.Int8).alias("success"),
        pl.col("state").replace_strict(FINAL_STATES, default="").alias("final_state"),
        pl.col("start_s").alias("starting_time"),
        execution.alias("execution_time"),
        pl.col("end_s").alias("finish_time"),
        pl.col("wait_s").alias("waiting_time"),
        pl.col("turnaround_s").alias("turnaround_time"),
        (pl.col("turnaround_s") / pl.max_horizontal(execution, 0.001)).alias("stretch"),
        energy.alias("consumed_energy"),
        pl.lit("").alias("metadata"),
    )
    held = run.node_map if run.placements is None else run.placements
    if held is None:
        table = table.with_columns(allocated_resources=pl.lit(""))
    else:
        table = table.join(_allocated(held), on=["job_id", "starting_time"], how="left")
        table = table.with_columns(pl.col("allocated_resources").fill_null(""))
    last = ("allocated_resources", "consumed_energy", "metadata")
    return table.select(pl.exclude(last), *last)


def jobs_that_ran(run: ReportedRun) -> pl.DataFrame:
    """Return the `jobs` that ran, as Evalys reads them (``JobSet.from_csv``)."""
    return jobs(run).drop_nulls(["starting_time", "finish_time"])


def schedule(run: ReportedRun) -> pl.DataFrame:
    """Return ``schedule.csv``: a row of metrics of the run."""
    states = run.jobs["state"].replace_strict(FINAL_STATES, default="").to_list()
    ran = run.jobs.drop_nulls(["start_s", "end_s"])
    execution = pl.max_horizontal(pl.col("end_s") - pl.col("start_s"), 0.001)
    times = ran.select(
        slowdown=pl.col("turnaround_s") / execution,
        turnaround_time=pl.col("turnaround_s"),
        waiting_time=pl.col("wait_s"),
    )
    killed = ("COMPLETED_WALLTIME_REACHED", "COMPLETED_KILLED")
    success = states.count("COMPLETED_SUCCESSFULLY")
    switches = _by_node(run).filter(pl.col("new_pstate").is_in([*_SWITCHING.values()]))
    row: dict[str, Any] = {
        "batsim_version": f"hpctwin {__version__}",
        "consumed_joules": run.summary.get("total_energy_j", -1),
        "makespan": ran["end_s"].max() - ran["submit_s"].min() if len(ran) else None,  # type: ignore[operator]
        **{f"max_{name}": times[name].max() for name in times.columns},
        **{f"mean_{name}": times[name].mean() for name in times.columns},
        "nb_computing_machines": run.summary.get("nodes"),
        "nb_grouped_switches": switches.select("time", "new_pstate").n_unique(),
        "nb_jobs": len(run.jobs),
        "nb_jobs_finished": sum(state.startswith("COMPLETED") for state in states),
        "nb_jobs_killed": sum(state in killed for state in states),
        "nb_jobs_rejected": states.count("REJECTED"),
        "nb_jobs_success": success,
        "nb_machine_switches": len(switches),
        "success_rate": success / len(run.jobs) if len(run.jobs) else None,
    }
    for kind in _KINDS:
        of_kind = re.compile(f"{kind}(_.*)?_node_s")  # also by mode and sleep state
        seconds = [value or 0 for name, value in run.summary.items() if of_kind.fullmatch(name)]
        row |= {f"time_{kind}": sum(seconds)} if seconds else {}
    return pl.DataFrame([dict(sorted(row.items()))])


def machine_states(run: ReportedRun) -> pl.DataFrame:
    """Return ``machine_states.csv``: machines in each state, a row at each change.

    Nodes that are down count as idle, because Batsim has no column for them.
    """
    total = _cluster(run).node_count
    if not len(run.jobs["start_s"].drop_nulls()):
        counts = pl.DataFrame({"time": [0.0]})
    elif run.states is not None:
        counts = _counts(run.states.with_columns(pl.col("state").str.replace(":.*", "")), run)
    elif run.placements is not None:
        counts = _counts(_united(run.placements).with_columns(state=pl.lit("computing")), run)
    else:
        # The last row of a time is the state after all of its events.
        series = run.series.group_by("time_s", maintain_order=True).last()
        counts = series.select(time="time_s", computing="used_nodes")
    others = [kind for kind in _KINDS if kind != "idle"]
    counts = counts.with_columns(pl.lit(0).alias(k) for k in others if k not in counts.columns)
    counts = counts.with_columns(idle=total - pl.sum_horizontal(others))
    return counts.select("time", **{f"nb_{kind}": pl.col(kind) for kind in _KINDS})


def pstate_changes(run: ReportedRun) -> pl.DataFrame:
    """Return ``pstate_changes.csv``: which machines change to which power state.

    At time 0, each machine is in its first power state. Power states have the numbers of Batsim's
    platform, or are numbered in the order of the cluster file: modes, then sleep states.
    """
    changes = _by_node(run).sort("time", "new_pstate", "node")
    # Numbers of adjacent nodes grow like those of their rows.
    block = pl.col("node") - pl.int_range(pl.len())
    blocks = changes.group_by("time", "new_pstate", block.alias("block"), maintain_order=True)
    return (
        blocks.agg(machine_id=_range(pl.col("node").first(), pl.col("node").last()))
        .group_by("time", "new_pstate", maintain_order=True)
        .agg(pl.col("machine_id").str.join(" "))
        .select("time", "machine_id", "new_pstate")
    )


def consumed_energy(run: ReportedRun) -> pl.DataFrame | None:
    """Return ``consumed_energy.csv``: energy at each event; None if power is unknown.

    Events are starts (``s``) and ends (``e``) of jobs, and changes of power states (``p``). Energy
    counts from the first submission. ``wattmin`` is the power of all machines if none computes, and
    ``epower`` the mean power since the event before, null at the same time.
    """
    if run.power is None or run.power.is_empty():
        return None
    attempts = [run.jobs] if run.lost is None else [run.jobs, run.lost]
    times = {
        "e": pl.concat([one["end_s"] for one in attempts]),
        "p": pstate_changes(run).filter(pl.col("time") > 0)["time"],
        "s": pl.concat([one["start_s"] for one in attempts]),
    }
    parts = [
        pl.DataFrame({"time": at.drop_nulls()}).with_columns(event_type=pl.lit(kind))
        for kind, at in times.items()
    ]
    events = pl.concat(parts).sort("time", maintain_order=True)
    at_s, watts = run.power["time_s"].to_numpy(), run.power["total_w"].to_numpy()
    joules = np.append(0.0, np.cumsum(watts[:-1] * np.diff(at_s)))
    energy = pl.Series("energy", np.interp(events["time"].to_numpy(), at_s, joules))
    step = pl.col("time").diff()
    lowest = _by_node(run).sort("time").select("time", wattmin=pl.col("more_w").cum_sum())
    return (
        events.with_columns(energy)
        .join_asof(lowest.group_by("time", maintain_order=True).last(), on="time")
        .with_columns(epower=pl.when(step > 0).then(pl.col("energy").diff() / step))
        .select("time", "energy", "event_type", "wattmin", "epower")
    )


TABLES: dict[str, Callable[[ReportedRun], pl.DataFrame | None]] = {
    one.__name__: one for one in (jobs, schedule, machine_states, pstate_changes, consumed_energy)
}
"""Batsim's tables by the ends of their files' names."""


def _cluster(run: ReportedRun) -> Cluster:
    assert run.cluster is not None
    return run.cluster


def _allocated(held: pl.DataFrame) -> pl.DataFrame:
    """Return the nodes of each attempt as ranges of numbers: ``0-3 7``."""
    if "node" in held.columns:
        held = held.sort("job_id", "start_s", "node").with_columns(
            first_node=pl.col("node"), count=pl.lit(1)
        )
    first = pl.col("first_node")
    runs = _range(first, first + pl.col("count") - 1)
    attempts = held.group_by("job_id", starting_time="start_s", maintain_order=True)
    return attempts.agg(allocated_resources=runs.str.join(" "))


def _range(first: pl.Expr, last: pl.Expr) -> pl.Expr:
    """Return the text of a range of numbers: ``0-3``, or ``7`` for one."""
    text = pl.format("{}-{}", first, last)
    return pl.when(first == last).then(first.cast(pl.String)).otherwise(text)


def _united(placements: pl.DataFrame) -> pl.DataFrame:
    """Return the times at which each node has one or more jobs."""
    spans = placements.sort("node", "start_s")
    reached = pl.col("end_s").cum_max().shift().over("node")
    return (
        spans.with_columns(span=(pl.col("start_s") > reached).fill_null(True).cum_sum())
        .group_by("span")
        .agg(pl.col("node").first(), pl.col("start_s").min(), pl.col("end_s").max())
    )


def _counts(spans: pl.DataFrame, run: ReportedRun) -> pl.DataFrame:
    """Return the number of spans of each kind from each change on.

    At the end of the run, machines keep their states, except that those whose jobs have ended do
    not compute.
    """
    running = run.jobs["end_s"].null_count() > run.jobs["start_s"].null_count()
    last = pl.col("end_s") == pl.col("end_s").max()
    ends = spans.filter(~last | ((pl.col("state") == "computing") & (not running)))
    changes = pl.concat(
        [
            spans.select(pl.col("start_s").alias("time"), "state", by=pl.lit(1)),
            ends.select(pl.col("end_s").alias("time"), "state", by=pl.lit(-1)),
        ]
    )
    found = changes.group_by("time").agg(
        pl.col("by").filter(pl.col("state") == kind).sum().alias(kind) for kind in _KINDS
    )
    return found.sort("time").with_columns(pl.col(_KINDS).cum_sum()).drop("idle")


def _by_node(run: ReportedRun) -> pl.DataFrame:
    """Return changes of power states by node: ``time``, ``node``, ``new_pstate``, ``more_w``.

    ``more_w`` is the change of the power that the node has at least, in W.
    """
    cluster = _cluster(run)
    group_of = np.repeat(np.arange(len(cluster.nodes)), [one.count for one in cluster.nodes])
    nodes = pl.DataFrame({"node": np.arange(len(group_of)), "group": group_of})
    if run.states is None or run.states.is_empty():
        spans = nodes.with_columns(start_s=pl.lit(0.0), state=pl.lit("idle"))
    else:
        spans = run.states.select("node", "start_s", "state").join(nodes, on="node")
    rows = [
        (number, state, *_power_state(group, state, state_names(cluster)))
        for number, group in enumerate(cluster.nodes)
        for state in spans["state"].unique()
    ]
    known = pl.DataFrame(rows, ["group", "state", "new_pstate", "least_w"], orient="row")
    before = pl.col("new_pstate").shift().over("node")
    return (
        spans.sort("node", "start_s")
        .join(known, on=["group", "state"], maintain_order="left")
        .filter(before.is_null() | (before != pl.col("new_pstate")))
        .with_columns(
            time=pl.when(pl.col("new_pstate").shift().over("node").is_null())
            .then(0.0)
            .otherwise("start_s"),
            more_w=pl.col("least_w") - pl.col("least_w").shift().over("node").fill_null(0.0),
        )
        .select("time", "node", "new_pstate", "more_w")
    )


def _power_state(group: NodeGroup, state: str, names: list[str]) -> tuple[int, float]:
    """Return Batsim's number of a node's state, and the least power in it, in W."""
    kind, _, which = state.partition(":")
    modes = list(group.modes)
    if kind in ("idle", "computing"):
        mode = which or group.mode or (modes or [""])[0]
        if mode not in modes:  # of another group
            return 0, 0.0
        return _number(mode, modes.index(mode)), group.modes[mode].idle
    depth = (names.index(state) - 2) // 3  # after idle and computing, three for each depth
    if depth >= len(group.sleep):
        return 0, 0.0
    sleep = group.sleep[depth]
    if kind == "sleeping":
        return _number(sleep.name, len(modes) + depth), sleep.power_w
    transition = sleep.switch_on if kind == "switching_on" else sleep.switch_off
    return _SWITCHING[kind], transition.power_w


def _number(name: str, place: int) -> int:
    """Return the number in the name of a state that was read from Batsim's platform."""
    found = re.fullmatch(r"pstate-(\d+)", name)
    return int(found[1]) if found else place
