"""Energy of nodes with partial load, and tables of energy as Parquet and SPARS's CSV files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.attributes import kept
from hpctwin.energy.accounts.accounting import Energy, sum_over_time
from hpctwin.energy.accounts.component_energy import ComponentEnergy
from hpctwin.energy.accounts.shared_energy import SharedComponentEnergy, SharedEnergy
from hpctwin.energy.power.states import group_of_node, mode_row, mode_rows, nodes_of_group
from hpctwin.energy.prices.series import Series
from hpctwin.engine.state.layout import COMPUTING
from hpctwin.model import MS_PER_S, write_atomically, write_folder

__all__ = [
    "LoadEnergy",
    "cost_changes",
    "energy_tables",
    "node_log",
    "power_changes",
    "write_spars_results",
]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LoadEnergy(Energy):
    """`Energy` of nodes whose jobs spare a part of it, as they do not always use all cores.

    Over time, power and cost count each run of a job with its mean power.

    Args:
        runs: Runs of these jobs: ``job_id``, ``start_ms``, ``end_ms``, and ``spared_j``: energy
            below that of nodes whose cores are all in use.
        node_spared_j: Energy that jobs spared on each node by mode, in J [nodes].
    """

    runs: pl.DataFrame = field(default_factory=pl.DataFrame)
    node_spared_j: Mapping[str, FloatArray] = field(default_factory=dict)

    @kept
    def node_j(self) -> FloatArray:
        """Energy of each node in each state, in J [states, nodes]."""
        found: FloatArray = self.spent_ms * self.watts / MS_PER_S
        rows = mode_rows(self.cluster, self.changes)
        for number, group in enumerate(self.cluster.nodes):
            nodes = nodes_of_group(self.cluster, number)
            for mode in {group.first_mode, *rows} & {*group.modes}:
                row = mode_row(self.cluster, rows, number, mode) + COMPUTING
                found[row, nodes] -= self.node_spared_j[mode][nodes]
        return found

    def _node_power(self) -> tuple[FloatArray, FloatArray]:
        """See `Energy`."""
        node, state, start, end = self.spans()
        starts, ends = (self.runs[name].to_numpy() for name in ("start_ms", "end_ms"))
        watts = np.append(self.watts[state, node], -self._spared_w)
        return sum_over_time(np.append(start, starts), np.append(end, ends), watts)

    def state_costs(self, series: Series) -> FloatArray:
        """Return the cost by state [states]; what jobs spare is that of the first mode."""
        costs = super().state_costs(series)
        costs[COMPUTING] -= self._spared(series.integral).sum()
        return costs

    @property
    def _spared_w(self) -> FloatArray:
        length_s = (self.runs["end_ms"] - self.runs["start_ms"]).to_numpy() / MS_PER_S
        watts: FloatArray = self.runs["spared_j"].to_numpy() / length_s
        return watts

    def _spared(self, integral: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """Return each run's spared power times the rise of an integral while it ran."""
        start, end = (self.runs[name].to_numpy() / MS_PER_S for name in ("start_ms", "end_ms"))
        return self._spared_w * (integral(end) - integral(start))

    def _of_jobs(self, integral: Callable[[FloatArray], FloatArray]) -> pl.Series:
        spared = self.runs.select("job_id", spared=pl.Series(self._spared(integral)))
        joined = self.table.select("job_id").join(
            spared.group_by("job_id").agg(pl.col("spared").sum()),
            on="job_id",
            how="left",
            maintain_order="left",
        )
        return super()._of_jobs(integral) - joined["spared"].fill_null(0.0)


_SPARS_ID = {"active": -1, "switching_off": -2, "switching_on": -3, "sleeping": -4}


def node_log(energy: Energy) -> pl.DataFrame:
    """Return all past node states with ``node``, ``state``, times and ``energy_j``.

    Times are ``start_s`` and ``end_s``. ``energy_j`` is null for computing nodes if jobs share
    nodes or the network, or their component usage is known. The power of such a node changes within
    one state.

    Raises:
        SimulationError: The simulation did not keep them.
    """
    node, state, start, end = energy.spans()
    joules = pl.Series(energy.watts[state, node] * (end - start) / MS_PER_S)
    if isinstance(energy, SharedEnergy | SharedComponentEnergy | LoadEnergy) or (
        isinstance(energy, ComponentEnergy) and energy.usage
    ):
        joules = joules.set(pl.Series(state == COMPUTING), None)
    return pl.DataFrame(
        {
            "node": node,
            "state": pl.Series(energy.states, dtype=pl.String).gather(state),
            "start_s": start / MS_PER_S,
            "end_s": end / MS_PER_S,
            "energy_j": joules,
        }
    ).sort("node", "start_s")


def power_changes(energy: Energy) -> pl.DataFrame | None:
    """Return the power of all nodes from each change on; None if it is unknown.

    Columns are ``time_s`` and ``total_w``, and the parts if nodes have components. The last row is
    the end of the simulation. The power is unknown if it needs past node states and they were not
    kept.
    """
    if isinstance(energy, ComponentEnergy):
        return energy.changes_of_power()
    if energy.log is None:
        return None
    time_s, watts = energy.power_over_time()
    return pl.DataFrame({"time_s": time_s, "total_w": watts})


def cost_changes(energy: Energy, rates: Mapping[str, Series]) -> pl.DataFrame | None:
    """Return cost and emissions per hour from each change of power or rate on.

    Args:
        energy: Energy of a run.
        rates: ``price`` and ``carbon``, where known, with the run's time zero.

    Returns:
        ``time_s``, and for each rate its unit per hour: ``price_eur_per_h``
        (``price_currency_per_h`` if the unit is unknown), ``carbon_g_per_h``. The last row is the
        end of the simulation. None without rates, or if the power over time is unknown.
    """
    drawn = power_changes(energy) if rates else None
    if drawn is None:
        return None
    power_s = drawn["time_s"].to_numpy()
    steps = [one.changes(float(power_s[0]), float(power_s[-1])) for one in rates.values()]
    time_s = np.unique(np.concatenate([power_s, *steps]))
    watts = drawn["total_w"].to_numpy()[np.searchsorted(power_s, time_s, side="right") - 1]
    found = {"time_s": time_s}
    for name, series in rates.items():
        unit = series.unit.lower() or ("g" if name == "carbon" else "currency")
        found[f"{name}_{unit}_per_h"] = watts * series.at(time_s) * 3600
    return pl.DataFrame(found)


def energy_tables(energy: Energy) -> dict[str, pl.DataFrame]:
    """Return tables of a run's energy; ``nodes`` has energy by node and state.

    ``power`` exists if past node states were kept or nodes have components. ``node_log`` exists if
    past node states were kept.
    """
    tables = {"nodes": energy.nodes()}
    if energy.log is not None:
        tables["node_log"] = node_log(energy)
    power = power_changes(energy)
    if power is not None:
        tables["power"] = power
    return tables


def write_spars_results(energy: Energy, folder: Path) -> None:
    """Write SPARS's CSV files, with its column names and order.

    Scripts for SPARS can read them. The files are ``metrics.csv``, ``energy_log.csv``,
    ``raw_job_log.csv``, ``waiting_time_log.csv``, ``node_log.csv``, ``state_switch.csv`` and
    ``raw_terminated_log.csv``.

    Args:
        energy: Energy of a simulation with ``log=True``.
        folder: Folder to write to; it is created if missing.

    Raises:
        SimulationError: The simulation did not keep past node states.
        OutputError: A file cannot be written.
    """
    jobs = _jobs(energy)
    tables = {
        "metrics": _metrics(energy, jobs),
        "energy_log": _energy_log(energy),
        "raw_job_log": jobs.drop("waiting_time"),
        "waiting_time_log": jobs.select(
            "job_id", "subtime", "start_time", "finish_time", "waiting_time"
        ),
        "node_log": _node_log(energy, jobs),
        "state_switch": _state_switch(energy),
        "raw_terminated_log": energy.table.filter(pl.col("start_s").is_null()).select(
            "job_id", res="nodes", subtime="submit_s", reqtime="walltime_s", runtime="runtime_s"
        ),
    }
    with write_folder(folder) as new:
        for name, table in tables.items():
            with write_atomically(new / f"{name}.csv") as file:
                table.write_csv(file)


def _metrics(energy: Energy, jobs: pl.DataFrame) -> pl.DataFrame:
    seconds = _by_kind(energy.state_s())
    row: dict[str, Any] = {
        "total_waiting_time": jobs["waiting_time"].sum(),
        "mean_waiting_time": jobs["waiting_time"].mean(),
        "total_energy_waste": energy.wasted_j,
        "total_energy_consumption": energy.total_j,
        "energy_effective": energy.total_j - energy.wasted_j,
        "total_active_idle": seconds["idle"],
        "total_active_compute": seconds["computing"],
        "total_switching_off": seconds.get("switching_off", 0.0),
        "total_switching_on": seconds.get("switching_on", 0.0),
        "total_sleeping": seconds.get("sleeping", 0.0),
        "total_time_all_states": sum(seconds.values()),
    }
    return pl.DataFrame([row])


def _by_kind(by_state: Mapping[str, float]) -> dict[str, float]:
    """Return sums over sleep depths."""
    found: dict[str, float] = {}
    for state, value in by_state.items():
        kind = state.partition(":")[0]
        found[kind] = found.get(kind, 0.0) + value
    return found


def _energy_log(energy: Energy) -> pl.DataFrame:
    total = energy.node_j.sum(axis=0)
    waste = energy.node_j[energy.is_waste].sum(axis=0)
    return pl.DataFrame(
        {
            "id": np.arange(len(total)),
            "energy_consumption": total,
            "energy_effective": total - waste,
            "energy_waste": waste,
        }
    )


def _jobs(energy: Energy) -> pl.DataFrame:
    """Return SPARS's job log by finish time, with ``waiting_time``."""
    nodes = (
        energy.node_map.select(
            "job_id",
            node=pl.int_ranges(pl.col("first_node"), pl.col("first_node") + pl.col("count")),
        )
        .explode("node")
        .sort("node")
        .group_by("job_id", maintain_order=True)
        .agg(nodes=pl.col("node").cast(pl.String).str.join(" "))
    )
    ended = energy.table.filter(pl.col("end_s").is_not_null() & pl.col("start_s").is_not_null())
    return (
        ended.join(nodes, on="job_id", how="left", maintain_order="left")
        .sort("end_s", "job_id")
        .select(
            "job_id",
            type=pl.lit("execution_finished"),
            res="nodes",
            nodes=pl.col("nodes_right"),
            start_time="start_s",
            subtime="submit_s",
            reqtime="walltime_s",
            req_finish_time=pl.col("start_s") + pl.col("walltime_s"),
            runtime="runtime_s",
            actual_finish_time=pl.when(pl.col("state") == "walltime")
            .then(pl.col("start_s") + pl.col("runtime_s"))
            .otherwise(pl.col("end_s")),
            terminated=pl.col("state") == "walltime",
            finish_time="end_s",
            waiting_time="wait_s",
        )
    )


def _node_log(energy: Energy, jobs: pl.DataFrame) -> pl.DataFrame:
    """Return one row for each set of nodes in the same state over the same time."""
    modes = {number: group.first_mode for number, group in enumerate(group_of_node(energy.cluster))}
    log = node_log(energy).filter(~pl.col("state").str.starts_with("computing"))
    rest = log.select(
        "node",
        state=pl.col("state").str.split(":").list.first().replace("idle", "active"),
        start_time="start_s",
        finish_time="end_s",
    ).with_columns(
        submission_time=pl.col("start_time"),
        job_id=pl.col("state").replace_strict(_SPARS_ID, return_dtype=pl.Int64).cast(pl.String),
        terminated=pl.lit(value=False),
    )
    ran = jobs.select(
        node=pl.col("nodes").str.split(" ").cast(pl.List(pl.Int64)),
        state=pl.lit("active"),
        start_time="start_time",
        finish_time="finish_time",
        submission_time="subtime",
        job_id=pl.col("job_id").cast(pl.String),
        terminated="terminated",
    ).explode("node")
    keys = [
        "dvfs_mode",
        "state",
        "submission_time",
        "start_time",
        "finish_time",
        "job_id",
        "terminated",
    ]
    return (
        pl.concat([rest, ran.select(rest.columns)])
        .with_columns(dvfs_mode=pl.col("node").replace_strict(modes, return_dtype=pl.String))
        .sort("start_time", "node")
        .group_by(keys, maintain_order=True)
        .agg(nodes=pl.col("node").cast(pl.String).str.join(" "))
        .select(*keys[:5], "nodes", *keys[5:])
    )


def _state_switch(energy: Energy) -> pl.DataFrame:
    """Return the number of nodes in each state, one row per time of a change."""
    _, state, start, end = energy.spans()
    times, place = np.unique(np.concatenate([start, end]), return_inverse=True)
    columns: dict[str, Any] = {"time": times / MS_PER_S}
    kind_of_row = np.array([name.partition(":")[0] for name in energy.states])
    for kind in ("sleeping", "switching_on", "switching_off", "idle", "computing"):
        mine = kind_of_row[state] == kind
        change = np.bincount(
            place, np.concatenate([mine, -mine.astype(np.int64)]), minlength=len(times)
        )
        columns[f"nb_{kind}"] = np.cumsum(change).astype(np.int64)
    # The last row is dropped: it would show all nodes as having left their states.
    return pl.DataFrame(columns).head(-1)
