"""The environment in which an agent says which job starts next.

After RLScheduler (Zhang et al., SC20): a window of the queue, some numbers of each job, and a reward at the
end of the episode. A job that is chosen and does not fit yet keeps the others waiting until it does.
"""

from __future__ import annotations

import os
from typing import Any, Literal

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from hpctwin.errors import ConfigError, SimulationError
from hpctwin.learn.episodes import Episodes
from hpctwin.metrics import with_job_metrics
from hpctwin.model import MS_PER_S, Cluster, Workload
from hpctwin.simulation import Simulation

__all__ = ["FEATURES", "JobSelection"]

FloatArray = npt.NDArray[np.float32]
Reward = Literal["bounded-slowdown", "wait"]

FEATURES = (
    "there", "wait", "walltime", "nodes", "fits", "free", "running", "behind",
)  # fmt: skip
"""Of each job in the window, all from 0 to 1: whether a job is there; its wait w as w / (w + an hour); its
walltime over a day, at most 1; its nodes over all nodes; whether it fits now; free nodes over all; the share
of nodes that are back within its walltime; jobs beyond the window, n / (n + size of the window)."""

_HOUR_S, _DAY_S = 3600.0, 86400.0


class JobSelection(gymnasium.Env[FloatArray, np.int64]):
    """Choose which of the first jobs in the queue starts next.

    An action is a place in the window, 0 the job that was submitted first; `action_masks` tells which
    places have a job (as sb3-contrib's maskable agents ask), and a place without one is an error. The step
    ends when the next choice is to be made: the job has started, and another one waits.

    Args:
        workload: the jobs, the path of a trace, or `Episodes`.
        cluster: the machine, a number of equal nodes, or the path of a machine's file; not with `Episodes`.
        jobs: of an episode.
        window: places.
        reward: given when the episode ends: the mean bounded slowdown or the mean wait in hours, below 0.

    Raises:
        ConfigError: there are too few jobs, or the window has no place.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        workload: Workload | Episodes | str | os.PathLike[str],
        cluster: Cluster | int | str | os.PathLike[str] | None = None,
        *,
        jobs: int = 256,
        window: int = 128,
        reward: Reward = "bounded-slowdown",
    ) -> None:
        if isinstance(workload, Episodes):
            self.episodes = workload
        elif cluster is None:
            raise ConfigError("JobSelection needs a cluster beside a workload, such as 256 nodes")
        else:
            self.episodes = Episodes.of(workload, cluster, jobs=jobs)
        if window < 1:
            raise ConfigError(f"the window has {window} places, it must have 1 or more")
        self.window, self.reward = window, reward
        self.observation_space = spaces.Box(0.0, 1.0, (window, len(FEATURES)), np.float32)
        self.action_space = spaces.Discrete(window)
        self._rows: npt.NDArray[np.int64] = np.zeros(0, np.int64)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[FloatArray, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: of which one is drawn.
            options: ``first`` for the one that begins with that job of the trace.
        """
        super().reset(seed=seed)
        first = (options or {}).get("first")
        jobs = (
            self.episodes.draw(self.np_random)
            if first is None
            else self.episodes.beginning_at(int(first))
        )
        self.simulation = Simulation(jobs, self.episodes.cluster, "fcfs", "outside")
        self._to_next_choice()
        return self._seen(), {}

    def step(self, action: np.int64) -> tuple[FloatArray, float, bool, bool, dict[str, Any]]:
        """Start the job at a place, as soon as it fits.

        Args:
            action: the place.

        Raises:
            SimulationError: there is no job, or the job can never start.
        """
        place = int(action)
        if not 0 <= place < len(self._rows):
            raise SimulationError(
                f"place {place} is empty: {len(self._rows)} jobs wait; take one that action_masks() allows"
            )
        job_id = self.simulation.workload.job_id[self._rows[place]].item()
        last = False
        while self.simulation.begin([job_id]):
            if last:
                raise SimulationError(f"job {job_id} can never start")
            last = self.simulation.advance(instants=1) == "done"
        over = self._to_next_choice()
        earned, info = self._earned() if over else (0.0, {})
        return self._seen(), earned, over, False, info

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Which places have a job [window]."""
        return np.arange(self.window) < len(self._rows)

    def _to_next_choice(self) -> bool:
        """Go on until a job waits; whether none ever will."""
        simulation, last = self.simulation, False
        while not simulation.state.clock.queued:
            if last:
                self._rows = np.zeros(0, np.int64)
                return True
            last = simulation.advance(instants=1) == "done"
        queue = simulation.state["queue"][: simulation.state.clock.queued]
        self._rows = np.sort(queue)[: self.window]
        return False

    def _earned(self) -> tuple[float, dict[str, Any]]:
        jobs = with_job_metrics(self.simulation.result().jobs)
        means = jobs.select("bounded_slowdown", "wait_s").mean().row(0)
        told = {"mean_bounded_slowdown": means[0], "mean_wait_s": means[1]}
        earned = means[0] if self.reward == "bounded-slowdown" else means[1] / _HOUR_S
        return -float(earned), told

    def _seen(self) -> FloatArray:
        simulation, rows = self.simulation, self._rows
        seen = np.zeros((self.window, len(FEATURES)), np.float32)
        if not len(rows):
            return seen
        workload, state = simulation.workload, simulation.state
        total, free = self.episodes.cluster.node_count, simulation.free_nodes()
        wait_s = simulation.now_s - workload.submit_ms[rows] / MS_PER_S
        walltime_s = workload.walltime_ms[rows] / MS_PER_S
        nodes = workload.nodes[rows]
        clock = state.clock
        run = state["run"][: clock.running]
        ends_s, back = run["planned"] / MS_PER_S, np.cumsum(workload.nodes[run["job"]])
        within = np.searchsorted(ends_s, simulation.now_s + walltime_s, side="right")
        behind = int(clock.queued) - len(rows)
        seen[: len(rows)] = np.column_stack(
            [
                np.ones(len(rows)),
                wait_s / (wait_s + _HOUR_S),
                np.minimum(walltime_s / _DAY_S, 1.0),
                nodes / total,
                nodes <= free,
                np.full(len(rows), free / total),
                np.concatenate([[0], back])[within] / total,
                np.full(len(rows), behind / (behind + self.window)),
            ]
        )
        return seen
