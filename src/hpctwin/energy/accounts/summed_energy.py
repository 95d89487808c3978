"""Energy of a run that keeps only sums of its past."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.attributes import kept
from hpctwin.energy.accounts.accounting import Energy
from hpctwin.energy.accounts.component_energy import ComponentEnergy
from hpctwin.energy.accounts.shared_energy import SharedEnergy
from hpctwin.engine.state.layout import COMPUTING
from hpctwin.model import MS_PER_S, Cluster

__all__ = ["EnergySums"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class _SummedEnergy(Energy):
    """`Energy` whose energy of computing nodes is summed up already.

    Args:
        computing_j: Energy of each node while jobs were on it, in J [nodes], by state.
    """

    computing_j: Mapping[str, FloatArray] = field(default_factory=dict)

    @kept
    def node_j(self) -> FloatArray:
        """Energy of each node in each state, in J [states, nodes]."""
        found: FloatArray = self.spent_ms * self.watts / MS_PER_S
        for row, name in enumerate(self.states):
            if name.startswith("computing"):
                found[row] = self.computing_j.get(name, 0.0)
        return found


@dataclass(frozen=True, eq=False)
class _SummedComponentEnergy(_SummedEnergy, ComponentEnergy):
    """`ComponentEnergy` of a run without mode changes.

    Args:
        summed_j: Energy of each of `losses.PARTS`, in J.
        summed_s: `ComponentEnergy.used_s` by node group and component.
    """

    summed_j: Mapping[str, float] = field(default_factory=dict)
    summed_s: Mapping[tuple[int, str], FloatArray] = field(default_factory=dict)

    @property
    def parts_j(self) -> Mapping[str, float]:
        """Energy of each of `losses.PARTS`, in J."""
        return self.summed_j

    def used_s(self, number: int, name: str) -> tuple[float, float]:
        """See `ComponentEnergy`."""
        used_s, sure_s = self.summed_s[number, name].tolist()
        return used_s, sure_s


class EnergySums:
    """Sums of the energy of a run, from window to window.

    Args:
        cluster: The cluster; its nodes have a power model.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._computing_j: defaultdict[str, FloatArray] = defaultdict(
            lambda: np.zeros(cluster.node_count)
        )
        self._parts_j: defaultdict[str, float] = defaultdict(float)
        self._used_s: defaultdict[tuple[int, str], FloatArray] = defaultdict(lambda: np.zeros(2))
        self._spent_ms: IntArray | None = None
        self._until_s = 0.0

    def window(self, until: Energy) -> Energy | None:
        """Add the time since the previous window, and return its energy; None if there is none.

        Args:
            until: Energy of the run up to the end of the window. It needs the past states and the
                jobs that end after the previous window.
        """
        found, begin_s, before_ms = until, self._until_s, self._spent_ms
        if before_ms is not None:
            if until.now_s <= begin_s:
                return None
            log = until.log
            if log is not None:
                log = log.copy()
                log[2] = np.maximum(log[2], round(begin_s * MS_PER_S))
            spent_ms = until.spent_ms.copy()
            spent_ms[: len(before_ms)] -= before_ms  # modes that occur first have further rows
            found = replace(until, begin_s=begin_s, spent_ms=spent_ms, log=log)
        self._until_s, self._spent_ms = until.now_s, until.spent_ms
        if isinstance(found, SharedEnergy):
            for state, joules in found.computing_j.items():
                self._computing_j[state] += joules
        if isinstance(found, ComponentEnergy):
            self._computing_j["computing"] += found.node_j[COMPUTING]
            for part, part_j in found.parts_j.items():
                self._parts_j[part] += part_j
            if found.is_uncertain:
                for number, group in enumerate(found.cluster.nodes):
                    for name in group.components:
                        self._used_s[number, name] += found.used_s(number, name)
        return found

    def total(self, last: Energy) -> Energy:
        """Return the energy of the whole run.

        Args:
            last: Energy up to the end of the last window. Only its times in states need be complete.
        """
        about = last.table, last.node_map, last.cluster, last.spent_ms, None
        more: dict[str, Any] = {
            "begin_s": last.begin_s, "computing_j": self._computing_j, "changes": last.changes,
        }  # fmt: skip
        if isinstance(last, ComponentEnergy):
            more |= {"summed_j": self._parts_j, "summed_s": self._used_s}
            return _SummedComponentEnergy(*about, **more)
        if isinstance(last, SharedEnergy):
            return _SummedEnergy(*about, network=last.network, **more)
        return last
