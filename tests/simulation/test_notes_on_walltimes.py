"""The note of a run in which walltimes ended many jobs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpctwin import Workload, simulate, simulate_stream
from hpctwin.cli import main
from hpctwin.formats import write_workload


def jobs(over: int, size: int = 40) -> Workload:
    """Some jobs of which the first ones run longer than they asked."""
    runtime = [200.0 if i < over else 50.0 for i in range(size)]
    return Workload.build(
        submit_s=[10.0 * i for i in range(size)], runtime_s=runtime, nodes=[1] * size,
        walltime_s=[100.0] * size,
    )  # fmt: skip


NOTE = "10 of 40 jobs (25%) ran into their walltime, which ended them; with --overrun continue"


def test_many_ends_by_walltime_are_noted_with_the_option() -> None:
    (note,) = simulate(jobs(10), 8).notes
    assert note.startswith(NOTE)
    assert 'overrun="continue"' in note


@pytest.mark.parametrize("over", [0, 1])
def test_few_are_not(over: int) -> None:
    assert simulate(jobs(over), 8).notes == ()


def test_with_the_option_there_is_none() -> None:
    assert simulate(jobs(10), 8, overrun="continue").notes == ()


def test_streams_note_it_too(tmp_path: Path) -> None:
    found = simulate_stream(jobs(10), 8, out=tmp_path / "out", batch=8)
    assert found.notes[-1].startswith(NOTE)
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["notes"][-1].startswith(NOTE)


@pytest.mark.parametrize("command", ["simulate", "compare"])
def test_commands_say_it(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.swf"
    write_workload(jobs(10), trace)
    words: list[Any] = [
        command,
        trace,
        "--nodes",
        8,
        *(["-p", "fcfs"] if command == "compare" else []),
    ]
    with pytest.raises(SystemExit):
        main([str(word) for word in words])
    assert NOTE in capsys.readouterr().err
