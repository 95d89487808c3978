"""Ctrl-C or a signal ends a command at once, whatever the engine does, and leaves nothing half done."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpctwin import Cluster, Simulation, Workload, generate, write_workload
from hpctwin.engine.compile import linking
from hpctwin.engine.compile.jit import Kernel, jit

AT_MOST_S = 10.0
"""Computing, far more than the second it takes; without being heard it would be minutes."""


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of which a single pass of conservative backfilling takes a minute and more."""
    rng = np.random.default_rng(0)
    size = 25_000
    workload = Workload.build(
        submit_s=np.zeros(size),
        runtime_s=rng.integers(100, 100_000, size),
        walltime_s=rng.integers(100_000, 300_000, size),
        nodes=rng.integers(1, 64, size),
    )
    path = tmp_path_factory.mktemp("slow") / "slow.parquet"
    write_workload(workload, path)
    return path


def engine_is_busy(pid: int) -> bool:
    """Whether a thread of the engine has run for a while."""
    ticks = os.sysconf("SC_CLK_TCK")
    for task in Path(f"/proc/{pid}/task").iterdir():
        # Most threads of the engine end soon, also while they are looked at.
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = (task / "stat").read_text().rpartition(")")[2].split()
            if int(task.name) != pid and int(fields[11]) > 0.5 * ticks:
                return True
    return False


@pytest.mark.parametrize(
    "command",
    [
        ["simulate", "-n", "128", "-b", "conservative", "--out", "run", "--plot", "p.png"],
        [
            "compare",
            "-n",
            "128",
            "-p",
            "fcfs+conservative",
            "-p",
            "sjf+conservative",
            "--html",
            "r.html",
        ],
    ],
)
def test_a_command_ends_soon_after_ctrl_c_within_a_pass(
    slow: Path, tmp_path: Path, command: list[str]
) -> None:
    name, *options = command
    assert interrupted([name, str(slow), *options], tmp_path, engine_is_busy) < AT_MOST_S
    # What it said is there if it had to compile first.
    assert {path.name for path in tmp_path.iterdir()} <= {"stderr"}


def test_a_command_ends_soon_after_ctrl_c_while_the_engine_is_compiled(tmp_path: Path) -> None:
    def compiles(pid: int) -> bool:
        return "compiling" in (tmp_path / "stderr").read_text() and computed_s(pid) > 2

    write_workload(generate("poisson", jobs=10, nodes=4), tmp_path / "trace.swf")
    cache = tmp_path / "cache"
    command = ["simulate", "trace.swf", "-n", "4", "-b", "conservative", "--out", "run"]
    took_s = interrupted(command, tmp_path, compiles, NUMBA_CACHE_DIR=str(cache))
    assert took_s < AT_MOST_S
    assert {path.name for path in tmp_path.iterdir()} == {"stderr", "trace.swf", "cache"}
    # It did not go on to the end: of all that is needed, some is not there.
    from hpctwin.engine.compile.kernel_key import object_path
    from hpctwin.engine.passes import PASSES

    last = PASSES.find("conservative").kernel("run")
    assert last is not None
    assert not object_path(last, folder=cache / "hpctwin").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_asks_to_end_leaves_no_half_written_file(
    number: signal.Signals, tmp_path: Path
) -> None:
    done = in_python(
        f"""
        from pathlib import Path
        signal.signal({int(number)}, signal.SIG_DFL)  # also under nohup
        Path.replace = lambda *_: signal.raise_signal({int(number)})  # when all is written
        """,
        ["workload", "generate", "poisson", "jobs.swf", "jobs=10", "nodes=4"],
        tmp_path,
    )
    assert (done.returncode, done.stderr) == (-number, "")
    assert not list(tmp_path.iterdir())


def test_a_signal_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    done = in_python(
        """
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        from pathlib import Path
        replace = Path.replace
        Path.replace = lambda *paths: (signal.raise_signal(signal.SIGHUP), replace(*paths))
        """,
        ["workload", "generate", "poisson", "jobs.swf", "jobs=10", "nodes=4"],
        tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == ["jobs.swf"]


def test_ctrl_c_while_modules_are_imported_ends_with_one_line(tmp_path: Path) -> None:
    done = in_python(
        """
        class Interrupt:
            def find_spec(self, name, *_):
                if name == "hpctwin.model.cluster":
                    raise KeyboardInterrupt
        sys.meta_path.insert(0, Interrupt())
        """,
        ["simulate", "none.swf", "-n", "4"],
        tmp_path,
    )
    assert (done.returncode, done.stderr) == (130, "hpctwin: interrupted\n")


def in_python(before: str, command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a new process, after some lines of Python."""
    script = f"import signal, sys\n{textwrap.dedent(before)}\nfrom hpctwin.cli import main\nmain()"
    return subprocess.run(
        [sys.executable, "-c", script, *command], cwd=folder, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


class InterruptedWhenDropped:
    """A signal comes where Python drops what is raised, as in the callbacks that compiling makes."""

    def __init__(self, number: signal.Signals) -> None:
        self.number = number

    def __del__(self) -> None:
        signal.raise_signal(self.number)


def four_times() -> Kernel:
    """A kernel of one part, neither of them compiled yet."""

    @jit
    def twice(value: int) -> int:
        return 2 * value

    def whole(value: int) -> int:
        return twice(twice(value))

    return Kernel(whole, "int64(int64)")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("at", [1, 2])
def test_an_interrupt_is_not_lost_while_compiling_where_python_drops_it(
    at: int, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpctwin.engine.compile.compiler.CACHE_DIR", None)
    begun: list[str] = []
    before = linking.JITCodeLibrary.enable_object_caching

    def caching(library: Any) -> None:
        begun.append(library.name)
        if len(begun) == at:
            InterruptedWhenDropped(number)
        before(library)

    monkeypatch.setattr(linking.JITCodeLibrary, "enable_object_caching", caching)
    handler = signal.signal(number, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            four_times().compiled()
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, handler)
    # The kernel, and the part that it is made of: the first is told before the second is begun.
    assert len(begun) == at
    monkeypatch.undo()
    assert four_times()(3) == 12


@pytest.mark.traces
def test_a_command_ends_soon_after_ctrl_c_while_a_large_log_is_read(
    traces: Path, tmp_path: Path
) -> None:
    log = traces / "swf/mustang_release_v0.2.0-completed-reassembled.swf.gz"
    command = ["workload", "describe", str(log)]
    assert interrupted(command, tmp_path, lambda pid: computed_s(pid) > 1) < AT_MOST_S


def computed_s(pid: int) -> float:
    """What a process has computed so far, all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def interrupted(
    command: list[str], folder: Path, reached: Callable[[int], bool], **environment: str
) -> float:
    """Begin a command, send it Ctrl-C once something is so, and see it end; what it computed after that."""
    said = folder / "stderr"
    with (
        said.open("wb") as err,
        subprocess.Popen(
            [sys.executable, "-m", "hpctwin", *command],
            cwd=folder, stdout=subprocess.PIPE, stderr=err,
            env={**os.environ, "POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1", **environment},
            # What is started in the background may have been told to ignore it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ) as process,
    ):  # fmt: skip
        try:
            give_up = time.monotonic() + 300
            while not reached(process.pid):
                assert process.poll() is None, said.read_text()
                assert time.monotonic() < give_up
                time.sleep(0.02)
        except BaseException:
            process.kill()  # else it is waited for, which may be for hours
            raise
        before = computed_s(process.pid)
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        assert process.stdout.read() == b""
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    text = said.read_text()
    assert process.returncode == 130, text
    assert text.splitlines()[-1] == "hpctwin: interrupted"
    assert "Traceback" not in text
    if "compiling" not in text:
        said.unlink()
    return used.ru_utime + used.ru_stime - before


@pytest.mark.parametrize("backfill", ["none", "easy", "conservative", "pack", "pushdown"])
def test_the_place_where_the_engine_stops_for_python_changes_nothing(
    backfill: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = generate("poisson", jobs=800, nodes=32, seed=4)
    cluster = Cluster.uniform(nodes=32)

    def arrays(slice_s: float, many: int) -> list[np.ndarray]:
        monkeypatch.setattr("hpctwin.simulation.running.advance.SLICE_S", slice_s)
        monkeypatch.setattr("hpctwin.simulation.running.advance.MANY_WAITING", many)
        # The pushdown wants an ordering that does not change with time.
        order = "sjf" if backfill == "pushdown" else "wfp"
        simulation = Simulation(workload, cluster, order, backfill)
        simulation.advance()
        assert simulation.done
        return list(simulation.state.state().values())

    once = arrays(1e9, 10**9)
    for slice_s, many in ((0.0, 10**9), (1e9, 1), (0.0, 1)):
        for ours, theirs in zip(arrays(slice_s, many), once, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_instants_are_counted_across_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpctwin.simulation.running.advance.SLICE_S", 0.0)
    workload = generate("poisson", jobs=300, nodes=32, seed=4)
    simulation = Simulation(workload, Cluster.uniform(nodes=32))
    assert simulation.advance(instants=200) == "stepped"
    assert simulation.result().instants == 200
    assert simulation.advance() == "done"
    other = Simulation(workload, Cluster.uniform(nodes=32))
    row = 250
    assert other.run_until_started(row) == simulation.result().jobs["start_s"][row]


def test_jobs_that_all_come_at_once_and_run_long_are_no_loop_of_steps() -> None:
    workload = Workload.build(submit_s=[0, 0], runtime_s=[1e9, 1e9], nodes=[1, 1])
    calls: list[float] = []
    simulation = Simulation(workload, Cluster.uniform(nodes=1))
    simulation.run(calls.append)
    assert simulation.done
    assert len(calls) < 100
