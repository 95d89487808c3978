"""Energy accounts of clusters whose nodes are made of components."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.attributes import kept
from hpctwin.energy.accounts.accounting import Energy
from hpctwin.energy.cooling.fmu import Fmu, run_fmu
from hpctwin.energy.cooling.model import cool, wet_bulb_means
from hpctwin.energy.power.job_power import Pieces, job_power
from hpctwin.energy.power.losses import PARTS, Draw, Stretches, feed, together
from hpctwin.energy.power.rating import fed_w
from hpctwin.energy.power.states import nodes_of_group
from hpctwin.energy.prices.series import Series
from hpctwin.engine.state.layout import COMPUTING
from hpctwin.errors import ConfigError
from hpctwin.model import MS_PER_S, NodeGroup
from hpctwin.model.cluster.power import Component
from hpctwin.model.columns import ms_of
from hpctwin.model.workload.jobs import NODE_W, Usage

__all__ = ["ComponentEnergy", "Runs"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

_SPAN = 1 << 44
"""Upper bound on the length of any simulation, in ms."""


@dataclass(frozen=True, eq=False)
class Runs:
    """Runs of jobs on a node group; each attempt of a job is a run.

    Args:
        job: Row of the job [runs].
        nodes: Number of the group's nodes that the run used [runs].
        where: Nodes of the runs.
        pieces: The runs, cut where their power changes.
    """

    job: IntArray
    nodes: FloatArray
    where: Stretches
    pieces: Pieces

    @property
    def node_s(self) -> FloatArray:
        """Node-seconds of each piece [pieces]."""
        own = self.pieces
        found: FloatArray = self.nodes[own.run] * ((own.end_ms - own.start_ms) / MS_PER_S)
        return found


@dataclass(frozen=True, eq=False)
class ComponentEnergy(Energy):
    """`Energy` that knows what jobs use of components, and the losses of feeding them.

    ``node_j`` is the energy of the nodes alone. ``total_j``, ``power_over_time`` and ``cost`` cover
    all that the cluster draws except cooling.

    Args:
        usage: Usage of components by name, and measured power of nodes; see
            `hpctwin.model.workload.jobs`.
    """

    usage: Mapping[str, Usage] = field(default_factory=dict)

    @kept
    def draw(self) -> Draw:
        """Power draw of the cluster over time, by part and by coolant distribution unit.

        Raises:
            SimulationError: Nodes were switched off, and the simulation did not keep when.
        """
        span = round(self.begin_s * MS_PER_S), round(self.now_s * MS_PER_S)
        return together(
            [
                feed(group, self._work(number, runs), *span)
                for number, (group, runs) in enumerate(
                    zip(self.cluster.nodes, self._runs, strict=True)
                )
            ]
        )

    @kept
    def _runs(self) -> list[Runs]:
        """Runs on each node group."""
        return [self._runs_on(number, group) for number, group in enumerate(self.cluster.nodes)]

    @kept
    def _spans(self) -> tuple[IntArray, ...]:
        """Job, first node, last node + 1, start and end (ms) of all runs [5, …]."""
        rows = pl.DataFrame({"job_id": self.table["job_id"], "row": np.arange(len(self.table))})
        spans = self.node_map.join(rows, on="job_id", how="left", maintain_order="left")
        first = spans["first_node"].to_numpy()
        until = ms_of(spans["end_s"].fill_null(self.now_s))
        end = np.minimum(until, round(self.now_s * MS_PER_S))
        return (
            spans["row"].to_numpy(), first, first + spans["count"].to_numpy(), ms_of(spans["start_s"]), end,
        )  # fmt: skip

    def _runs_on(self, number: int, group: NodeGroup) -> Runs:
        nodes = nodes_of_group(self.cluster, number)
        job, first, last, start, end = self._spans
        low, high = np.maximum(first, nodes.start), np.minimum(last, nodes.stop)
        begin = round(self.begin_s * MS_PER_S)
        ran = (high > low) & (end > np.maximum(start, begin))
        job, low, high, start, end = (one[ran] for one in (job, low, high, start, end))
        # All rows of one run have the same job and start.
        _, row, of = np.unique(job * _SPAN + start, return_index=True, return_inverse=True)
        power = job_power(group, self.usage, len(self.table), job)
        return Runs(
            job[row],
            np.bincount(of, high - low, minlength=len(row)).astype(np.float64),
            Stretches(low - nodes.start, high - low, of),
            power.pieces(job[row], start[row], end[row]).since(begin),
        )

    def _work(self, number: int, runs: Runs) -> list[tuple[Stretches, Pieces, bool]]:
        """Return when nodes of a group were not idle: computing, sleeping or switching."""
        work = [(runs.where, runs.pieces, True)]
        nodes = nodes_of_group(self.cluster, number)
        if self.spent_ms[COMPUTING + 1 :, nodes].any():
            node, state, start, end = self.spans()
            other = (
                (node >= nodes.start) & (node < nodes.stop) & (state > COMPUTING) & (end > start)
            )
            node, state, each = node[other], state[other], np.arange(other.sum())
            asleep = Stretches(node - nodes.start, np.ones(len(node), np.int64), each)
            drawn = Pieces(each, start[other], end[other], self.watts[state, node])
            work.append((asleep, drawn, False))
        return work

    @kept
    def node_j(self) -> FloatArray:
        """Energy of each node itself in each state, in J [states, nodes]."""
        joules: FloatArray = self.spent_ms * self.watts / MS_PER_S
        for number, runs in enumerate(self._runs):
            own, where = runs.pieces, runs.where
            each = np.bincount(
                own.run, own.watts * (own.end_ms - own.start_ms) / MS_PER_S, minlength=len(runs.job)
            )[where.of]
            nodes = nodes_of_group(self.cluster, number)
            size = nodes.stop - nodes.start
            # Add each run's energy at its first node and subtract it after its last; the sum gives
            # each node's.
            change = np.bincount(where.first, each, size + 1)
            change -= np.bincount(where.first + where.count, each, size + 1)
            joules[COMPUTING, nodes] = np.cumsum(change)[:size]
        return joules

    @property
    def parts_j(self) -> Mapping[str, float]:
        """Energy of each of `losses.PARTS`, in J."""
        return self.draw.energy_j

    @property
    def total_j(self) -> float:
        """All energy that the cluster drew except cooling, in J."""
        return math.fsum(self.parts_j.values())

    @property
    def is_uncertain(self) -> bool:
        """Whether the power of any component is uncertain."""
        return any(
            part.uncertainty for group in self.cluster.nodes for part in group.components.values()
        )

    @property
    def total_j_sd(self) -> float:
        """Standard deviation of `total_j` due to uncertain components, in J.

        See `rating.machine_w_sd`. The slope of a converter's curve at the mean load counts. The
        power of jobs whose nodes were measured counts as certain.
        """
        square = 0.0
        for number, group in enumerate(self.cluster.nodes):
            nodes = nodes_of_group(self.cluster, number)
            on_s = float(self.spent_ms[: COMPUTING + 1, nodes].sum()) / MS_PER_S
            mean_w = float(self.node_j[: COMPUTING + 1, nodes].sum()) / max(on_s, 1.0)
            slope = (fed_w(group, mean_w + 1) - fed_w(group, mean_w)) / group.count
            for name, part in group.components.items():
                used_s, sure_s = self.used_s(number, name)
                shares = (
                    (part.idle_w * (on_s - sure_s),)
                    if part.max_w is None
                    else (part.idle_w * (on_s - sure_s - used_s), part.max_w * used_s)
                )
                square += sum((slope * part.count * part.uncertainty * one) ** 2 for one in shares)
        return math.sqrt(square)

    def used_s(self, number: int, name: str) -> tuple[float, float]:
        """Return node-seconds of a component weighted by use, and those of measured power.

        Args:
            number: Number of the node group.
            name: Name of the component.
        """
        group = self.cluster.nodes[number]
        part = {name: Component(idle_w=0.0, max_w=1.0)}
        one = group.model_copy(update={"components": part})
        used = {name: self.usage[name]} if name in self.usage else {}
        nodes = (*self.cluster.nodes[:number], one, *self.cluster.nodes[number + 1 :])
        alone = replace(self, usage=used, cluster=self.cluster.model_copy(update={"nodes": nodes}))
        runs = alone._runs_on(number, one)
        node_s = runs.node_s
        sure = np.zeros(len(node_s), bool)
        if NODE_W in self.usage:
            sure = self.usage[NODE_W].count[runs.job[runs.pieces.run]] > 0
        return float((runs.pieces.watts * node_s)[~sure].sum()), float(node_s[sure].sum())

    def figures(self) -> dict[str, Any]:
        """Return the metrics of `Energy`, and energies by part (``machine_…_energy_j``)."""
        more = {f"machine_{part}_energy_j": joules for part, joules in self.parts_j.items()}
        if self.is_uncertain:
            more["total_energy_sd_j"] = self.total_j_sd
        return {**super().figures(), **more}

    def power_over_time(self) -> tuple[FloatArray, FloatArray]:
        """Return times, in s, and the power of the cluster from each time on, in W.

        The last time is the end.

        Raises:
            SimulationError: Nodes were switched off, and the simulation did not keep when.
        """
        total = self.draw.total_w
        return self.draw.time_ms / MS_PER_S, np.append(total, total[-1:])

    def changes_of_power(self) -> pl.DataFrame:
        """Return the exact power by part from each change on; columns as in `over_time`."""
        return _power_table(self.draw.time_ms[:-1] / MS_PER_S, self.draw.parts)

    def over_time(self, step_s: float, *, begin_s: float | None = None) -> pl.DataFrame:
        """Return the mean power by part in each step.

        Columns are ``time_s`` (the step's beginning), ``total_w`` and ``PART_w``.

        Args:
            step_s: Step in seconds, above 0; the last step may be shorter.
            begin_s: Start in seconds, before the end; by default the start of the covered time.

        Raises:
            ConfigError: The step is not above 0.
        """
        edges = self._edges(step_s, begin_s)
        return _power_table(edges[:-1], self.draw.means(edges))

    def cdus_over_time(self, step_s: float, *, begin_s: float | None = None) -> pl.DataFrame:
        """Return what each coolant distribution unit cools: mean power per step, in W.

        Returns:
            ``time_s`` of each step, and a column ``cdu_0_w``, … for each unit.
        """
        edges = self._edges(step_s, begin_s)
        found = {f"cdu_{unit}_w": watts for unit, watts in enumerate(self.draw.cdu_means(edges))}
        return pl.DataFrame({"time_s": edges[:-1], **found})

    def cooled(
        self, wet_bulb: float | str | Path, step_s: float = 60.0, *, begin_s: float | None = None
    ) -> pl.DataFrame:
        """Return what cooling draws per step: ``time_s``, ``step_s``, columns of `cool`.

        Args:
            wet_bulb: Wet-bulb temperature in °C, or a weather file; see
                `hpctwin.energy.cooling.model`.
            step_s: As for `over_time`.
            begin_s: As for `over_time`; the plant starts in a steady state.

        Raises:
            ConfigError: The cluster has no ``cooling``, or the file cannot be used.
        """
        plant = self.cluster.cooling
        if plant is None:
            raise ConfigError(
                f"cluster {self.cluster.name!r} has no cooling model; add 'cooling' to its "
                "file (docs/reference/systems.md)"
            )
        edges = self._edges(step_s, begin_s)
        power = self.over_time(step_s, begin_s=begin_s)
        total = power["total_w"].to_numpy()
        wet = wet_bulb_means(wet_bulb, edges, self.start_epoch_s)
        table = cool(plant, np.diff(edges), total, total - power["pumps_w"].to_numpy(), wet)
        return power.select("time_s").with_columns(step_s=np.diff(edges)).hstack(table)

    def cooled_by(
        self, plant: Fmu, wet_bulb: float | str | Path, *, begin_s: float | None = None
    ) -> pl.DataFrame:
        """Return `cooled` for a custom plant; see `hpctwin.energy.cooling.fmu`.

        Raises:
            ConfigError: The FMU or the weather cannot be used.
        """
        edges = self._edges(plant.step, begin_s)
        power = self.over_time(plant.step, begin_s=begin_s)
        wet = wet_bulb_means(wet_bulb, edges, self.start_epoch_s)
        pumps = power["pumps_w"].to_numpy()
        cdus = self.cdus_over_time(plant.step, begin_s=begin_s).drop("time_s").to_numpy().T
        each = cdus - pumps / max(len(cdus), 1)
        table = run_fmu(plant, each, power["total_w"].to_numpy(), pumps, wet)
        return power.select("time_s").with_columns(step_s=np.diff(edges)).hstack(table)

    def _edges(self, step_s: float, begin_s: float | None = None) -> FloatArray:
        if not step_s > 0:
            raise ConfigError(f"step is {step_s:g} s; it must be above 0")
        if begin_s is None:
            begin_s = self.begin_s
        if not self.begin_s <= begin_s <= self.now_s:
            raise ConfigError(
                f"begin is {begin_s:g} s; it must be from {self.begin_s:g} to {self.now_s:g}"
            )
        return np.append(np.arange(begin_s, self.now_s, step_s), self.now_s)

    def cost(self, series: Series) -> float:
        """Return cost or emissions of all that the cluster drew; see `Energy.cost`."""
        return float(self.draw.total_w @ np.diff(series.integral(self.draw.time_ms / MS_PER_S)))

    def state_costs(self, series: Series) -> FloatArray:
        """Return the cost of the nodes' own power in each state [states]."""
        found = super().state_costs(series)
        found[COMPUTING] = self.job_costs(series).sum()
        return found

    def _of_jobs(self, integral: Callable[[FloatArray], FloatArray]) -> pl.Series:
        total = np.zeros(len(self.table))
        for runs in self._runs:
            own = runs.pieces
            rise = integral(own.end_ms / MS_PER_S) - integral(own.start_ms / MS_PER_S)
            used = runs.nodes[own.run] * own.watts * rise
            total += np.bincount(runs.job[own.run], used, minlength=len(total))
        return pl.Series("used", total)


def _power_table(time_s: FloatArray, parts: FloatArray) -> pl.DataFrame:
    by_part = {f"{part}_w": watts for part, watts in zip(PARTS, parts, strict=True)}
    return pl.DataFrame({"time_s": time_s, "total_w": parts.sum(axis=0), **by_part})
