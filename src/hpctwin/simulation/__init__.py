"""Simulating one workload on one cluster under one policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpctwin.lazy import lazy_names

if TYPE_CHECKING:
    from hpctwin.simulation.explanation import Moment, explain
    from hpctwin.simulation.replays.replay import Replay, replay
    from hpctwin.simulation.result.result import Result
    from hpctwin.simulation.running.simulation import Simulation, simulate
    from hpctwin.simulation.running.window import Window, window
    from hpctwin.simulation.streaming.stream import StreamedResult, simulate_stream

__all__ = [
    "Moment",
    "Replay",
    "Result",
    "Simulation",
    "StreamedResult",
    "Window",
    "explain",
    "replay",
    "simulate",
    "simulate_stream",
    "window",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "explanation": ("Moment", "explain"),
        "replays.replay": ("Replay", "replay"),
        "result.result": ("Result",),
        "running.simulation": ("Simulation", "simulate"),
        "running.window": ("Window", "window"),
        "streaming.stream": ("StreamedResult", "simulate_stream"),
    },
)
