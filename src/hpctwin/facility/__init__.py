"""Facilities of several clusters, and strategies that choose one for each job."""

from hpctwin.facility.config import Facility, FacilityCluster, Kind, Origin, Staging
from hpctwin.facility.simulate import (
    FacilityResult,
    FacilitySimulation,
    compare_strategies,
    simulate_facility,
)
from hpctwin.facility.strategies import STRATEGIES, parse_strategy
from hpctwin.facility.strategy import Strategy, View

__all__ = [
    "STRATEGIES",
    "Facility",
    "FacilityCluster",
    "FacilityResult",
    "FacilitySimulation",
    "Kind",
    "Origin",
    "Staging",
    "Strategy",
    "View",
    "compare_strategies",
    "parse_strategy",
    "simulate_facility",
]
