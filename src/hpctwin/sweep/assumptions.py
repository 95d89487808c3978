"""What a simulation of a site's past takes for granted, and what each of it costs in fidelity.

Each assumption is put out of force alone: the same past is simulated with something else in its place, and
the errors of the starts are compared. Where they fall, the assumption was wrong by that much or more.

What a file cannot say, fitted on a site's past in time order, and how wrong it was in what came after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.errors import HpctwinError
from hpctwin.metrics.jobs.fidelity import Fidelity, fidelity
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
    """Before each part of the past: what fits best what was known by then; and its error in that part.

    Fitted are which assumption to replace, if any, and how much later jobs start than simulated (what the
    scheduler and prologs take): by the least median error of the jobs that had started by then.

    Args:
        tried: simulations beside the recorded starts, by assumption and what stands in its place; the first
            is as it was asked for.
        parts: so many, of equally many jobs in order of submission; the first is only learnt from.

    Returns:
        A row for each other part before which 20 jobs or more had started: ``from_s`` and ``until_s`` (of
        submissions), ``jobs``, ``assumption`` and ``instead`` (of the one that was fitted), ``delay_s``,
        ``error_s`` and ``within_1min`` (with these; the median, and the share), ``taken_error_s`` and
        ``taken_within_1min`` (as it was asked for).
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
    """Submission, recorded start and the error of each simulation, of the jobs that all of them have."""
    first = tried[0].jobs
    jobs = first.select(
        "job_id", "submit_s", started_s=pl.col("submit_s") + pl.col("recorded_wait_s")
    )
    for number, one in enumerate(tried):
        error = one.jobs.select("job_id", pl.col("error_s").alias(f"error_{number}"))
        jobs = jobs.join(error, on="job_id", how="inner", maintain_order="left")
    return jobs.sort("submit_s", maintain_order=True)


def _best(errors: FloatArray, known: BoolArray) -> tuple[int, float]:
    """Which simulation, and how much later jobs start: with the least median error over what is known."""
    ways = [
        (number, delay_s)
        for number, error in enumerate(errors[:, known])
        for delay_s in (0.0, max(0.0, -float(np.median(error))))
    ]
    # The first of equals: what was asked for stays unless something else is nearer.
    return min(ways, key=lambda way: float(np.median(np.abs(errors[way[0], known] + way[1]))))


BACKFILLS = ("none", "first-fit", "easy", "conservative", "slurm")
ORDERINGS = ("fcfs", "sjf", "largest", "wfp", "priority")
SHARED_PLACEMENTS = ("first-fit", "best-fit", "spread", "tightest-run")
_SHARES_OF_NODES = (1.05, 0.95, 0.9)
_HELD_S = (30, 120)
_NOT_FITTED = ("planned with", "starts take", "of the past")
"""Run times are not known before; a delay is fitted besides; and the last is about which jobs count."""
_SETTLED = 0.1


@dataclass(frozen=True, eq=False)
class Checked:
    """How far a simulation is from the past it is of.

    Args:
        taken: as it was asked for.
        instead: a row for each assumption that something else was tried in place of: ``assumption``,
            ``taken``, ``instead``, figures as of `Fidelity.figures`, and ``gain_s``, by how much the median
            error fell (below zero: rose); the largest gain first.
        refused: what could not be tried, and why.
        rolling: what would have been fitted before each part of the past, and its error in that part; see
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
    """Simulate a past and lay it beside what was recorded; then again, with other assumptions one by one.

    Args:
        workload: the jobs, with the starts that were recorded.
        cluster: the machine.
        policy: under which it is simulated.
        progress: called with what is tried next.

    Raises:
        WorkloadError: no job has a recorded start.
        ConfigError, PolicyError: they do not go together.
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
    """Placements that may change who starts: of shared nodes, and where particular ones are reserved."""
    taken = policy.placement.name
    if workload.shares_nodes:
        return tuple(name for name in SHARED_PLACEMENTS if name != taken)
    return ("first-fit",) if policy.backfill == "slurm" and taken == "contiguous" else ()


def _fewer(cluster: Cluster, share: float) -> Cluster:
    """The machine with a share of the nodes of each group."""
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
