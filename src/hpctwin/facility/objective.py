"""Objectives of simulation-guided strategies: costs of a job on a cluster."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from hpctwin.errors import ConfigError, UnknownNameError
from hpctwin.facility.config import FacilityCluster
from hpctwin.facility.strategy import View

__all__ = ["OBJECTIVES", "PlacementObjective", "parse_objective"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PlacementObjective:
    """A weighted sum of costs; the lowest is the best.

    Args:
        weights: Name (see `OBJECTIVES`) and weight of each cost, in the order written. With several
            costs, each is divided by its mean size over the compared clusters before it is
            weighted, because the units differ. Costs below zero are those of negative prices.
    """

    weights: tuple[tuple[str, float], ...]

    @property
    def name(self) -> str:
        """Text of the objective in the form that `parse_objective` reads."""
        return "+".join(
            name if weight == 1 else f"{weight:g}*{name}" for name, weight in self.weights
        )

    @property
    def single(self) -> str | None:
        """Name of the only cost; None if there are several."""
        return self.weights[0][0] if len(self.weights) == 1 else None

    @property
    def names(self) -> list[str]:
        """Names of the costs."""
        return [name for name, _ in self.weights]

    def scores(self, costs: FloatArray) -> FloatArray:
        """Return the score of each cluster [clusters]."""
        if len(self.weights) == 1:
            only: FloatArray = costs[0]
            return only
        mean = np.abs(costs).mean(axis=1, keepdims=True)
        scaled = np.divide(costs, mean, out=np.zeros_like(costs), where=mean > 0)
        total: FloatArray = np.array([weight for _, weight in self.weights]) @ scaled
        return total


def parse_objective(text: str) -> PlacementObjective:
    """Read ``turnaround`` or ``turnaround + 0.5*energy``.

    Raises:
        UnknownNameError: A cost is unknown.
        ConfigError: A weight is not a number above 0, or a cost occurs twice.
    """
    weights: dict[str, float] = {}
    for part in text.split("+"):
        match = re.fullmatch(r"\s*(?:([\d.eE-]+)\s*\*)?\s*([a-z]+)\s*", part)
        if match is None:
            raise ConfigError(f"objective {text!r}: {part.strip()!r} is not a cost or WEIGHT*cost")
        if match[2] not in OBJECTIVES:
            raise UnknownNameError("objective", match[2], OBJECTIVES)
        if match[2] in weights:
            raise ConfigError(f"objective {text!r}: {match[2]} is listed twice; list it once")
        try:
            weights[match[2]] = float(match[1] or 1)
        except ValueError as error:
            raise ConfigError(f"objective {text!r}: {match[1]!r} is not a number") from error
        if not weights[match[2]] > 0:
            raise ConfigError(f"objective {text!r}: the weight of {match[2]} must be above 0")
    return PlacementObjective(tuple(weights.items()))


@dataclass(frozen=True)
class PlacementForecast:
    """Forecast of a job on a cluster.

    Args:
        row: Row of the job.
        start_ms, end_ms: Start and end of the job, in ms.
        others_s: Time that the job adds to the sum of all other jobs' turnarounds, in seconds.
    """

    row: int
    start_ms: int
    end_ms: int
    others_s: float = 0.0


def energy_j(cluster: FacilityCluster, nodes: float, seconds: float) -> float:
    """Return the energy of nodes in use, in J."""
    return cluster.node_w * nodes * seconds


def price(
    cluster: FacilityCluster,
    nodes: npt.ArrayLike,
    start_s: npt.ArrayLike,
    end_s: npt.ArrayLike,
    epoch_s: float | None = None,
) -> float:
    """Return the price of node hours and electricity; for arguments see `carbon_g`."""
    hours = np.dot(nodes, np.subtract(end_s, start_s)) / 3600
    electricity = _by_rate(cluster, "price", nodes, start_s, end_s, epoch_s)
    return float(cluster.node_hour_price * hours + electricity)


def carbon_g(
    cluster: FacilityCluster,
    nodes: npt.ArrayLike,
    start_s: npt.ArrayLike,
    end_s: npt.ArrayLike,
    epoch_s: float | None = None,
) -> float:
    """Return the carbon of the electricity that jobs use, in g, integrated over time.

    Args:
        cluster: The cluster.
        nodes: Number of nodes of each job [jobs], or of one job.
        start_s: Start of each job, in seconds of the workload's time [jobs].
        end_s: End of each job, in seconds of the workload's time [jobs].
        epoch_s: Unix time of the workload's time zero; None if unknown.
    """
    return _by_rate(cluster, "carbon", nodes, start_s, end_s, epoch_s)


def _by_rate(
    cluster: FacilityCluster,
    name: Literal["price", "carbon"],
    nodes: npt.ArrayLike,
    start_s: npt.ArrayLike,
    end_s: npt.ArrayLike,
    epoch_s: float | None,
) -> float:
    series = cluster.series(name, epoch_s)
    spans = series.integral(end_s) - series.integral(start_s)
    return float(cluster.node_w * np.dot(nodes, spans))


def _turnaround(cluster: FacilityCluster, job: PlacementForecast, state: View) -> float:
    return (job.end_ms - int(state.workload.submit_ms[job.row])) / 1000


def _wait(cluster: FacilityCluster, job: PlacementForecast, state: View) -> float:
    return (job.start_ms - int(state.workload.submit_ms[job.row])) / 1000


def _energy(cluster: FacilityCluster, job: PlacementForecast, state: View) -> float:
    return energy_j(cluster, _nodes(cluster, job, state), _run_s(job))


def _cost(cluster: FacilityCluster, job: PlacementForecast, state: View) -> float:
    return price(cluster, _nodes(cluster, job, state), *_span_s(job), state.workload.start_epoch_s)


def _carbon(cluster: FacilityCluster, job: PlacementForecast, state: View) -> float:
    nodes = _nodes(cluster, job, state)
    return carbon_g(cluster, nodes, *_span_s(job), state.workload.start_epoch_s)


def _total(cluster: FacilityCluster, job: PlacementForecast, state: View) -> float:
    return _turnaround(cluster, job, state) + job.others_s


def _nodes(cluster: FacilityCluster, job: PlacementForecast, state: View) -> float:
    return float(state.jobs.counted[state.facility.names.index(cluster.name), job.row])


def _span_s(job: PlacementForecast) -> tuple[float, float]:
    return job.start_ms / 1000, job.end_ms / 1000


def _run_s(job: PlacementForecast) -> float:
    return (job.end_ms - job.start_ms) / 1000


OBJECTIVES: dict[str, Callable[[FacilityCluster, PlacementForecast, View], float]] = {
    "turnaround": _turnaround,
    "wait": _wait,
    "energy": _energy,
    "cost": _cost,
    "carbon": _carbon,
    "total": _total,
}
"""Costs of a job on a cluster, in seconds, J, money or g.

``total`` is the turnaround of the job plus the time that it adds to the turnarounds of other jobs
there.
"""
