"""Common part of all environments: rendering, and the treatment of invalid actions."""

from __future__ import annotations

import operator
from abc import abstractmethod
from typing import Any, ClassVar, Literal, TypeVar, get_args

import gymnasium
import numpy as np
import numpy.typing as npt

from hpctwin.errors import ConfigError, SimulationError, UnknownNameError
from hpctwin.learn.environments.vector_base import NOT_BEGUN, AgentVectorEnv
from hpctwin.model import MS_PER_S
from hpctwin.model.text import count_text, format_duration
from hpctwin.simulation import Simulation

__all__ = ["InvalidAction", "SchedulingEnv"]

FloatArray = npt.NDArray[np.float32]
Act = TypeVar("Act")

InvalidAction = Literal["ignore", "raise"]
"""Treatment of actions of the action space that are not available in the present state.

- ``ignore``: nothing happens and no time passes; ``info["invalid_action"]`` is True.
- ``raise``: SimulationError.
"""

DPI = 100
SIZE_IN = (6.4, 3.2)
"""Width of a frame, and its height for each cluster."""


class SchedulingEnv(gymnasium.Env[FloatArray, Act]):
    """Environment with one or more clusters that can be rendered.

    Args:
        render_mode: ``ansi`` for text, ``rgb_array`` for an image; None for neither.
        invalid_action: Treatment of actions that are not available; see `InvalidAction`.

    Raises:
        UnknownNameError: There is no such mode or treatment.
    """

    metadata: ClassVar[dict[str, Any]] = {  # type: ignore[misc]
        "render_modes": ["ansi", "rgb_array"],
        "render_fps": 4,
    }

    def __init__(self, render_mode: str | None, invalid_action: InvalidAction) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise UnknownNameError("render mode", str(render_mode), self.metadata["render_modes"])
        if invalid_action not in get_args(InvalidAction):
            raise UnknownNameError("invalid_action", invalid_action, list(get_args(InvalidAction)))
        self.render_mode = render_mode
        self.invalid_action = invalid_action
        self.begun = False

    @abstractmethod
    def clusters(self) -> dict[str, Simulation]:
        """Return the simulation of each cluster by name."""

    @abstractmethod
    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Return which choices are available, as maskable agents of sb3-contrib expect."""

    @abstractmethod
    def many(self, count: int, threads: int | None = None) -> AgentVectorEnv:
        """Return environments like this one, stepped together.

        Args:
            count: Number of environments.
            threads: Number of threads, if they are stepped in compiled code; None for the number
                of cores.
        """

    def choice_of(self, action: Any) -> int:
        """Return an action that is the number of a choice.

        Raises:
            SimulationError: No episode has begun, or the action is not in the action space.
        """
        if not self.begun:
            raise SimulationError(NOT_BEGUN)
        try:
            choice = operator.index(action)
        except TypeError:
            choice = -1
        if not self.action_space.contains(choice):
            raise SimulationError(
                f"action is {action!r:.60}; it must be in the action space {self.action_space}"
            )
        return choice

    def render(self) -> Any:
        """Return the present state of the clusters as text or as an image.

        Raises:
            ConfigError: There is no render mode, or no episode has begun.
        """
        if self.render_mode is None:
            raise ConfigError(
                "environment has no render mode; make it with render_mode='ansi' or 'rgb_array'"
            )
        if not self.begun:
            raise ConfigError(NOT_BEGUN)
        draw = _text if self.render_mode == "ansi" else _image
        return draw(self.clusters())


def _text(clusters: dict[str, Simulation]) -> str:
    now_s = max(simulation.now_s for simulation in clusters.values())
    lines = [f"time {format_duration(now_s)}"]
    for name, simulation in clusters.items():
        start, end, _ = _jobs(simulation)
        running = int(((start >= 0) & (end > simulation.now_s)).sum())
        total = simulation.cluster.node_count
        lines.append(
            f"{name}: {simulation.free_nodes():,} of {count_text(total, 'node')} free, "
            f"{running:,} running, {int(simulation.state.clock.queued):,} pending, "
            f"{int((start >= 0).sum()) - running:,} ended"
        )
    return "\n".join(lines) + "\n"


def _jobs(simulation: Simulation) -> tuple[Any, Any, Any]:
    """Return start and end of each job, s, and its nodes; -1 for not yet, inf for running."""
    start = simulation.column("start") / MS_PER_S
    end = simulation.column("end") / MS_PER_S
    running = (start >= 0) & ((end < start) | (end > simulation.now_s))
    return start, np.where(running, np.inf, end), simulation.workload.nodes


def _image(clusters: dict[str, Simulation]) -> npt.NDArray[np.uint8]:
    """Return nodes in use and pending jobs over time, for each cluster."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from hpctwin.report.figures.style import color, new_figure

    width, height = SIZE_IN
    figure = new_figure(height * len(clusters), width)
    figure.set_dpi(DPI)
    for ax, (name, simulation) in zip(
        np.atleast_1d(figure.subplots(len(clusters), 1)), clusters.items(), strict=True
    ):
        start, end, nodes = _jobs(simulation)
        began = start >= 0
        queue = simulation.state["queue"][: simulation.state.clock.queued]
        submit = simulation.submit_ms / MS_PER_S
        known = np.flatnonzero(began)
        pending = np.concatenate([submit[known], submit[queue]])
        now_s = simulation.now_s
        ax.step(*_steps(start[began], end[began], nodes[began], now_s), where="post")
        ax.set(ylim=(0, 1.05 * simulation.cluster.node_count), ylabel="nodes in use", title=name)
        right = ax.twinx()
        right.step(
            *_steps(pending, np.concatenate([start[known], np.full(len(queue), np.inf)]), 1, now_s),
            where="post",
            color=color(1),
        )
        right.set(ylim=(0, None), ylabel="pending jobs")
        ax.set(xlim=(0, max(now_s, 1.0) / 3600), xlabel="time, h")
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    pixels: npt.NDArray[np.uint8] = np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
    return pixels[..., :3].copy()


def _steps(begin: Any, end: Any, amount: Any, now_s: float) -> tuple[Any, Any]:
    """Return times, h, and the sum of amounts that have begun and not ended, up to now."""
    amounts = np.broadcast_to(amount, len(begin))
    times = np.concatenate([begin, end])
    changes = np.concatenate([amounts, -amounts])
    order = np.argsort(times, kind="stable")
    order = order[times[order] <= now_s]
    total = np.cumsum(changes[order])
    # Of changes at one time, only the sum after the last is a state.
    final = np.append(np.diff(times[order]) > 0, np.ones(len(order[:1]), np.bool_))
    order, total = order[final], total[final]
    last = total[-1:] if len(total) else np.zeros(1)
    return (
        np.concatenate([[0.0], times[order], [now_s]]) / 3600,
        np.concatenate([[0.0], total, last]),
    )
