"""``hpctwin compare``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from hpctwin.cli.completing import complete_policy
from hpctwin.cli.energy_options import EnergyOptions
from hpctwin.cli.numbers import AT_LEAST_1
from hpctwin.cli.options import (
    ClusterOptions,
    RunOptions,
    Trace,
    TraceOptions,
    WindowOptions,
    within,
)
from hpctwin.cli.writing import inputs_of
from hpctwin.errors import ConfigError

if TYPE_CHECKING:
    import polars as pl

    from hpctwin.simulation import Result

__all__ = ["compare_command"]


def compare_command(
    trace: Trace,
    /,
    *,
    policy: Annotated[
        tuple[str, ...],
        Parameter(
            name=["--policy", "-p"],
            group="Policy",
            allow_leading_hyphen=True,
            completer=complete_policy,
        ),
    ] = (
        "fcfs+easy",
        "sjf+easy",
        "wfp+easy",
        "fcfs+conservative",
    ),
    reading: TraceOptions = TraceOptions(),  # noqa: B008
    part: WindowOptions = WindowOptions(),  # noqa: B008
    machine: ClusterOptions = ClusterOptions(),  # noqa: B008
    run: RunOptions = RunOptions(),  # noqa: B008
    energy: EnergyOptions = EnergyOptions(),  # noqa: B008
    reward: Annotated[str | None, Parameter(group="Policy")] = None,
    threads: Annotated[int | None, Parameter(group="Run"), AT_LEAST_1] = None,
    out: Annotated[Path | None, Parameter(group="Output")] = None,
    plot: Annotated[Path | None, Parameter(group="Output")] = None,
    html: Annotated[Path | None, Parameter(group="Output")] = None,
    all: Annotated[bool, Parameter(group="Output")] = False,
    json: Annotated[bool, Parameter(group="Output")] = False,
) -> int:
    """Simulate a trace under several policies and compare them.

    Args:
        trace: the trace: SWF, SPARS or Batsim JSON, CSV or Parquet; .gz too; - for the standard input. Or the
            folder that hpctwin import made: its own policy is compared too.
        policy: give it once per policy: ORDER+BACKFILL, for example wfp+easy, sjf+none,
            fcfs+easy:4/sjf (four reservations, candidates shortest first), fcfs+easy@contiguous.
        reward: jobs get the priorities that their accounts have earned, as of `hpctwin simulate`.
        threads: policies simulated at once; default the cores there are.
        out: folder for a folder per policy, each as `hpctwin simulate --out` writes it.
        plot: file for a figure, .png, .svg or .pdf: how long jobs waited; bars of the main figures if the
            name has "bars" in it, a Kiviat diagram if it has "radar".
        html: file for a report with plots.
        all: print every figure of every policy, not only what one asks first.
        json: print the summaries as JSON.
    """
    import numpy as np

    from hpctwin.cli.driven import rewarded_jobs
    from hpctwin.cli.output import (
        check_outputs,
        need_jobs,
        note_reading,
        note_rejected,
        print_json,
        progress_bar,
        screen,
    )
    from hpctwin.policies import make_policy, parse_policy
    from hpctwin.policies.policy_file import read_policy
    from hpctwin.report import compare_table, difference_table, summary_table
    from hpctwin.report.accessor import report_results
    from hpctwin.sweep import compare

    check_outputs(trace, folders=[out], files=[html], figures=[plot])
    if energy.spars_out is not None:
        raise ConfigError("--spars-out is of one run; it goes with hpctwin simulate")
    own = within(trace, "policy.yaml")
    texts = policy if own is None else dict.fromkeys((read_policy(own), *policy))
    policies = [make_policy(parse_policy(text), power=energy.power) for text in texts]
    workload = reading.read(trace)
    window = part.cut(workload)
    workload = workload if window is None else window.workload
    note_reading(workload)
    need_jobs(workload)
    if reward is not None:
        workload = rewarded_jobs(workload, reward)
    cluster = energy.machine(machine.make(workload, trace))
    series, notes = energy.series(workload, cluster)
    begins = energy.begins(workload, series)
    more = {**notes, **energy.savings(workload, series, begins)}
    if window is not None:
        window = dataclasses.replace(window, workload=workload)
        begins = np.maximum(0 if begins is None else begins, window.not_before_s)
    done: list[str] = []
    with progress_bar(f"{workload.name}, {len(policies)} policies") as progress:

        def one_more(name: str) -> None:
            done.append(name)
            progress(len(done) / len(policies))

        results = compare(
            workload, cluster, policies, threads=threads, progress=one_more, part=window,
            begin_s=begins, log=bool(series or window or out), **run.as_dict(),
        )  # fmt: skip
    code = note_rejected(next(iter(results.values())))
    told = {name: energy.summed(one, series, more, window) for name, one in results.items()}
    summaries = {name: summary for name, (summary, _) in told.items()}
    if out is not None:
        _write(results, told, out, run, inputs_of(trace, machine, energy))
    if plot is not None:
        _plot(results, summaries, plot)
    if html is not None:
        report_results(html, results)
    if json:
        print_json(list(summaries.values()))
        return code
    console = screen()
    if all:
        for name, summary in summaries.items():
            console.print(summary_table(summary, title=name))
    console.print(compare_table(summaries, width=console.width))
    if len(summaries) > 1:
        console.print(difference_table(summaries, width=console.width))
    if html is not None:
        console.print(f"report: {html}")
    return code


def _write(
    results: dict[str, Result],
    told: dict[str, tuple[dict[str, Any], dict[str, pl.DataFrame]]],
    out: Path,
    run: RunOptions,
    inputs: list[Path],
) -> None:
    """A folder for each policy, called after it as far as a file may be."""
    import re

    from hpctwin.report.folder import write_run

    for number, (name, result) in enumerate(results.items(), 1):
        if result.energy is not None:
            result = dataclasses.replace(result, jobs=result.energy.jobs)
        folder = out / f"{number}-{re.sub(r'[^A-Za-z0-9.+@~-]+', '_', name)[:80]}"
        summary, tables = told[name]
        write_run(result, folder, run.as_dict(), summary, tables=tables, inputs=inputs)


def _plot(results: dict[str, Result], summaries: dict[str, dict[str, Any]], plot: Path) -> None:
    from hpctwin.report import plot_compare_bars, plot_radar, plot_wait_cdf
    from hpctwin.report.saving import save_figure

    if "bars" in plot.stem:
        save_figure(plot_compare_bars(summaries), plot)
    elif "radar" in plot.stem:
        save_figure(plot_radar(summaries), plot)
    else:
        save_figure(plot_wait_cdf({name: one.jobs for name, one in results.items()}), plot)
