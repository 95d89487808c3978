"""``hpctwin experiment``: each paper's experiment, beside its published figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from hpctwin.cli.numbers import AT_LEAST_1
from hpctwin.cli.options import Trace

if TYPE_CHECKING:
    from hpctwin.experiments.entries import Entry
    from hpctwin.experiments.schedtwin import Row

__all__ = ["experiments_app"]

experiments_app = App(name="experiment", help="Repeat the experiments of published papers.")
experiments_app.command(
    "hpctwin.cli.cqsim_plus:cqsim_plus",
    name="cqsim-plus",
    help="CQSim+ (SIGSIM-PADS 2025): jobs among two clusters, beside its tables 1 to 5.",
)
experiments_app.command(
    "hpctwin.cli.pas:pas",
    name="pas",
    help="PAS: jobs that depend on each other and share four resources, beside its Table I.",
)
experiments_app.command(
    "hpctwin.cli.rlscheduler:rlscheduler",
    name="rlscheduler",
    help="RLScheduler (SC20): mean bounded slowdown of heuristics and agents, beside its table.",
)
experiments_app.command(
    "hpctwin.cli.spars:spars",
    name="spars",
    help="SPARS (SoftwareX 2026): node power states, beside its published results.",
)
experiments_app.command(
    "hpctwin.cli.s_raps:s_raps",
    name="s-raps",
    help="S-RAPS (SC25-W), figures 4 to 6: replay and reschedule, with power and cooling over time.",
)
experiments_app.command(
    "hpctwin.cli.incentives:s_raps_incentives",
    name="s-raps-incentives",
    help="S-RAPS (SC25-W), figure 8: incentives from accounts, collected and redeemed.",
)
experiments_app.command(
    "hpctwin.cli.s_raps_ml:s_raps_ml",
    name="s-raps-ml",
    help="S-RAPS (SC25-W), figure 10: scheduling by learned prediction, beside walltime and truth.",
)
experiments_app.command(
    "hpctwin.cli.s_raps_schedulers:s_raps_schedulers",
    name="s-raps-schedulers",
    help="S-RAPS (SC25-W), §4.2: schedulers from outside, what they decide and cost.",
)


@experiments_app.command(name="list")
def list_entries(
    *,
    json: bool = False,
) -> int:
    """List every published table and figure that has results, and whether it can be made here.

    Args:
        json: print them as JSON.
    """
    from rich.table import Table

    from hpctwin.cli.output import print_json, screen
    from hpctwin.experiments.papers import ENTRIES

    if json:
        print_json(
            [
                {
                    "name": one.name,
                    "paper": one.paper,
                    "shows": one.shows,
                    "makes": one.make is not None,
                }
                for one in ENTRIES.values()
            ]
        )
        return 0
    table = Table(box=None, pad_edge=False)
    for head in ("name", "what it shows"):
        table.add_column(head, overflow="fold")
    for one in ENTRIES.values():
        why = "" if one.make else f"\n[dim]cannot be made: {one.because}[/]"
        table.add_row(one.name, one.shows + why)
    screen().print(table)
    return 0


@experiments_app.command
def run(
    name: str,
    /,
    *more: str,
    out: Path | None = None,
    json: bool = False,
) -> int:
    """Make published tables and figures again, beside what was published.

    Args:
        name: of `hpctwin experiment list`.
        more: further ones.
        out: folder for report.md, results.json and figures.
        json: print what came out as JSON.
    """
    from hpctwin.experiments.papers import find_entry

    return _made([find_entry(one) for one in (name, *more)], out, json=json)


@experiments_app.command(name="all")
def all_entries(
    *,
    out: Path = Path("out/published"),
    json: bool = False,
) -> int:
    """Make every published table and figure again that can be made, with one report of all.

    Args:
        out: folder for report.md, results.json and figures.
        json: print what came out as JSON.
    """
    from hpctwin.experiments.papers import ENTRIES

    return _made(list(ENTRIES.values()), out, json=json)


def _made(entries: list[Entry], out: Path | None, *, json: bool) -> int:
    """Make them, and say what came out; 1 if something differs and nobody knows why."""
    from rich.table import Table

    from hpctwin.cli.output import check_outputs, print_json, screen
    from hpctwin.experiments.entries import make, write_report
    from hpctwin.model.progress import progress_bar

    check_outputs(folders=[out])
    outcomes = []
    with progress_bar(f"{len(entries)} published tables and figures") as progress:
        for entry in entries:
            outcomes.append(make(entry))
            progress(len(outcomes) / len(entries))
    if out is not None:
        write_report(out, outcomes)
    unexplained = any(one.verdict == "differs" and not one.because for one in outcomes)
    if json:
        print_json([one.plain() for one in outcomes])
        return int(unexplained)
    console = screen()
    for one in outcomes:
        why = f": {one.because}" if one.because else ""
        console.print(f"[bold]{one.entry.name}[/] {one.verdict}{why}", highlight=False)
        if not one.made.findings:
            continue
        table = Table(box=None, pad_edge=False)
        table.add_column("", overflow="fold")
        for head in ("published", "here", "off"):
            table.add_column(head, justify="right")
        for found in one.made.findings:
            off = "" if found.off is None else f"{found.off * 100:+.1f} %"
            style = "" if found.agrees else "yellow"
            cells = (format(value, found.form) for value in (found.expected, found.obtained))
            table.add_row(found.what, *cells, off, style=style)
        console.print(table)
    if out is not None:
        console.print(f"report: {out / 'report.md'}")
    return int(unexplained)


@experiments_app.command
def schedtwin(
    *,
    seeds: Annotated[int, AT_LEAST_1] = 10,
    pool: Annotated[tuple[str, ...], Parameter(name=["--policy", "-p"])] = (),
    normalise: str = "mean",
    trace: Trace | None = None,
    jobs: Annotated[int | None, AT_LEAST_1] = None,
    nodes: Annotated[int | None, AT_LEAST_1] = None,
    on: Literal["slurm", "pbs"] | None = None,
    compress: float = 60.0,
    only_seed: tuple[int, ...] = (),
    under: str = "own",
    twin: Path | None = None,
    manager_conf: Path | None = None,
    commands: str = "",
    option: tuple[str, ...] = (),
    out: Path = Path("out/schedtwin"),
    stored: Path | None = None,
    late: str = "90s",
    plot: Path | None = None,
    json: bool = False,
) -> int:
    """SchedTwin (arXiv 2512.18894): the twin against FCFS, SJF and WFP on the four-phase workload.

    With --on, the jobs are submitted to a real cluster of 32 nodes that has nothing else to do, and
    the run is stored in --out; --stored makes the table of such runs beside the emulated one.

    Args:
        seeds: how many workloads, with seeds 0, 1, ….
        pool: policies that the twin chooses among; the paper's three if left out.
        normalise: how metrics are made comparable: mean, best, range or none.
        trace: a real trace instead, once.
        jobs: only its first so many jobs.
        nodes: of the cluster; 32, or what the trace says.
        on: slurm or pbs: run on the cluster that SLURM_CONF or PBS_CONF_FILE names.
        compress: there, the experiment takes this fraction of its time.
        only_seed: there, only these workloads.
        under: there, a name for how the manager is configured.
        twin: there, the configuration of the twin that runs beside it and acts.
        manager_conf: there, SLURM_CONF or PBS_CONF_FILE, where it is not that of the environment.
        commands: there, where the manager's commands are; found on the path if left out.
        option: there, further options of sbatch or qsub.
        out: folder for the runs stored.
        stored: a folder of stored runs: print their tables instead of running anything.
        late: there, runs in which a submission came later than that are left out.
        plot: file for the Kiviat chart (.png, .svg, .pdf).
        json: print one row per method and seed as JSON.
    """
    from typing import get_args

    import numpy as np

    from hpctwin.cli.objective_table import objective_table
    from hpctwin.cli.output import check_outputs, print_json, screen
    from hpctwin.errors import UnknownNameError
    from hpctwin.experiments import schedtwin as experiment
    from hpctwin.formats import read_workload
    from hpctwin.generate.four_phase import four_phase
    from hpctwin.model import Workload, parse_duration_s
    from hpctwin.model.progress import progress_bar
    from hpctwin.twin.config import PAPER_POOL, CoreSettings
    from hpctwin.twin.objective import Normalise

    check_outputs(*filter(None, [trace]), figures=[plot])
    if normalise not in get_args(Normalise):
        raise UnknownNameError("normalisation", normalise, get_args(Normalise))
    if stored is not None or on is not None:
        from hpctwin.cli import schedtwin_live

        if stored is not None:
            late_s = parse_duration_s(late)
            return schedtwin_live.collect(stored, late_s=late_s, plot=plot, json=json)
        assert on is not None
        return schedtwin_live.on_cluster(
            on, only_seed or range(seeds), compress=compress, under=under, twin=twin, conf=manager_conf,
            folder=commands, options=option, out=out, json=json,
        )  # fmt: skip
    settings = CoreSettings.checked(
        {"pool": pool or PAPER_POOL, "objective": {"normalise": normalise}}, "--policy, --normalise"
    )
    size = nodes or experiment.NODES
    numbers = list(range(seeds))
    real: Workload | None = None
    if trace is not None:
        real = read_workload(trace)
        real = real.take(np.arange(min(jobs or len(real), len(real))))
        size = nodes or real.nodes_hint or int(real.nodes.max())
        numbers = [0]
    rows: list[Row] = []
    with progress_bar("the twin on each workload") as progress:
        for one in experiment.run_seeds(
            numbers,
            settings=settings,
            workload=lambda seed: four_phase(seed=seed) if real is None else real,
            nodes=size,
        ):
            rows += one
            progress(len({row.seed for row in rows}) / len(numbers))
    if plot is not None:
        _figure(experiment.means(rows), plot)
    if json:
        print_json([row.plain() for row in rows])
        return 0
    console = screen()
    published = real is None and not pool
    how = {
        "mean": "each over its mean",
        "best": "each over its best",
        "range": "0 for the best to 1 for the worst",
        "none": "as they are",
    }[normalise]
    table = objective_table(experiment.means(rows), published=published, normalise=how)
    console.print(table)
    ours = next(row for row in experiment.means(rows) if row.method == experiment.TWIN)
    shares = ", ".join(f"{name} {share:.1%}" for name, share in ours.share_by_policy.items())
    console.print(f"jobs started by the twin under: {shares}")
    if published:
        paper = ", ".join(f"{n} {s:.1%}" for n, s in experiment.PUBLISHED_SHARE.items())
        console.print(f"published (table 1):            {paper}")
    best = min(
        (row for row in experiment.means(rows) if row.method != experiment.TWIN),
        key=lambda row: row.objective,
    )
    won = sum(
        min((r for r in rows if r.seed == seed), key=lambda r: r.objective).method
        == experiment.TWIN
        for seed in numbers
    )
    console.print(
        f"objective of the twin {ours.objective:.4f}, of the best static policy ({best.method}) "
        f"{best.objective:.4f}; the twin is the best of all on {won} of {len(numbers)} workloads"
    )
    return 0


def _figure(rows: list[Row], path: Path) -> None:
    from hpctwin.report import plot_radar
    from hpctwin.report.saving import save_figure

    title = "SchedTwin beside static policies (outer is better)"
    save_figure(plot_radar({row.method: row.plain() for row in rows}, title=title), path)


@experiments_app.command(name="theta-year")
def theta_year(
    *,
    html: Path = Path("out/theta-year.html"),
    json: bool = False,
) -> int:
    """Simulate a year of Theta (4,360 nodes) under a handful of policies and report.

    The trace is the real one of 2022 if the folder in HPCTWIN_TRACES has it, else a generated year with
    its statistics.

    Args:
        html: file for the report.
        json: print the summaries as JSON.
    """
    from hpctwin.cli.output import check_outputs, print_json, screen
    from hpctwin.experiments import theta_year as experiment
    from hpctwin.model import write_folder
    from hpctwin.model.progress import progress_bar
    from hpctwin.report import compare_table
    from hpctwin.report.accessor import report_results

    check_outputs(folders=[html.parent])
    if html.is_dir():
        check_outputs(files=[html])
    console = screen(stderr=json)
    workload, origin = experiment.workload()
    console.print(f"[bold]{origin}[/]: {len(workload):,} jobs on {experiment.NODES:,} nodes")
    console.print("the engine is compiled at its first use, once after installing …")
    done: list[str] = []
    with progress_bar("simulating") as progress:

        def one_more(name: str) -> None:
            done.append(name)
            progress(len(done) / len(experiment.POLICIES))

        results = experiment.run(workload, progress=one_more)
    with write_folder(html.parent) as new:
        report_results(
            new / html.name, results, title="A year of Theta under five policies", intro=origin
        )
    summaries = {
        name: {**result.summary(), "engine_ms": 1000 * result.engine_s}
        for name, result in results.items()
    }
    if json:
        print_json(list(summaries.values()))
    else:
        console.print(compare_table(summaries, width=console.width))
    console.print(f"report with plots: {html}")
    return 0


@experiments_app.command
def surf(
    *,
    data: Path | None = None,
    json: bool = False,
) -> int:
    """A week of SURF's Lisa with measured power (as OpenDT ships it): power forecast an hour ahead.

    Args:
        data: folder with surf_tasks, surf_fragments and surf_consumption.parquet; telemetry in the folder of
            HPCTWIN_TRACES if left out.
        json: print one row per method as JSON.
    """
    from rich.table import Table

    from hpctwin.cli.output import print_json, screen
    from hpctwin.experiments import surf as experiment

    rows = experiment.run(experiment.read_week(data))
    if json:
        print_json([row.plain() for row in rows])
        return 0
    table = Table(box=None, pad_edge=False)
    for head in ("method", "knows", "1 h ahead %", "within 1 h %", "CPU s", "1 h ahead by day %"):
        table.add_column(head, justify="left" if head in ("method", "knows") else "right")
    for row in rows:
        table.add_row(
            row.method,
            row.knowledge,
            f"{row.mape_pct:.2f}",
            f"{row.within_hour_pct:.2f}",
            f"{row.seconds:.2f}",
            " ".join(f"{error:.1f}" for error in row.by_day_pct),
        )
    console = screen()
    console.print(table)
    published = ", ".join(f"{name} {error:g}" for name, error in experiment.PUBLISHED.items())
    console.print(f"published errors of power on this week: {published}")
    return 0
