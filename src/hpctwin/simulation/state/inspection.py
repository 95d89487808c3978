"""Read-only view of a simulation's state."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.engine.operations.job_history import submitted_ms
from hpctwin.engine.state.sim import Sim
from hpctwin.errors import SimulationError
from hpctwin.model import MS_PER_S, Cluster, Workload, format_duration, to_ms
from hpctwin.model.text import Shown
from hpctwin.policies import Policy
from hpctwin.simulation.lowering import power_states
from hpctwin.simulation.lowering.outages import Outages
from hpctwin.simulation.state.sizing import SizingHook

__all__ = ["Looks"]

IntArray = npt.NDArray[np.int64]


class Looks(Shown):
    """Properties of a simulation that do not change it."""

    workload: Workload
    cluster: Cluster
    policy: Policy
    sizing: SizingHook | None
    outside: power_states.Outside
    _sim: Sim
    _outages: list[Outages]

    def shown(self) -> tuple[str, dict[str, str]]:
        """Return title and lines of the summary; see `Shown`."""
        title = f"{self.workload.name} under {self.policy.name} on {self.cluster.name}"
        clock = self._sim.clock
        return title, {
            "from time zero": format_duration(self.now_s),
            "jobs": f"{len(self.workload):,}",
            "submitted": f"{clock.arrived:,}",
            "waiting": f"{clock.queued:,}",
            "running": f"{clock.running:,}",
        }

    @property
    def policy_name(self) -> str:
        """The policy's name, with the name of its sizing if it has one."""
        if self.sizing is None:
            return self.policy.name
        return f"{self.policy.name} sized by {self.sizing.name}"

    @property
    def now_s(self) -> float:
        """The present event time, in seconds."""
        return int(self._sim.clock.now) / MS_PER_S

    @property
    def done(self) -> bool:
        """Whether every job has ended."""
        return int(self._sim.clock.alive) == 0

    @property
    def node_states(self) -> list[str]:
        """Power state of each node: ``idle``, ``computing``, ``sleeping:off`` … [nodes]."""
        return power_states.node_states(self._sim, self.cluster)

    @property
    def modes(self) -> list[str]:
        """DVFS mode of each node group."""
        return power_states.modes_of(self.cluster, self.outside)

    @property
    def state(self) -> Sim:
        """The engine's arrays; read them, do not change them."""
        return self._sim

    @property
    def submit_ms(self) -> npt.NDArray[np.int64]:
        """Submit time of each job, or its eligible time if it has a think time, ms [jobs]."""
        return submitted_ms(self._sim, self.workload.submit_ms)

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return a state column, such as ``start`` in ms, -1 for not yet [jobs].

        Args:
            name: Name of a field of `engine.state.layout.JobState`.
        """
        found: npt.NDArray[Any] = self._sim["state"][name]
        return found

    def row_of(self, job_id: Any) -> int:
        """Return the row of a job.

        Raises:
            SimulationError: The workload has no such job.
        """
        if job_id not in self._rows:
            raise SimulationError(f"there is no job {job_id!r} in {self.workload.name}")
        return self._rows[job_id]

    @cached_property
    def _rows(self) -> dict[Any, int]:
        """Row of each job id."""
        return {job_id: row for row, job_id in enumerate(self.workload.job_id.tolist())}

    def rejects(self) -> npt.NDArray[np.bool_]:
        """Return which jobs can never run here [jobs]."""
        rejected: npt.NDArray[np.bool_] = self._sim["job"]["rejected"] != 0
        return rejected

    def nodes_by_pool(self, row: int) -> list[int]:
        """Return how many nodes of each pool a running job has [pools]."""
        if self._sim.pools > 1:
            return [int(n) for n in self._sim["taken"][row]]
        return [int(self._sim["job"]["nodes"][row])]

    def expected_ms(self) -> npt.NDArray[np.int64]:
        """Return the runtime that the scheduler expects of each job, in ms [jobs]."""
        expected: npt.NDArray[np.int64] = self._sim["job"]["expected"] - to_ms(self.cluster.cleanup)
        return expected

    def outages_so_far(self) -> Outages:
        """Return node, start and end (ms) of all known failures, past and future."""
        columns = zip(*self._outages, strict=True) if self._outages else [[np.zeros(0, int)]] * 3
        node, start, end = (np.concatenate(column) for column in columns)
        return node, start, end

    def snapshot(self) -> dict[str, Any]:
        """Return time, free nodes, pending and running jobs as plain values."""
        sim, clock = self._sim, self._sim.clock
        waiting = sim["queue"][: clock.queued]
        running = sim.running["job"]
        return {
            "now_s": self.now_s,
            "free_nodes": self.free_nodes(),
            "waiting": self.workload.job_id[np.sort(waiting)].tolist(),
            "running": self.workload.job_id[np.sort(running)].tolist(),
            "submitted": int(clock.arrived),
            "open": int(clock.alive),
        }

    def free_nodes(self) -> int:
        """Return the number of nodes that are idle and up."""
        free = self._sim["stock"]["free"][: self._sim.pools]
        return int(np.maximum(free, 0).sum())
