"""``hpctwin workload``."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from hpctwin.cli.option_values import AT_LEAST_1
from hpctwin.cli.options import Overwrite, Trace, TraceOptions, named_values

if TYPE_CHECKING:
    from hpctwin.model import Workload

__all__ = ["check_target", "workload_app", "write_to"]

workload_app = App(name="workload", help="Describe, convert, filter, generate, download traces.")


@workload_app.command
def describe(
    trace: Trace,
    /,
    *,
    nodes: Annotated[int | None, Parameter(name=["--nodes", "-n"]), AT_LEAST_1] = None,
    reading: TraceOptions = TraceOptions(),  # noqa: B008
    plot: Path | None = None,
    json: bool = False,
) -> int:
    """Show size, span, offered load and distributions of a trace.

    Args:
        trace: The trace; - for standard input.
        nodes: Cluster size for the load; by default the trace's.
        plot: Write a chart of the distributions to this file, .png, .svg or .pdf.
        json: Print the description as JSON.
    """
    from hpctwin.cli.output import note_reading, print_json, screen
    from hpctwin.metrics.description import describe as describe_workload

    workload = reading.read(trace)
    note_reading(workload)
    if plot is not None:
        from hpctwin.report import plot_workload
        from hpctwin.report.figures.style import save_figure

        save_figure(plot_workload(workload), plot)
    found = describe_workload(workload, nodes)
    if json:
        print_json(found.to_dict())
        return 0
    from hpctwin.report.tables import description_tables

    console = screen()
    for table in description_tables(found):
        console.print(table)
    return 0


@workload_app.command
def convert(
    source: Trace,
    target: Path,
    /,
    *,
    reading: TraceOptions = TraceOptions(),  # noqa: B008
    overwrite: Overwrite = False,
) -> int:
    """Write a trace in the format of the file's suffix: .swf, .json, .csv, .parquet; also .gz.

    Times stay as they are in the trace. hpctwin reports the content that the new format cannot
    hold.

    Args:
        source: The trace; - for standard input.
        target: File to write.
    """
    from hpctwin.cli.output import note_reading
    from hpctwin.model.text import count_text

    check_target(target, overwrite)
    workload = reading.read(source, to_write=True)
    note_reading(workload)
    write_to(workload, target)
    print(f"{target}: {count_text(len(workload), 'job')}")
    return 0


@workload_app.command(name="filter")
def filter_jobs(
    source: Trace,
    target: Path,
    /,
    *,
    reading: TraceOptions = TraceOptions(),  # noqa: B008
    first: int | None = None,
    after: str | None = None,
    before: str | None = None,
    min_nodes: int | None = None,
    max_nodes: int | None = None,
    user: tuple[str, ...] = (),
    partition: tuple[str, ...] = (),
    every: Annotated[int | None, AT_LEAST_1] = None,
    overwrite: Overwrite = False,
) -> int:
    """Keep some of the jobs; dependencies on removed jobs are dropped and counted.

    Args:
        source: The trace; - for standard input.
        target: File to write.
        first: Keep the first N jobs.
        after: Keep jobs submitted at or after this: a time since the first submission such as 30d,
            or a date (UTC).
        before: Keep jobs submitted before this time or date.
        min_nodes: Keep jobs of at least N nodes.
        max_nodes: Keep jobs of at most N nodes.
        user: Keep jobs of these users.
        partition: Keep jobs in these partitions.
        every: Keep every Nth of the remaining jobs.
    """
    import numpy as np

    from hpctwin.cli.output import note_reading
    from hpctwin.errors import WorkloadError
    from hpctwin.model.workload.jobs import rows_within

    check_target(target, overwrite)
    workload = reading.read(source, to_write=True)
    note_reading(workload)
    where = (workload.submit_ms, after or 0, before, workload.start_epoch_s, workload.name)
    kept = rows_within(*where)
    if min_nodes is not None:
        kept &= workload.nodes >= min_nodes
    if max_nodes is not None:
        kept &= workload.nodes <= max_nodes
    for labels, column in ((user, workload.user), (partition, workload.partition)):
        if labels:
            kept &= column.among(labels)
    rows = np.flatnonzero(kept)[:: every or 1][:first]
    if not len(rows):
        raise WorkloadError(
            f"{source}: the filter selects none of the {len(workload):,} jobs, so {target} "
            f"is not written; {_there(workload)}"
        )
    chosen = workload.take(rows)
    write_to(chosen, target)
    lost = len(workload.dependencies) - len(chosen.dependencies)
    dropped = f"; {lost:,} dependencies on excluded jobs are dropped" if lost else ""
    print(f"{target}: {len(chosen):,} of {len(workload):,} jobs{dropped}")
    return 0


def _there(workload: Workload) -> str:
    """Return a description of the workload's jobs, as a hint for selecting them."""
    span_s = int(workload.submit_ms.max(initial=0) - workload.submit_ms.min(initial=0)) / 1000
    said = [
        f"{workload.nodes.min():,} to {workload.nodes.max():,} nodes, submitted in {span_s:g} s"
    ]
    for kind in ("user", "partition"):
        labels = getattr(workload, kind).labels
        more = ", …" if len(labels) > 10 else ""
        said.append(f"{kind}s: {', '.join(map(str, labels[:10])) or 'none is known'}{more}")
    return "; ".join(said)


@workload_app.command
def generate(
    name: str,
    target: Path,
    /,
    *options: str,
    overwrite: Overwrite = False,
) -> int:
    """Generate a workload and write it, or several for a range of seeds.

    Args:
        name: Generator: poisson, lublin, four-phase, pas or theta-year.
        target: File to write: .swf, .json, .csv, .parquet; also .gz. With several seeds, the name
            contains {seed}, as in jobs-{seed}.swf.
        options: Options of the generator as NAME=VALUE, for example jobs=1000 seed=7, or
            seed=1..20; communicating=0.5 and others give jobs communication.
    """
    from hpctwin.generate import generate as generate_workload
    from hpctwin.model.text import count_text

    texts = named_values("option", options, "seed=7")
    given = {name.replace("-", "_"): _number(value) for name, value in texts.items()}
    files = _files_by_seed(target, given)
    for file in files:
        check_target(file, overwrite)
    for file, seed in files.items():
        workload = generate_workload(name, **given | seed)
        write_to(workload, file)
        print(f"{file}: {count_text(len(workload), 'job')}")
    return 0


def _files_by_seed(target: Path, options: dict[str, Any]) -> dict[Path, dict[str, int]]:
    """Return each file to write with its seed; the range is removed from the options.

    Raises:
        ConfigError: The range has no seeds, or the files would have the same name.
    """
    from hpctwin.errors import ConfigError

    asked = re.fullmatch(r"(\d+)\.\.(\d+)", str(options.get("seed")))
    if asked is None:
        return {target: {}}
    del options["seed"]
    first, last = map(int, asked.groups())
    if first > last:
        raise ConfigError(f"seed={first}..{last} is an empty range; write the smaller number first")
    if "{seed}" not in target.name:
        raise ConfigError(
            f"{target}: several seeds need {{seed}} in the file name, such as jobs-{{seed}}.swf"
        )
    return {
        target.with_name(target.name.replace("{seed}", str(seed))): {"seed": seed}
        for seed in range(first, last + 1)
    }


@workload_app.command
def download(
    name: str | None = None,
    /,
    *,
    out: Path | None = None,
    sha256: str | None = None,
    json: bool = False,
) -> int:
    """Download a log of the Parallel Workloads Archive; an interrupted download resumes.

    Args:
        name: Name of the log; if omitted, the known logs are listed.
        out: Folder of the log; default the folder in HPCTWIN_TRACES, else ./traces.
        sha256: Expected checksum of the file.
        json: Print the known logs, or the file's path, as JSON.
    """
    import dataclasses
    import os

    import hpctwin.formats.archive as archive
    from hpctwin.cli.output import print_json
    from hpctwin.model.text import progress_bar

    if name is None and json:
        print_json([dataclasses.asdict(log) for log in archive.LOGS.values()])
        return 0
    if name is None:
        for log in archive.LOGS.values():
            print(f"{log.name:35} {log.machine}")
        return 0
    target = out or Path(os.environ.get("HPCTWIN_TRACES") or "traces")
    print(archive.LICENSE, file=sys.stderr if json else sys.stdout)
    with progress_bar(name) as progress:

        def share(done: int, total: int | None) -> None:
            progress(done / total if total else 0.0)

        path = archive.download(name, target, sha256=sha256, progress=share)
    if json:
        print_json({"file": path})
    else:
        print(path)
    return 0


def check_target(target: Path, overwrite: bool) -> None:
    """Raise an error if the file, maybe the input itself, may not be overwritten."""
    from hpctwin.cli.output import check_outputs
    from hpctwin.errors import ConfigError

    check_outputs(files=[target])
    if target.is_file() and not overwrite:
        raise ConfigError(f"{target} already exists; --overwrite replaces it")


def write_to(workload: Workload, target: Path) -> None:
    """Write a trace, and report on standard error what its format could not hold."""
    from hpctwin.formats import write_workload
    from hpctwin.formats.swf.writer import with_own_count

    for sentence in write_workload(with_own_count(workload), target):
        print(f"{target}: {sentence}", file=sys.stderr)


def _number(text: str) -> int | float | str | bool:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
