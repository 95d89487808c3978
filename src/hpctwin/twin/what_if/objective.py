"""The objective: scores what-ifs; the candidate with the lowest score wins.

Each cost is normalized over the candidates, so that seconds and ratios can be added. The SchedTwin
paper (arXiv 2512.18894, §3.4, §4.1) takes the highest weighted sum of waits and slowdowns, without
normalization. Both are costs, so here the lowest wins.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt

from hpctwin.errors import ConfigError, HpctwinError, PolicyError, UnknownNameError
from hpctwin.model.files.user_functions import load_module, named_in
from hpctwin.model.input.cached_attributes import kept

__all__ = ["METRICS", "PAPER_WEIGHTS", "Metric", "Normalise", "Objective", "Outlook"]

FloatArray = npt.NDArray[np.float64]
Normalise = Literal["mean", "best", "range", "none"]

LEAST_S = 0.001
"""Runtimes are counted as this at least, so that a slowdown is a number."""


@dataclass(frozen=True)
class Outlook:
    """Result of one or of P what-ifs, for the J jobs that count and the cluster.

    Args:
        submit_s: Submission of each job, in seconds since the epoch [J].
        start_s, end_s: Start and end of each job, in seconds since the epoch; [J] for one what-if,
            [P, J] for several.
        nodes: Number of nodes of each job [J].
        now_s: Start of the what-if, in seconds since the epoch.
        machine_nodes: Number of nodes of the cluster.
        busy: Function that computes ``busy_node_s``, called when that is first read.
        begin_s: where the span of utilization begins.
        energy_j: what all nodes draw from ``now_s`` until the last job has ended, or to the what-if's
            horizon, J; NaN where that is not known; [P] of several.
    """

    submit_s: FloatArray
    start_s: FloatArray
    end_s: FloatArray
    nodes: FloatArray
    now_s: float
    machine_nodes: int
    busy: Callable[[], float | FloatArray]
    begin_s: float
    energy_j: float | FloatArray = math.nan

    @kept
    def busy_node_s(self) -> float | FloatArray:
        """Node-seconds in use by all jobs from ``begin_s`` on; [P] for several what-ifs."""
        return self.busy()

    @kept
    def wait_s(self) -> FloatArray:
        """From submission to start, of each job; as `start_s`."""
        return self.start_s - self.submit_s

    @kept
    def runtime_s(self) -> FloatArray:
        """From start to end, of each job; as `start_s`."""
        return self.end_s - self.start_s

    def each(self) -> list[Outlook]:
        """Return one outlook for each of several what-ifs."""
        assert isinstance(self.busy_node_s, np.ndarray)
        assert isinstance(self.energy_j, np.ndarray)
        own = (self.start_s, self.end_s, self.busy_node_s.tolist(), self.energy_j.tolist())
        return [
            replace(
                self, start_s=start_s, end_s=end_s, busy=partial(float, busy), energy_j=energy_j
            )
            for start_s, end_s, busy, energy_j in zip(*own, strict=True)
        ]

    def slowdown(self, least_s: float = LEAST_S) -> FloatArray:
        """Turnaround over runtime, runtimes counted as ``least_s`` at least, and 1 at least; as `start_s`."""
        return self._plain_slowdown if least_s == LEAST_S else self._slowdown(least_s)

    @kept
    def _plain_slowdown(self) -> FloatArray:
        return self._slowdown(LEAST_S)

    def _slowdown(self, least_s: float) -> FloatArray:
        runtime = np.maximum(self.runtime_s, least_s)
        return np.maximum(1.0, (self.wait_s + self.runtime_s) / runtime)


@dataclass(frozen=True)
class Metric:
    """A figure of an outlook.

    Args:
        of: computes it; of several what-ifs, one of each.
        larger_is_better: its direction.
        unit: for showing it; ``s``, ``J`` or nothing.
    """

    of: Callable[[Outlook], float | FloatArray]
    larger_is_better: bool = False
    unit: str = ""


def _span_s(outlook: Outlook) -> FloatArray:
    last: FloatArray = outlook.end_s.max(axis=-1, initial=outlook.now_s)
    return last - outlook.begin_s


def _utilization(outlook: Outlook) -> FloatArray:
    span = _span_s(outlook)
    node_s = np.where(span > 0, span, np.inf) * outlook.machine_nodes
    found: FloatArray = outlook.busy_node_s / node_s
    return found


METRICS: dict[str, Metric] = {
    "max_wait_s": Metric(lambda o: _max(o.wait_s), unit="s"),
    "mean_wait_s": Metric(lambda o: _mean(o.wait_s), unit="s"),
    "p95_wait_s": Metric(lambda o: _quantile(o.wait_s, 0.95), unit="s"),
    "max_slowdown": Metric(lambda o: _max(o.slowdown())),
    "mean_slowdown": Metric(lambda o: _mean(o.slowdown())),
    "max_bounded_slowdown": Metric(lambda o: _max(o.slowdown(10.0))),
    "mean_bounded_slowdown": Metric(lambda o: _mean(o.slowdown(10.0))),
    "mean_turnaround_s": Metric(lambda o: _mean(o.end_s - o.submit_s), unit="s"),
    "node_weighted_wait_s": Metric(lambda o: _weighted(o.wait_s, o.nodes), unit="s"),
    "makespan_s": Metric(_span_s, unit="s"),
    "utilization": Metric(_utilization, larger_is_better=True),
    "energy_j": Metric(lambda o: o.energy_j, unit="J"),
}
"""What an objective may weigh, by name."""

PAPER_WEIGHTS = {
    "max_wait_s": 0.25,
    "max_slowdown": 0.25,
    "mean_wait_s": 0.25,
    "mean_slowdown": 0.25,
}
"""Weights of the SchedTwin paper (§4.1)."""


class Objective:
    """Gives each candidate a score; the lowest wins.

    Args:
        weights: Weight of each metric, by name. The score is the sum of weight times normalized
            cost over the metrics.
        normalise: Normalization of a metric over the candidates. ``mean`` and ``best`` divide by
            their mean or best value; ``range`` maps the best to 0 and the worst to 1; or ``none``.
        function: Function ``module:function`` or ``FILE.py:function`` that returns the cost of an
            `Outlook`, instead of weights.

    Raises:
        UnknownNameError: A metric is unknown.
        ConfigError: A weight is not a number of 0 or more, all weights are 0, or the function does
            not exist.
    """

    def __init__(
        self,
        weights: Mapping[str, float] | None = None,
        *,
        normalise: Normalise = "mean",
        function: str | None = None,
    ) -> None:
        self.weights = dict(PAPER_WEIGHTS if weights is None else weights)
        self.normalise = normalise
        self.function = None if function is None else _load(function)
        for name, weight in self.weights.items():
            if name not in METRICS:
                raise UnknownNameError("metric", name, list(METRICS))
            if not (np.isfinite(weight) and weight >= 0):
                raise ConfigError(f"objective: weight of {name} is {weight}, it must be 0 or more")
        if self.function is None and not any(self.weights.values()):
            raise ConfigError("objective: all weights are 0; give at least one metric a weight")

    def measure(self, outlook: Outlook) -> dict[str, float]:
        """Return the metrics of one what-if that its score depends on.

        Raises:
            HpctwinError: The custom function fails or does not return a number.
        """
        if self.function is None:
            return {name: float(METRICS[name].of(outlook)) for name in self.weights}
        try:
            given = self.function(outlook)
            if inspect.iscoroutine(given):
                given.close()
                raise TypeError("it is an async def; write def")
            cost = float(given)
        except (Exception, SystemExit) as error:
            raise HpctwinError(f"the objective's function failed: {error!r}") from error
        if not np.isfinite(cost):
            raise HpctwinError(f"the objective's function gave {cost}, it must be finite")
        return {"cost": cost}

    def measure_all(self, outlook: Outlook) -> list[dict[str, float]]:
        """Return the metrics of each of several what-ifs; see `measure`."""
        if self.function is not None:
            return [self.measure(one) for one in outlook.each()]
        columns = [np.asarray(METRICS[name].of(outlook)).tolist() for name in self.weights]
        return [dict(zip(self.weights, row, strict=True)) for row in zip(*columns, strict=True)]

    def scores(self, measured: Sequence[Mapping[str, float]]) -> list[float]:
        """Return each candidate's score from the result of `measure`; lower is better."""
        if self.function is not None:
            return [m["cost"] for m in measured]
        table = np.array([[m[name] for m in measured] for name in self.weights])
        for values, name in zip(table, self.weights, strict=True):
            if METRICS[name].larger_is_better:
                # Turned about its best possible value, so that a cost of 0 stays the ideal.
                values[:] = 1.0 - values if name == "utilization" else -values
        weighted = np.array([*self.weights.values()])[:, None] * normalised(table, self.normalise)
        scores: list[float] = np.add.reduce(weighted, axis=0, initial=0.0).tolist()
        return scores


def normalised(values: FloatArray, how: Normalise) -> FloatArray:
    """Return the candidates' costs normalized; see `Objective` […, candidates].

    Args:
        values: Costs of the candidates […, candidates].
        how: Kind of normalization.
    """
    if how == "none":
        return values
    mean = _mean(values)[..., None]
    if how == "mean":
        return _parts(values, mean)
    least = values.min(axis=-1, keepdims=True)
    if how == "range":
        return _parts(values - least, values.max(axis=-1, keepdims=True) - least)
    # If the best is 0, nothing can be divided by it, and the mean is used.
    return _parts(values, np.where(least > 0, least, mean))


def _parts(values: FloatArray, base: FloatArray) -> FloatArray:
    """Return values divided by a base; 0 where the base is not positive."""
    shares: FloatArray = np.divide(values, base, out=np.zeros(values.shape), where=base > 0)
    return shares


def _max(values: FloatArray) -> FloatArray:
    largest: FloatArray = np.maximum.reduce(values, axis=-1, initial=0.0)
    return largest


def _mean(values: FloatArray) -> FloatArray:
    # As `values.mean()`, in a third of the time where they are few.
    mean: FloatArray = np.add.reduce(values, axis=-1) / max(values.shape[-1], 1)
    return mean


def _quantile(values: FloatArray, q: float) -> FloatArray:
    found: FloatArray = np.quantile(values, q, axis=-1) if values.shape[-1] else _mean(values)
    return found


def _weighted(values: FloatArray, weights: FloatArray) -> FloatArray:
    found: FloatArray = (values * weights).sum(axis=-1) / (weights.sum() or 1.0)
    return found


def _load(path: str) -> Callable[[Outlook], float]:
    module, colon, name = path.rpartition(":")
    if not (module and colon and name):
        raise ConfigError(
            f"objective: function {path!r} must be written as module:function or FILE.py:function"
        )
    try:
        function = named_in(load_module(module), name, module)
    except (PolicyError, UnknownNameError) as error:
        raise ConfigError(f"objective: function {path!r} cannot be loaded: {error}") from error
    if not callable(function):
        raise ConfigError(f"objective: {path!r} is not a function")
    found: Callable[[Outlook], float] = function
    return found
