"""``hpctwin simulate --stream``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hpctwin.errors import ConfigError

if TYPE_CHECKING:
    from hpctwin.cli.options import ClusterOptions, RunOptions
    from hpctwin.policies import Policy

__all__ = ["simulate_streamed"]


def simulate_streamed(
    trace: Path,
    machine: ClusterOptions,
    policy: Policy,
    run: RunOptions,
    *,
    others: Sequence[str],
    out: Path | None,
    all: bool,
    json: bool,
    latex: bool,
) -> int:
    """Simulate a trace that is read in parts, and show the results.

    Args:
        trace, machine, policy, run, out, all, json, latex: As of `simulate_command`.
        others: Other options that were given.

    Raises:
        ConfigError: There is no output folder, or an option is not supported for a stream.
    """
    from hpctwin.cli.output import print_json, screen, with_notes
    from hpctwin.model import Workload
    from hpctwin.report import answer_table, summary_table
    from hpctwin.simulation import simulate_stream

    if out is None:
        raise ConfigError(
            "--stream: the output folder is missing; add --out FOLDER, to which jobs are "
            "written in parts"
        )
    if others:
        raise ConfigError(
            f"--stream does not work with {', '.join(others)}, because jobs are never all "
            "in memory; remove one of them"
        )
    nothing = Workload.build(submit_s=[], runtime_s=[], nodes=[], name=trace.name)
    own = trace / "workload.parquet"
    imported = own.is_file()
    cluster = machine.make(nothing, trace if imported else None)
    with _progress(f"{trace.name} under {policy.name}") as progress:
        result = simulate_stream(
            own if imported else trace, cluster, policy, out=out, progress=progress, **run.as_dict()
        )
    summary = result.summary()
    for note in result.notes:
        print(f"{trace.name}: {note}", file=sys.stderr)
    if json:
        print_json(summary | with_notes(result.notes))
    else:
        screen(latex=latex).print(summary_table(summary) if all else answer_table(summary))
    return int(summary.get("jobs_rejected", 0) == summary["jobs"])


@contextmanager
def _progress(title: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show completed jobs and remaining time on standard error, if it is a terminal."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(
        *columns,
        TimeRemainingColumn(elapsed_when_finished=True),
        console=console,
        transient=True,
        disable=not console.file.isatty(),
    ) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, size: bar.update(task, completed=done, total=size)
