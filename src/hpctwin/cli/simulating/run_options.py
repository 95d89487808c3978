"""Options of runs: other packages, external scheduler, sizing, streams, output on the way."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from hpctwin.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from hpctwin.cli.energy_options import EnergyOptions
    from hpctwin.cli.options import ClusterOptions, RunOptions
    from hpctwin.model import Workload
    from hpctwin.policies import Policy
    from hpctwin.simulation import Result, Simulation

__all__ = [
    "backfill_of",
    "check_alone",
    "driven",
    "every_seconds",
    "inputs_of",
    "missing_command",
    "option_from",
    "planned_s",
    "simulate_streamed",
    "writing",
]


def backfill_of(
    scheduler: str | None,
    sizing: str | None,
    policy: str | None,
    order: str | None,
    backfill: str | None,
) -> str | None:
    """Return the backfill: ``outside`` exactly with an external scheduler or a sizing.

    Raises:
        ConfigError: Several options decide on starts, or none does.
    """
    from hpctwin.errors import ConfigError
    from hpctwin.policies.backfills import OUTSIDE

    if scheduler is None and sizing is None:
        if backfill == OUTSIDE:
            raise ConfigError(
                f"--backfill {OUTSIDE} starts no job on its own; add --scheduler or --sizing"
            )
        return backfill
    if scheduler is not None and sizing is not None:
        raise ConfigError("--scheduler and --sizing both start jobs; give one of them")
    if (policy, order, backfill) != (None, None, None):
        option = "--sizing" if scheduler is None else "--scheduler"
        raise ConfigError(f"{option} starts jobs itself; remove --policy, --order and --backfill")
    return OUTSIDE


def check_alone(sizing: str | None, others: Mapping[str, Any]) -> None:
    """Check that no given option is incompatible with a sizing.

    Raises:
        ConfigError: One is incompatible.
    """
    from hpctwin.errors import ConfigError

    asked = [name for name, value in others.items() if value]
    if sizing is not None and asked:
        raise ConfigError(f"--sizing does not work with {', '.join(asked)}; remove one of them")


def driven(simulation: Simulation, scheduler: str, every: str | None) -> Result:
    """Return the result of a run under an external scheduler."""
    from hpctwin.model import parse_duration_s
    from hpctwin.simulation.schedulers import BatsimScheduler, JsonLinesScheduler, drive

    every_s = None if every is None else parse_duration_s(every)
    found: BatsimScheduler | JsonLinesScheduler
    if scheduler.startswith("batsim:"):
        found = BatsimScheduler(scheduler.removeprefix("batsim:"), simulation.cluster)
    else:
        found = JsonLinesScheduler(scheduler, simulation.cluster)
    with found:
        return drive(simulation, found, every_s=every_s)


def planned_s(workload: Workload, by: str) -> npt.NDArray[np.float64] | None:
    """Return the planned duration of each job, in seconds [jobs]; None for walltimes.

    Args:
        workload: The jobs.
        by: Value of --runtime-estimate.

    Raises:
        ConfigError: The workload has no predicted runtimes.
    """
    from hpctwin.errors import ConfigError

    if by == "walltime":
        return None
    if "runtime_s" not in workload.predicted:
        raise ConfigError(
            f"--runtime-estimate prediction: workload {workload.name} has no predicted_runtime_s; "
            "add it with hpctwin predictor apply"
        )
    return workload.predicted_runtime_s


def every_seconds(text: str | None, out: Path | None) -> float | None:
    """Return the interval between writes, in seconds; None to write only at the end.

    Raises:
        ConfigError: The interval is not above 0, or there is no folder to write to.
    """
    from hpctwin.errors import ConfigError
    from hpctwin.model import parse_duration_s

    if text is None:
        return None
    if out is None:
        raise ConfigError("--out-every: the output folder is missing; add --out")
    seconds = parse_duration_s(text)
    if not seconds > 0:
        raise ConfigError(f"--out-every is {text!r}; it must be above 0")
    return seconds


def writing(
    simulation: Simulation,
    out: Path,
    every_s: float,
    options: dict[str, Any],
    inputs: list[Path],
    progress: Callable[[float], None],
) -> Callable[[float], None]:
    """Return a progress function that also writes the results every `every_s` seconds."""
    from hpctwin.report.pages.run import write_run

    due = time.monotonic()

    def called(share: float) -> None:
        nonlocal due
        progress(share)
        if time.monotonic() >= due:
            write_run(simulation.result(), out, options, inputs=inputs, now_s=simulation.now_s)
            due = time.monotonic() + every_s

    return called


def inputs_of(trace: Path, machine: ClusterOptions, energy: EnergyOptions) -> list[Path]:
    """Return the input files of a run."""
    tariffs = (one for one in (energy.price, energy.carbon) if one and Path(one).is_file())
    files = [Path(one) for one in (trace, machine.cluster, *tariffs) if one is not None]
    return [*files, *(sorted(trace.iterdir()) if trace.is_dir() else ())]


def missing_command(*words: Annotated[str, Parameter(allow_leading_hyphen=True)]) -> None:
    """Name the package that provides this command: `pip install hpctwin-papers`.

    Args:
        words: Further words of the command; ignored.
    """
    raise ConfigError(
        "experiment and incentives: package hpctwin-papers is not installed; run pip "
        "install hpctwin-papers"
    )


def option_from(package: str, option: str) -> Any:
    """Return the function of another package that reads an option of `hpctwin simulate`.

    Args:
        package: Package that provides it, by an entry point of the group ``hpctwin.options``.
        option: Name of the option, which is that of the entry point.

    Raises:
        ConfigError: The package is not installed, or cannot be imported.
    """
    points = metadata.entry_points(group="hpctwin.options", name=option)
    if not points:
        raise ConfigError(
            f"--{option}: package {package} is not installed; run pip install {package}"
        )
    try:
        return points[option].load()
    except Exception as error:
        raise ConfigError(
            f"--{option}: package {package} cannot be loaded ({error}); install it again"
        ) from error


def simulate_streamed(
    trace: Path,
    machine: ClusterOptions,
    energy: EnergyOptions,
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
        trace, machine, energy, policy, run, out, all, json, latex: As of `simulate_command`.
        others: Other options that were given.

    Raises:
        ConfigError: There is no output folder, or an option is not supported for a stream.
    """
    from json import dumps

    from hpctwin.cli.energy_options import costs
    from hpctwin.cli.output import print_json, screen, with_notes
    from hpctwin.model import Workload, write_atomically
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
    cluster = energy.machine(machine.make(nothing, trace if imported else None))
    energy.series(nothing, cluster)  # an error in them comes before the run
    with _progress(f"{trace.name} under {policy.name}") as progress:
        result = simulate_stream(
            own if imported else trace,
            cluster,
            policy,
            out=out,
            progress=progress,
            log=True,
            **run.as_dict(),
        )
    summary, notes = result.summary(), [*result.notes]
    # A stream with dates counts from 1970; the series begin with its first submission.
    epoch_s = result.start_epoch_s
    zero_s = 0.0 if epoch_s is None else summary.get("energy_begin_s", 0.0)
    begin = nothing.replace(start_epoch_s=None if epoch_s is None else epoch_s + zero_s)
    series, aligned = energy.series(begin, cluster)
    if cluster.has_power and series:
        found = costs(lambda one: result.cost(one, zero_s=zero_s), series)
        if not found:
            notes.append(
                "the cost of energy is unknown, because jobs share the network; simulate without "
                "--stream"
            )
        summary |= found | aligned
        with write_atomically(out / "summary.json") as file:
            file.write(dumps(summary | with_notes(notes), indent=2, default=str).encode())
    for note in notes:
        print(f"{trace.name}: {note}", file=sys.stderr)
    if json:
        print_json(summary | with_notes(notes))
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
