"""Simulation of workloads larger than memory, in batches of jobs.

The simulation holds the jobs that have not ended, and the next ones. It runs to just before the
last known submit time, because further jobs may be submitted at that time. Then ended jobs are
written as a part of the result, and the next jobs come in.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.engine.operations.power_control import drop_settled_states
from hpctwin.engine.operations.transfer import settled_jobs
from hpctwin.errors import ConfigError, HpctwinError, WorkloadError
from hpctwin.model import MS_PER_S, Category, Cluster, State, Workload, write_atomically
from hpctwin.model.arguments import check_arguments
from hpctwin.model.demand import Mismatches, with_tasks
from hpctwin.model.files import Parts
from hpctwin.model.workload.dependencies import check_acyclic
from hpctwin.model.workload.joining import Batch, joined
from hpctwin.policies import PolicyLike, make_policy
from hpctwin.simulation.lowering.gpus import asks_parts
from hpctwin.simulation.lowering.preemption import is_interrupted, suspends
from hpctwin.simulation.lowering.profiles import network_profiles, with_run_times
from hpctwin.simulation.lowering.rejected_jobs import why_rejected
from hpctwin.simulation.lowering.share_tree import shares, with_pairs
from hpctwin.simulation.refusals import check_streamed
from hpctwin.simulation.result.result import unstarted_notes, walltime_notes
from hpctwin.simulation.running.simulation import Simulation, SimulationOptions, spelled_out
from hpctwin.simulation.state.arguments import as_cluster
from hpctwin.simulation.streaming.dependencies import Past, Waits
from hpctwin.simulation.streaming.feed import Feed, Source, feed_of
from hpctwin.simulation.streaming.sums import CoreSums, NodeSums

if TYPE_CHECKING:
    from hpctwin.energy import Series

__all__ = ["StreamedResult", "simulate_stream"]

BATCH = 1 << 18
"""Number of jobs per batch."""
MOST_LOGGED = 1 << 20
"""Number of past power states above which they are written before the batch ends."""
EVERY = 1 << 9
"""Number of event times after which their number is checked."""

STANDING = "stream.json"

_STATE = pl.Enum([state.label for state in State])
_POLICY = (
    "order", "reservations", "candidates", "placement", "power", "settings",
)  # fmt: skip
_NUMBERS = ("expected_s", "risk", "begin_s")
"""Options of a simulation with a number per job."""
_SOMETIMES = ("preemptions", "preempted_s", "suspended_s", "contention_slowdown", "energy_j")
"""Columns of jobs that not all runs have."""
_TIMES = ("submit", "eligible", "start", "end", "walltime", "runtime")


@dataclass(frozen=True)
class StreamedResult:
    """The outcome of a stream.

    Args:
        folder: Folder of the result: ``jobs/part-*.parquet``, ``lost/…``, and ``node_map/…`` if
            nodes have identity, ``placements/…`` if jobs share them, and ``stretches/…`` if they
            are suspended. With a power model, ``nodes/…`` has energy by node and state. With
            ``log=True``, ``node_log/…`` has the past power states, ``power/…`` the power over time,
            and ``link_…/…`` the use of links. ``power/…`` also exists if nodes have components.
        figures: Metrics of `hpctwin.Result.summary`; quantiles within
            `hpctwin.metrics.summary.ERROR`.
        notes: Changes and omissions of the reader, and assumptions, one sentence each.
        start_epoch_s: Unix time of time zero; None if unknown.
    """

    folder: Path
    figures: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    start_epoch_s: float | None = None

    def summary(self) -> dict[str, Any]:
        """Return all metrics of the run in one flat dict; see docs/reference/metrics.md."""
        return dict(self.figures)

    @property
    def jobs(self) -> pl.LazyFrame:
        """The jobs in the columns of `hpctwin.Result.jobs`, in the order of writing."""
        stored = _parts_of(self.folder / "jobs")
        wait = pl.col("start_ms") - pl.col("submit_ms")
        turnaround = pl.when(pl.col("start_ms").is_not_null()).then(
            pl.col("end_ms") - pl.col("submit_ms")
        )
        made = stored.with_columns(
            **{f"{name}_s": _seconds(pl.col(f"{name}_ms")) for name in _TIMES},
            wait_s=_seconds(wait),
            turnaround_s=_seconds(turnaround),
            nodes=pl.col("nodes").cast(pl.Int64),
            state=pl.col("state").cast(pl.String),
            requeues=pl.col("requeues").cast(pl.Int64),
        )
        return made.select(
            "job_id", "submit_s", "eligible_s", "start_s", "end_s", "wait_s", "turnaround_s", "nodes",
            "walltime_s", "runtime_s", "state", "user", "account", "partition", "requeues",
            *(name for name in _SOMETIMES if name in stored.collect_schema()),
        )  # fmt: skip

    @property
    def placements(self) -> pl.LazyFrame | None:
        """Amounts that jobs held on shared nodes; see `hpctwin.Result.placements`."""
        parts = self.folder / "placements"
        return _parts_of(parts) if parts.is_dir() else None

    def cost(self, series: Series, *, zero_s: float = 0.0) -> float | None:
        """Return the cost or the emissions of all energy; see `hpctwin.Energy.cost`.

        Args:
            series: Price or carbon intensity.
            zero_s: Time of the run at which the series begins, in seconds.

        Returns:
            The sum over ``power/…``; None if the power over time is unknown.
        """
        parts = sorted((self.folder / "power").glob("*.parquet"))
        if not parts:
            return None
        total, watts = 0.0, np.zeros(0)
        until = np.zeros(0)
        for path in parts:
            table = pl.read_parquet(path, columns=["time_s", "total_w"], glob=False)
            times = np.concatenate([until, series.integral(table["time_s"].to_numpy() - zero_s)])
            watts = np.append(watts, table["total_w"].to_numpy())
            total += float(watts[:-1] @ np.diff(times))
            until, watts = times[-1:], watts[-1:]
        end = series.integral(np.array([self.figures["energy_end_s"] - zero_s]))
        return total + float(watts @ (end - until))


def _parts_of(folder: Path) -> pl.LazyFrame:
    return pl.scan_parquet(sorted(folder.glob("*.parquet")), glob=False)


@check_arguments("source", "cluster", "policy")
@spelled_out(SimulationOptions)
def simulate_stream(
    source: Source,
    cluster: Cluster | int | str | os.PathLike[str],
    policy: PolicyLike | None = None,
    backfill: str | None = None,
    *,
    out: str | os.PathLike[str],
    batch: int = BATCH,
    progress: Callable[[int, int | None], None] | None = None,
    **options: Unpack[SimulationOptions],
) -> StreamedResult:
    """Simulate jobs in batches, with the same result for each job as `simulate`.

    Args:
        source: A Parquet file with hpctwin's columns (`hpctwin.model.workload.frame`), a workload,
            or an iterator of workloads or tables, by submit time. Jobs may depend on jobs of other
            batches if all batches have a column ``depends``: then the state of each job is kept,
            about 35 bytes each. They may request tasks, and so share nodes, if the first ones have
            a column ``tasks``.
        cluster: Cluster as in `hpctwin.simulate`.
        policy: Policy as in `hpctwin.simulate`.
        backfill: Backfill as in `hpctwin.simulate`.
        out: Folder for the jobs, part by part, and ``summary.json``. During the run, and if it is
            interrupted, ``stream.json`` records the progress.
        batch: Number of jobs per batch; memory grows with it and with the number of pending jobs.
        progress: Function called after each part with the number of jobs read, and of all jobs if
            known.
        options: Further arguments of `Simulation`.

    Raises:
        WorkloadError: A batch is not valid, or precedes earlier ones.
        ConfigError, PolicyError, UnknownNameError: The parts are not compatible, or not supported
            in a stream.
        OutputError: A part cannot be written.
    """
    if batch < 1:
        raise WorkloadError(f"batch is {batch}; it must be 1 or more")
    cluster = as_cluster(cluster)
    feed = feed_of(source, cluster, wanted=batch)
    rest: dict[str, Any] = {**options}
    asked = {name: rest.pop(name) for name in _POLICY if name in rest}
    whole = make_policy(policy, backfill, **asked)
    with Parts(Path(out)) as parts:
        return _Stream(feed, cluster, whole, parts, rest).run(progress)


class _Fed(Simulation):
    """Simulation of the present jobs of a stream.

    Args:
        parts: Whether any job of the stream requests a part of a GPU.
        contends: Whether any job of the stream uses the network; None if not known.
    """

    def __init__(self, *args: Any, parts: bool, contends: bool | None, **options: Any) -> None:
        self.single_gpus, self.contends = parts, contends
        super().__init__(*args, **options)


class _Stream:
    """A stream in progress."""

    def __init__(
        self, feed: Feed, cluster: Cluster, policy: Any, parts: Parts, options: dict[str, Any]
    ) -> None:
        self.feed, self.parts = feed, parts
        self.began = time.time()
        self.mismatches = Mismatches(cluster)
        self.components = any(group.components for group in cluster.nodes)
        batch = feed.next()
        if batch is None:
            raise WorkloadError(f"{feed.name} has no jobs to simulate")
        self.shares = batch.shares if feed.shares is None else feed.shares
        self.gpu_parts = asks_parts(batch.workload) if feed.gpu_parts is None else feed.gpu_parts
        batch = self._asking(batch)
        if not any(one and one.fairshare for one in (policy.order, policy.candidates)):
            # No ordering uses a tree of users, and not all users are known before the end of the
            # stream.
            classic = cluster.fairshare.model_copy(update={"kind": "classic"})
            cluster = cluster.model_copy(update={"fairshare": classic})
        elif cluster.fairshare.kind == "tree":
            cluster = with_pairs(cluster, feed.pairs())
        check_streamed(cluster, policy, batch.workload, options, labelled=feed.labels is not None)
        self.numbers = {
            name: np.asarray(options.pop(name), np.float64)
            for name in _NUMBERS
            if options.get(name) is not None
        }
        self.taken = 0  # the feed may be a batch ahead
        if feed.size is not None:
            self._check_numbers(feed.size)
        self.present = self._next_numbers(len(batch))
        self.interrupted = is_interrupted(batch.workload, cluster)
        self.waits = Waits(remember=batch.across)
        workload = self._depending(batch.workload, Past.none(batch.workload.job_id), batch)
        self.simulation = _Fed(
            dataclasses.replace(workload, name=feed.name),
            cluster,
            policy,
            parts=self.gpu_parts,
            contends=feed.contends,
            **self.present,
            **options,
        )
        self.promised = self._promised(cluster)
        self._tell()
        self.sums = (CoreSums if self.shares else NodeSums)(cluster, self.simulation.tau_s)
        self.why: Counter[str] = Counter()
        self.done = 0
        self.complete = False

    def run(self, progress: Callable[[int, int | None], None] | None) -> StreamedResult:
        self.parts.begin()
        standing = "cut off"
        error: BaseException | None = None
        try:
            # The next jobs are read, and the last part is written, while the engine runs.
            with ThreadPoolExecutor(1, "hpctwin-feed") as reader:
                coming = reader.submit(self.feed.next)
                while True:
                    self._note("running")
                    until_ms = int(self.simulation.workload.submit_ms[-1]) - 1
                    self._advance(until_ms / MS_PER_S)
                    batch = coming.result()
                    if batch is None:
                        break
                    coming = reader.submit(self.feed.next)
                    self._exchange(batch, until_ms)
                    if progress is not None:
                        progress(self.done, self.feed.size)
            self.waits.check_complete()
            self._check_numbers(self.taken)
            self._advance()
            self._finish()
            standing = "complete"
        except BaseException as fault:
            error = fault
            if isinstance(fault, HpctwinError):
                fault.add_note(
                    f"{self.done:,} jobs are stored in complete parts in "
                    f"{self.parts.folder}; see {STANDING} there"
                )
            raise
        finally:
            if standing != "complete":
                self.parts.finish()
            self._note(standing, error)
        epoch_s = self.simulation.workload.start_epoch_s
        return StreamedResult(self.parts.folder, self._figures(), self._notes(), epoch_s)

    def _advance(self, until_s: float | None = None) -> None:
        """Advance to a time or to the end; write past power states before they are too many."""
        simulation = self.simulation
        # Suspended jobs: `RunningSummary` takes them by whole batches only.
        often = simulation.log and not suspends(simulation.cluster)
        every = EVERY if often else None
        while simulation.advance(until_s, instants=every) == "stepped":
            if simulation.state.clock.logged > MOST_LOGGED:
                simulation.advance(simulation.now_s)  # further events of this time
                self._hand_out(np.zeros(simulation.state.jobs, bool), simulation.now_s)

    def _exchange(self, batch: Batch, until_ms: int) -> None:
        """Write the jobs that have ended, and add the next ones."""
        simulation = self.simulation
        sim = simulation.state
        gone = settled_jobs(sim) & ~self.waits.held(sim)
        self._hand_out(gone, until_ms / MS_PER_S)
        past = Past.of(sim, simulation.workload.job_id)
        self.waits.forget(past.where(gone))
        rows = np.flatnonzero(~gone)
        if batch.across and not self.waits.remember:
            raise WorkloadError(
                f"{self.feed.name}: rows up to {self.feed.given:,} have a column depends, "
                "but the first rows do not; add the column to all rows"
            )
        stay = simulation.workload.take(rows)
        batch = self._with_run_times(self._asking(batch))
        if is_interrupted(batch.workload, simulation.cluster) and not self.interrupted:
            raise WorkloadError(
                f"{self.feed.name}: jobs in rows up to {self.feed.given:,} write "
                "checkpoints, but the first rows have no column checkpoint_s; add it to "
                "all rows, with 0 for never"
            )
        workload, to, new = joined(stay, batch.workload)
        for name, numbers in self._next_numbers(len(batch)).items():
            own = np.empty(len(workload))
            own[to], own[new] = self.present[name][rows], numbers
            self.present[name] = own
        self.sums.keep(rows, to, len(workload))
        there = Past.none(workload.job_id)
        for name in ("ended", "completed", "end_ms", "begun_ms"):
            getattr(there, name)[to] = getattr(past, name)[rows]
        workload = self._depending(workload, there, batch)
        check_streamed(
            simulation.cluster,
            simulation.policy,
            workload,
            {},
            labelled=self.feed.labels is not None,
        )
        simulation.replace_ended_jobs(
            workload, rows, to, waits=self.waits.remember, numbers=self.present
        )
        self._tell()

    def _next_numbers(self, count: int) -> dict[str, npt.NDArray[np.float64]]:
        """Return the options with a number per job, for the jobs that have just been read.

        Args:
            count: Number of these jobs.
        """
        first = self.taken
        self.taken += count
        if any(len(numbers) < self.taken for numbers in self.numbers.values()):
            self._check_numbers(self.taken)
        return {name: numbers[first : self.taken] for name, numbers in self.numbers.items()}

    def _check_numbers(self, jobs: int) -> None:
        """Check that options with a number per job have a number for each of all jobs.

        Raises:
            ConfigError: They have another number.
        """
        for name, numbers in self.numbers.items():
            if len(numbers) != jobs:
                raise ConfigError(
                    f"{name} has {len(numbers):,} values, but {jobs:,} jobs of {self.feed.name} "
                    "came; give one value per job, by submit time"
                )

    def _asking(self, batch: Batch) -> Batch:
        """Return jobs that request tasks if any do, and whole nodes if none do.

        Their use of nodes is kept only if it decides what nodes draw.
        """
        self.mismatches.add(batch.workload)
        asks = batch.workload.shares_nodes
        if not self.components:
            batch = dataclasses.replace(batch, workload=batch.workload.replace(usage={}))
        if asks and not self.shares:
            raise WorkloadError(
                f"{self.feed.name}: jobs in rows up to {self.feed.given:,} request tasks, "
                "but the first rows have no column tasks; add it to all rows, with 0 for "
                "exclusive nodes"
            )
        if asks and not self.gpu_parts and asks_parts(batch.workload):
            raise WorkloadError(
                f"{self.feed.name}: jobs in rows up to {self.feed.given:,} request parts "
                "of GPUs, but the first rows do not; give a whole workload, or a Parquet "
                "file with a column gpus_per_task"
            )
        if asks or not self.shares:
            return batch
        return dataclasses.replace(batch, workload=with_tasks(batch.workload))

    def _with_run_times(self, batch: Batch) -> Batch:
        """Return jobs whose profiles, if any, are about the network."""
        simulation = self.simulation
        if simulation.network is not None:
            return batch
        profiles = network_profiles(batch.workload, simulation.cluster)
        if simulation.sharing is not None and any(profiles):
            raise WorkloadError(
                f"{self.feed.name}: jobs in rows up to {self.feed.given:,} use the network, but the "
                "first rows do not; give a whole workload"
            )
        workload, _ = with_run_times(batch.workload, simulation.cluster)
        return dataclasses.replace(batch, workload=workload)

    def _depending(self, workload: Workload, there: Past, batch: Batch) -> Workload:
        edges = self.waits.resolve(there, batch.edges)
        check_acyclic(edges, workload.job_id)
        return dataclasses.replace(workload, dependencies=edges)

    def _tell(self) -> None:
        """Pass what the engine cannot know from the present jobs alone."""
        if self.promised is not None:
            self.simulation.state.know(promised=self.promised)
        self.waits.tell(self.simulation.state)

    def _promised(self, cluster: Cluster) -> npt.NDArray[np.float64] | None:
        """Return the fair shares of all labels of the stream; None if they are not known.

        With a tree, the cluster has all labels.
        """
        if self.feed.labels is None or cluster.fairshare.kind == "tree":
            return None
        labels, some_have_none = self.feed.labels[cluster.fairshare.by]
        return shares(Category(np.array([-1 if some_have_none else 0], np.int32), labels), cluster)

    def _hand_out(self, gone: npt.NDArray[np.bool_], until_s: float) -> None:
        """Write and sum up the jobs that are finished."""
        simulation = self.simulation
        tables = self.sums.window(simulation, gone, until_s)
        self.done += len(tables["jobs"])
        rejected = gone & (simulation.column("phase") == State.REJECTED)
        if rejected.any():
            self.why.update(why_rejected(simulation.workload, simulation.cluster, rejected))
        self.parts.write(**{**tables, "jobs": _stored(tables["jobs"])})
        drop_settled_states(simulation.state)

    def _finish(self) -> None:
        self._hand_out(np.ones(self.simulation.state.jobs, bool), np.inf)
        self.complete = True
        simulation = self.simulation
        energy = self.sums.energy(simulation)
        use = None if simulation.network is None else simulation.result().link_use
        nodes = {} if energy is None else {"nodes": energy.nodes()}
        self.parts.write(**nodes, **({} if use is None else use.tables))
        self.parts.finish()
        with write_atomically(self.parts.folder / "summary.json") as file:
            summary = self._figures() | ({"notes": notes} if (notes := self._notes()) else {})
            file.write(json.dumps(summary, indent=2, default=str).encode())

    def _figures(self) -> dict[str, Any]:
        """Return the metrics of `Result.summary`."""
        simulation = self.simulation
        reasons = [f"{count:,} {clause}" for clause, count in self.why.items()]
        return {
            "workload": self.feed.name,
            "cluster": simulation.cluster.name,
            "nodes": simulation.cluster.node_count,
            "policy": simulation.policy.name,
            **self.sums.figures(simulation),
            **({"rejection_reasons": "; ".join(reasons)} if reasons else {}),
            "engine_s": simulation.engine_s,
            "instants": int(simulation.state.clock.instants),
        }

    def _notes(self) -> tuple[str, ...]:
        """Return what is assumed or not used of the jobs so far."""
        figures = self._figures() if self.complete else {"jobs": 0}
        return (
            *self.feed.notes.sentences(),
            *self.mismatches.sentences(),
            *walltime_notes(figures),
            *unstarted_notes(figures),
        )

    def _note(self, standing: str, error: BaseException | None = None) -> None:
        """Record the progress of the stream in a file."""
        note = {
            "stream": standing,
            "workload": self.feed.name,
            "policy": self.simulation.policy.name,
            "jobs_in_parts": self.done,
            "jobs_in_all": self.feed.size,
            "parts": self.parts.written,
            "now_s": self.simulation.now_s,
            "seconds": round(time.time() - self.began, 3),
            "assumptions": self._notes(),
        }
        if error is not None:
            note["because"] = str(error) or type(error).__name__
        with write_atomically(self.parts.folder / STANDING) as file:
            file.write(json.dumps(note, indent=2).encode())


def _seconds(ms: pl.Expr) -> pl.Expr:
    """Return times in seconds, equal to a result's.

    Polars multiplies by 0.001, which differs in the last digit.
    """

    def divided(some: pl.Series) -> pl.Series:
        return pl.Series(some.name, some.to_numpy() / MS_PER_S, pl.Float64, nan_to_null=True)

    return ms.map_batches(divided, pl.Float64, is_elementwise=True)


def _stored(jobs: pl.DataFrame) -> pl.DataFrame:
    """Return the table of jobs in the form of parts.

    Times are in whole ms, and columns that follow from others are omitted.
    """
    ms = {
        f"{name}_ms": (pl.col(f"{name}_s").cast(pl.Float64) * MS_PER_S).round().cast(pl.Int64)
        for name in _TIMES
    }
    return jobs.select(
        "job_id",
        **ms,
        nodes=pl.col("nodes").cast(pl.Int32),
        state=pl.col("state").cast(_STATE),
        **{name: pl.col(name).cast(pl.String) for name in ("user", "account", "partition")},
        requeues=pl.col("requeues").cast(pl.Int32),
        **{name: pl.col(name) for name in _SOMETIMES if name in jobs.columns},
    )
