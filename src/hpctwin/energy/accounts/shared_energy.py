"""Energy of nodes that jobs share: power by use, divided among the jobs.

A node draws its idle power, plus a share of the difference to its computing power. The share is the
used fraction of its cores or GPUs. If the component usage of a job is known, the difference under
that usage replaces the full difference in the job's share. The difference is divided among the
node's jobs by what each of them causes. Idle power is divided by what each of them holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.attributes import kept
from hpctwin.energy.accounts.accounting import Energy, NetworkPower, sum_over_time
from hpctwin.energy.accounts.component_energy import ComponentEnergy, Runs
from hpctwin.energy.power.job_power import Pieces, job_power
from hpctwin.energy.power.losses import Stretches
from hpctwin.energy.power.states import ModeChange, nodes_of_group, row_of_mode
from hpctwin.energy.prices.series import Series
from hpctwin.engine.state.layout import COMPUTING
from hpctwin.model import MS_PER_S, Cluster, NodeGroup, Workload
from hpctwin.model.cluster.power import node_w
from hpctwin.model.columns import ms_of

__all__ = ["SharedComponentEnergy", "SharedEnergy", "Use", "drawn_w", "energy_of"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
Integral = Callable[[FloatArray], FloatArray]

_SPAN = 1 << 44
"""Longer than any simulation, in ms: node and time form one sortable number."""

WHOLE = 1_000_000_000
"""Number of parts that fractions are counted in, so that their sums are exact."""


def drawn_w(
    idle_w: FloatArray, full_w: FloatArray, used: FloatArray, draws: FloatArray
) -> FloatArray:
    """Return the power of nodes that run jobs, in W.

    Args:
        idle_w: Idle power of each node, in W.
        full_w: Power of each node when all of it is used, in W.
        used: Sum of the fractions of the node that its jobs use.
        draws: The same sum, each fraction times the fraction of the power difference drawn under
            its use of components.
    """
    found: FloatArray = idle_w + (full_w - idle_w) * draws / np.maximum(used, 1.0)
    return found


@dataclass(frozen=True, eq=False)
class Use:
    """Use and allocation of nodes over time, in pieces ordered by node and time.

    Args:
        node: Node of each piece [n].
        start_ms: Start of each piece, in ms [n].
        end_ms: End of each piece, in ms [n].
        jobs: Number of jobs on the node [n].
        used: Sum of the fractions that the jobs use, in `WHOLE` [n].
        held: Sum of the fractions that the jobs hold, in `WHOLE` [n].
        draws: Sum of the fractions of the power difference that the jobs draw, in `WHOLE` [n].
        first: Piece at whose start each part of a job begins [parts].
        last: Piece at whose start each part has ended [parts].
    """

    node: IntArray
    start_ms: IntArray
    end_ms: IntArray
    jobs: IntArray
    used: IntArray
    held: IntArray
    draws: IntArray
    first: IntArray
    last: IntArray

    @classmethod
    def of(cls, parts: _Parts, cuts: IntArray) -> Use:
        """Make the pieces from parts of jobs, also cut at the given nodes and times."""
        begins, ends = parts.node * _SPAN + parts.start_ms, parts.node * _SPAN + parts.end_ms
        key = np.unique(np.concatenate([begins, ends, cuts]))
        first, last = np.searchsorted(key, begins), np.searchsorted(key, ends)

        def total(amount: IntArray) -> IntArray:
            change = np.zeros(len(key), np.int64)
            np.add.at(change, first, amount)
            np.subtract.at(change, last, amount)
            return np.cumsum(change)

        node, start = key // _SPAN, key & (_SPAN - 1)
        # After the last change of a node no job runs there.
        end = np.where(np.roll(node, -1) == node, np.roll(start, -1), start)
        end[-1:] = start[-1:]
        amounts = (np.ones_like(first), parts.used, parts.held, parts.draws)
        jobs, used, held, draws = (total(one) for one in amounts)
        return cls(node, start, end, jobs, used, held, draws, first, last)


@dataclass(frozen=True, eq=False)
class _Parts:
    """Parts of jobs on nodes: job row, node, times, fractions of the node [parts].

    A job with known component usage has a part for each of its samples.
    """

    job: IntArray
    node: IntArray
    start_ms: IntArray
    end_ms: IntArray
    used: IntArray
    held: IntArray
    draws: IntArray

    def rows(self, which: IntArray) -> _Parts:
        """Return some of the parts."""
        return _Parts(*(getattr(self, one.name)[which] for one in fields(self)))

    def since(self, begin_ms: int) -> _Parts:
        """Return the parts without the time before ``begin_ms``."""
        if not (self.start_ms < begin_ms).any():
            return self
        found = self.rows(np.flatnonzero(self.end_ms > begin_ms))
        return replace(found, start_ms=np.maximum(found.start_ms, begin_ms))


@dataclass(frozen=True, eq=False)
class _Divided(Energy):
    """Energy divided among jobs on shared nodes.

    ``node_map`` has the additional columns ``use`` and ``share``, from 0 to 1.
    """

    @kept
    def parts(self) -> _Parts:
        """Parts of jobs on nodes in the covered time."""
        return self._on_nodes().since(round(self.begin_s * MS_PER_S))

    def _on_nodes(self) -> _Parts:
        """Return the parts of jobs on nodes from their starts on, from the node map."""
        rows = pl.DataFrame({"job_id": self.table["job_id"], "row": np.arange(len(self.table))})
        found = self.node_map.join(rows, on="job_id", how="left", maintain_order="left")
        now_ms = round(self.now_s * MS_PER_S)
        start = ms_of(found["start_s"])
        end = np.minimum(ms_of(found["end_s"].fill_null(self.now_s)), now_ms)
        ran = end > start
        columns = (
            found["row"].to_numpy(), found["first_node"].to_numpy(), start, end,
            *(np.rint(found[name].to_numpy() * WHOLE).astype(np.int64) for name in ("use", "share")),
        )  # fmt: skip
        return _Parts(*(column[ran] for column in (*columns, columns[-2])))

    @kept
    def use(self) -> Use:
        """Use of nodes over time, cut where DVFS modes change."""
        cuts = [
            np.arange(nodes.start, nodes.stop) * _SPAN + change.time_ms
            for change in self.changes
            for nodes in [nodes_of_group(self.cluster, change.group)]
        ]
        return Use.of(self.parts, np.concatenate([np.zeros(0, np.int64), *cuts]))

    @kept
    def _draws(self) -> tuple[FloatArray, FloatArray, IntArray]:
        """Idle and full power (W) of each piece's node, and its row while computing."""
        size = self.cluster.node_count
        idle, full = self.watts[0].copy(), self.watts[COMPUTING].copy()
        row = np.full(size, COMPUTING)
        use = self.use
        found = idle[use.node], full[use.node], row[use.node]
        for change in self.changes:
            number = row_of_mode(self.cluster, self.changes, change)
            nodes = nodes_of_group(self.cluster, change.group)
            later = (use.node >= nodes.start) & (use.node < nodes.stop)
            later &= use.start_ms >= change.time_ms
            found[0][later] = self.watts[number][use.node[later]]
            found[1][later] = self.watts[number + 1][use.node[later]]
            found[2][later] = number + 1
        return found

    @kept
    def drawn(self) -> FloatArray:
        """Power of the node of each piece of `use` while a job runs on it, in W; else 0."""
        idle, full, _ = self._draws
        use = self.use
        found: FloatArray = drawn_w(idle, full, use.used / WHOLE, use.draws / WHOLE) * (
            use.jobs > 0
        )
        return found

    def _rise(self, integral: Integral) -> FloatArray:
        """Return the rise of an integral over time (s) in each piece of `use`."""
        use = self.use
        return integral(use.end_ms / MS_PER_S) - integral(use.start_ms / MS_PER_S)

    def _of_jobs(self, integral: Integral) -> pl.Series:
        use, parts = self.use, self.parts
        idle, full, _ = self._draws
        rise = self._rise(integral)
        runs = use.jobs > 0
        # Amounts per 1/WHOLE of a node: from the difference to idle power, and from idle power.
        marginal = (full - idle) * rise / np.maximum(use.used, WHOLE)
        held = np.where(runs & (use.held > 0), idle * rise / np.maximum(use.held, 1), 0.0)
        # If no job holds anything that is known of the node, the jobs share its idle power equally.
        alike = np.where(runs & (use.held == 0), idle * rise / np.maximum(use.jobs, 1), 0.0)

        def between(piece: FloatArray) -> FloatArray:
            total = np.concatenate([[0.0], np.cumsum(piece)])
            found: FloatArray = total[use.last] - total[use.first]
            return found

        each = parts.draws * between(np.where(runs, marginal, 0.0))
        each += parts.held * between(held) + between(alike)
        used = np.bincount(parts.job, each, minlength=len(self.table))
        return pl.Series("used", used.astype(np.float64))  # numpy returns integers for empty input


@dataclass(frozen=True, eq=False)
class SharedEnergy(_Divided):
    """`Energy` of nodes that jobs share."""

    @kept
    def node_j(self) -> FloatArray:
        """Energy of each node in each state, in J [states, nodes]."""
        return self._by_state(self.spent_ms * self.watts / MS_PER_S, lambda time_s: time_s)

    @property
    def computing_j(self) -> dict[str, FloatArray]:
        """Energy of each node while jobs of ``node_map`` were on it, in J [nodes], by state."""
        found = self._by_state(np.zeros_like(self.watts), lambda time_s: time_s)
        return dict(zip(self.states, found, strict=True))

    def _by_state(self, found: FloatArray, integral: Integral) -> FloatArray:
        """Set the rows of computing states to the amounts by use [states, nodes]."""
        use, (_, _, row) = self.use, self._draws
        size = found.shape[1]
        amount = self.drawn * self._rise(integral)
        for number in {COMPUTING, *np.unique(row).tolist()}:
            mine = row == number
            found[number] = np.bincount(use.node[mine], amount[mine], minlength=size)
        return found

    def state_costs(self, series: Series) -> FloatArray:
        """Return the cost by state, as in `Energy` [states]."""
        node, state, start, end = self.spans()
        rise = series.integral(end / MS_PER_S) - series.integral(start / MS_PER_S)
        found = np.zeros_like(self.watts)
        np.add.at(found, (state, node), self.watts[state, node] * rise)
        costs: FloatArray = self._by_state(found, series.integral).sum(axis=1)
        return costs

    def _node_power(self) -> tuple[FloatArray, FloatArray]:
        """Return times, and the power of all nodes from each time on; see `Energy`."""
        node, state, start, end = self.spans()
        computes = np.array([name.startswith("computing") for name in self.states])[state]
        use = self.use
        watts = np.where(computes, 0.0, self.watts[state, node])
        starts, ends = np.append(start, use.start_ms), np.append(end, use.end_ms)
        return sum_over_time(starts, ends, np.append(watts, self.drawn))


@dataclass(frozen=True, eq=False)
class SharedComponentEnergy(_Divided, ComponentEnergy):
    """`ComponentEnergy` of nodes that jobs share."""

    @kept
    def parts(self) -> _Parts:
        """Parts of jobs on nodes in the covered time, cut where their use of components changes."""
        if not self.usage:
            return super().parts
        parts = self._on_nodes()
        found = []
        for number, group in enumerate(self.cluster.nodes):
            nodes = nodes_of_group(self.cluster, number)
            own = parts.rows(
                np.flatnonzero((parts.node >= nodes.start) & (parts.node < nodes.stop))
            )
            power = job_power(group, self.usage, len(self.table), own.job)
            cut = power.pieces(own.job, own.start_ms, own.end_ms)
            idle, full = (node_w(group.components, use) for use in (0.0, 1.0))
            share = (cut.watts - idle) / (full - idle) if full > idle else np.zeros(len(cut.run))
            each = own.rows(cut.run)
            draws = np.rint(each.used * share).astype(np.int64)
            found.append(replace(each, start_ms=cut.start_ms, end_ms=cut.end_ms, draws=draws))
        columns = [one.name for one in fields(_Parts)]
        all_ = _Parts(*(np.concatenate([getattr(one, c) for one in found]) for c in columns))
        return all_.since(round(self.begin_s * MS_PER_S))

    def _runs_on(self, number: int, group: NodeGroup) -> Runs:
        nodes, use = nodes_of_group(self.cluster, number), self.use
        mine = np.flatnonzero(
            (use.jobs > 0) & (use.node >= nodes.start) & (use.node < nodes.stop) & (use.end_ms > use.start_ms)
        )  # fmt: skip
        each = np.arange(len(mine))
        idle, full = (np.full(len(mine), node_w(group.components, part)) for part in (0.0, 1.0))
        drawn = drawn_w(idle, full, use.used[mine] / WHOLE, use.draws[mine] / WHOLE)
        return Runs(
            each,
            np.ones(len(mine)),
            Stretches(use.node[mine] - nodes.start, np.ones(len(mine), np.int64), each),
            Pieces(each, use.start_ms[mine], use.end_ms[mine], drawn),
        )


def energy_of(
    workload: Workload,
    cluster: Cluster,
    jobs: pl.DataFrame,
    node_map: pl.DataFrame,
    spent_ms: IntArray,
    log: IntArray | None = None,
    changes: tuple[ModeChange, ...] = (),
    *,
    begin_s: float,
) -> Energy:
    """Return the energy of a run, as its capacity model and the cluster's power model account for it.

    Args:
        workload: the jobs.
        cluster: the cluster, of which it is known what its nodes draw.
        jobs: how the jobs went.
        node_map: where they ran; where they share nodes also what share they used and held.
        spent_ms: time of each node in each state, ms; this and what follows as of `Energy`.
        log: past states; None if not kept.
        changes: of DVFS modes so far.
        begin_s: from when on energy counts, seconds.
    """
    about = jobs, node_map, cluster, spent_ms, log, changes, workload.start_epoch_s, begin_s
    if all(group.components for group in cluster.nodes):
        kind = SharedComponentEnergy if workload.shares_nodes else ComponentEnergy
        return kind(*about, usage=workload.usage)
    network = NetworkPower.idle(cluster)
    return (SharedEnergy if workload.shares_nodes else Energy)(*about, network=network)
