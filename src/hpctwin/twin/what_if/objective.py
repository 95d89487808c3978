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
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from hpctwin.attributes import kept
from hpctwin.errors import ConfigError, HpctwinError, PolicyError, UnknownNameError
from hpctwin.metrics.registry import (
    TAU_S,
    WAIT,
    ServedJobs,
    Statistic,
    check_tau,
    computed_from,
)
from hpctwin.model.trusted import load_module, named_in

__all__ = ["METRICS", "PAPER_WEIGHTS", "Normalize", "Objective", "Outlook"]

FloatArray = npt.NDArray[np.float64]
Normalize = Literal["mean", "best", "range", "none"]

MIN_RUN_S = 0.001
"""Shorter runtimes count as this, in seconds, so that a slowdown is finite."""


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
        begin_s: Start of the span for utilization, in seconds since the epoch.
        total_energy_j: Energy of all nodes from ``now_s`` until the last job has ended, or until
            the horizon, in J; NaN if unknown; [P] for several what-ifs.
        tau_s: Threshold of bounded slowdowns, in seconds.
    """

    submit_s: FloatArray
    start_s: FloatArray
    end_s: FloatArray
    nodes: FloatArray
    now_s: float
    machine_nodes: int
    busy: Callable[[], float | FloatArray]
    begin_s: float
    total_energy_j: float | FloatArray = math.nan
    tau_s: float = TAU_S

    @kept
    def jobs(self) -> ServedJobs:
        """The jobs that count, with all metrics per job."""
        times = self.submit_s, self.start_s, self.end_s
        return ServedJobs(*times, self.nodes, tau_s=self.tau_s, min_run_s=MIN_RUN_S)

    @property
    def wait_s(self) -> FloatArray:
        """Wait of each job, in seconds; its shape is that of `start_s`."""
        return self.jobs[WAIT]

    @kept
    def busy_node_s(self) -> float | FloatArray:
        """Node-seconds in use by all jobs from ``begin_s`` on; [P] for several what-ifs."""
        return self.busy()

    @kept
    def makespan_s(self) -> FloatArray:
        """Time from ``begin_s`` to the last end, in seconds, of each what-if."""
        last: FloatArray = self.end_s.max(axis=-1, initial=self.now_s)
        return last - self.begin_s

    @property
    def used(self) -> float | FloatArray:
        """The same as `busy_node_s`, under the name that metrics use."""
        return self.busy_node_s

    @property
    def present(self) -> FloatArray:
        """Node-seconds of all nodes over the makespan."""
        return self.makespan_s * self.machine_nodes

    def each(self) -> list[Outlook]:
        """Return one outlook for each of several what-ifs."""
        assert isinstance(self.busy_node_s, np.ndarray)
        assert isinstance(self.total_energy_j, np.ndarray)
        own = (self.start_s, self.end_s, self.busy_node_s.tolist(), self.total_energy_j.tolist())
        return [
            replace(
                self, start_s=start_s, end_s=end_s, busy=partial(float, busy), total_energy_j=energy
            )
            for start_s, end_s, busy, energy in zip(*own, strict=True)
        ]

    def value(self, metric: str) -> Any:
        """Return a metric of `METRICS`; for several what-ifs, one value for each."""
        of = METRICS[metric].of
        return of.of(self.jobs) if isinstance(of, Statistic) else of.of(self)


METRICS = computed_from({"makespan_s", "used", "present", "total_energy_j"})
"""Metrics that an objective may weigh, by name."""

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
        normalize: Normalization of a metric over the candidates. ``mean`` and ``best`` divide by
            their mean or best value; ``range`` maps the best to 0 and the worst to 1; or ``none``.
        function: Function ``module:function`` or ``FILE.py:function`` that returns the cost of an
            `Outlook`, instead of weights.
        tau_s: Threshold of bounded slowdowns, in seconds.

    Raises:
        UnknownNameError: A metric is unknown.
        ConfigError: A weight is not a number of 0 or more, all weights are 0, or the function does
            not exist.
    """

    def __init__(
        self,
        weights: Mapping[str, float] | None = None,
        *,
        normalize: Normalize = "mean",
        function: str | None = None,
        tau_s: float = TAU_S,
    ) -> None:
        self.tau_s = check_tau(tau_s)
        self.weights = dict(PAPER_WEIGHTS if weights is None else weights)
        self.normalize = normalize
        self.function = None if function is None else _load(function)
        for name, weight in self.weights.items():
            if name not in METRICS:
                raise UnknownNameError("metric", name, list(METRICS))
            if not (np.isfinite(weight) and weight >= 0):
                raise ConfigError(f"objective: weight of {name} is {weight}; it must be 0 or more")
        if self.function is None and not any(self.weights.values()):
            raise ConfigError("objective: all weights are 0; give at least one metric a weight")

    def measure(self, outlook: Outlook) -> dict[str, float]:
        """Return the metrics of one what-if that its score depends on.

        Raises:
            HpctwinError: The custom function fails or does not return a number.
        """
        if self.function is None:
            return {name: float(outlook.value(name)) for name in self.weights}
        try:
            given = self.function(outlook)
            if inspect.iscoroutine(given):
                given.close()
                raise TypeError("it is an async def; use def")
            cost = float(given)
        except (Exception, SystemExit) as error:
            raise HpctwinError(f"the objective's function failed: {error!r}") from error
        if not np.isfinite(cost):
            raise HpctwinError(
                f"objective: function returned {cost}; it must return a finite number"
            )
        return {"cost": cost}

    def measure_all(self, outlook: Outlook) -> list[dict[str, float]]:
        """Return the metrics of each of several what-ifs; see `measure`."""
        if self.function is not None:
            return [self.measure(one) for one in outlook.each()]
        columns = [np.asarray(outlook.value(name)).tolist() for name in self.weights]
        return [dict(zip(self.weights, row, strict=True)) for row in zip(*columns, strict=True)]

    def scores(self, measured: Sequence[Mapping[str, float]]) -> list[float]:
        """Return each candidate's score from the result of `measure`; lower is better."""
        if self.function is not None:
            return [m["cost"] for m in measured]
        table = np.array([[m[name] for m in measured] for name in self.weights])
        for values, name in zip(table, self.weights, strict=True):
            if METRICS[name].better == "high":
                # Mirrored at its best possible value, so that the ideal cost is 0.
                values[:] = 1.0 - values
        weighted = np.array([*self.weights.values()])[:, None] * normalized(table, self.normalize)
        scores: list[float] = np.add.reduce(weighted, axis=0, initial=0.0).tolist()
        return scores


def normalized(values: FloatArray, how: Normalize) -> FloatArray:
    """Return the candidates' costs normalized; see `Objective` […, candidates].

    Args:
        values: Costs of the candidates […, candidates].
        how: Kind of normalization.
    """
    if how == "none":
        return values
    # The same as `values.mean()`, in a third of the time for few values.
    mean = (np.add.reduce(values, axis=-1) / max(values.shape[-1], 1))[..., None]
    if how == "mean":
        return _parts(values, mean)
    least = values.min(axis=-1, keepdims=True)
    if how == "range":
        return _parts(values - least, values.max(axis=-1, keepdims=True) - least)
    # If the best is 0, nothing can be divided by it, and the mean is used.
    return _parts(values, np.where(least > 0, least, mean))


def _parts(values: FloatArray, base: FloatArray) -> FloatArray:
    """Return values divided by a base; 0 where the base is not positive."""
    with np.errstate(over="ignore"):  # a base next to 0 gives an infinite share
        shares: FloatArray = np.divide(values, base, out=np.zeros(values.shape), where=base > 0)
    return shares


def _load(path: str) -> Callable[[Outlook], float]:
    module, colon, name = path.rpartition(":")
    if not (module and colon and name):
        raise ConfigError(
            f"objective: function {path!r} is invalid; write module:function or FILE.py:function"
        )
    try:
        function = named_in(load_module(module), name, module)
    except (PolicyError, UnknownNameError) as error:
        raise ConfigError(f"objective: function {path!r} cannot be loaded: {error}") from error
    if not callable(function):
        raise ConfigError(f"objective: {path!r} is not a function")
    found: Callable[[Outlook], float] = function
    return found
