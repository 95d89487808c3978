"""Node power states: platforms, power policies, energy accounts."""

from hpctwin.energy.accounting import Energy
from hpctwin.energy.platform import Mode, NodePower, Platform, Sleep, Transition
from hpctwin.energy.power import PowerPolicy
from hpctwin.energy.simulation import PoweredSimulation, simulate_powered

__all__ = [
    "Energy",
    "Mode",
    "NodePower",
    "Platform",
    "PowerPolicy",
    "PoweredSimulation",
    "Sleep",
    "Transition",
    "simulate_powered",
]
