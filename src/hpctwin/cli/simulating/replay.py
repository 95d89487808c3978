"""``hpctwin replay``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from hpctwin.cli.energy_options import CostOptions
from hpctwin.cli.options import ClusterOptions, Latex, Tau, Trace, TraceOptions, WindowOptions

__all__ = ["replay_command"]


def replay_command(
    trace: Trace,
    /,
    *,
    reading: TraceOptions = TraceOptions(),  # noqa: B008
    part: WindowOptions = WindowOptions(),  # noqa: B008
    machine: ClusterOptions = ClusterOptions(),  # noqa: B008
    costs: CostOptions = CostOptions(),  # noqa: B008
    tau: Tau = "10s",
    conflicts: Annotated[Path | None, Parameter(group="Output")] = None,
    out: Annotated[Path | None, Parameter(group="Output")] = None,
    json: Annotated[bool, Parameter(group="Output")] = False,
    latex: Latex = False,
) -> int:
    """Start every job at its recorded time, and report conflicts with the cluster.

    Args:
        trace: A trace with recorded start times; - for standard input.
        conflicts: Write all conflicts with the cluster to this CSV file.
        out: Write jobs.parquet, series.parquet, summary.json and manifest.json to this folder.
        json: Print the summary as JSON.
    """
    from dataclasses import replace

    from hpctwin.cli.options import tau_seconds
    from hpctwin.cli.output import check_outputs, print_json, screen, with_notes
    from hpctwin.model import write_atomically
    from hpctwin.report import summary_table
    from hpctwin.report.pages.run import write_run
    from hpctwin.simulation import replay

    check_outputs(trace, folders=[out], files=[conflicts])
    tau_s = tau_seconds(tau)
    workload, window = reading.part(trace, part, machine)
    cluster = machine.make(workload, trace, reading.timezone)
    costs.check(cluster)
    series, notes = costs.series(workload, cluster)
    span = {} if window is None else {"from_s": window.begin_s, "until_s": window.end_s}
    found = replay(workload, cluster, **span)
    found = replace(found, result=replace(found.result, tau_s=tau_s))
    by_kind = dict(found.conflicts["what"].value_counts().sort("what").iter_rows())
    if conflicts is not None:
        with write_atomically(conflicts) as file:
            found.conflicts.write_csv(file)
    figures, tables = costs.summed(found.result, series, notes, window)
    if out is not None:
        write_run(found.result, out, {}, figures, tables=tables, inputs=[trace])
    summary = {
        **figures,
        "without_recorded_start": found.without_start,
        "conflicts": by_kind,
    }
    if json:
        print_json(summary | with_notes(found.result.notes))
        return 0
    console = screen(latex=latex)
    console.print(summary_table(figures))
    console.print(f"jobs without a recorded start: {found.without_start:,}")
    told = ", ".join(f"{count:,} × {kind}" for kind, count in by_kind.items()) or "none"
    console.print(f"conflicts with the cluster: {told}")
    for row in found.conflicts.head(5).iter_rows(named=True):
        console.print(
            f"  at {row['time_s']:,.0f} s job {row['job_id']}: {row['what']}, requested "
            f"{row['asked']:,.0f}, possible {row['free']:,.0f}"
        )
    return 0
