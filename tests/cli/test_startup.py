"""What a command loads: a start takes no longer than it must."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from hpctwin import Workload, write_workload
from hpctwin.cli.simulating.run_options import option_from
from hpctwin.errors import ConfigError
from tests.test_package import IMPORTED

OF_EXTRAS = {*IMPORTED.values(), "dask"}
OF_OTHER_RUNS = {
    "hpctwin.energy.accounts", "hpctwin.energy.cooling", "hpctwin.energy.prices",
    "hpctwin.facility", "hpctwin.formats.accounting", "hpctwin.formats.datasets",
    "hpctwin.generate", "hpctwin.learn", "hpctwin.metrics.accounts",
    "hpctwin.metrics.comparison", "hpctwin.metrics.description",
    "hpctwin.model.requests.requests", "hpctwin.policies.agents", "hpctwin.report.figures",
    "hpctwin.report.pages",
    "hpctwin.simulation.lowering.shared_nodes", "hpctwin.simulation.replays",
    "hpctwin.simulation.streaming", "hpctwin.sweep", "hpctwin.twin",
}  # fmt: skip
"""What a plain run needs none of."""

RUN = """
import sys
from hpctwin.cli import main
heavy = {'matplotlib', 'sqlite3', *sys.argv.pop().split()}
try:
    main(sys.argv[1:])
except SystemExit as end:
    assert end.code == 0, end
print(sorted(heavy & set(sys.modules)))
print(sum(name.partition('.')[0] == 'hpctwin' for name in sys.modules))
"""

MOST_MODULES = 130
"""Number of modules of hpctwin that a plain run may import."""


def test_simulate_loads_nothing_that_only_other_runs_need(tmp_path: Path) -> None:
    trace = tmp_path / "trace.swf"
    jobs = Workload.build(submit_s=[0, 1], runtime_s=[5, 5], walltime_s=[9, 9], nodes=[1, 2])
    write_workload(jobs, trace)
    heavy = " ".join(OF_EXTRAS | OF_OTHER_RUNS)
    done = subprocess.run(
        [sys.executable, "-c", RUN, "simulate", str(trace), "--nodes", "4", heavy],
        capture_output=True,
        text=True,
        check=True,
    )
    found, modules = done.stdout.splitlines()[-2:]
    assert found == "[]"
    assert int(modules) <= MOST_MODULES


def test_the_simulation_package_imports_few_modules() -> None:
    names = "import sys; from hpctwin.simulation import Simulation; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", names], capture_output=True, text=True, check=True)
    imported = [name for name in done.stdout.split() if name.partition(".")[0] == "hpctwin"]
    assert len(imported) <= MOST_MODULES
    assert "hpctwin.engine.queue.order" not in imported


def loaded_by(*command: str) -> set[str]:
    """The packages that a process has imported at its end."""
    told = (
        "import atexit, sys; atexit.register(lambda: print('\\n', *sys.modules, file=sys.stderr)); "
    )
    done = subprocess.run(
        [sys.executable, "-c", told + command[0], *command[1:]],
        capture_output=True,
        text=True,
        check=True,
    )
    return {name.partition(".")[0] for name in done.stderr.splitlines()[-1].split()}


def test_importing_hpctwin_imports_nothing_but_python_s_own() -> None:
    bare = loaded_by("pass")
    assert loaded_by("import hpctwin") - bare - sys.stdlib_module_names == {"hpctwin"}


def test_help_loads_nothing_that_computes() -> None:
    main = "from hpctwin.cli import main; main(sys.argv[1:])"
    loaded = loaded_by(main, "--help")
    assert "cyclopts" in loaded
    assert not loaded & {
        "numpy",
        "polars",
        "numba",
        "pydantic",
        "matplotlib",
        "yaml",
        "sqlite3",
        *OF_EXTRAS,
    }


@pytest.mark.parametrize(
    "command", ["sweep", "agent train", "predictor score", "policy search", "serve"]
)
def test_help_of_a_command_loads_nothing_of_its_extra(command: str) -> None:
    main = "from hpctwin.cli import main; main(sys.argv[1:])"
    assert not loaded_by(main, *command.split(), "--help") & {"numba", "matplotlib", *OF_EXTRAS}


COMMANDS_OF_PAPERS = "experiment and incentives: package hpctwin-papers"


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("experiment list --json", COMMANDS_OF_PAPERS),
        ("experiment", COMMANDS_OF_PAPERS),
        ("incentives t.swf", COMMANDS_OF_PAPERS),
        ("simulate {} -n 4 --sizing carbonscaler", "--sizing: package hpctwin-sizing"),
        (
            "simulate {} -n 4 --priorities-from energy:a.json",
            "--priorities-from: package hpctwin-papers",
        ),
        (
            "compare {} -n 4 -p fcfs --priorities-from energy:a.json",
            "--priorities-from: package hpctwin-papers",
        ),
    ],
)
def test_without_its_package_a_command_or_option_says_what_to_install(
    command: str, told: str, tmp_path: Path
) -> None:
    trace = tmp_path / "trace.swf"
    write_workload(Workload.build(submit_s=[0], runtime_s=[5], nodes=[1]), trace)
    main = (
        "import sys; from importlib import metadata; "
        "metadata.entry_points = lambda **group: metadata.EntryPoints(); "
        "from hpctwin.cli import main; main(sys.argv[1:])"
    )
    done = subprocess.run(
        [sys.executable, "-c", main, *command.format(trace).split()],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    package = told.split()[-1]
    assert done.stderr == f"hpctwin: {told} is not installed; run pip install {package}\n"


def test_a_package_whose_commands_cannot_be_loaded_is_named_and_the_others_run(
    tmp_path: Path,
) -> None:
    about = tmp_path / "broken_plugin-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-plugin\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[hpctwin.commands]\nbroken = no_such_module:add\n")
    done = subprocess.run(
        [sys.executable, "-m", "hpctwin", "policy", "list"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert "wfp" in done.stdout
    assert "broken-plugin: its commands cannot be loaded" in done.stderr


def test_an_option_whose_package_cannot_be_loaded_is_reported_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    point = metadata.EntryPoint("sizing", "no_such_module:option", "hpctwin.options")
    monkeypatch.setattr(metadata, "entry_points", lambda **_: metadata.EntryPoints([point]))
    with pytest.raises(
        ConfigError, match=r"--sizing: package hpctwin-sizing cannot be loaded \(No module"
    ):
        option_from("hpctwin-sizing", "sizing")
