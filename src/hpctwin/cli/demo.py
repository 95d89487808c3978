"""``hpctwin demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

__all__ = ["demo_command"]


def demo_command(
    *,
    html: Path = Path("out/theta-year.html"),
    json: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Simulate a year of Theta (4,360 nodes) under a handful of policies and report.

    The trace is the real one of 2022 if the folder in HPCTWIN_TRACES has it, else a generated year with
    its statistics.

    Args:
        html: file for the report.
        json: print the summaries as JSON.
    """
    from rich.console import Console

    from hpctwin.cli.output import print_json, progress_bar
    from hpctwin.experiments import theta_year
    from hpctwin.report import compare_table
    from hpctwin.report.accessor import report_results

    console = Console(stderr=json)
    workload, origin = theta_year.workload()
    console.print(f"[bold]{origin}[/]: {len(workload):,} jobs on {theta_year.NODES:,} nodes")
    console.print("the engine is compiled at its first use, once after installing …")
    done: list[str] = []
    with progress_bar("simulating") as progress:

        def one_more(name: str) -> None:
            done.append(name)
            progress(len(done) / len(theta_year.POLICIES))

        results = theta_year.run(workload, progress=one_more)
    html.parent.mkdir(parents=True, exist_ok=True)
    report_results(html, results, title="A year of Theta under five policies", intro=origin)
    summaries = {
        name: {**result.summary(), "engine_ms": 1000 * result.engine_s}
        for name, result in results.items()
    }
    if json:
        print_json(list(summaries.values()))
    else:
        console.print(compare_table(summaries))
    console.print(f"report with plots: {html}")
    return 0
