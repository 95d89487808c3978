"""Simulating one workload on one cluster under one policy."""

from hpctwin.simulation.explain import Moment, explain
from hpctwin.simulation.replay import Replay, replay
from hpctwin.simulation.result import Result
from hpctwin.simulation.simulation import Simulation, simulate
from hpctwin.simulation.streamed import StreamedResult, simulate_stream
from hpctwin.simulation.window import Window, window

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
