"""``hpctwin simulate`` and ``hpctwin replay``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from hpctwin.cli.energy_options import CostOptions, EnergyOptions
from hpctwin.cli.option_values import complete_part
from hpctwin.cli.options import (
    BY_POLICY,
    By,
    ClusterOptions,
    Latex,
    RunOptions,
    Tau,
    Trace,
    TraceOptions,
    WindowOptions,
    within,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import polars as pl
    from matplotlib.figure import Figure

    from hpctwin.metrics import By as JobClass
    from hpctwin.simulation import Result, Simulation

__all__ = ["breakdown_rows", "replay_command", "simulate_command"]


def simulate_command(
    trace: Trace,
    /,
    *,
    policy: Annotated[str | None, BY_POLICY] = None,
    order: Annotated[
        str | None,
        Parameter(
            name=["--order", "-o"],
            group="Policy",
            allow_leading_hyphen=True,
            completer=complete_part("order"),
        ),
    ] = None,
    backfill: Annotated[
        str | None,
        Parameter(name=["--backfill", "-b"], group="Policy", completer=complete_part("backfill")),
    ] = None,
    reservations: Annotated[int | None, Parameter(group="Policy")] = None,
    candidates: Annotated[
        str | None,
        Parameter(group="Policy", allow_leading_hyphen=True, completer=complete_part("order")),
    ] = None,
    placement: Annotated[
        str | None, Parameter(group="Policy", completer=complete_part("placement"))
    ] = None,
    reading: TraceOptions = TraceOptions(),  # noqa: B008
    part: WindowOptions = WindowOptions(),  # noqa: B008
    machine: ClusterOptions = ClusterOptions(),  # noqa: B008
    run: RunOptions = RunOptions(),  # noqa: B008
    energy: EnergyOptions = EnergyOptions(),  # noqa: B008
    priorities_from: Annotated[str | None, Parameter(group="Policy")] = None,
    scheduler: Annotated[str | None, Parameter(group="Policy")] = None,
    scheduler_every: Annotated[str | None, Parameter(group="Policy")] = None,
    sizing: Annotated[str | None, Parameter(group="Policy")] = None,
    runtime_estimate: Annotated[
        Literal["walltime", "prediction"], Parameter(group="Policy")
    ] = "walltime",
    accounts: Annotated[Path | None, Parameter(group="Output")] = None,
    accounts_by: Annotated[Literal["account", "user"], Parameter(group="Output")] = "account",
    by: By = None,
    fairness: Annotated[bool, Parameter(group="Output")] = False,
    stream: Annotated[bool, Parameter(group="Run")] = False,
    out: Annotated[Path | None, Parameter(group="Output")] = None,
    out_every: Annotated[str | None, Parameter(group="Output")] = None,
    plot: Annotated[Path | None, Parameter(group="Output")] = None,
    explain: Annotated[tuple[str, ...], Parameter(group="Output")] = (),
    all: Annotated[bool, Parameter(group="Output")] = False,
    json: Annotated[bool, Parameter(group="Output")] = False,
    latex: Latex = False,
) -> int:
    """Simulate a trace on a cluster under one policy, and show the results.

    Args:
        trace: The trace: SWF, SPARS or Batsim JSON, CSV or Parquet; also .gz; - for standard input.
            Or SPARS's simulator_config.yaml, which contains all settings. Or the folder of hpctwin
            import, whose cluster and policy are the defaults.
        policy: Whole policy ORDER+BACKFILL@PLACEMENT~POWER, as for hpctwin compare, such as
            wfp+easy:4/sjf; the options below replace its parts.
        order: Ordering: a name (see `hpctwin policy list`), a formula such as
            "-(wait/walltime)**3*nodes" (smallest first), or a function in a file, my.py:my_order;
            default fcfs.
        backfill: Backfill: none, first-fit, easy, conservative, pack, pushdown, slurm or pbs. The
            last four accept settings, as in pack:patience=12h or
            pbs:strict_ordering=yes,backfill_depth=5. Default easy.
        reservations: Number of jobs per partition that EASY protects; default 1.
        candidates: EASY's ordering of candidates, for example sjf.
        placement: Placement: a name (see hpctwin policy list), or a function in a file,
            my.py:my_placement; default first-fit.
        priorities_from: Give jobs the priorities that their accounts earned in an earlier run, as in
            low-power:accounts.json or budget=5000:accounts.json (package hpctwin-papers,
            docs/how-to/accounts-and-incentives.md). The default order is then priority.
        scheduler: External scheduler instead of a policy: a program that speaks JSON lines, or the
            address of a Batsim scheduler, as in batsim:tcp://127.0.0.1:28000
            (docs/how-to/connect-an-external-scheduler.md).
        scheduler_every: Call the scheduler only in steps of this time, such as 60s; default at each
            event.
        sizing: Rule for node counts of malleable jobs by --price or --carbon, such as
            carbonscaler:24h (package hpctwin-sizing, docs/how-to/malleable-jobs.md).
        runtime_estimate: Planned duration of running and pending jobs: walltime or prediction (hpctwin
            predictor apply); a job that runs longer than predicted is expected to end soon.
        accounts: Write the use of each account to this file (.json or .parquet), for hpctwin
            accounts and --priorities-from.
        accounts_by: Sum --accounts by account or by user.
        fairness: Also compute the delay of jobs by later arrivals (slow).
        stream: Read the trace and write the jobs in parts, for more jobs than fit in memory. Input
            is a Parquet file with hpctwin's columns, or a folder of them. Needs --out, and --nodes
            or --cluster.
        out: Write jobs.parquet, series.parquet, summary.json and manifest.json to this folder.
        out_every: Also write the folder during the simulation, every T such as 10s, for `hpctwin
            serve`.
        plot: Write a chart to this file, .png, .svg or .pdf: the nodes in use, or another chart by
            a word in the name: "queue", "gantt", "cdf" of waits, "wait-by-size", "wait-heat",
            "workload". With a power model also "states" of nodes or "power"; if jobs share nodes
            also "heatmap" of each node's use or "fragmentation"; with --weather also "cooling"; with
            --sharing also "congestion" of links.
        explain: Id of a job to explain instead of the run's metrics: its events, promotions,
            pushdowns and causes of waiting. Repeatable.
        all: Print all metrics instead of the main ones.
        json: Print all metrics, or the explanation, as JSON.
    """
    from hpctwin.cli.output import (
        check_outputs,
        note_classes,
        note_doomed,
        note_rejected,
        note_unstarted,
        note_walltimes,
    )  # fmt: skip
    from hpctwin.cli.simulating.run_options import (
        backfill_of,
        check_alone,
        driven,
        every_seconds,
        inputs_of,
        option_from,
        planned_s,
        writing,
    )
    from hpctwin.errors import ConfigError
    from hpctwin.model.text import progress_bar
    from hpctwin.policies import make_policy, parse_policy
    from hpctwin.simulation import Simulation

    check_outputs(trace, folders=[out, energy.spars_out], figures=[plot], files=[accounts])
    every_s = every_seconds(out_every, out)
    size = None if sizing is None else option_from("hpctwin-sizing", "sizing")
    own = within(trace, "policy.yaml")
    if policy is None and own is not None and scheduler is None and sizing is None:
        from hpctwin.policies.policy import read_policy

        policy = read_policy(own)
    chosen = make_policy(
        None if policy is None else parse_policy(policy),
        order="priority" if priorities_from is not None and order is None else order,
        backfill=backfill_of(scheduler, sizing, policy, order, backfill),
        reservations=reservations,
        candidates=candidates,
        placement=placement,
        power=energy.power,
    )
    if trace.suffix in (".yaml", ".yml"):
        if chosen.name != "fcfs+easy" or energy != EnergyOptions() or run != RunOptions():
            raise ConfigError(
                f"{trace} names the scheduler, platform and timeout to run; it accepts "
                "only --out, --plot and --json"
            )
        return _simulate_spars(trace, out=out, plot=plot, all=all, json=json, latex=latex)
    if stream:
        from hpctwin.cli.simulating.run_options import simulate_streamed

        others = {
            "--by": by, "--fairness": fairness, "--plot": plot, "--explain": explain,
            "--priorities-from": priorities_from,
            "--accounts": accounts, "--scheduler": scheduler, "--out-every": out_every,
            "--sizing": sizing,
            "--runtime-estimate": runtime_estimate != "walltime",
            "--from and --until": part != WindowOptions(),
            "energy options other than --power, --power-cap, --lower-modes, --price, --carbon": energy
            != EnergyOptions(
                power=energy.power, power_cap=energy.power_cap, lower_modes=energy.lower_modes,
                price=energy.price, carbon=energy.carbon,
            ),
            "options for reading the trace": reading != TraceOptions(),
        }  # fmt: skip
        asked = [name for name, value in others.items() if value]
        return simulate_streamed(
            trace, machine, energy, chosen, run,
            others=asked, out=out, all=all, json=json, latex=latex,
        )  # fmt: skip
    workload, window = reading.part(trace, part, machine)
    if window is not None and fairness:
        raise ConfigError("--from and --until do not work with --fairness; remove one of them")
    if scheduler is not None and (window is not None or every_s is not None or fairness or explain):
        raise ConfigError(
            "--scheduler does not work with --from, --until, --out-every, --fairness, "
            "--explain; remove one of them"
        )
    if _draws(plot, "congestion") and run.sharing is None:
        raise ConfigError(f"--plot {plot} draws the use of links; add --sharing fair")
    if accounts is not None and accounts.suffix not in (".json", ".parquet"):
        raise ConfigError(f"--accounts is {accounts}; give a file name ending in .json or .parquet")
    check_alone(
        sizing,
        {
            "--from and --until": window, "--explain": explain, "--fairness": fairness, "--by": by,
            "--accounts": accounts, "--out-every": out_every,
        },
    )  # fmt: skip
    if priorities_from is not None:
        workload = option_from("hpctwin-papers", "priorities-from")(workload, priorities_from)
    cluster = energy.machine(machine.make(workload, trace, reading.timezone))
    series, notes = energy.series(workload, cluster)
    begins, saved = energy.deferred(workload, series, window)
    options = run.as_dict() | {
        "begin_s": begins,
        "expected_s": planned_s(workload, runtime_estimate),
    }
    simulation = Simulation(
        workload,
        cluster,
        chosen,
        sizing=None if size is None else size(sizing, workload, series, energy.forecast),
        track_nodes=_draws(plot, "gantt"),
        log=bool(series or window or out or energy.spars_out)
        or _draws(plot, "states", "power", "congestion"),
        **options,
    )
    note_doomed(simulation)
    note_classes(workload, by)
    if explain:
        _explain(simulation, explain, json)
        return 0
    inputs = inputs_of(trace, machine, energy)
    if scheduler is not None:
        result = driven(simulation, scheduler, scheduler_every)
    else:
        with progress_bar(f"{workload.name} under {simulation.policy_name}") as progress:
            if out is not None and every_s is not None:
                progress = writing(simulation, out, every_s, run.as_dict(), inputs, progress)
            result = simulation.finish(progress) if window is None else window.run(simulation)
    code = note_rejected(result)
    note_walltimes(result, run.sharing)
    if window is None:
        note_unstarted(result)
    if accounts is not None:
        result.accounts(accounts_by).write(accounts)
    del simulation  # frees its memory for the next steps
    summary, tables = energy.summed(result, series, {**notes, **saved}, window)
    if fairness:
        from hpctwin.metrics import unfair_delay
        from hpctwin.sweep import fair_starts

        with progress_bar("fair start times") as progress:
            fresh = Simulation(workload, cluster, chosen, **options)
            summary |= unfair_delay(result.jobs, fair_starts(fresh, progress))
    drawn = _plot_cooling(result, tables.get("cooling"), plot)
    _show(
        result,
        summary,
        run.as_dict(),
        by=by,
        out=out,
        spars=energy.spars_out,
        plot=None if drawn else plot,
        all=all,
        json=json,
        latex=latex,
        tables=tables,
        inputs=inputs,
    )
    return code


def _plot_cooling(result: Result, cooled: pl.DataFrame | None, plot: Path | None) -> bool:
    """Draw the cooling if the file's name asks for it; return whether it did."""
    if cooled is None or plot is None or not _draws(plot, "cooling"):
        return False
    from hpctwin.report.figures.style import save_figure

    save_figure(result.plot.cooling(cooled), plot)
    return True


def _simulate_spars(
    path: Path, *, out: Path | None, plot: Path | None, all: bool, json: bool, latex: bool
) -> int:
    """Run SPARS's ``simulator_config.yaml``; its CSV files go to the configured folder."""
    import sys

    from hpctwin.cli.output import (
        need_jobs,
        note_reading,
        note_rejected,
        note_without_effect,
    )
    from hpctwin.formats.spars_config import read_spars_config
    from hpctwin.model.text import progress_bar
    from hpctwin.policies import PowerPolicy, make_policy
    from hpctwin.simulation import Simulation

    asked = read_spars_config(path)
    note_reading(asked.workload)
    need_jobs(asked.workload)
    note_without_effect(asked.workload, asked.cluster)
    for note in asked.notes:
        print(note, file=sys.stderr)
    options = {"overrun": asked.overrun}
    power = PowerPolicy(asked.power, asked.timeout_s)
    policy = make_policy("fcfs", asked.backfill, power=power)
    simulation = Simulation(asked.workload, asked.cluster, policy, overrun=asked.overrun, log=True)
    with progress_bar(f"{asked.workload.name} under {policy.name}") as progress:
        result = simulation.finish(progress)
    summary = result.summary()
    _show(
        result,
        summary,
        options,
        by=None,
        out=out,
        spars=asked.output,
        plot=plot,
        all=all,
        json=json,
        latex=latex,
        inputs=[path],
        notes=asked.notes,
    )
    return note_rejected(result)


def _show(
    result: Result,
    summary: dict[str, Any],
    options: dict[str, Any],
    *,
    by: By,
    out: Path | None,
    spars: Path | None,
    plot: Path | None,
    all: bool,
    json: bool,
    latex: bool,
    tables: dict[str, pl.DataFrame] | None = None,
    inputs: Iterable[Path] = (),
    notes: Sequence[str] = (),
) -> None:
    """Write and print the results of a run."""
    from hpctwin.cli.output import print_json, screen, with_notes
    from hpctwin.report import answer_table, summary_table

    if out is not None:
        from hpctwin.report.pages.run import write_run

        write_run(result, out, options, summary, tables=tables, inputs=inputs, notes=notes)
    if result.energy is not None and spars is not None:
        from hpctwin.energy.accounts.outputs import write_spars_results

        write_spars_results(result.energy, spars)
    if plot is not None:
        from hpctwin.report.figures.style import save_figure

        save_figure(_figure(result, plot), plot)
    if json:
        told = summary | with_notes([*result.notes, *notes])
        print_json(told if by is None else {**told, "by": breakdown_rows(result, by)})
        return
    console = screen(latex=latex)
    console.print(summary_table(summary) if all else answer_table(summary))
    if by is not None:
        from hpctwin.report.accessor import breakdown_table

        console.print(breakdown_table(result.breakdown(by), by, alike=latex))


def _draws(plot: Path | None, *words: str) -> bool:
    """Return whether the file's name asks for one of these figures."""
    return plot is not None and any(word in plot.stem for word in words)


_DRAWN = {
    "states": "node_states", "power": "power", "heatmap": "heatmap", "fragmentation": "fragmentation",
    "gantt": "gantt", "queue": "queue", "cdf": "wait_cdf", "wait-by-size": "wait_by_size",
    "wait-heat": "wait_heat", "workload": "workload", "congestion": "congestion",
}  # fmt: skip
"""Figures by the word in a file's name; without any, utilization is drawn."""


def _figure(result: Result, plot: Path) -> Figure:
    powered = result.energy is not None
    words = [word for word in _DRAWN if powered or word not in ("states", "power")]
    word = next((word for word in words if _draws(plot, word)), None)
    figure: Figure = getattr(result.plot, "utilization" if word is None else _DRAWN[word])()
    return figure


def breakdown_rows(result: Result, by: JobClass) -> list[dict[str, Any]]:
    """Return metrics by class of jobs, with the energy of each class if it is known."""
    rows = result.breakdown(by).to_dicts()
    if result.energy is not None and by in ("user", "account", "partition"):
        joules = {row[by]: row["energy_j"] for row in result.energy.by(by).iter_rows(named=True)}
        for row in rows:
            row["energy_j"] = joules.get(row["bin"])
    return rows


def _explain(simulation: Simulation, jobs: tuple[str, ...], json: bool) -> None:
    from rich.text import Text

    from hpctwin.cli.output import print_json, screen
    from hpctwin.model.text import progress_bar
    from hpctwin.simulation.explanation import explain

    console = screen()
    told = {}
    for job in jobs:
        with progress_bar(f"job {job}") as progress:
            told[job] = explain(simulation.fork(), job, progress)
    if json:
        print_json({job: [moment.plain() for moment in moments] for job, moments in told.items()})
        return
    for job, moments in told.items():
        head = Text.assemble((f"job {job}", "bold"), f" under {simulation.policy.name}")
        console.print(head, highlight=False)
        if not moments:
            console.print("  was never submitted", highlight=False)
        for moment in moments:
            console.print(
                f"  {moment.time_s:>12,.3f} s  {moment.text}",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )


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
