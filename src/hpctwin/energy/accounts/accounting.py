"""Energy accounts: by node and state, by job, user and account."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.energy.power.modes import ModeChange, mode_rows, watts_by_mode
from hpctwin.energy.power.states import group_of_node, node_watts, nodes_of_group, state_names
from hpctwin.energy.prices.series import Series
from hpctwin.engine.state.layout import COMPUTING
from hpctwin.errors import SimulationError
from hpctwin.model import MS_PER_S, Cluster
from hpctwin.model.input.cached_attributes import kept

__all__ = ["Energy", "sum_over_time"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


def sum_over_time(
    start_ms: IntArray, end_ms: IntArray, watts: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Times (s) and what is drawn in all from each on (W); the last one is the end.

    Args:
        start_ms: from when on each is drawn.
        end_ms: until when.
        watts: so much.
    """
    times, place = np.unique(np.append(start_ms, end_ms), return_inverse=True)
    change = np.bincount(place, np.append(watts, -watts), minlength=len(times))
    drawn: FloatArray = np.cumsum(change, dtype=np.float64)
    drawn[-1:] = drawn[-2:-1]  # at the end itself nothing has changed yet
    return times / MS_PER_S, drawn


@dataclass(frozen=True, eq=False)
class Energy:
    """What a simulation with power states used.

    Args:
        table: the jobs and how they went.
        node_map: where they ran.
        cluster: the nodes.
        spent_ms: time of each node in each state, ms [states, nodes]; the states are those of
            `states.state_names`. Each column sums to the time that is covered.
        log: node, state, start and end in ms of all states each node was in [4, …]; None if not kept.
        changes: of DVFS modes so far. A mode that a node group does not begin in has two states of its own,
            after the others: ``idle:MODE`` and ``computing:MODE``.
        start_epoch_s: Unix time of time zero; None if not known.
        begin_s: From when on energy counts, in seconds: the first submission, or a window's begin.
    """

    table: pl.DataFrame
    node_map: pl.DataFrame
    cluster: Cluster
    spent_ms: IntArray
    log: IntArray | None
    changes: tuple[ModeChange, ...] = ()
    start_epoch_s: float | None = None
    begin_s: float = 0.0

    @kept
    def states(self) -> list[str]:
        """The names of the states."""
        modes = mode_rows(self.cluster, self.changes)
        more = [f"{state}:{mode}" for mode in modes for state in ("idle", "computing")]
        return state_names(self.cluster) + more

    @kept
    def watts(self) -> FloatArray:
        """What each node draws in each state, W [states, nodes]."""
        return watts_by_mode(self.cluster, self.changes)

    @kept
    def node_j(self) -> FloatArray:
        """Energy of each node in each state, J [states, nodes]."""
        joules: FloatArray = self.spent_ms * self.watts / MS_PER_S
        return joules

    @kept
    def is_waste(self) -> npt.NDArray[np.bool_]:
        """Whether a state counts as waste: idle, or switching."""
        return np.array([s.startswith(("idle", "switching")) for s in self.states])

    @property
    def total_j(self) -> float:
        """Energy of all nodes."""
        return float(self.node_j.sum())

    @property
    def wasted_j(self) -> float:
        """Energy of idle and switching nodes, as SPARS defines waste; sleeping is not waste."""
        return float(self.node_j[self.is_waste].sum())

    def state_s(self) -> dict[str, float]:
        """Node-seconds in each state."""
        return dict(zip(self.states, (self.spent_ms.sum(axis=1) / MS_PER_S).tolist(), strict=True))

    def figures(self) -> dict[str, Any]:
        """Energies, node-seconds by state and the interval that they cover, in one flat dict."""
        figures: dict[str, Any] = {
            "energy_begin_s": self.begin_s,
            "energy_end_s": self.now_s,
            "total_energy_j": self.total_j,
            "wasted_energy_j": self.wasted_j,
            "compute_energy_j": float(
                sum(
                    self.node_j[row].sum()
                    for row, s in enumerate(self.states)
                    if s.startswith("computing")
                )
            ),
        }
        for name, seconds in self.state_s().items():
            kind, _, which = name.partition(":")
            alone = not which or (self.cluster.depths < 2 and kind not in ("idle", "computing"))
            words = kind if alone else f"{kind}_{which}"
            figures[f"{words.replace(' ', '_')}_node_s"] = seconds
        return figures

    def spans(self) -> IntArray:
        """Node, row of the state, start and end in ms of all states each node was in [4, …].

        Raises:
            SimulationError: the simulation did not keep them.
        """
        if self.log is None:
            raise SimulationError("past node states were not kept; simulate with log=True")
        return self.log

    def power_over_time(self) -> tuple[FloatArray, FloatArray]:
        """Times (s) and what all nodes draw from each on (W); the last one is the end.

        Raises:
            SimulationError: the simulation did not keep past node states.
        """
        node, state, start, end = self.spans()
        return sum_over_time(start, end, self.watts[state, node])

    def cost(self, series: Series) -> float:
        """What all energy cost by a price, or emitted by a carbon intensity, in the series' unit.

        Args:
            series: with time zero where the simulation's is.

        Raises:
            SimulationError: the simulation did not keep past node states.
        """
        return float(self.state_costs(series).sum())

    def state_costs(self, series: Series) -> FloatArray:
        """As `cost`, by state [states]."""
        node, state, start, end = self.spans()
        watts = self.watts[state, node]
        cost = watts * (series.integral(end / MS_PER_S) - series.integral(start / MS_PER_S))
        found: FloatArray = np.bincount(state, cost, minlength=len(self.states)).astype(np.float64)
        return found

    def job_costs(self, series: Series) -> pl.Series:
        """As `cost`, of each row of `jobs`: what its nodes drew while it ran."""
        return self._of_jobs(series.integral)

    def _of_jobs(self, integral: Callable[[FloatArray], FloatArray]) -> pl.Series:
        """The power of each job's nodes while it ran times the rise of an integral, for each job."""
        spans = self.node_map
        # What still runs counts up to now; what waits for its nodes to be switched on, not at all.
        start = np.minimum(spans["start_s"].to_numpy(), self.now_s)
        end = np.maximum(np.minimum(spans["end_s"].to_numpy(), self.now_s), start)
        first = spans["first_node"].to_numpy()
        last = first + spans["count"].to_numpy()
        total = np.zeros(len(spans))
        for begin_s, end_s, watts in self._computing_watts():
            sums = np.concatenate([[0.0], np.cumsum(watts)])
            rise = integral(np.clip(end, begin_s, end_s)) - integral(np.clip(start, begin_s, end_s))
            total += (sums[last] - sums[first]) * rise
        used = spans.select("job_id").with_columns(used=pl.Series(total))
        joined = self.table.select("job_id").join(
            used.group_by("job_id").agg(pl.col("used").sum()),
            on="job_id",
            how="left",
            maintain_order="left",
        )
        return joined["used"].fill_null(0.0)

    def _computing_watts(self) -> Iterator[tuple[float, float, FloatArray]]:
        """From when to when (s) each node draws what while computing [nodes]."""
        watts = node_watts(self.cluster)[COMPUTING]
        begin_s = 0.0
        for change in self.changes:
            yield begin_s, change.time_ms / MS_PER_S, watts
            begin_s = change.time_ms / MS_PER_S
            watts = watts.copy()
            nodes = nodes_of_group(self.cluster, change.group)
            watts[nodes] = self.cluster.nodes[change.group].modes[change.mode].power_w
        yield begin_s, math.inf, watts

    @property
    def now_s(self) -> float:
        """End of the time that is covered, in seconds; it begins at ``begin_s``."""
        begin_ms = round(self.begin_s * MS_PER_S)
        return float(begin_ms + self.spent_ms[:, 0].sum()) / MS_PER_S

    def nodes(self) -> pl.DataFrame:
        """A row per node and state: ``node``, ``group``, ``state``, ``time_s``, ``energy_j``, ``wasted``."""
        count = self.spent_ms.shape[1]
        groups = [group.name for group in group_of_node(self.cluster)]
        return pl.DataFrame(
            {
                "node": np.tile(np.arange(count), len(self.states)),
                "group": groups * len(self.states),
                "state": np.repeat(self.states, count),
                "time_s": self.spent_ms.ravel() / MS_PER_S,
                "energy_j": self.node_j.ravel(),
                "wasted": np.repeat(self.is_waste, count),
            }
        )

    @kept
    def jobs(self) -> pl.DataFrame:
        """The jobs with ``energy_j``: what their nodes drew while they ran, lost attempts included."""
        return self.table.with_columns(energy_j=self._of_jobs(lambda time_s: time_s))

    def by(self, label: Literal["user", "account", "partition"]) -> pl.DataFrame:
        """Energy of jobs by user, account or partition, the largest first.

        Args:
            label: whose.
        """
        return (
            self.jobs.group_by(label)
            .agg(pl.len().alias("jobs"), pl.col("energy_j").sum())
            .sort("energy_j", descending=True)
        )
