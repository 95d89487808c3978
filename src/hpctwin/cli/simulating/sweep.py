"""``hpctwin sweep``."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from hpctwin.cli.option_values import AT_LEAST_1
from hpctwin.cli.options import (
    BY_POLICY,
    POLICIES,
    ClustersOptions,
    Init,
    Latex,
    is_settings_file,
    named_values,
    with_site_policy,
    within,
    write_settings,
)
from hpctwin.errors import ConfigError

__all__ = ["sweep_command"]

Queue = Literal["slurm", "pbs"]


def sweep_command(
    source: Path,
    /,
    *,
    policy: Annotated[tuple[str, ...], BY_POLICY] = (),
    machine: ClustersOptions = ClustersOptions(),  # noqa: B008
    load: Annotated[tuple[float, ...], Parameter(group="Sweep")] = (),
    seeds: Annotated[int | None, Parameter(group="Sweep"), AT_LEAST_1] = None,
    resample: Annotated[str | None, Parameter(group="Sweep")] = None,
    walltimes: Annotated[tuple[str, ...], Parameter(group="Sweep")] = (),
    shift: Annotated[str | None, Parameter(group="Sweep")] = None,
    tau: Annotated[str | None, Parameter(group="Sweep")] = None,
    sharing: Annotated[Literal["simgrid", "fair"] | None, Parameter(group="Sweep")] = None,
    init: Init = False,
    out: Annotated[Path | None, Parameter(group="Output")] = None,
    plot: Annotated[Path | None, Parameter(group="Output")] = None,
    metric: Annotated[tuple[str, ...], Parameter(group="Output")] = (),
    json: Annotated[bool, Parameter(group="Output")] = False,
    latex: Latex = False,
    workers: Annotated[int | None, Parameter(group="Run"), AT_LEAST_1] = None,
    processes: Annotated[bool, Parameter(group="Run")] = False,
    dask: Annotated[str | None, Parameter(group="Dask")] = None,
    scheduler_file: Annotated[Path | None, Parameter(group="Dask")] = None,
    jobqueue: Annotated[Queue | None, Parameter(group="Dask")] = None,
    worker_jobs: Annotated[int, Parameter(group="Dask"), AT_LEAST_1] = 2,
    worker_option: Annotated[tuple[str, ...], Parameter(group="Dask")] = (),
) -> int:
    """Simulate all combinations of policies, clusters, loads and seeds.

    A sweep file can also vary workloads, windows and parameters. Rows are written as simulations
    finish. The same command resumes an interrupted sweep.

    Args:
        source: A trace; or a sweep file (.yaml), whose paths are relative to its folder. Options of
            policy, cluster and sweep need a trace.
        policy: Policy, such as wfp+easy. Repeatable; default as in `hpctwin compare`.
        load: Offered load, reached by scaling the times between submissions. Repeatable.
        seeds: Number of seeds, default 10 if they draw jobs; for --resample, --walltimes, --shift
            and random placement.
        resample: Length of pieces, such as 7d; each seed joins randomly drawn pieces of the trace.
            Or users: each seed draws users with all of their jobs.
        walltimes: Walltimes: recorded, exact, factor:2, uniform:1:5, lognormal:2:0.5, tsafrir or
            FILE.py:FUNCTION. Repeatable.
        shift: Maximum random shift of each submission, such as 10m.
        tau: Threshold of bounded slowdowns, default 10s.
        sharing: Let jobs that communicate share hosts and links, as SimGrid does or fairly.
        init: Write the options to sweep.yaml and stop; the file offers more settings.
        out: Folder for the rows; default out/NAME of the sweep file or trace.
        plot: Write a chart to this file, .png, .svg or .pdf.
        metric: Metric for table and chart, instead of the file's. Repeatable.
        json: Print the comparison as JSON, a row per policy and metric.
        workers: Maximum number of parallel simulations; default the number of cores.
        processes: Simulate in processes of this host instead of threads.
        dask: Address of Dask's scheduler, tcp://HOST:PORT; its workers simulate.
        scheduler_file: File written by Dask's scheduler, instead of its address.
        jobqueue: Start a Dask scheduler here, with workers as jobs of this resource manager.
        worker_jobs: Number of worker jobs.
        worker_option: Setting of the worker jobs, as in queue=main, cores=4, memory=8GB,
            walltime=02:00:00. Repeatable.
    """
    from hpctwin.cli.output import check_outputs, print_json, screen
    from hpctwin.model.text import progress_bar
    from hpctwin.report.figures.style import save_figure
    from hpctwin.report.figures.sweep import plot_sweep, sweep_table
    from hpctwin.sweep import Progress, SweepSettings, read_sweep, sweep
    from hpctwin.sweep.on_dask import OnDask, connected
    from hpctwin.sweep.on_dask import jobqueue as as_jobs

    if is_settings_file(
        source, policy=policy, nodes=machine.nodes, cluster=machine.cluster,
        load=load, seeds=seeds, resample=resample, walltimes=walltimes, shift=shift, tau=tau, sharing=sharing,
        init=init,
    ):  # fmt: skip
        settings = read_sweep(source)
    else:
        fixed = ("recorded", "exact", "factor:")
        drawn = resample or shift or not all(one.startswith(fixed) for one in walltimes)
        if seeds and not drawn and "@random" not in " ".join(policy):
            raise ConfigError("--seeds: all seeds have the same jobs; add --resample 7d")
        run = {"tau": tau, "sharing": sharing}
        trace = str(within(source, "workload.parquet") or source)
        content = {
            "workloads": [{"trace": trace, "resample": resample} if resample else trace],
            "clusters": machine.listed(source),
            "policies": with_site_policy(source, policy or POLICIES),
            "loads": [*load],
            "walltimes": [*walltimes],
            "shifts": [shift] if shift else None,
            "seeds": seeds or (10 if drawn else None),
            "run": {name: value for name, value in run.items() if value},
            "metrics": [*metric],
        }
        content = {key: value for key, value in content.items() if value}
        settings = SweepSettings.checked(content, "options")
        if init:
            return write_settings(Path("sweep.yaml"), settings, content, "hpctwin sweep sweep.yaml")
    if metric:
        settings = settings.model_copy(update={"metrics": metric})
    folder = out if out is not None else Path("out") / source.stem
    check_outputs(source, folders=[folder], figures=[plot])
    asked = [one for one in (dask, scheduler_file, jobqueue, processes or None) if one is not None]
    if len(asked) > 1:
        raise ConfigError("give only one of --processes, --dask, --scheduler-file and --jobqueue")
    given = named_values("--worker-option", worker_option, "queue=main")
    options = {name: int(value) if value.isdecimal() else value for name, value in given.items()}
    with ExitStack() as stack:
        where: Any = "processes" if processes else "threads"
        if jobqueue is not None:
            where = partial(
                OnDask, client=stack.enter_context(as_jobs(jobqueue, worker_jobs, options))
            )
        elif dask is not None or scheduler_file is not None:
            client = stack.enter_context(connected(dask, scheduler_file=scheduler_file))
            where = partial(OnDask, client=client)
        bar = stack.enter_context(progress_bar(f"{source.stem}, to {folder}"))

        def share(now: Progress) -> None:
            bar(now.done / now.total)

        result = sweep(settings, out=folder, workers=workers, where=where, progress=share)
    compared, tau_s = result.compare(), settings.run.tau
    if plot is not None:
        several = compared["low"].is_not_null().any()
        title = f"{source.stem}: means{' with 95 % intervals' if several else ''}"
        save_figure(plot_sweep(compared, title=title, tau_s=tau_s), plot)
    for note in result.notes:
        print(note, file=sys.stderr)
    failed = result.failed
    if json:
        faults = failed.select("point", "workload", "policy", "error").to_dicts()
        told = {"failed": faults, "notes": result.notes, "compared": compared.to_dicts()}
        print_json({"points": len(result.table), **told})
    else:
        console = screen(latex=latex)
        console.print(sweep_table(compared, width=console.width, tau_s=tau_s))
        console.print(f"{len(result.table):,} simulations in {folder}/points")
        for row in failed.head(5).iter_rows(named=True):
            console.print(
                f"failed: {row['workload']}, {row['policy']}: {row['error']}",
                style="red",
                highlight=False,
            )
        if len(failed) > 5:
            console.print(f"… and {len(failed) - 5:,} more failed; their rows contain the error")
    return int(len(failed) == len(result.table))
