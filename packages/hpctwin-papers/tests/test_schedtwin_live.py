"""SchedTwin's experiment on a real cluster: submitting, reading back, storing, collecting."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from tests.conftest import lacking
from tests.rms.beside_slurm import running
from tests.rms.slurm_roots import NEWEST

from hpctwin import Cluster, simulate
from hpctwin.cli import main
from hpctwin.errors import ExperimentError
from hpctwin.generate.four_phase import four_phase
from hpctwin.model import Workload
from hpctwin.twin.service.comparison import TWIN, Row, static_row
from hpctwin_papers.schedtwin import experiment
from hpctwin_papers.schedtwin.live import (
    LiveRun,
    TwinsPart,
    clock_speed,
    collected,
    run_live,
    stored,
)
from hpctwin_papers.schedtwin.users import PbsUser, SlurmUser, Times

SIX = Workload.build(
    submit_s=[0, 5, 10, 15, 20, 25],
    runtime_s=[180, 120, 180, 120, 120, 60],
    walltime_s=[180, 120, 180, 120, 120, 60],
    nodes=[20, 20, 4, 20, 4, 4],
)


def command(*words: object) -> int:
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return int(stop.value.code or 0)


class Sleeper:
    """A cluster of 32 nodes that starts jobs first come, first served."""

    limit_step_s = 1.0

    def __init__(self, **faults: Times) -> None:
        self.asked: dict[str, tuple[float, int, float]] = {}
        self.faults = faults
        self.cancelled: list[str] = []
        self.idle = 32

    def version(self) -> str:
        return "sleeper 1"

    def idle_nodes(self) -> int:
        return self.idle

    def submit(self, nodes: int, walltime_s: float, runs_s: float) -> str:
        assert runs_s <= walltime_s
        self.asked[f"j{len(self.asked)}"] = (time.time(), nodes, runs_s)
        return f"j{len(self.asked) - 1}"

    def cancel(self, jobs: Sequence[str]) -> None:
        self.cancelled += jobs

    def jobs(self) -> dict[str, Times]:
        now, before = time.time(), 0.0
        ends: list[tuple[float, int]] = []
        found = {}
        for job_id, (submitted, nodes, runs) in self.asked.items():
            start = max(submitted, before)
            while sum(n for end, n in ends if end > start) + nodes > 32:
                start = min(end for end, _ in ends if end > start)
            before = start
            ends.append((start + runs, nodes))
            state = "R" if start <= now else "Q"
            over = start + runs <= now
            found[job_id] = Times(
                "F:0" if over else state,
                submitted,
                start if start <= now else None,
                start + runs if over else None,
            )
        return found | {k: v for k, v in self.faults.items() if k in found}


def test_jobs_are_submitted_in_their_time_and_read_back_uncompressed() -> None:
    user = Sleeper()
    run = run_live(user, SIX, on="pbs", under="own", seed=7, compress=200)
    seen = user.jobs()
    zero = seen["j0"].submit_s
    starts = [times.start_s for times in seen.values() if times.start_s is not None]
    assert run.jobs["start_s"].to_list() == pytest.approx([200 * (s - zero) for s in starts])
    submitted = np.array([200 * (times.submit_s - zero) for times in seen.values()])
    assert run.jobs["submit_s"].to_list() == pytest.approx(submitted.tolist())
    assert (submitted >= SIX.submit_ms / 1e3 - run.late_s - 10).all()
    # The second of 20 nodes waits for the first, the fourth for the second.
    assert run.jobs["start_s"][1] >= run.jobs["start_s"][0] + 179
    assert run.jobs["start_s"][3] >= run.jobs["start_s"][1] + 119
    # Managers keep whole seconds, and a job that ran took one at least.
    assert (run.jobs["end_s"] - run.jobs["start_s"]).min() > 199.9
    assert run.jobs["nodes"].to_list() == SIX.nodes.tolist()
    assert user.cancelled == []
    # A second is 200 s of the experiment's time here.
    assert run.jobs["limit_s"].to_list() == [200.0] * 6


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (Times("F:1", 1.0, None, 5.0), "never ran"),
        (Times("R", 1.0, 2.0, None, runs=2), "started 2 times"),
    ],
)
def test_a_job_that_never_ran_or_ran_twice_fails_the_run_and_the_rest_is_cancelled(
    fault: Times, says: str
) -> None:
    user = Sleeper(j2=fault)
    with pytest.raises(ExperimentError, match=says):
        run_live(user, SIX, on="pbs", under="own", seed=0, compress=100)
    assert "j2" in user.cancelled


def test_a_cluster_that_is_not_idle_is_left_alone() -> None:
    user = Sleeper()
    user.idle = 19
    with pytest.raises(ExperimentError, match="19 idle nodes"):
        run_live(user, SIX, on="pbs", under="own", seed=0)
    assert user.asked == {}


def test_times_of_slurm_and_pbs_are_facts_not_plans() -> None:
    plan = {"job_state": "PENDING", "submit_time": 10, "start_time": 99, "end_time": 120}
    assert SlurmUser._times(plan) == Times("PENDING", 10.0)
    later = {
        "job_state": ["RUNNING"], "submit_time": {"set": True, "number": 10},
        "start_time": {"set": True, "number": 20}, "end_time": {"set": True, "number": 80},
        "restart_cnt": 1,
    }  # fmt: skip
    assert SlurmUser._times(later) == Times("RUNNING", 10.0, 20.0, None, 2)
    over = {"job_state": "TIMEOUT", "submit_time": 10, "start_time": 20, "end_time": 80}
    assert SlurmUser._times(over) == Times("TIMEOUT", 10.0, 20.0, 80.0)
    text = "Sat Nov 21 20:00:{:02} 2026"
    done = {
        "job_state": "F", "ctime": text.format(1), "stime": text.format(5), "Exit_status": 0,
        "obittime": text.format(30), "mtime": text.format(31), "run_count": 1,
    }  # fmt: skip
    times = PbsUser._times(done)
    assert times.start_s is not None
    assert times.end_s is not None
    assert (times.state, times.start_s - times.submit_s, times.end_s - times.start_s) == (
        "F:0",
        4,
        25,
    )
    assert (
        PbsUser._times({"job_state": "R", **{k: done[k] for k in ("ctime", "stime")}}).end_s is None
    )


def of_policy(policy: str, under: str, seed: int, late_s: float = 0.5) -> LiveRun:
    """A run as a simulated manager would have made it."""
    jobs = four_phase(seed=seed)
    table = simulate(jobs, Cluster.uniform(32), *policy.split("+")).jobs
    walltime = (jobs.walltime_ms / 1e3).tolist()
    return LiveRun(
        on="slurm", under=under, seed=seed, compress=60, clock=60, version="slurm 22.05.8",
        begun_s=1e9, late_s=late_s, load=1.0,
        twin=TwinsPart({policy: 1.0}, 150, 2, 300, 12.5) if under == TWIN else None,
        jobs=table.select(
            pl.col("job_id").cast(pl.String).alias("id"), "nodes",
            pl.Series("walltime_s", walltime), pl.Series("limit_s", walltime),
            pl.Series("runtime_s", walltime), "submit_s", "start_s", "end_s",
            pl.lit("COMPLETED").alias("state"), pl.lit(1).alias("runs"),
        ),
    )  # fmt: skip


def test_runs_are_stored_and_collected_next_to_the_emulated_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    emulated = tuple(experiment.run_seeds([0, 1]))

    def ran_before(seeds: Sequence[int]) -> tuple[list[Row], ...]:
        assert list(seeds) == [0, 1]
        return emulated

    monkeypatch.setattr(experiment, "run_seeds", ran_before)
    for seed in (0, 1):
        of_policy("fcfs+easy", "backfill", seed).store(tmp_path)
        of_policy("sjf+easy", TWIN, seed).store(tmp_path)
    of_policy("fcfs+easy", "backfill", 2, late_s=500.0).store(tmp_path)
    runs = stored(tmp_path)
    again = of_policy("sjf+easy", TWIN, 1)
    (same,) = [run for run in runs if (run.under, run.seed) == (TWIN, 1)]
    assert_frame_equal(same.jobs, again.jobs)
    assert (same.twin, same.compress, same.load) == (again.twin, again.compress, again.load)
    found = collected(runs)["slurm"]
    assert found.missing == [2]
    assert [(row.method, row.seed) for row in found.rows] == [
        ("backfill", 0), (TWIN, 0), ("backfill", 1), (TWIN, 1),
    ]  # fmt: skip
    own = static_row(four_phase(seed=1), 32, "sjf+easy", 1)
    assert found.rows[-1].mean_slowdown == pytest.approx(own.mean_slowdown)
    assert found.rows[-1].max_wait_s == pytest.approx(own.max_wait_s)

    figure = tmp_path / "figure.svg"
    words = ["experiment", "schedtwin", "--stored", tmp_path]
    assert command(*words, "--plot", figure) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "slurm: mean over 2 workloads" in said
    assert "emulated: mean over 2 workloads" in said
    assert said.count("that is another workload") == 1
    assert "slurm, backfill, seed 2 omitted: a submission was 500 s late" in said
    assert figure.stat().st_size > 10_000
    assert command(*words, "--late", "10min") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "seed 2 omitted: not all methods ran it" in said
    assert "that is another workload" not in said
    assert command(*words, "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert {(row["on"], row["method"]) for row in rows} >= {("slurm", TWIN), ("emulated", TWIN)}


def test_a_folder_without_runs_or_with_something_else_is_reported_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["experiment", "schedtwin", "--stored", tmp_path]
    assert command(*words) == 2
    assert "the folder has no runs" in capsys.readouterr().err
    (tmp_path / "slurm-own-0.json").write_text("{}")
    assert command(*words) == 2
    assert "not a run of this experiment" in capsys.readouterr().err
    assert command("experiment", "schedtwin", "--on", "lsf") == 2
    assert "slurm" in capsys.readouterr().err


@pytest.mark.slurm(NEWEST)
@pytest.mark.slow
def test_on_a_real_slurm_the_six_jobs_run_in_its_order(tmp_path: Path, slurm_version: str) -> None:
    with running(tmp_path, version=slurm_version) as slurm:
        run = run_live(
            SlurmUser(conf=slurm.conf), SIX, on="slurm", under="fifo", seed=0, compress=30
        )
    assert run.version.startswith("slurm")
    assert run.jobs["state"].to_list() == ["COMPLETED"] * 6
    start = run.jobs["start_s"].to_list()
    assert start == sorted(start)  # first come, first served
    # The second of 20 nodes waits for the first, the fourth for the second.
    assert start[1] >= run.jobs["end_s"][0]
    assert start[3] >= run.jobs["end_s"][1]
    assert (run.jobs["limit_s"] == 60 * 30).all()  # whole minutes, 30 times as long here
    assert run.row().utilization > 0.2


def test_programs_under_the_fast_clock_agree_and_sleep_shorter(tmp_path: Path) -> None:
    library = tmp_path / "fast_clock.so"
    source = Path(__file__).parents[3] / "benchmarks/fast_clock.c"
    try:
        subprocess.run(
            ["cc", "-Werror", "-Wall", "-shared", "-fPIC", "-o", library, source, "-ldl"],
            check=True,
        )
    except FileNotFoundError:
        lacking("the fast clock needs a C compiler")
    begun = time.time()
    clock = {
        "FAST_CLOCK": f"60 {begun:.9f} {time.monotonic():.9f}", "LD_PRELOAD": str(library),
    }  # fmt: skip
    assert clock_speed(clock) == 60.0
    said = subprocess.run(
        ["sh", "-c", "date +%s.%N; sleep 90; date +%s.%N; touch made; date -r made +%s.%N"],
        env={**os.environ, **clock}, capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    took = time.time() - begun
    before, after, made = (float(line) for line in said.stdout.split())
    assert 90 <= after - before <= 60 * took
    assert took >= 1.5
    assert after - 1 <= made <= begun + 60 * took  # the kernel stamps files some ms late
