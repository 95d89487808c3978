"""Energy accounts: by node and state, by job, user and account."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.attributes import kept
from hpctwin.energy.power.states import (
    ModeChange,
    group_of_node,
    mode_rows,
    node_watts,
    nodes_of_group,
    state_names,
    watts_by_mode,
)
from hpctwin.energy.prices.series import Series
from hpctwin.engine.state.layout import COMPUTING
from hpctwin.errors import SimulationError, UnknownNameError
from hpctwin.model import MS_PER_S, Cluster
from hpctwin.model.arguments import check_arguments

__all__ = ["Energy", "NetworkPower", "sum_over_time"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


def sum_over_time(
    start_ms: IntArray, end_ms: IntArray, watts: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return times, in s, and the total power from each time on, in W.

    The last time is the end.
    """
    times, place = np.unique(np.append(start_ms, end_ms), return_inverse=True)
    change = np.bincount(place, np.append(watts, -watts), minlength=len(times))
    drawn: FloatArray = np.cumsum(change, dtype=np.float64)
    drawn[-1:] = drawn[-2:-1]  # the end keeps the last power
    return times / MS_PER_S, drawn


@dataclass(frozen=True, eq=False)
class NetworkPower:
    """Power draw of all links and switches: a part that is always there, and one that follows loads.

    Args:
        idle_w: Power draw without traffic, in W.
        edges_s: Times at which the loads change, and their end, in seconds [bins + 1].
        more_w: Further power draw by loads, as a mean of each bin, in W [bins].
    """

    idle_w: float
    edges_s: FloatArray
    more_w: FloatArray

    @classmethod
    def idle(cls, cluster: Cluster) -> NetworkPower | None:
        """Return the power draw without traffic; None if it is unknown."""
        platform = cluster.platform if cluster.has_network_power else None
        if platform is None:
            return None
        return cls(float(platform.link_idle_w.sum()), np.zeros(1), np.zeros(0))

    def energy_j(self, begin_s: float, end_s: float) -> float:
        """Return the energy in a span, in J."""
        edges_s = np.clip(self.edges_s, begin_s, end_s)
        return self.idle_w * (end_s - begin_s) + float(self.more_w @ np.diff(edges_s))

    def cost(self, series: Series, begin_s: float, end_s: float) -> float:
        """Return the cost or the emissions of a span; see `hpctwin.energy.Energy.cost`."""
        whole = series.integral(np.array([begin_s, end_s]))
        bins = series.integral(np.clip(self.edges_s, begin_s, end_s))
        return float(self.idle_w * (whole[1] - whole[0]) + self.more_w @ np.diff(bins))

    def add_to(self, times_s: FloatArray, watts: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the sum of another power over time and this one, from each time on.

        Args:
            times_s: Times of the other power, in seconds; the last one is the end.
            watts: The power from each time on, in W.
        """
        inside = (self.edges_s > times_s[0]) & (self.edges_s < times_s[-1])
        every_s = np.union1d(times_s, self.edges_s[inside])
        other = watts[np.searchsorted(times_s, every_s, side="right") - 1]
        more = np.concatenate([[0.0], self.more_w, [0.0]])
        own = more[np.searchsorted(self.edges_s, every_s, side="right")]
        own[-1:] = own[-2:-1]  # the end keeps the last power
        return every_s, other + self.idle_w + own


@dataclass(frozen=True, eq=False)
class Energy:
    """Energy of a simulation with power states.

    Args:
        table: The jobs and their results.
        node_map: Nodes that each job ran on.
        cluster: The cluster.
        spent_ms: Time of each node in each state, in ms [states, nodes]; the states are those of
            `states.state_names`. Each column sums to the time that is covered.
        log: Node, state, start and end (ms) of all past node states [4, …]; None if they were not
            kept.
        changes: DVFS mode changes so far. Each mode other than a group's first adds two states
            after the others: ``idle:MODE`` and ``computing:MODE``.
        start_epoch_s: Unix time of time zero; None if unknown.
        begin_s: Start of the covered time, in seconds: the first submission, or a window's start.
        network: Power draw of links and switches, if it is known.
    """

    table: pl.DataFrame
    node_map: pl.DataFrame
    cluster: Cluster
    spent_ms: IntArray
    log: IntArray | None
    changes: tuple[ModeChange, ...] = ()
    start_epoch_s: float | None = None
    begin_s: float = 0.0
    network: NetworkPower | None = None

    @kept
    def states(self) -> list[str]:
        """Names of the states."""
        modes = mode_rows(self.cluster, self.changes)
        more = [f"{state}:{mode}" for mode in modes for state in ("idle", "computing")]
        return state_names(self.cluster) + more

    @kept
    def watts(self) -> FloatArray:
        """Power draw of each node in each state, in W [states, nodes]."""
        return watts_by_mode(self.cluster, self.changes)

    @kept
    def node_j(self) -> FloatArray:
        """Energy of each node in each state, in J [states, nodes]."""
        joules: FloatArray = self.spent_ms * self.watts / MS_PER_S
        return joules

    @kept
    def is_waste(self) -> npt.NDArray[np.bool_]:
        """Whether each state counts as waste: idle or switching."""
        return np.array([s.startswith(("idle", "switching")) for s in self.states])

    @property
    def total_j(self) -> float:
        """Energy of all nodes, links and switches, in J."""
        return float(self.node_j.sum()) + self.network_j

    @property
    def network_j(self) -> float:
        """Energy of links and switches, in J; 0 if it is unknown."""
        return 0.0 if self.network is None else self.network.energy_j(self.begin_s, self.now_s)

    @property
    def wasted_j(self) -> float:
        """Energy of idle and switching nodes, in J; SPARS does not count sleep as waste."""
        return float(self.node_j[self.is_waste].sum())

    def state_s(self) -> dict[str, float]:
        """Return the node-seconds in each state."""
        return dict(zip(self.states, (self.spent_ms.sum(axis=1) / MS_PER_S).tolist(), strict=True))

    def figures(self) -> dict[str, Any]:
        """Return energies, node-seconds by state and the covered interval in one dict."""
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
        if self.network is not None:
            figures["network_energy_j"] = self.network_j
        for name, seconds in self.state_s().items():
            kind, _, which = name.partition(":")
            alone = not which or (self.cluster.depths < 2 and kind not in ("idle", "computing"))
            words = kind if alone else f"{kind}_{which}"
            figures[f"{words.replace(' ', '_')}_node_s"] = seconds
        return figures

    def spans(self) -> IntArray:
        """Return node, state row, start and end (ms) of all past node states [4, …].

        Raises:
            SimulationError: The simulation did not keep them.
        """
        if self.log is None:
            raise SimulationError("past node states are not kept; simulate with log=True")
        return self.log

    def power_over_time(self) -> tuple[FloatArray, FloatArray]:
        """Return times, in s, and the power of nodes, links and switches from each time on, in W.

        The last time is the end.

        Raises:
            SimulationError: The simulation did not keep past node states.
        """
        nodes = self._node_power()
        return nodes if self.network is None else self.network.add_to(*nodes)

    def _node_power(self) -> tuple[FloatArray, FloatArray]:
        """Return times, and the power of all nodes from each time on."""
        node, state, start, end = self.spans()
        return sum_over_time(start, end, self.watts[state, node])

    def cost(self, series: Series) -> float:
        """Return the cost or the emissions of all energy, in the series' unit.

        Args:
            series: Price or carbon intensity, with the simulation's time zero.

        Raises:
            SimulationError: The simulation did not keep past node states.
        """
        nodes = float(self.state_costs(series).sum())
        if self.network is None:
            return nodes
        return nodes + self.network.cost(series, self.begin_s, self.now_s)

    def state_costs(self, series: Series) -> FloatArray:
        """Return `cost` by state [states]."""
        node, state, start, end = self.spans()
        watts = self.watts[state, node]
        cost = watts * (series.integral(end / MS_PER_S) - series.integral(start / MS_PER_S))
        found: FloatArray = np.bincount(state, cost, minlength=len(self.states)).astype(np.float64)
        return found

    def job_costs(self, series: Series) -> pl.Series:
        """Return `cost` of each row of `jobs`: of the energy of its nodes while it ran."""
        return self._of_jobs(series.integral)

    def _of_jobs(self, integral: Callable[[FloatArray], FloatArray]) -> pl.Series:
        """Return each job's power times the rise of an integral while the job ran."""
        spans = self.node_map
        # Running jobs count up to now. Jobs whose nodes are still being switched on do not count.
        start = np.minimum(spans["start_s"].to_numpy(), self.now_s)
        until = spans["end_s"].fill_null(self.now_s).to_numpy()
        end = np.maximum(np.minimum(until, self.now_s), start)
        first = spans["first_node"].to_numpy()
        last = first + spans["count"].to_numpy()
        total = np.zeros(len(spans))
        for begin_s, end_s, watts in self._computing_watts():
            # Prefix sums over nodes give the power of any range of nodes.
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
        """Yield start and end (s) of periods with fixed modes, and computing power."""
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
        """End of the covered time, in seconds; it begins at ``begin_s``."""
        begin_ms = round(self.begin_s * MS_PER_S)
        return float(begin_ms + self.spent_ms[:, 0].sum()) / MS_PER_S

    def nodes(self) -> pl.DataFrame:
        """Return time and energy, one row per node and state.

        Columns are ``node``, ``group``, ``state``, ``time_s``, ``energy_j`` and ``wasted``.
        """
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
        """The jobs with ``energy_j``: what their nodes used, lost attempts included."""
        return self.table.with_columns(energy_j=self._of_jobs(lambda time_s: time_s))

    @check_arguments()
    def by(self, label: Literal["user", "account", "partition"]) -> pl.DataFrame:
        """Return the energy of jobs by user, account or partition, largest first.

        Args:
            label: Column to group by.

        Raises:
            UnknownNameError: It is none of these columns.
        """
        if label not in ("user", "account", "partition"):
            raise UnknownNameError("label", label, ("user", "account", "partition"))
        return (
            self.jobs.group_by(label)
            .agg(pl.len().alias("jobs"), pl.col("energy_j").sum())
            .sort("energy_j", descending=True)
        )
