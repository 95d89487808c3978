"""``hpctwin compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from hpctwin.cli.completing import complete_policy
from hpctwin.cli.numbers import AT_LEAST_1
from hpctwin.cli.options import ClusterOptions, RunOptions, Trace, TraceOptions, within

__all__ = ["compare_command"]


def compare_command(
    trace: Trace,
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
    machine: ClusterOptions = ClusterOptions(),  # noqa: B008
    run: RunOptions = RunOptions(),  # noqa: B008
    threads: Annotated[int | None, Parameter(group="Run"), AT_LEAST_1] = None,
    html: Annotated[Path | None, Parameter(group="Output")] = None,
    json: Annotated[bool, Parameter(group="Output", negative=())] = False,
) -> int:
    """Simulate a trace under several policies and compare them.

    Args:
        trace: the trace: SWF, SPARS or Batsim JSON, CSV or Parquet; .gz too; - for the standard input. Or the
            folder that hpctwin import made: its own policy is compared too.
        policy: give it once per policy: ORDER+BACKFILL, for example wfp+easy, sjf+none,
            fcfs+easy:4/sjf (four reservations, candidates shortest first), fcfs+easy@contiguous.
        threads: policies simulated at once; default the cores there are.
        html: file for a report with plots.
        json: print the summaries as JSON.
    """
    from rich.console import Console

    from hpctwin.cli.output import (
        check_outputs,
        need_jobs,
        note_reading,
        note_rejected,
        print_json,
        progress_bar,
    )
    from hpctwin.policies import parse_policy
    from hpctwin.policies.policy_file import read_policy
    from hpctwin.report import compare_table
    from hpctwin.report.accessor import report_results
    from hpctwin.sweep import compare

    check_outputs(trace, files=[html])
    own = within(trace, "policy.yaml")
    texts = policy if own is None else dict.fromkeys((read_policy(own), *policy))
    policies = [parse_policy(text) for text in texts]
    workload = reading.read(trace)
    note_reading(workload)
    need_jobs(workload)
    cluster = machine.make(workload, trace)
    done: list[str] = []
    with progress_bar(f"{workload.name}, {len(policies)} policies") as progress:

        def one_more(name: str) -> None:
            done.append(name)
            progress(len(done) / len(policies))

        results = compare(
            workload, cluster, policies, threads=threads, progress=one_more, **run.as_dict()
        )
    code = note_rejected(next(iter(results.values())))
    if html is not None:
        report_results(html, results)
    if json:
        print_json([result.summary() for result in results.values()])
        return code
    console = Console()
    console.print(
        compare_table(
            {
                name: {**result.summary(), "engine_ms": 1000 * result.engine_s}
                for name, result in results.items()
            }
        )
    )
    if html is not None:
        console.print(f"report: {html}")
    return code
