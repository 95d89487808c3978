"""``hpctwin simulate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from hpctwin.cli.options import ClusterOptions, PowerOptions, RunOptions, Trace, TraceOptions

if TYPE_CHECKING:
    from hpctwin.simulation import Simulation

__all__ = ["simulate_command"]


def simulate_command(
    trace: Trace,
    *,
    order: Annotated[
        str, Parameter(name=["--order", "-o"], group="Policy", allow_leading_hyphen=True)
    ] = "fcfs",
    backfill: Annotated[str, Parameter(name=["--backfill", "-b"], group="Policy")] = "easy",
    reservations: Annotated[int, Parameter(group="Policy")] = 1,
    candidates: Annotated[str | None, Parameter(group="Policy", allow_leading_hyphen=True)] = None,
    placement: Annotated[str, Parameter(group="Policy")] = "first-fit",
    reading: TraceOptions = TraceOptions(),  # noqa: B008
    machine: ClusterOptions = ClusterOptions(),  # noqa: B008
    run: RunOptions = RunOptions(),  # noqa: B008
    energy: PowerOptions = PowerOptions(),  # noqa: B008
    by: Annotated[
        Literal["size", "walltime", "user", "account", "partition", "state"] | None,
        Parameter(group="Output"),
    ] = None,
    fairness: Annotated[bool, Parameter(group="Output", negative=())] = False,
    out: Annotated[Path | None, Parameter(group="Output")] = None,
    plot: Annotated[Path | None, Parameter(group="Output")] = None,
    explain: Annotated[tuple[str, ...], Parameter(group="Output", negative=())] = (),
    json: Annotated[bool, Parameter(group="Output", negative=())] = False,
) -> int:
    """Simulate a trace on a cluster under one policy, and show how it went.

    Args:
        trace: the trace: SWF, SPARS or Batsim JSON, CSV or Parquet; .gz too; - for the standard input. Or
            SPARS's simulator_config.yaml, which says all the rest.
        order: ordering: a name (see `hpctwin policy list`), a formula such as
            "-(wait/walltime)**3*nodes" (smallest first), or a function in a file, my.py:my_order.
        backfill: none, first-fit, easy, conservative, pack or pushdown; the last two may have settings, as in
            pack:patience=12h or pushdown:parallel=any,adjacent=any.
        reservations: jobs per partition that EASY protects.
        candidates: EASY's ordering of candidates, for example sjf.
        placement: first-fit, best-fit, contiguous, random or spread.
        by: break the figures down by size, walltime, user, account, partition or state.
        fairness: also find how much later jobs started than had nobody come after them (slow).
        out: folder for jobs.parquet, series.parquet, summary.json and manifest.json.
        plot: file for a figure, .png, .svg or .pdf: the nodes in use; the queue or a Gantt chart if the
            name has "queue" or "gantt" in it; with --platform, node states or power drawn if it has
            "states" or "power".
        explain: id of a job: tell what happened to it, its promotions, its pushdowns, what kept it
            waiting, instead of the figures of the run; more than one may be given.
        json: print the summary, or the explanation, as JSON.
    """
    from rich.console import Console

    from hpctwin.cli.output import check_outputs
    from hpctwin.errors import ConfigError
    from hpctwin.policies import make_policy

    check_outputs(trace, folders=[out, energy.spars_out], figures=[plot])
    policy = make_policy(
        order, backfill, reservations=reservations, candidates=candidates, placement=placement
    )
    if trace.suffix in (".yaml", ".yml"):
        from hpctwin.cli.simulate_powered import simulate_spars

        if policy.name != "fcfs+easy" or energy != PowerOptions() or run != RunOptions():
            raise ConfigError(
                f"{trace} says itself which scheduler, platform and timeout to run; only --out, --plot and "
                "--json go with it"
            )
        return simulate_spars(trace, out=out, plot=plot, json=json)
    if energy.given:
        from hpctwin.cli.simulate_powered import simulate_powered

        for given, name in ((fairness, "--fairness"), (bool(explain), "--explain")):
            if given:
                raise ConfigError(f"{name} is not there together with --platform")
        return simulate_powered(
            trace, policy, reading, machine, run, energy, by=by, out=out, plot=plot, json=json
        )

    from hpctwin.cli.output import (
        need_jobs,
        note_doomed,
        note_reading,
        note_rejected,
        print_json,
        progress_bar,
        write_result,
    )
    from hpctwin.simulation import Simulation

    workload = reading.read(trace)
    note_reading(workload)
    need_jobs(workload)
    cluster = machine.make(workload)
    options = run.as_dict()
    gantt = plot is not None and "gantt" in plot.stem
    simulation = Simulation(workload, cluster, policy=policy, track_nodes=gantt, **options)
    note_doomed(simulation)
    if explain:
        _explain(simulation, explain, json)
        return 0
    with progress_bar(f"{workload.name} under {policy.name}") as progress:
        result = simulation.run(progress)
    code = note_rejected(result)
    del simulation  # its memory is better used by what follows
    summary = result.summary()
    if fairness:
        from hpctwin.metrics import unfair_delay
        from hpctwin.sweep import fair_starts

        with progress_bar("fair start times") as progress:
            fresh = Simulation(workload, cluster, policy=policy, **options)
            summary |= unfair_delay(result.jobs, fair_starts(fresh, progress))
    if out is not None:
        write_result(result, out, options)
    if plot is not None:
        from hpctwin.report.accessor import save_figure

        save_figure(
            result.plot.gantt()
            if gantt
            else result.plot.queue()
            if "queue" in plot.stem
            else result.plot.utilization(),
            plot,
        )
    if json:
        if by is not None:
            from hpctwin.metrics import breakdown

            summary["by"] = breakdown(result.jobs, by).to_dicts()
        print_json(summary)
        return code
    from hpctwin.report import summary_table
    from hpctwin.report.accessor import breakdown_table

    console = Console()
    console.print(summary_table(summary))
    if by is not None:
        console.print(breakdown_table(result.jobs, by))
    return code


def _explain(simulation: Simulation, jobs: tuple[str, ...], json: bool) -> None:
    from rich.console import Console

    from hpctwin.cli.output import print_json, progress_bar
    from hpctwin.simulation.explain import explain

    console = Console()
    told = {}
    for job in jobs:
        with progress_bar(f"job {job}") as progress:
            told[job] = explain(simulation.fork(), job, progress)
    if json:
        print_json({job: [moment.plain() for moment in moments] for job, moments in told.items()})
        return
    for job, moments in told.items():
        console.print(f"[bold]job {job}[/] under {simulation.policy.name}", highlight=False)
        if not moments:
            console.print("  was never submitted", highlight=False)
        for moment in moments:
            console.print(
                f"  {moment.time_s:>12,.3f} s  {moment.text}", highlight=False, soft_wrap=True
            )
