"""Schedulers from outside: they drive the one simulation, and the same rule gives the same starts."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation, errors, generate, simulate
from hpctwin.cli.app import main
from hpctwin.model import Workload
from hpctwin.simulation.schedulers import (
    Happened,
    JsonLinesScheduler,
    Orders,
    PolicyScheduler,
    drive,
)
from tests.conftest import lacking
from tests.examples import examples

PROGRAM = Path(__file__).with_name("fcfs_scheduler.py")
NODES = 16


def outside(workload: Workload, cluster: Cluster | None = None) -> Simulation:
    """A simulation in which nobody starts by himself."""
    return Simulation(workload, cluster or Cluster.uniform(NODES), "fcfs", "outside")


class FirstCome:
    """First come, first served, by whatever it is told."""

    def __init__(self) -> None:
        self.queue: list[tuple[int, int]] = []
        self.asked: list[float] = []

    def __call__(self, happened: Happened) -> Orders:
        self.asked.append(happened.now_s)
        gone = {job for job, _ in happened.ended}
        self.queue = [one for one in self.queue if one[0] not in gone]
        self.queue += [(job["job_id"], job["nodes"]) for job in happened.submitted]
        free, start = happened.free_nodes, []
        while self.queue and self.queue[0][1] <= free:
            free -= self.queue[0][1]
            start.append(self.queue.pop(0)[0])
        return Orders(start)


JOBS = st.lists(
    st.tuples(
        st.integers(0, 60), st.integers(0, 40), st.integers(1, NODES + 2), st.integers(1, 50)
    ),
    min_size=1,
    max_size=30,
)


@given(JOBS, st.sampled_from((0, 7)))
def test_the_same_rule_from_outside_starts_each_job_at_the_same_time(
    rows: list[tuple[int, int, int, int]], cleanup: int
) -> None:
    """Jobs end for the scheduler when their nodes are clean."""
    submit, runtime, nodes, walltime = zip(*rows, strict=True)
    workload = Workload.build(submit_s=submit, runtime_s=runtime, nodes=nodes, walltime_s=walltime)
    cluster = Cluster.uniform(NODES, cleanup=cleanup)
    own = simulate(workload, cluster, "fcfs", "none").jobs
    found = drive(Simulation(workload, cluster, "fcfs+outside"), FirstCome()).jobs
    assert found.drop("state").equals(own.drop("state"))


def test_easy_as_a_program_of_its_own_equals_ours() -> None:
    workload = generate("poisson", jobs=400, nodes=NODES, seed=3)
    cluster = Cluster.uniform(NODES)
    with JsonLinesScheduler([sys.executable, str(PROGRAM), "easy"], cluster) as scheduler:
        found = drive(outside(workload), scheduler).jobs
    own = simulate(workload, NODES, "fcfs", "easy").jobs
    assert found["start_s"].to_list() == own["start_s"].to_list()


def test_a_scheduler_asked_in_steps_decides_only_then() -> None:
    workload = generate("poisson", jobs=50, nodes=NODES, seed=1)
    scheduler = FirstCome()
    result = drive(outside(workload), scheduler, every_s=30.0)
    assert all(at % 30 == 0 for at in scheduler.asked)
    assert all(start % 30 == 0 for start in result.jobs["start_s"])


def test_a_scheduler_is_called_when_it_requested() -> None:
    workload = Workload.build(submit_s=[0], runtime_s=[10], nodes=[1])
    asked: list[float] = []

    def later(happened: Happened) -> Orders:
        asked.append(happened.now_s)
        if happened.now_s < 90:
            return Orders(call_at_s=90.0)
        return Orders([1] if happened.now_s == 90 else [])

    assert drive(outside(workload), later).jobs["start_s"].to_list() == [90.0]
    assert asked == [0.0, 90.0, 100.0]


def test_events_before_the_requested_time_of_a_scheduler_are_reported_when_they_happen() -> None:
    workload = Workload.build(submit_s=[0, 5], runtime_s=[30, 10], nodes=[1, 1])
    asked: list[float] = []

    def wishes(happened: Happened) -> Orders:
        asked.append(happened.now_s)
        return Orders([job["job_id"] for job in happened.submitted], happened.now_s + 20)

    assert drive(outside(workload), wishes).jobs["start_s"].to_list() == [0.0, 5.0]
    assert asked == [0.0, 5.0, 15.0, 20.0, 30.0]


def test_a_job_that_a_node_took_down_is_submitted_again() -> None:
    cluster = Cluster.model_validate(
        {
            "nodes": [{"name": "node", "count": 1}],
            "failures": {
                "outages": [{"node": 0, "start": 5, "duration": 15}],
                "on_failure": "requeue",
            },
        }
    )
    workload = Workload.build(submit_s=[0], runtime_s=[10], nodes=[1])
    seen: list[tuple[float, int]] = []

    def watch(happened: Happened) -> Orders:
        seen.append((happened.now_s, len(happened.submitted)))
        waits = happened.submitted and happened.free_nodes
        if happened.submitted and not happened.free_nodes:
            return Orders(call_at_s=25.0)
        return Orders([1] if waits or happened.now_s == 25 else [])

    assert drive(outside(workload, cluster), watch).jobs["start_s"].to_list() == [25.0]
    assert seen[:2] == [(0.0, 1), (5.0, 1)]


def test_begin_starts_the_jobs_that_fit_in_the_given_order_and_reports_the_others() -> None:
    workload = Workload.build(submit_s=[0, 0, 0], runtime_s=[9, 9, 9], nodes=[10, 10, 6])
    simulation = outside(workload)
    simulation.advance(instants=1)
    assert simulation.begin([2, 1, 3]) == [1]
    simulation.advance()
    assert simulation.column("start").tolist() == [-1, 0, 0]


def test_the_record_of_nodes_holds_many_starts_at_one_time() -> None:
    size = 400
    workload = Workload.build(
        submit_s=[0.0] * size, runtime_s=[9.0] * size, nodes=[1 + row % 3 for row in range(size)]
    )
    simulation = Simulation(workload, Cluster.uniform(1000), "fcfs", "outside", track_nodes=True)
    simulation.advance(instants=1)
    for job in range(size, 0, -1):
        assert simulation.begin([job]) == []
    simulation.advance()
    node_map = simulation.result().node_map
    assert node_map is not None
    assert node_map["count"].sum() == int(workload.nodes.sum())


def test_a_fork_starts_its_own_jobs_and_a_saved_simulation_continues(tmp_path: Path) -> None:
    workload = Workload.build(submit_s=[0, 0], runtime_s=[9, 9], nodes=[10, 10])
    simulation = outside(workload)
    simulation.advance(instants=1)
    fork = simulation.fork()
    assert fork.begin([1]) == []
    assert simulation.column("start").tolist() == [-1, -1]
    simulation.save(tmp_path / "saved.npz")
    again = Simulation.load(tmp_path / "saved.npz")
    assert again.begin([2]) == []
    assert again.column("start").tolist() == [-1, 0]


@pytest.mark.parametrize(
    ("orders", "told"),
    [
        (Orders([7]), "job 7 does not exist"),
        (Orders([2]), "job 2 is not pending at 0 s: it is not submitted yet"),
        (Orders([1, 1]), "job 1 is listed twice"),
        (Orders([1, 3]), "job 3 at 0 s, which does not fit: it needs 16 nodes, free are 8"),
        (Orders(call_at_s=0.0), "it must be later"),
    ],
)
def test_an_impossible_order_is_reported_with_job_and_time(orders: Orders, told: str) -> None:
    workload = Workload.build(submit_s=[0, 50, 0], runtime_s=[9, 9, 9], nodes=[8, 8, 16])
    with pytest.raises(errors.SimulationError, match=told):
        drive(outside(workload), lambda happened: orders)


def test_a_scheduler_that_never_starts_a_job_is_reported_with_the_job() -> None:
    workload = Workload.build(submit_s=[0, 50, 0], runtime_s=[9, 9, 9], nodes=[8, 8, 16])

    def scheduler(happened: Happened) -> Orders:
        return Orders([job["job_id"] for job in happened.submitted if job["job_id"] != 3])

    with pytest.raises(
        errors.SimulationError,
        match="left 1 job pending at 59 s with no event to come, the first of them job 3",
    ):
        drive(outside(workload), scheduler)


def test_a_policy_that_decides_itself_takes_no_orders() -> None:
    workload = Workload.build(submit_s=[0], runtime_s=[9], nodes=[1])
    with pytest.raises(errors.SimulationError, match="use backfill 'outside'"):
        Simulation(workload, 4).begin([1])
    with pytest.raises(errors.SimulationError, match="use backfill 'outside'"):
        drive(Simulation(workload, 4), FirstCome())


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("import sys; sys.exit(3)", r"ended \(exit code 3\) at 0 s"),
        ("input(); input(); print('hello')", "answered 'hello' at 0 s of the simulation: expected"),
        ("input(); input(); print('{\"stat\": [1]}')", "unknown key 'stat'"),
        ("input(); input(); print('{\"start\": 1}')", "lists of job ids"),
        ("input(); input(); input()", "did not answer within 0.5 s"),
    ],
)
def test_a_program_with_a_wrong_answer_is_reported_and_ended(program: str, told: str) -> None:
    workload = Workload.build(submit_s=[0], runtime_s=[9], nodes=[1])
    wait_s = 0.5 if "did not answer" in told else 60.0
    command = [sys.executable, "-c", program]
    scheduler = JsonLinesScheduler(command, Cluster.uniform(4), timeout_s=wait_s)
    with pytest.raises(errors.SimulationError, match=told), scheduler:
        drive(outside(workload), scheduler)
    assert scheduler.exit_code is not None


def test_the_example_in_c_schedules_as_ours(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        lacking("the example in C needs a C compiler, cc")
    page = Path(__file__).parents[2] / "docs" / "how-to" / "connect-an-external-scheduler.md"
    (code,) = re.findall(r"```c\n(.*?)```", page.read_text(), re.DOTALL)
    (tmp_path / "fcfs.c").write_text(code)
    subprocess.run(
        [str(compiler), "-Wall", "-Werror", "-O2", "-o", "fcfs", "fcfs.c"], cwd=tmp_path, check=True
    )
    workload = generate("poisson", jobs=300, nodes=NODES, seed=2)
    with JsonLinesScheduler([str(tmp_path / "fcfs")], Cluster.uniform(NODES)) as scheduler:
        found = drive(outside(workload), scheduler).jobs
    own = simulate(workload, NODES, "fcfs", "none").jobs
    assert found["start_s"].to_list() == own["start_s"].to_list()


def test_a_missing_program_is_reported() -> None:
    with pytest.raises(errors.ConfigError, match="cannot be started"):
        JsonLinesScheduler("/nowhere/at-all", Cluster.uniform(4)).__enter__()


def test_simulate_takes_a_program_as_scheduler(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "t.parquet"
    generate("poisson", jobs=100, nodes=NODES, seed=1).to_frame().write_parquet(trace)
    told = []
    for more in (["--scheduler", f"{sys.executable} {PROGRAM}"], ["-b", "none"]):
        try:
            main(["simulate", str(trace), "-n", str(NODES), *more, "--json"])
        except SystemExit as ended:
            assert not ended.code  # noqa: PT017
        told.append(json.loads(capsys.readouterr().out)["mean_wait_s"])
    assert told[0] == told[1]
    with pytest.raises(SystemExit) as refused:
        main(["simulate", str(trace), "-n", str(NODES), "-b", "outside"])
    assert refused.value.code == 2
    assert "--scheduler" in capsys.readouterr().err


@settings(max_examples=examples(60))
@given(
    JOBS,
    st.sampled_from(
        [
            "fcfs+none",
            "sjf+first-fit",
            "fcfs+easy",
            "wfp+easy:2",
            "fcfs+easy/sjf",
            "fcfs+conservative",
        ]
    ),
    st.integers(1, 8),
)
def test_a_policy_that_decides_from_outside_starts_each_job_as_within(
    rows: list[tuple[int, int, int, int]], policy: str, room: int
) -> None:
    submit, runtime, nodes, walltime = zip(*rows, strict=True)
    workload = Workload.build(submit_s=submit, runtime_s=runtime, nodes=nodes, walltime_s=walltime)
    own = simulate(workload, NODES, policy).jobs
    # With little room at first, rows are used again, and there come to be more.
    found = drive(outside(workload), PolicyScheduler(policy, NODES, rows=room)).jobs
    assert found["start_s"].equals(own["start_s"])


def test_a_policy_from_outside_takes_back_what_was_rejected_and_does_not_go_back_in_time() -> None:
    scheduler = PolicyScheduler("fcfs+easy", 4)
    jobs = [
        {"job_id": name, "submit_s": 0.0, "nodes": nodes, "walltime_s": 50.0}
        for name, nodes in (("a", 3), ("b", 2), ("c", 1))
    ]
    assert scheduler(Happened(0.0, tuple(jobs))).start == ["a", "c"]
    # Somebody else took a's nodes; it stays first, and what is left goes on as told.
    assert scheduler(Happened(9.0, refused=("a",))).start == ["a"]
    assert scheduler.nodes_of("a") == [0, 1, 2]
    # c has outrun its walltime: its node is not free before that is told.
    assert scheduler(Happened(70.0, ended=(("a", "completed"),))).start == ["b"]
    late = {"job_id": "d", "submit_s": 1.0, "nodes": 2, "walltime_s": 50.0}
    assert scheduler(Happened(71.0, (late,))).start == []
    assert scheduler(Happened(72.0, ended=(("c", "completed"),))).start == ["d"]
    with pytest.raises(errors.SimulationError, match=r"at 60 s arrives after the event at 72 s"):
        scheduler(Happened(60.0))


def test_a_policy_by_fair_share_cannot_decide_from_outside(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["policy", "serve", "tcp://127.0.0.1:28000", "-p", "fairshare"])
    assert refused.value.code == 2
    assert "uses fair shares" in capsys.readouterr().err
    with pytest.raises(SystemExit) as refused:
        main(["policy", "serve", "nowhere"])
    assert refused.value.code == 2
    assert "cannot listen at this address" in capsys.readouterr().err
