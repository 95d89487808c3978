"""Comparison of several policies on one workload, its result, and fair start times."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.attributes import Attached
from hpctwin.errors import ArgumentError, ConfigError, UnknownKeyError, in_brief
from hpctwin.guesses import GuessedType
from hpctwin.model import Cluster, Workload
from hpctwin.model.arguments import check_arguments
from hpctwin.model.columns import as_pandas
from hpctwin.model.demand import in_whole_nodes
from hpctwin.model.text import Shown, count_text, counted, progress_bar
from hpctwin.policies import Policy, compile_policies, parse_policy
from hpctwin.simulation import Result, Simulation, Window
from hpctwin.simulation.refusals import check_together
from hpctwin.simulation.running.advance import run_all
from hpctwin.simulation.running.simulation import RunOptions, spelled_out
from hpctwin.simulation.state.arguments import as_cluster, as_workload

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Comparison", "compare", "fair_starts"]


class Comparison(Shown, dict[str, Result], metaclass=GuessedType):
    """Results of one workload under several policies, by the policy's name.

    A notebook shows it as a table of the main metrics. The first policy is the baseline.
    """

    def __missing__(self, name: str) -> Result:
        raise UnknownKeyError("policy", name, self)

    def shown(self) -> tuple[str, dict[str, str]]:
        """See `Shown`."""
        name = next((one.workload.name for one in self.values()), "of nothing")
        return name, {"": ", ".join(self)}

    def summary(self, *, tau_s: float | None = None) -> pl.DataFrame:
        """Return all metrics: a row for each policy, with the columns of `Result.summary`.

        A metric that only other policies have is null; a count of jobs is then 0.

        Args:
            tau_s: As of `Result.summary`.
        """
        rows = pl.DataFrame(
            [{"policy": name, **one.summary(tau_s=tau_s)} for name, one in self.items()],
            infer_schema_length=None,
        )
        return rows.with_columns(pl.col("^jobs_.*$").fill_null(0))

    def to_pandas(self) -> pd.DataFrame:
        """Return `summary` as a table of pandas.

        Raises:
            ConfigError: pandas is not installed.
        """
        return as_pandas(self.summary())

    def to_latex(self) -> str:
        r"""Return the main metrics as a LaTeX table, for the package ``booktabs``.

        Each column has one unit and one number of decimals; the best values are bold.

        Example:
            ``Path("table.tex").write_text(compare(...).to_latex())``
        """
        text: str = self._tables.latex()
        return text

    def _repr_html_(self) -> str:
        text: str = self._tables.html()
        return text

    plot = Attached()
    """Charts of all policies: ``plot.wait_cdf()``, ``plot.bars()``, ``plot.radar()``.

    See `hpctwin.report.accessor`.
    """

    _tables: Any = Attached()


def fair_starts(
    simulation: Simulation, progress: Callable[[float], None] | None = None
) -> npt.NDArray[np.float64]:
    """Return the fair start time of each job (Sabin and Sadayappan, JSSPP 2005).

    It is the start that the job would have without later arrivals. At each submission the
    simulation is forked without later arrivals, and the fork runs until the job has started.

    Args:
        simulation: Simulation that has not begun; it is run to its end.
        progress: Function called regularly with the share of jobs done.

    Returns:
        Seconds [jobs]; NaN for jobs that never start.
    """
    submit = simulation.workload.submit_ms / 1000
    fair = np.full(len(submit), np.nan)
    for row, time in enumerate(submit):
        simulation.advance(time)
        start = simulation.fork(arrivals=False).run_until_started(row)
        if start is not None:
            fair[row] = start
        if progress is not None and row % 200 == 0:
            progress(row / len(submit))
    simulation.advance()
    return fair


AT_ONCE = 1 << 14
"""Maximum number of jobs in memory per thread, over a group of policies.

A single policy may have more.
"""


@check_arguments("workload", "cluster")
@spelled_out(RunOptions)
def compare(
    workload: Workload | str | os.PathLike[str],
    cluster: Cluster | int | str | os.PathLike[str],
    policies: Iterable[str | Policy],
    *,
    threads: int | None = None,
    progress: Callable[[str], None] | bool | None = None,
    part: Window | None = None,
    **options: Unpack[RunOptions],
) -> Comparison:
    """Simulate a workload under several policies, in threads.

    Threads run in parallel because the engine holds no lock.

    Args:
        workload: The jobs, or the path of a trace.
        cluster: The cluster, a number of equal nodes, or the path of a YAML file.
        policies: Policies, or texts such as ``wfp+easy``.
        threads: Maximum number of simulations at once; default the number of cores.
        progress: Function called with the name of each finished policy; or True for a progress bar
            in a terminal or a notebook.
        part: Part of the workload in time, of `hpctwin.simulation.running.window`; its jobs replace
            the workload.
        options: Further arguments of `Simulation`.

    Returns:
        Results by the policy's name, in the given order, with ``summary()``, ``plot`` and
        ``to_latex()``; the metrics of their jobs are computed.

    Raises:
        ConfigError: There is no policy, or one is given twice.
        UnknownNameError, PolicyError: A policy is not valid.
    """
    workload, cluster = as_workload(workload), as_cluster(cluster)
    policies = list(policies)
    if progress is True:
        with _counted(
            f"{workload.name}, {count_text(len(policies), 'policy', 'policies')}", len(policies)
        ) as told:
            return compare(
                workload, cluster, policies, threads=threads, progress=told, part=part, **options
            )
    if part is not None:
        workload = part.workload
        options.setdefault("begin_s", part.not_before_s)
    workload = in_whole_nodes(workload, cluster)
    for one in policies:
        if not isinstance(one, str | Policy):
            raise ArgumentError(
                f"policies: {in_brief(one)} is not a policy; give texts such as "
                "'fcfs+easy', or policies"
            )
    if threads is not None and threads < 1:
        raise ConfigError(f"threads is {threads}; it must be 1 or more")
    pool = [parse_policy(p) if isinstance(p, str) else p for p in policies]
    names = [policy.name for policy in pool]
    if not pool:
        raise ConfigError("policies to compare are missing; give at least one, such as 'fcfs+easy'")
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"policy {name!r} is listed twice; list it once")
    for policy in pool:
        check_together(cluster, policy, workload)
    compile_policies(pool)
    running: list[Simulation] = []
    stopped = Event()
    begin, seed = Simulation(workload, cluster, policy=pool[0], **options), options.get("seed", 0)

    def run(policies: Sequence[Policy]) -> list[Result]:
        # Made in the thread, so that memory holds only running simulations and one initial one.
        simulations = [begin.with_policy(policy, seed=seed) for policy in policies]
        running.extend(simulations)
        if stopped.is_set():
            stop()
        for simulation in simulations:
            simulation.prepare()
        if part is None:
            for simulation in simulations:
                simulation.advance()
            results = [simulation.result() for simulation in simulations]
            for result in results:
                result.figures  # noqa: B018 (they are kept: made here, beside another simulation)
        else:
            results = [part.run(simulation) for simulation in simulations]
        for policy, simulation in zip(policies, simulations, strict=True):
            running.remove(simulation)
            if callable(progress):
                progress(policy.name)
        return results

    def stop() -> None:
        stopped.set()
        for simulation in running.copy():
            simulation.stop()

    # Otherwise the last one may run alone for long.
    longest_first = sorted(pool, key=_laborious, reverse=True)
    threads = threads or os.cpu_count() or 1
    rounds = _rounds(longest_first, len(workload), threads)
    found = run_all(run, rounds, threads=threads, stop=stop)
    results = {result.policy: result for of_round in found for result in of_round}
    return Comparison({name: results[name] for name in names})


def _rounds(pool: Sequence[Policy], jobs: int, threads: int) -> list[Sequence[Policy]]:
    """Return the groups of policies that a thread runs together.

    A thread prepares all of a group, then runs all, then sums up all. It needs Python's lock less
    often, and its core's cache still has what it used just before. Each thread has two groups, and
    slow policies are in different groups.
    """
    at_once = max(1, min(-(-len(pool) // (2 * threads)), AT_ONCE // max(jobs, 1)))
    count = -(-len(pool) // at_once)
    return [pool[first::count] for first in range(count)]


def _laborious(policy: Policy) -> tuple[bool, bool, bool]:
    """Return a sort key; policies with a larger key usually take longer.

    Reservations for all jobs cost most, then plans at each pass (not needed if nodes are only
    counted), then scores that change.
    """
    scheduling = policy.scheduling
    counts = scheduling.others is not None and policy.setting("reservations") in (None, 1)
    return scheduling.reserved is not None, not counts, policy.order.changes


@contextmanager
def _counted(title: str, count: int) -> Iterator[Callable[[str], None]]:
    """Show a progress bar that advances with each reported name."""
    with progress_bar(title) as told:
        yield counted(told, count)
