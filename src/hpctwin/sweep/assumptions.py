"""Assumptions of a simulation of a site's past, and their cost in fidelity.

Each assumption is replaced alone: the same past is simulated with an alternative, and the errors of
the starts are compared. If they fall, the assumption was wrong by at least that much. Settings that
a file cannot contain are fitted on a site's past in time order; their error is measured on the part
that follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.errors import HpctwinError
from hpctwin.metrics.comparison import Fidelity, fidelity
from hpctwin.model import Cluster, Workload
from hpctwin.policies import Policy, parse_policy
from hpctwin.simulation import simulate

__all__ = ["PARTS", "Checked", "check_past", "fitted_on_the_past"]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

PARTS = 6
_LEAST = 20


def fitted_on_the_past(
    tried: Mapping[tuple[str, str], Fidelity], parts: int = PARTS
) -> pl.DataFrame:
    """Return the best fit before each part of the past, and its error in that part.

    Two things are fitted: which assumption to replace, if any, and how much later jobs start than
    simulated (because of the scheduler and prologs). The fit has the least median error of the jobs
    that had started by then.

    Args:
        tried: Simulations compared with the recorded starts, by assumption and its alternative; the
            first is without alternative.
        parts: Number of parts with equally many jobs in order of submission; the first part is only
            for the fit.

    Returns:
        A row for each other part before which 20 jobs or more had started: ``from_s`` and
        ``until_s`` (of submissions), ``jobs``, ``assumption`` and ``instead`` (the fitted
        alternative), ``delay_s``, ``error_s`` and ``within_1min`` (of the fit: the median, and the
        share), ``taken_error_s`` and ``taken_within_1min`` (without alternative).
    """
    names, jobs = list(tried), _laid(list(tried.values()))
    submit_s, started_s = (jobs[name].to_numpy() for name in ("submit_s", "started_s"))
    errors = jobs.select(pl.col(f"error_{number}") for number in range(len(names))).to_numpy().T
    rows = []
    for part in np.array_split(np.arange(len(jobs)), parts)[1:]:
        if not len(part):
            continue
        known = started_s < submit_s[part[0]]
        if known.sum() < _LEAST:
            continue
        best, delay_s = _best(errors, known)
        fitted, taken = np.abs(errors[best][part] + delay_s), np.abs(errors[0][part])
        rows.append(
            {
                "from_s": float(submit_s[part[0]]),
                "until_s": float(submit_s[part[-1]]),
                "jobs": len(part),
                "assumption": names[best][0],
                "instead": names[best][1],
                "delay_s": delay_s,
                "error_s": float(np.median(fitted)),
                "taken_error_s": float(np.median(taken)),
                "within_1min": float((fitted <= 60.0).mean()),
                "taken_within_1min": float((taken <= 60.0).mean()),
            }
        )
    return pl.DataFrame(rows, schema=_SCHEMA)


_SCHEMA = {
    "from_s": pl.Float64, "until_s": pl.Float64, "jobs": pl.Int64, "assumption": pl.String,
    "instead": pl.String, "delay_s": pl.Float64, "error_s": pl.Float64, "taken_error_s": pl.Float64,
    "within_1min": pl.Float64, "taken_within_1min": pl.Float64,
}  # fmt: skip


def _laid(tried: list[Fidelity]) -> pl.DataFrame:
    """Return submission, recorded start and errors, of the jobs in all simulations."""
    first = tried[0].jobs
    jobs = first.select(
        "job_id", "submit_s", started_s=pl.col("submit_s") + pl.col("recorded_wait_s")
    )
    for number, one in enumerate(tried):
        error = one.jobs.select("job_id", pl.col("error_s").alias(f"error_{number}"))
        jobs = jobs.join(error, on="job_id", how="inner", maintain_order="left")
    return jobs.sort("submit_s", maintain_order=True)


def _best(errors: FloatArray, known: BoolArray) -> tuple[int, float]:
    """Return the simulation and the delay of starts with the least median error.

    It is over the jobs whose start is known.
    """
    ways = [
        (number, delay_s)
        for number, error in enumerate(errors[:, known])
        for delay_s in (0.0, max(0.0, -float(np.median(error))))
    ]
    # Of equal ones the first wins: without alternative, unless another one is nearer.
    return min(ways, key=lambda way: float(np.median(np.abs(errors[way[0], known] + way[1]))))


BACKFILLS = ("none", "first-fit", "easy", "conservative", "slurm")
ORDERINGS = ("fcfs", "sjf", "largest", "wfp", "priority")
SHARED_PLACEMENTS = ("first-fit", "best-fit", "spread", "tightest-run")
_SHARES_OF_NODES = (1.05, 0.95, 0.9)
_HELD_S = (30, 120)
_NOT_FITTED = ("planned with", "starts take", "of the past")
"""Assumptions that are not fitted.

Runtimes are not known in advance, a delay is fitted separately, and the last one selects the jobs
that count.
"""
_SETTLED = 0.1


@dataclass(frozen=True, eq=False)
class Checked:
    """Distance of a simulation from the past.

    Args:
        taken: Fidelity without alternatives.
        instead: A row for each alternative of an assumption: ``assumption``, ``taken``,
            ``instead``, metrics of `Fidelity.figures`, and ``gain_s``, the decrease of the median
            error (below zero: increase); the largest gain first.
        refused: Alternatives that could not be simulated, with the reason.
        rolling: The fit before each part of the past, and its error in that part; see
            `fitted_on_the_past`.
    """

    taken: Fidelity
    instead: pl.DataFrame
    refused: tuple[str, ...]
    rolling: pl.DataFrame


@dataclass(frozen=True)
class _Trial:
    assumption: str
    taken: str
    instead: str
    run: Callable[[], Fidelity]


def check_past(
    workload: Workload,
    cluster: Cluster,
    policy: Policy | str,
    *,
    progress: Callable[[str], None] | None = None,
) -> Checked:
    """Simulate a past, compare it with the record, then vary single assumptions.

    Args:
        workload: The jobs, with recorded starts.
        cluster: The cluster.
        policy: Policy of the simulation.
        progress: Function called with the name of the next simulation.

    Raises:
        WorkloadError: No job has a recorded start.
        ConfigError, PolicyError: The parts are not compatible.
    """
    policy = parse_policy(policy) if isinstance(policy, str) else policy
    taken = fidelity(workload, simulate(workload, cluster, policy).jobs)
    before = taken.figures()["median_error_s"]
    rows, refused = [], []
    tried = {("as asked for", ""): taken}
    for trial in _trials(workload, cluster, policy, taken):
        if progress is not None:
            progress(f"{trial.assumption}: {trial.instead}")
        try:
            found = trial.run()
        except HpctwinError as error:
            refused.append(f"{trial.assumption}, {trial.instead}: {error}")
            continue
        figures = found.figures()
        if trial.assumption not in _NOT_FITTED:
            tried[trial.assumption, trial.instead] = found
        said = {name: getattr(trial, name) for name in ("assumption", "taken", "instead")}
        rows.append({**said, **figures, "gain_s": before - (figures["median_error_s"] or 0.0)})
    table = pl.DataFrame(rows).sort("gain_s", descending=True, maintain_order=True)
    return Checked(taken, table, tuple(refused), fitted_on_the_past(tried))


def _trials(
    workload: Workload, cluster: Cluster, policy: Policy, taken: Fidelity
) -> Iterator[_Trial]:
    def run(workload: Workload, cluster: Cluster, policy: Policy | str) -> Callable[[], Fidelity]:
        return lambda: fidelity(workload, simulate(workload, cluster, policy).jobs)

    order, _, rest = policy.name.partition("+")
    backfill, sign, placement = rest.partition("@")
    for other in BACKFILLS:
        if other != policy.backfill:
            name = f"{order}+{other}{sign}{placement}"
            yield _Trial("backfill", backfill, other, run(workload, cluster, name))
    for other in ORDERINGS:
        if other != order and (other != "priority" or len(np.unique(workload.priority)) > 1):
            yield _Trial("ordering", order, other, run(workload, cluster, f"{other}+{rest}"))
    for other in _other_placements(workload, policy):
        name = f"{order}+{backfill}@{other}"
        yield _Trial("placement", policy.placement.name, other, run(workload, cluster, name))
    if (workload.walltime_ms != workload.runtime_ms).any():
        exact = workload.replace(walltime_ms=np.maximum(workload.runtime_ms, 1))
        yield _Trial("planned with", "walltimes", "run times", run(exact, cluster, policy))
    for share in _SHARES_OF_NODES:
        fewer = _fewer(cluster, share)
        if fewer.node_count != cluster.node_count:
            before, after = (f"{machine.node_count:,}" for machine in (cluster, fewer))
            yield _Trial("nodes up", before, after, run(workload, fewer, policy))
    for held_s in _HELD_S if cluster.preemption is None and not cluster.has_power else ():
        longer = cluster.model_copy(update={"cleanup": cluster.cleanup + held_s})
        before, after = (f"{machine.cleanup:g} s" for machine in (cluster, longer))
        yield _Trial("cleanup", before, after, run(workload, longer, policy))
    delay = taken.jobs["error_s"].median()
    if isinstance(delay, float) and delay < 0:
        yield _Trial("starts take", "0 s", f"{-delay:,.0f} s", lambda: _shifted(taken, -delay))
    what = f"not its first {_SETTLED:.0%}"
    yield _Trial("of the past", "all", what, lambda: _settled(taken))


def _other_placements(workload: Workload, policy: Policy) -> tuple[str, ...]:
    """Return placements that may change which jobs start.

    These are placements of shared nodes, and those of backfills that reserve particular nodes.
    """
    taken = policy.placement.name
    if workload.shares_nodes:
        return tuple(name for name in SHARED_PLACEMENTS if name != taken)
    return ("first-fit",) if policy.backfill == "slurm" and taken == "contiguous" else ()


def _fewer(cluster: Cluster, share: float) -> Cluster:
    """Return the cluster with a share of the nodes of each group."""
    groups = [
        group.model_copy(update={"count": max(1, round(share * group.count))})
        for group in cluster.nodes
    ]
    return cluster.model_copy(update={"nodes": tuple(groups)})


def _shifted(taken: Fidelity, by_s: float) -> Fidelity:
    jobs = taken.jobs.with_columns(
        pl.col("error_s") + by_s, simulated_wait_s=pl.col("simulated_wait_s") + by_s
    )
    return Fidelity(jobs, taken.without)


def _settled(taken: Fidelity) -> Fidelity:
    first = int(_SETTLED * len(taken.jobs))
    return Fidelity(taken.jobs.sort("submit_s", maintain_order=True).slice(first), taken.without)
