"""How a simulation stands: what can be seen of it, without changing it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hpctwin.engine.operations.job_history import submitted_ms
from hpctwin.engine.state.sim import Sim
from hpctwin.errors import SimulationError
from hpctwin.model import MS_PER_S, Cluster, Workload, format_duration, to_ms
from hpctwin.model.text.shown import Shown
from hpctwin.policies import Policy
from hpctwin.simulation.lowering import power_states
from hpctwin.simulation.lowering.outages import Outages

if TYPE_CHECKING:
    from hpctwin.energy.sizing.sizing import Sizing

__all__ = ["Looks", "Sized"]

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Sized:
    """What is known of jobs whose sizes are decided.

    Args:
        expected_ms: what the scheduler expects each job to run on the nodes it asks for [jobs].
        done: by row, of each job that has run and was stopped: of its runtime, in ms on its nodes, what it
            had done then.
        again_s: when the sizing wants to be asked again, seconds.
        last_s: when something else than that happened last, seconds.
    """

    expected_ms: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    done: Mapping[int, Fraction] = field(default_factory=dict)
    again_s: float | None = None
    last_s: float = 0.0


class Looks(Shown):
    """What is seen of a simulation."""

    workload: Workload
    cluster: Cluster
    policy: Policy
    sizing: Sizing | None
    outside: power_states.Outside
    _sim: Sim
    _outages: list[Outages]

    def shown(self) -> tuple[str, dict[str, str]]:
        """See `Shown`."""
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
        """The policy's name, with what decides the sizes of jobs."""
        if self.sizing is None:
            return self.policy.name
        made = getattr(self.sizing, "name", None) or getattr(self.sizing, "__name__", "a sizing")
        return f"{self.policy.name} sized by {made}"

    @property
    def now_s(self) -> float:
        """The present instant, seconds."""
        return int(self._sim.clock.now) / MS_PER_S

    @property
    def done(self) -> bool:
        """Whether every job has come to its end."""
        return int(self._sim.clock.alive) == 0

    @property
    def node_states(self) -> list[str]:
        """The power state each node is in: ``idle``, ``computing``, ``sleeping:off`` … [nodes]."""
        return power_states.node_states(self._sim, self.cluster)

    @property
    def modes(self) -> list[str]:
        """The DVFS mode each node group is in."""
        return power_states.modes_of(self.cluster, self.outside)

    @property
    def state(self) -> Sim:
        """The engine's arrays; to be looked at, not changed."""
        return self._sim

    @property
    def submit_ms(self) -> npt.NDArray[np.int64]:
        """When each job was submitted; with a think time that is when it became eligible [jobs]."""
        return submitted_ms(self._sim, self.workload.submit_ms)

    def column(self, name: str) -> npt.NDArray[Any]:
        """How it goes with each job: ``eligible``, ``start`` and ``end`` in ms, -1 for not yet … [jobs].

        Args:
            name: a field of `engine.state.layout.JobState`.
        """
        found: npt.NDArray[Any] = self._sim["state"][name]
        return found

    def row_of(self, job_id: Any) -> int:
        """The row of a job.

        Raises:
            SimulationError: there is none such.
        """
        if job_id not in self._rows:
            raise SimulationError(f"there is no job {job_id!r} in {self.workload.name}")
        return self._rows[job_id]

    @cached_property
    def _rows(self) -> dict[Any, int]:
        """Rows by job id."""
        return {job_id: row for row, job_id in enumerate(self.workload.job_id.tolist())}

    def rejects(self) -> npt.NDArray[np.bool_]:
        """Whether each job can never run here [jobs]."""
        rejected: npt.NDArray[np.bool_] = self._sim["job"]["rejected"] != 0
        return rejected

    def nodes_by_pool(self, row: int) -> list[int]:
        """How many nodes of each pool a running job has."""
        if self._sim.pools > 1:
            return [int(n) for n in self._sim["taken"][row]]
        return [int(self._sim["job"]["nodes"][row])]

    def expected_ms(self) -> npt.NDArray[np.int64]:
        """What the scheduler expects each job to run, ms [jobs]."""
        expected: npt.NDArray[np.int64] = self._sim["job"]["expected"] - to_ms(self.cluster.cleanup)
        return expected

    def outages_so_far(self) -> Outages:
        """Node, start and end (ms) of all failures known of, whether they have come or not."""
        columns = zip(*self._outages, strict=True) if self._outages else [[np.zeros(0, int)]] * 3
        node, start, end = (np.concatenate(column) for column in columns)
        return node, start, end

    def snapshot(self) -> dict[str, Any]:
        """The present state in plain values: time, free nodes, jobs waiting and running."""
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
        """Nodes that are idle and up."""
        free = self._sim["stock"]["free"][: self._sim.pools]
        return int(np.maximum(free, 0).sum())
