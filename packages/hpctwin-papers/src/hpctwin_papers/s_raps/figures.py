"""S-RAPS (SC25-W), figures 4 to 6: a trace as recorded and under three policies.

The results are power and utilization over time, the paper's statistics, and for clusters with
cooling PUE and the temperature of the water to the towers. The paper's policies are FCFS without
backfill, FCFS with EASY, and the trace's priorities with first-fit backfill. The traces of its
figures are PM100 (figure 4), Adastra's 15 days (5) and Frontier's telemetry, which is not public
(6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.energy.accounts.component_energy import ComponentEnergy
from hpctwin.energy.cooling.model import cooling_figures
from hpctwin.errors import ConfigError
from hpctwin.model import Cluster, write_atomically
from hpctwin.report.columns import Table
from hpctwin.simulation import Result, Simulation, Window, replay
from hpctwin_papers.experiment import Experiment, Progress
from hpctwin_papers.results import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FloatArray = npt.NDArray[np.float64]

REPLAY = "replay"
POLICIES = {
    REPLAY: REPLAY,
    "fcfs-nobf": "fcfs+none",
    "fcfs-easy": "fcfs+easy",
    "priority-ffbf": "priority+first-fit",
}
"""Policies by the paper's name."""


@dataclass(frozen=True, eq=False)
class Run:
    """A part of a trace under a policy.

    Args:
        name: Name of the policy.
        result: Result of the run, cut off at the end of the part.
        over_time: ``time_s``, ``power_w``, ``utilization``, and with cooling ``pue`` and
            ``return_c``, as means of each step.
        figures: Statistics of the part.
    """

    name: str
    result: Result
    over_time: pl.DataFrame
    figures: dict[str, Any]


@dataclass(frozen=True, eq=False)
class SRaps(Experiment[str, Run]):
    """A part of a trace under each policy.

    Args:
        part: Part of the trace.
        cluster: The cluster; its nodes have components.
        policies: Names of `POLICIES`, or policies.
        wet_bulb: Wet-bulb temperature in °C, or a file of weather, for a cluster with cooling.
        step_s: Step of the tables over time, in seconds.
    """

    part: Window
    cluster: Cluster
    policies: tuple[str, ...] = tuple(POLICIES)
    wet_bulb: float | str | Path | None = None
    step_s: float = 60.0
    title = "a part of a trace under each policy"

    def points(self) -> Sequence[str]:
        """See `Experiment`; policies."""
        if not all(group.components for group in self.cluster.nodes):
            raise ConfigError(
                f"cluster {self.cluster.name!r}: the components of its nodes are unknown; choose a "
                "cluster with components from `hpctwin system list`"
            )
        return self.policies

    def run(self, point: str, progress: Progress) -> Run:
        """See `Experiment`."""
        part, text = self.part, POLICIES.get(point, point)
        if text == REPLAY:
            result = replay(
                part.workload, self.cluster, from_s=part.begin_s, until_s=part.end_s
            ).result
        else:
            simulation = Simulation(part.workload, self.cluster, text, begin_s=part.not_before_s)
            result = part.run(simulation)
        return _told(point, result, part, self.wet_bulb, self.step_s)

    def results(self, found: Sequence[Run]) -> Results:
        """See `Experiment`."""
        return schedule_results(found, "s-raps")


def schedule_results(runs: Sequence[Run], figure: str) -> Results:
    """Return the results of a part under each policy."""
    return Results(
        figures={figure: partial(_drawn, runs)},
        tables=[Table.turned({run.name: run.figures for run in runs}, _LINES)],
        rows=[run.figures for run in runs],
        files={
            f"{run.name.replace('/', '-')}.parquet": partial(_write, run.over_time) for run in runs
        },
    )


_LINES = (
    ("jobs completed", "completed", 1.0, ",.0f"),
    ("utilization, %", "window_utilization", 100.0, ".1f"),
    ("mean power, MW", "window_mean_power_w", 1e-6, ".3f"),
    ("highest power, MW", "max_power_w", 1e-6, ".3f"),
    ("deviation of power, MW", "sd_power_w", 1e-6, ".3f"),
    ("energy, MWh", "window_energy_j", 1 / 3.6e9, ",.1f"),
    ("lost in conversion, %", "loss_share", 100.0, ".2f"),
    ("mean wait, h", "mean_wait_s", 1 / 3600, ".2f"),
    ("mean turnaround, h", "mean_turnaround_s", 1 / 3600, ".2f"),
    ("mean nodes of a job", "mean_job_nodes", 1.0, ",.1f"),
    ("mean power of a job, kW", "mean_job_power_w", 1e-3, ",.1f"),
    ("mean energy of a job, MWh", "mean_job_energy_j", 1 / 3.6e9, ".3f"),
    ("PUE", "pue", 1.0, ".4f"),
    ("water to the towers, °C", "return_mean_c", 1.0, ".2f"),
    ("water used, t", "cooling_water_kg", 1e-3, ",.1f"),
)


def _write(table: pl.DataFrame, path: Path) -> None:
    with write_atomically(path) as file:
        table.write_parquet(file)


def _drawn(runs: Sequence[Run]) -> Figure:
    from hpctwin.report.energy import plot_machine

    workload, cluster = runs[0].result.workload, runs[0].result.cluster
    return plot_machine(
        {run.name: run.over_time for run in runs},
        title=f"{workload.name} on {cluster.name}",
        start_epoch_s=workload.start_epoch_s,
    )


def _told(
    name: str, result: Result, part: Window, wet_bulb: float | str | Path | None, step_s: float
) -> Run:
    energy = result.energy
    assert isinstance(energy, ComponentEnergy)
    end_s = energy.now_s
    power = energy.over_time(step_s, begin_s=part.begin_s)
    lengths = np.diff(np.append(power["time_s"].to_numpy(), end_s))
    used = _used(result.jobs, np.append(power["time_s"].to_numpy(), end_s))
    table = power.select("time_s", power_w="total_w").with_columns(
        utilization=used / result.cluster.node_count
    )
    losses = (power["conversion_w"] + power["rectification_w"]).to_numpy()
    figures = part.summary(result)
    watts = table["power_w"].to_numpy()
    mean = float(watts @ lengths / lengths.sum())
    figures |= {
        "policy": name,
        "max_power_w": float(watts.max()),
        "sd_power_w": float(np.sqrt(((watts - mean) ** 2) @ lengths / lengths.sum())),
        "loss_share": float(losses @ lengths) / float(watts @ lengths),
    }
    figures |= _of_jobs(energy.jobs.filter(pl.col("state") == "completed"), part)
    if wet_bulb is not None and result.cluster.cooling is not None:
        cooled = energy.cooled(wet_bulb, step_s, begin_s=part.begin_s)
        table = table.hstack(cooled.select("pue", "return_c"))
        figures |= cooling_figures(cooled, cooled["step_s"].to_numpy())
    return Run(name, result, table, figures)


def _used(jobs: pl.DataFrame, edges_s: FloatArray) -> FloatArray:
    """Return the nodes allocated to jobs, as the mean of each step."""
    ran = jobs.filter(pl.col("start_s").is_not_null())
    start = ran["start_s"].to_numpy()
    end = ran["end_s"].fill_null(np.inf).to_numpy()
    nodes = ran["nodes"].to_numpy().astype(np.float64)
    times = np.concatenate([start, end[np.isfinite(end)], edges_s[:1]])
    change = np.concatenate([nodes, -nodes[np.isfinite(end)], [0.0]])
    order = np.argsort(times, kind="stable")
    times, level = times[order], np.cumsum(change[order])
    area = np.concatenate([[0.0], np.cumsum(level[:-1] * np.diff(times))])
    until = np.maximum(edges_s, times[0])
    place = np.searchsorted(times, until, side="right") - 1
    total: FloatArray = area[place] + level[place] * (until - times[place])
    return np.diff(total) / np.diff(edges_s)


def _of_jobs(ended: pl.DataFrame, part: Window) -> dict[str, float | None]:
    """Return means over jobs that ended in the part."""
    ended = ended.filter(pl.col("end_s") > part.begin_s)
    if not len(ended):
        return dict.fromkeys(
            ("completed", "mean_job_nodes", "mean_job_power_w", "mean_job_energy_j")
        )
    ran = (ended["end_s"] - ended["start_s"]).to_numpy()
    watts = ended["energy_j"].to_numpy() / np.maximum(ran, 1e-3)
    return {
        "completed": len(ended),
        "mean_job_nodes": float(ended["nodes"].to_numpy().mean()),
        "mean_job_power_w": float(watts.mean()),
        "mean_job_energy_j": float(ended["energy_j"].to_numpy().mean()),
    }
