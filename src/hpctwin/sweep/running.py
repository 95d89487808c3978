"""A running sweep: chunks of points go to workers, unless their rows exist.

Chunks run in threads or processes; `hpctwin.sweep.on_dask` runs them on Dask workers.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from hpctwin.errors import ConfigError, PolicyError, UnreachableError
from hpctwin.model import Cluster, Workload
from hpctwin.model.arguments import check_arguments
from hpctwin.model.demand import unused
from hpctwin.policies import Policy, parse_policy
from hpctwin.simulation.result.result import unshared_notes
from hpctwin.simulation.running.advance import THREAD_NAME
from hpctwin.simulation.state.arguments import stated_cluster
from hpctwin.sweep.bench import Bench, Row, about
from hpctwin.sweep.outcome import (
    Store,
    SweepResult,
    check_figures,
    read_rows,
    rejection_notes,
    table_of,
)
from hpctwin.sweep.points import Inputs, Plan, Point, code_version, plan_of
from hpctwin.sweep.settings import SweepSettings, read_sweep

__all__ = ["Pool", "Processes", "Progress", "Threads", "get_ready", "sweep"]

_SWITCH_S = 0.0005
"""Longest wait of a thread that returns from the engine for its turn, in seconds."""


class Pool(Protocol):
    """Runner of chunks of points."""

    lost: tuple[type[BaseException], ...]
    """Exceptions of a chunk's future after the loss of the process that ran it."""
    breaks: bool
    """Whether one lost process takes all chunks with it."""

    @property
    def slots(self) -> int:
        """Number of points that run at once."""

    def submit(self, chunk: Sequence[Point]) -> Future[list[Row]]:
        """Run a chunk; chunks run in the order of submission."""

    def check(self) -> None:
        """Raise `UnreachableError` if the workers cannot be reached."""

    def renew(self) -> None:
        """Replace lost processes."""

    def close(self, *, now: bool) -> None:
        """Release the workers; with ``now`` without waiting for running points."""


class Threads:
    """Threads of this process; the engine does not hold Python's lock.

    Args:
        inputs: Inputs of the points.
        workers: Number of threads; default the number of cores.
    """

    lost: tuple[type[BaseException], ...] = ()
    breaks = False

    def __init__(self, inputs: Inputs, workers: int | None = None) -> None:
        self.slots = workers or os.cpu_count() or 1
        self._bench = Bench(inputs)
        self._threads = ThreadPoolExecutor(self.slots, thread_name_prefix=THREAD_NAME)
        self._switched_s = sys.getswitchinterval()
        if self.slots > 1:
            sys.setswitchinterval(min(self._switched_s, _SWITCH_S))

    def submit(self, chunk: Sequence[Point]) -> Future[list[Row]]:
        """See `Pool`."""
        return self._threads.submit(self._bench.run, chunk)

    def check(self) -> None:
        """See `Pool`."""

    def renew(self) -> None:
        """See `Pool`; threads are not lost."""

    def close(self, *, now: bool) -> None:
        """See `Pool`."""
        if now:
            self._bench.stop()
        self._threads.shutdown(wait=not now, cancel_futures=now)
        sys.setswitchinterval(self._switched_s)


_bench: Bench | None = None


def _begin(inputs: Inputs, environment: Mapping[str, str]) -> None:
    """Prepare a worker process."""
    global _bench
    os.environ.clear()
    os.environ.update(environment)
    # Ctrl-C reaches all processes of a terminal; the first one ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _bench = Bench(inputs)


def _run(chunk: Sequence[Point]) -> list[Row]:
    assert _bench is not None
    return _bench.run(chunk)


def get_ready() -> BaseContext:
    """Return the way to start processes, and start the fork server in the background.

    The server has imported what workers need, and never runs anything. It is started once for all
    sweeps. A worker forked from this process would inherit locks of threads that it does not have.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    from multiprocessing.forkserver import ensure_running

    multiprocessing.set_forkserver_preload([__name__])
    ensure_running()
    return multiprocessing.get_context("forkserver")


class Processes:
    """Processes on this host.

    Args:
        inputs: Inputs of the points; each process gets them once.
        workers: Number of processes; default the number of cores.
    """

    lost = (BrokenProcessPool,)
    breaks = True

    def __init__(self, inputs: Inputs, workers: int | None = None) -> None:
        self.slots = workers or os.cpu_count() or 1
        self._inputs = inputs
        self._pool = self._made()

    def _made(self) -> ProcessPoolExecutor:
        given = self._inputs, dict(os.environ)
        return ProcessPoolExecutor(
            self.slots, mp_context=get_ready(), initializer=_begin, initargs=given
        )

    def submit(self, chunk: Sequence[Point]) -> Future[list[Row]]:
        """See `Pool`."""
        try:
            return self._pool.submit(_run, chunk)
        except BrokenProcessPool as error:
            future: Future[list[Row]] = Future()
            future.set_exception(error)
            return future

    def check(self) -> None:
        """See `Pool`."""

    def renew(self) -> None:
        """See `Pool`."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool = self._made()

    def close(self, *, now: bool) -> None:
        """See `Pool`."""
        processes: list[Any] = list((getattr(self._pool, "_processes", None) or {}).values())
        self._pool.shutdown(wait=not now, cancel_futures=now)
        if now:
            for process in processes:
                process.terminate()


_CHUNK_S = 0.5
"""Target duration of a chunk, in seconds: passing it to a worker costs some ms."""
_PER_WORKER_S = 0.01
"""Minimum duration of a chunk per worker, in seconds.

The sender takes some 4 ms for each chunk, and workers must not wait for it.
"""
_LARGEST = 512
_LOOK_EVERY_S = 0.2


def chunk_s(workers: int) -> float:
    """Return the target duration of a chunk of points, in seconds."""
    return max(_CHUNK_S, _PER_WORKER_S * workers)


class Progress(NamedTuple):
    """Progress of a sweep.

    Args:
        done, failed: Number of points with a row, and of failed ones among them.
        total: Number of all points.
        left_s: Estimated remaining time, in seconds; None if nothing has run.
    """

    done: int
    failed: int
    total: int
    left_s: float | None


@check_arguments()
def sweep(
    settings: SweepSettings | str | os.PathLike[str] | None = None,
    /,
    *,
    given: Mapping[str, Workload | Cluster] | None = None,
    out: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    where: Literal["threads", "processes"] | Callable[[Inputs], Pool] = "threads",
    progress: Callable[[Progress], None] | None = None,
    **varied: Any,
) -> SweepResult:
    """Simulate workloads on clusters under policies, in all combinations.

    A point that fails has an error in its row and does not stop the sweep. With ``out``, rows are
    written during the sweep, and finished points of the same inputs and the same version are not
    run again.

    Args:
        settings: Settings of the sweep, or the path of a file with them (``sweep.yaml``).
        given: Workloads and clusters that the settings name and that are not in files.
        out: Folder for the rows.
        workers: Maximum number of points at once; default the number of cores.
        where: ``threads`` of this process or ``processes``; or a function that makes a pool from
            the inputs, such as `hpctwin.sweep.on_dask.OnDask`.
        progress: Function called regularly.
        varied: Fields of `SweepSettings` instead of a file; workloads, clusters and policies may be
            objects. A list of workloads within ``workloads`` gives the replicates of one row.

    Raises:
        ConfigError, UnknownNameError, PolicyError, TraceError: Something named does not exist or is
            not valid.
        OutputError: The folder cannot be written.
    """
    if where == "processes":
        get_ready()  # while files are read
    known = dict(given or {})
    if settings is None:
        settings = SweepSettings.checked(_plain(varied, known), "sweep")
    elif varied:
        raise ConfigError(f"{', '.join(varied)}: give a settings file or its content")
    elif not isinstance(settings, SweepSettings):
        settings = read_sweep(settings)
    plan = plan_of(settings, known)
    check_figures(plan, settings.metrics)
    making: Callable[[Inputs], Pool]
    if callable(where):
        making = where
    else:
        kinds: Mapping[str, Any] = {"threads": Threads, "processes": Processes}
        if where not in kinds:
            raise ConfigError(f"where is {where!r}; it must be threads or processes")
        making = lambda inputs: kinds[where](inputs, workers)  # noqa: E731
    if out is None:
        keeper = _Kept(plan, None, settings, progress)
        keeper.run(making)
        table = table_of(sorted(keeper.rows, key=lambda row: row["point"]))
        return SweepResult(settings, table, (*keeper.notes, *rejection_notes(table)))
    with Store(Path(out)) as store:
        keeper = _Kept(plan, store, settings, progress)
        keeper.run(making)
        table = read_rows(store.folder, [point.key for point in plan])
        return SweepResult(settings, table, (*keeper.notes, *rejection_notes(table)))


def _notes(inputs: Inputs) -> tuple[str, ...]:
    """Return notes on the workloads, and on each of them on each cluster."""
    said = []
    for jobs in inputs.workloads.values():
        clusters = [*inputs.clusters.values()]
        if not clusters and jobs.nodes_hint is not None:
            clusters = [stated_cluster(jobs, "clusters:")]
        told = [*jobs.notes.sentences(), *(it for one in clusters for it in unused(jobs, one))]
        told += unshared_notes(jobs) if "sharing" not in inputs.run else []
        said += [f"{jobs.name}: {one}" for one in told]
    return tuple(dict.fromkeys(said))


def _plain(varied: Mapping[str, Any], given: dict[str, Workload | Cluster]) -> dict[str, Any]:
    """Return a user's values as settings; objects move to ``given`` under a name."""
    plain = dict(varied)
    for name in ("workloads", "clusters", "policies"):
        several = varied.get(name, ())
        alone = isinstance(several, str | int | os.PathLike | Mapping | Workload | Cluster | Policy)
        plain[name] = [_named(one, given) for one in ([several] if alone else several)]
    return plain


def _named(one: Any, given: dict[str, Workload | Cluster]) -> Any:
    if isinstance(one, Workload):
        return {"trace": _kept_as(one, given), "name": one.name}
    if isinstance(one, Cluster):
        return _kept_as(one, given)
    if isinstance(one, Mapping) and "traces" in one:
        paths = [
            _kept_as(each, given) if isinstance(each, Workload) else str(each)
            for each in one["traces"]
        ]
        return {**one, "traces": paths}
    if isinstance(one, list | tuple):
        return _named({"traces": one, "name": getattr(next(iter(one), None), "name", "")}, given)
    if isinstance(one, Policy):
        if parse_policy(one.name) != one:
            raise PolicyError(
                f"policy {one.name!r} cannot be sent to workers as text; put its function "
                "into a file and write my.py:my_function"
            )
        return one.name
    return str(one) if isinstance(one, os.PathLike) else one


def _kept_as(one: Workload | Cluster, given: dict[str, Workload | Cluster]) -> str:
    name = one.name
    while given.get(name, one) is not one:
        name += "'"
    given[name] = one
    return name


class _Kept:
    """A sweep in progress."""

    def __init__(
        self,
        plan: Plan,
        store: Store | None,
        settings: SweepSettings,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self._plan, self._store, self._progress = plan, store, progress
        self.notes = _notes(plan.inputs)
        self._about = {
            "version": code_version(),
            "settings": settings.model_dump(mode="json"),
            "assumptions": self.notes,
        }
        self.rows: list[Row] = []
        self._there = store.done() if store is not None else set()
        self._total = len(plan)
        self._before = sum(point.key in self._there for point in plan) if self._there else 0
        self._done, self._failed = self._before, 0
        self._begin = time.monotonic()
        self._seconds, self._ran = 0.0, 0

    def run(self, making: Callable[[Inputs], Pool]) -> None:
        """Run all points that have no row yet."""
        state = "cut off"
        self._tell("running")
        try:
            if self._done < self._total:
                self._run(making)
            state = "complete"
        finally:
            if self._store is not None:
                self._store.flush()
            self._tell(state)

    def _run(self, making: Callable[[Inputs], Pool]) -> None:
        left = (point for point in self._plan if point.key not in self._there)
        pool = making(self._plan.inputs)
        flying: dict[Future[list[Row]], list[Point]] = {}
        whole = False
        try:
            while True:
                # Two for each worker: one that runs and one that waits.
                while len(flying) < 2 * pool.slots and (chunk := self._chunk(left, pool.slots)):
                    flying[pool.submit(chunk)] = chunk
                if not flying:
                    break
                ready, _ = wait(flying, timeout=_LOOK_EVERY_S, return_when=FIRST_COMPLETED)
                pool.check()
                if pool.breaks and any(isinstance(one.exception(), pool.lost) for one in ready):
                    ready, _ = wait(flying)
                suspects: list[Point] = []
                for future in ready:
                    chunk = flying.pop(future)
                    if future.cancelled():
                        raise UnreachableError("a chunk of points was canceled by its scheduler")
                    if isinstance(future.exception(), pool.lost):
                        suspects += chunk
                    else:
                        self._take(future.result())
                if suspects:
                    self._alone(suspects, pool)
            whole = True
        finally:
            pool.close(now=not whole)

    def _chunk(self, left: Iterator[Point], slots: int) -> list[Point]:
        """Return the next points, enough for the target duration of a chunk."""
        size = 1
        if self._ran:
            size = int(chunk_s(slots) * self._ran / max(self._seconds, 1e-9))
        # At the end the rest is divided among all workers.
        most = -(-(self._total - self._done) // (4 * slots))
        return list(itertools.islice(left, max(1, min(size, most, _LARGEST))))

    def _alone(self, suspects: Iterable[Point], pool: Pool) -> None:
        """Run points alone, to find which of them ended its process."""
        pool.renew()
        waiting = deque(suspects)
        while waiting:
            point = waiting.popleft()
            future = pool.submit([point])
            while not wait([future], timeout=_LOOK_EVERY_S).done:
                pool.check()
            if isinstance(future.exception(), pool.lost):
                pool.renew()
                error = "its process ended: killed, or out of memory"
                self._take([{**about(point), "error": error, "seconds": None}])
            else:
                self._take(future.result())

    def _take(self, rows: list[Row]) -> None:
        self._done += len(rows)
        self._ran += len(rows)
        self._seconds += sum(row["seconds"] or 0.0 for row in rows)
        self._failed += sum(row["error"] is not None for row in rows)
        if self._store is None:
            self.rows += rows
        elif self._store.add(rows):
            self._tell("running")
        if self._progress is not None:
            self._progress(self._now())

    def _now(self) -> Progress:
        new = self._done - self._before
        passed = time.monotonic() - self._begin
        left_s = passed / new * (self._total - self._done) if new else None
        return Progress(self._done, self._failed, self._total, left_s)

    def _tell(self, state: str) -> None:
        if self._store is not None:
            self._store.tell(state=state, **self._now()._asdict(), **self._about)
