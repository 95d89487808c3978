"""``hpctwin experiment s-raps-ml``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from hpctwin.cli.numbers import AT_LEAST_1
from hpctwin.cli.options import ClusterOptions, Trace, TraceOptions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hpctwin.experiments.s_raps_ml import Schedule

__all__ = ["s_raps_ml"]


def s_raps_ml(
    trace: Trace | None = None,
    /,
    *,
    method: Annotated[tuple[str, ...], Parameter(name=["--method", "-m"])] = (),
    every: Annotated[int, AT_LEAST_1] = 1000,
    seed: int = 0,
    reading: TraceOptions = TraceOptions(),  # noqa: B008
    machine: ClusterOptions = ClusterOptions(),  # noqa: B008
    plot: Path | None = None,
    json: bool = False,
) -> int:
    """S-RAPS (SC25-W), figure 10: scheduling by what was foretold, beside walltime and truth.

    The paper's data with measured power cannot be had: waits and slowdowns are shown, not power.

    Args:
        trace: with users and starts; Theta's of 2023 in the folder that HPCTWIN_TRACES names if left out.
        method: recent, like, boosting, clusters (the paper's) or ensemble; all if left out. Once for each.
        every: models are trained again after so many submissions.
        seed: of what models draw.
        plot: file for a figure (.png, .svg, .pdf).
        json: print it as JSON.
    """
    from dataclasses import asdict

    from hpctwin.cli.output import check_outputs, need_jobs, note_reading, print_json, screen
    from hpctwin.errors import ConfigError
    from hpctwin.experiments import s_raps_ml as experiment
    from hpctwin.experiments.traces import find_trace
    from hpctwin.learn.prediction import Training
    from hpctwin.model.progress import progress_bar

    path = trace or find_trace("Theta-2023-lumos.swf")
    if path is None:
        raise ConfigError(
            "give a trace, or set HPCTWIN_TRACES to a folder with Theta-2023-lumos.swf"
        )
    check_outputs(path, figures=[plot])
    workload = reading.read(path)
    need_jobs(workload)
    note_reading(workload)
    cluster = machine.make(workload, path)
    with progress_bar(f"{workload.name} foretold and scheduled") as progress:
        found = experiment.run(
            workload,
            cluster,
            methods=method or experiment.METHODS,
            training=Training(every=every, seed=seed),
            progress=progress,
        )
    if plot is not None:
        from hpctwin.report.saving import save_figure

        save_figure(_figure(found, f"{workload.name} on {cluster.node_count:,} nodes"), plot)
    if json:
        print_json([asdict(one) for one in found])
        return 0
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for head in ("first", "by", "EASY plans by"):
        table.add_column(head)
    for head in ("mean wait, h", "median, min", "p95, h", "turnaround, h", "slowdown"):
        table.add_column(head, justify="right")
    for one in found:
        table.add_row(
            one.order,
            one.by,
            "walltime" if one.plan == "walltime" else one.by,
            f"{one.mean_wait_s / 3600:.2f}",
            f"{one.median_wait_s / 60:.1f}",
            f"{one.p95_wait_s / 3600:.2f}",
            f"{one.mean_turnaround_s / 3600:.2f}",
            f"{one.mean_bounded_slowdown:.2f}",
        )
    screen().print(table)
    return 0


def _figure(found: list[Schedule], title: str) -> Figure:
    """Mean waits and slowdowns as bars, by what runtimes are expected."""
    from matplotlib.figure import Figure

    names = [
        f"{one.order} by {one.by}" + ("" if one.plan == "walltime" else ", planned by it")
        for one in found
    ]
    figure = Figure(figsize=(9.0, 1.2 + 0.24 * len(found)), layout="constrained")
    waits, slowdowns = figure.subplots(1, 2, sharey=True)
    colours = ["tab:gray" if one.by in ("walltime", "truth") else "tab:blue" for one in found]
    waits.barh(names, [one.mean_wait_s / 3600 for one in found], color=colours)
    waits.set_xlabel("mean wait, h")
    waits.invert_yaxis()
    slowdowns.barh(names, [one.mean_bounded_slowdown for one in found], color=colours)
    slowdowns.set_xlabel("mean bounded slowdown")
    figure.suptitle(title)
    return figure
