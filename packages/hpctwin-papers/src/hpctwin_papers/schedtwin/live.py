"""The experiment of the SchedTwin paper (arXiv 2512.18894, §4) on a real Slurm or PBS.

The paper's 150 jobs are submitted to an idle cluster as its users would do it, in a fraction of
their time. One run (a seed under one scheduler) gives a table of its jobs and a record of the run.
Runs are collected into rows like those of the emulated experiment.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl

from hpctwin._version import __version__
from hpctwin.errors import ConfigError, ExperimentError, HpctwinError
from hpctwin.model import Workload, write_atomically, write_folder
from hpctwin.model.text import count_text
from hpctwin.twin.journal.journal import Journal
from hpctwin.twin.service.comparison import TWIN, Row, judge, row_of
from hpctwin.twin.settings.config import CoreSettings
from hpctwin_papers.schedtwin.experiment import NODES
from hpctwin_papers.schedtwin.users import ClusterUser, Times

LOOK_EVERY_S = 60.0
"""Query interval in the experiment's time; managers soon forget ended jobs."""
STALLED = 20.0
"""A run is aborted if nothing starts or ends for this many of its longest walltimes."""
AT_ONCE = 8
"""Number of first jobs that fit next to each other, whatever their sizes."""


@dataclass(frozen=True)
class TwinsPart:
    """Actions of the twin in a run.

    Args:
        share_by_policy: Share of its chosen jobs, by policy.
        chosen: Number of jobs that it chose.
        not_done: Number of actions that were refused, or whose answer was lost.
        decisions: Number of its decisions.
        cycle_ms_mean: Mean duration of a decision, in ms.
    """

    share_by_policy: dict[str, float]
    chosen: int
    not_done: int
    decisions: int
    cycle_ms_mean: float


@dataclass
class LiveRun:
    """One run; times are those of the experiment, not compressed.

    Args:
        on: ``slurm`` or ``pbs``.
        under: Scheduler: a name for the manager's own configuration, or the twin's.
        seed: Seed of the workload.
        jobs: A row per job: id, nodes, walltime_s (requested), limit_s (as the manager rounds it),
            runtime_s (requested), submit_s, start_s, end_s (by the manager, from the first
            submission), state, runs.
        compress: Divisor of the experiment's time.
        clock: Speed of the cluster's clock, as a factor of real time; see `clock_speed`.
        version: Version of the manager.
        begun_s: Begin, in seconds since the epoch.
        late_s: Maximum delay of a submission, in seconds.
        load: Mean load of the submitting host over the run, in processes.
        twin: Actions of the twin; None if the manager was alone.
        hpctwin: Version of hpctwin.
    """

    on: str
    under: str
    seed: int
    jobs: pl.DataFrame
    compress: float
    clock: float
    version: str
    begun_s: float
    late_s: float
    load: float
    twin: TwinsPart | None = None
    hpctwin: str = __version__

    def row(self) -> Row:
        """Return the metrics of the emulated experiment."""
        times = self.jobs.select("submit_s", "start_s", "end_s", "nodes").rows()
        row = row_of(self.under, self.seed, times, NODES)
        if self.twin is not None:
            row.share_by_policy = self.twin.share_by_policy
            row.cycle_ms_mean = self.twin.cycle_ms_mean
        return row

    def costs(self) -> dict[str, float]:
        """Return the manager's own delays and its changes of requested times, in seconds.

        ``start_s`` is the mean wait of the first jobs, which find idle nodes; ``run_s`` the time
        that a job ran longer than its program; ``limit_s`` the time by which its limit exceeded the
        request.
        """
        jobs = self.jobs
        first = jobs.head(AT_ONCE)
        return {
            "start_s": float((first["start_s"] - first["submit_s"]).mean()),  # type: ignore[arg-type]
            "run_s": float((jobs["end_s"] - jobs["start_s"] - jobs["runtime_s"]).mean()),  # type: ignore[arg-type]
            "limit_s": float((jobs["limit_s"] - jobs["walltime_s"]).mean()),  # type: ignore[arg-type]
        }

    def store(self, folder: Path) -> Path:
        """Write ``ON-UNDER-SEED.parquet`` and ``.json``; return the path of the latter."""
        name = f"{self.on}-{self.under}-{self.seed}"
        about = {key: value for key, value in self.__dict__.items() if key != "jobs"}
        about["twin"] = None if self.twin is None else asdict(self.twin)
        about |= {"costs": self.costs(), "row": self.row().plain()}
        with write_folder(folder) as place:
            with write_atomically(place / f"{name}.parquet") as file:
                self.jobs.write_parquet(file)
            with write_atomically(place / f"{name}.json") as file:
                file.write(json.dumps(about, indent=2).encode())
        return folder / f"{name}.json"

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a run that `store` wrote."""
        try:
            about = json.loads(path.read_text(encoding="utf-8"))
            twin = about.pop("twin")
            for derived in ("costs", "row"):
                del about[derived]
            jobs = pl.read_parquet(path.with_suffix(".parquet"))
            return cls(jobs=jobs, twin=None if twin is None else TwinsPart(**twin), **about)
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror or error}") from error
        except (
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            pl.exceptions.PolarsError,
        ) as error:
            raise ConfigError(f"{path}: not a run of this experiment: {error}") from error


def clock_speed(environment: Mapping[str, str] = os.environ) -> float:
    """Return this process's clock speed: ``FAST_CLOCK`` of `benchmarks/fast_clock.c`.

    With such a clock, shared by the cluster's daemons and jobs, all intervals of a manager are
    compressed, but the resolution of its limits, whole minutes, does not suffer.
    """
    return float(environment.get("FAST_CLOCK", "1").split()[0])


def run_live(
    user: ClusterUser,
    jobs: Workload,
    *,
    on: str,
    under: str,
    seed: int,
    compress: float = 60.0,
    clock: float = 1.0,
    progress: Callable[[float], None] = lambda share: None,
) -> LiveRun:
    """Submit a workload to a real cluster and wait until all jobs have ended.

    Args:
        user: User that submits, with the cluster.
        jobs: The workload; each job sleeps as long as its runtime.
        on: ``slurm`` or ``pbs``, for the record.
        under: Name of the scheduler, for the record.
        seed: Seed of the workload, for the record.
        compress: Factor by which the experiment's time is shortened.
        clock: Part of that factor which faster clocks of the cluster and this host provide; shorter
            jobs provide the rest.
        progress: Function called with the share of ended jobs.

    Raises:
        ExperimentError: The cluster is not idle or too small, a command failed, a job was lost or
            ran twice, or nothing happens any more. Jobs that have not ended are cancelled.
    """
    scale = clock / compress
    widest = int(jobs.nodes.max())
    idle = user.idle_nodes()
    if idle < widest:
        raise ExperimentError(
            f"the cluster has {count_text(idle, 'idle node')}; give the experiment a cluster of "
            f"{NODES} nodes (at least {widest}) without other jobs"
        )
    asked = [
        (float(s) / 1e3, int(n), float(w) / 1e3, float(r) / 1e3)
        for s, n, w, r in zip(
            jobs.submit_ms, jobs.nodes, jobs.walltime_ms, jobs.runtime_ms, strict=True
        )
    ]
    ids: list[str] = []
    known: dict[str, Times] = {}
    late_s, loads = 0.0, []
    begun = time.time()
    looked = moved = begun
    stalled_s = STALLED * max(walltime for _, _, walltime, _ in asked) * scale + 60.0
    try:
        while len(ids) < len(asked) or any(known[i].end_s is None for i in ids):
            now = time.time()
            # Queries come first: the manager forgets ended jobs, but a late submission is not lost.
            if now >= looked + LOOK_EVERY_S * scale:
                looked, found = now, user.jobs()
                loads.append(os.getloadavg()[0])
                if _take(ids, found, known):
                    moved = now
                    progress(sum(known[i].end_s is not None for i in ids) / len(asked))
                if now > moved + stalled_s:
                    waits = [i for i in ids if known[i].end_s is None]
                    raise ExperimentError(
                        f"no job has started or ended for {stalled_s:.0f} s; "
                        f"{count_text(len(waits), 'unfinished job')}, the first of them "
                        f"{waits[0]} ({known[waits[0]].state})"
                    )
            if len(ids) < len(asked) and now >= begun + asked[len(ids)][0] * scale:
                submit_s, nodes, walltime_s, runs_s = asked[len(ids)]
                late_s = max(late_s, (now - begun) / scale - submit_s)
                ids.append(user.submit(nodes, walltime_s * scale, runs_s * scale))
                known[ids[-1]] = Times("submitted", now)
                continue
            due = looked + LOOK_EVERY_S * scale
            if len(ids) < len(asked):
                due = min(due, begun + asked[len(ids)][0] * scale)
            time.sleep(max(0.0, due - time.time()))
    except BaseException:
        with suppress(HpctwinError):
            user.cancel([i for i in ids if known[i].end_s is None])
        raise
    return LiveRun(
        on=on, under=under, seed=seed, jobs=_table(asked, ids, known, scale, user.limit_step_s),
        compress=compress, clock=clock, version=user.version(), begun_s=begun, late_s=late_s,
        load=float(np.mean(loads)) if loads else os.getloadavg()[0],
    )  # fmt: skip


def _take(ids: Iterable[str], found: Mapping[str, Times], known: dict[str, Times]) -> bool:
    """Store the observed times of the jobs; return whether one started or ended."""
    moved = False
    for job_id in ids:
        before, seen = known[job_id], found.get(job_id)
        if before.end_s is not None:
            continue
        if seen is None:
            raise ExperimentError(f"job {job_id} is no longer listed, but its end was not observed")
        if seen.end_s is not None and seen.start_s is None:
            raise ExperimentError(f"job {job_id} ended ({seen.state}), but never ran")
        if seen.runs > 1:
            raise ExperimentError(
                f"job {job_id} was started {seen.runs} times; only one start is supported"
            )
        moved |= (seen.start_s, seen.end_s) != (before.start_s, before.end_s)
        known[job_id] = seen
    return moved


def _table(
    asked: list[tuple[float, int, float, float]],
    ids: list[str],
    known: Mapping[str, Times],
    scale: float,
    step_s: float,
) -> pl.DataFrame:
    _, nodes, walltime, runtime = (list(column) for column in zip(*asked, strict=True))
    seen = [known[i] for i in ids]
    zero = min(times.submit_s for times in seen)
    limit = np.ceil(np.round(np.array(walltime) * scale / step_s, 9)) * step_s / scale
    # Managers keep whole seconds, so a job shorter than one may seem not to have run at all.
    start = np.array([times.start_s for times in seen], np.float64)
    end = np.maximum(np.array([times.end_s for times in seen], np.float64), start + 1.0)
    return pl.DataFrame(
        {
            "id": ids,
            "nodes": nodes,
            "walltime_s": walltime,
            "limit_s": limit,
            "runtime_s": runtime,
            "submit_s": [(times.submit_s - zero) / scale for times in seen],
            "start_s": (start - zero) / scale,
            "end_s": (end - zero) / scale,
            "state": [times.state for times in seen],
            "runs": [times.runs for times in seen],
        }
    )


def twins_part(journal: Path, jobs: Iterable[str], *, clock: float = 1.0) -> TwinsPart:
    """Return a twin's actions on these jobs, from its journal.

    Args:
        clock: Speed of the clock; the twin's durations are divided by it.
    """
    book = Journal(journal, read_only=True)
    try:
        by_policy: dict[str, int] = {}
        not_done, chosen = 0, 0
        for job_id in jobs:
            actions = book.read_actions(job=job_id)
            not_done += sum(action.result != "done" for action in actions)
            done = [action for action in actions if action.result == "done"]
            if not done:
                continue
            chosen += 1
            decision = book.read_decision(done[-1].decision)
            if decision is not None:
                name = decision["policy"]
                by_policy[name] = by_policy.get(name, 0) + 1
        took = []
        last = book.read_decision()
        for number in range(1, (last["id"] if last else 0) + 1):
            decision = book.read_decision(number)
            if decision is not None:
                took.append(decision["took_ms"])
    finally:
        book.close()
    return TwinsPart(
        {name: n / chosen for name, n in sorted(by_policy.items())},
        chosen, not_done, len(took), float(np.mean(took)) / clock if took else 0.0,
    )  # fmt: skip


def stored(folder: Path) -> list[LiveRun]:
    """Return the runs in a folder."""
    runs = [LiveRun.read(path) for path in sorted(folder.glob("*-*-*.json"))]
    if not runs:
        raise ConfigError(f"{folder}: the folder has no runs; write them with --out {folder}")
    return runs


@dataclass
class Collected:
    """Runs on one manager, judged against each other.

    Args:
        rows: A row per method and seed, for the seeds that all methods ran.
        missing: Seeds that are excluded because a method lacks them.
    """

    rows: list[Row] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)


def collected(
    runs: Iterable[LiveRun], settings: CoreSettings | None = None
) -> dict[str, Collected]:
    """Return the rows of all runs by manager, with the twin last.

    Args:
        runs: At most one run for each seed under each method.
        settings: Settings with the objective of the judgment; default the paper's.
    """
    by_manager: dict[str, list[LiveRun]] = {}
    for run in runs:
        by_manager.setdefault(run.on, []).append(run)
    result: dict[str, Collected] = {}
    for on, mine in sorted(by_manager.items(), reverse=True):
        methods = sorted({run.under for run in mine}, key=lambda name: (name == TWIN, name))
        found = result[on] = Collected()
        for seed in sorted({run.seed for run in mine}):
            own = {run.under: run for run in mine if run.seed == seed}
            if len(own) < len(methods):
                found.missing.append(seed)
                continue
            rows = [own[name].row() for name in methods]
            judge(rows, settings or CoreSettings())
            found.rows += rows
    return result


def costs(runs: Iterable[LiveRun]) -> dict[str, dict[str, Any]]:
    """Return the mean of `LiveRun.costs` and the mean load over each manager's runs."""
    by_manager: dict[str, list[dict[str, float]]] = {}
    for run in runs:
        by_manager.setdefault(run.on, []).append({**run.costs(), "load": run.load})
    return {
        on: {name: float(np.mean([one[name] for one in mine])) for name in mine[0]}
        for on, mine in by_manager.items()
    }
