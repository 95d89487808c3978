"""Simulating one workload on one cluster under one policy."""

from hpctwin.simulation.result import Result
from hpctwin.simulation.simulation import Simulation, simulate

__all__ = ["Result", "Simulation", "simulate"]
