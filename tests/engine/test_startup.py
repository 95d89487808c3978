"""What a user waits for first: compiling is said, with an estimate, and is done once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpctwin import Cluster, Simulation, Workload
from hpctwin.engine.compile.jit import Kernel

KERNELS = """
from hpctwin.engine.compile.jit import prepare
from hpctwin.engine.compile.jit import Kernel

def twice(number):
    return 2 * number

def thrice(number):
    return 3 * number

kernels = [Kernel(function, 'int64(int64)') for function in (twice, thrice)]
prepare(kernels)
print(kernels[0](21), kernels[1](14))
"""


def prepared(folder: Path) -> subprocess.CompletedProcess[str]:
    script = folder / "kernels.py"
    if not script.exists():
        script.write_text(KERNELS)
    return subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache")},
    )


def test_compilation_is_reported_once_in_a_pipe(tmp_path: Path) -> None:
    first = prepared(tmp_path)
    assert first.stdout == "42 42\n"
    assert first.stderr == "hpctwin: compiling the engine, once after installing …\n"
    second = prepared(tmp_path)
    assert (second.stdout, second.stderr) == ("42 42\n", "")


def test_the_rest_takes_as_long_as_the_pace_so_far_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from hpctwin.engine.compile import build

    told = {0.0: 0.0, 0.5: 0.1, 2.0: 0.01, 4.0: 0.25, 4.5: 0.5, 9.0: 0.9, 10.0: 1.0}
    clock = iter(told)
    monkeypatch.setattr(build.time, "monotonic", lambda: next(clock))
    report = build.Progress()
    for share in list(told.values())[1:]:
        report(share)
    assert capsys.readouterr().err.splitlines()[1:] == [
        "hpctwin: compiling the engine, 25 %, ~12 s left",
        "hpctwin: compiling the engine, 90 %, ~1 s left",
    ]


def test_the_pass_over_a_plan_is_compiled_only_where_counting_does_not_decide() -> None:
    workload = Workload.build(
        submit_s=[0, 0, 1, 2],
        runtime_s=[100, 50, 60, 5],
        walltime_s=[10, 50, 60, 5],
        nodes=[2, 1, 4, 1],
    )
    for backfill in ("none", "first-fit", "easy"):
        by_limit = Simulation(workload, 4, f"fcfs+{backfill}")
        by_limit.advance()
        assert by_limit.compiled_policy()["hooks"]["run_pass"][0] == 0
        # A job that runs on after its walltime is in no count.
        longer = Simulation(workload, 4, f"fcfs+{backfill}", overrun="continue")
        longer.advance(until_s=5)
        fork = longer.fork()
        assert longer.compiled_policy()["hooks"]["run_pass"][0] == 0
        longer.advance()
        assert longer.compiled_policy()["hooks"]["run_pass"][0] != 0
        assert fork.compiled_policy()["hooks"]["run_pass"][0] == 0
        whole = Simulation(workload, 4, f"fcfs+{backfill}", overrun="continue")
        whole.compile_pass()
        whole.advance()
        assert longer.result().jobs.equals(whole.result().jobs)
    assert Simulation(workload, 4, "fcfs+easy:2").compiled_policy()["hooks"]["run_pass"][0] != 0


def _twice(number: int) -> int:
    return 2 * number


def test_what_is_not_at_hand_is_looked_for_on_disk_once_and_is_when_it_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel, looked = Kernel(_twice, "int64(int64)"), []
    monkeypatch.setattr(
        "hpctwin.engine.compile.compiler.Translation.load",
        lambda kernel: looked.append(kernel) or 0,
    )
    assert [kernel.at_hand() for _ in range(3)] == [False] * 3
    assert len(looked) == 1
    kernel.compiled()
    assert kernel.at_hand()


def test_the_tournament_is_compiled_only_once_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpctwin.engine.compile.entry_points.RACE.at_hand", lambda: False)
    workload = Workload.build(
        submit_s=[0.0] * 300 + [10.0] * 700, runtime_s=[50.0] * 1000, nodes=[1] * 1000
    )
    simulation = Simulation(workload, 200, "fcfs+easy")
    simulation.advance(until_s=9)
    assert simulation.compiled_policy()["hooks"]["run_race"][0] == 0
    fork = simulation.fork()
    simulation.advance()
    assert simulation.compiled_policy()["hooks"]["run_race"][0] != 0
    monkeypatch.undo()
    assert fork.compiled_policy()["hooks"]["run_race"][0] == 0
    fork.advance()
    at_once = Simulation(workload, 200, "fcfs+easy")
    assert at_once.compiled_policy()["hooks"]["run_race"][0] != 0
    at_once.advance()
    for one in (fork, at_once):
        assert one.result().jobs.equals(simulation.result().jobs)


@pytest.mark.parametrize(
    ("power", "planned"),
    [("none", False), ("psus:10", False), ("psas-auto:10", False), ("psas-ipm:10", True)],
)
def test_power_states_need_the_pass_only_where_jobs_may_not_have_all_nodes(
    power: str, planned: bool
) -> None:
    workload = Workload.build(
        submit_s=[0, 0, 1, 2, 100], runtime_s=[30, 50, 60, 5, 9], nodes=[2, 1, 4, 1, 4]
    )
    machine = Cluster.uniform(
        4, active_w=190, idle_w=90, sleep_w=9, off_s=5, off_w=90, on_s=7, on_w=150
    )
    found = Simulation(workload, machine, f"fcfs+easy~{power}")
    found.advance()
    hooks = found.compiled_policy()["hooks"]
    assert (hooks["run_pass"][0] != 0, hooks["build_plan"][0] != 0) == (planned, planned)
    whole = Simulation(workload, machine, f"fcfs+easy~{power}")
    whole.compile_pass()
    whole.advance()
    assert found.result().jobs.equals(whole.result().jobs)
