"""Energy accounts of nodes whose power follows the load that jobs give them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.attributes import kept
from hpctwin.energy.accounts.accounting import Energy, sum_over_time
from hpctwin.energy.power.modes import mode_row, mode_rows
from hpctwin.energy.power.states import nodes_of_group
from hpctwin.energy.prices.series import Series
from hpctwin.engine.state.layout import COMPUTING
from hpctwin.model import MS_PER_S

__all__ = ["LoadEnergy"]

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
