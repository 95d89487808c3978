"""Simulating one workload on one cluster under one policy."""

from hpctwin.simulation.explanation.story import Moment, explain
from hpctwin.simulation.replay.replay import Replay, replay
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
