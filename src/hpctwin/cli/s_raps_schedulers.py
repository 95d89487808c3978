"""``hpctwin experiment s-raps-schedulers``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from hpctwin.cli.numbers import AT_LEAST_1

__all__ = ["s_raps_schedulers"]


def s_raps_schedulers(
    *,
    jobs: Annotated[int | None, AT_LEAST_1] = None,
    program: Annotated[tuple[str, ...], Parameter(name="--program")] = (),
    seed: int = 0,
    json: bool = False,
) -> int:
    """S-RAPS (SC25-W), §4.2: what it costs that a scheduler is outside, and whether it decides as within.

    The paper's trace is not published; as many jobs in as much time on as many nodes are generated. FastSim
    is not public; ScheduleFlow goes as a --program (docs/schedulers.md).

    Args:
        jobs: how many; 5,324, as the paper's, if left out.
        program: a scheduler that speaks JSON lines, as for simulate --scheduler; once for each.
        seed: of what is drawn.
        json: print it as JSON.
    """
    from dataclasses import asdict

    from rich.table import Table

    from hpctwin.cli.output import print_json, screen
    from hpctwin.experiments import s_raps_schedulers as experiment

    count = jobs or experiment.JOBS
    found = list(experiment.run(experiment.workload(count, seed), programs=program))
    if json:
        print_json([asdict(one) for one in found])
        return 0
    table = Table(box=None, pad_edge=False)
    table.add_column("scheduler")
    table.add_column("beside")
    for head in ("same starts", "mean wait, h", "CPU, s", "times real time"):
        table.add_column(head, justify="right")
    for one in found:
        table.add_row(
            one.scheduler,
            one.beside,
            f"{one.same_starts:.1%}",
            f"{one.mean_wait_s / 3600:.2f}",
            f"{one.cpu_s:,.2f}",
            f"{one.times_real:,.0f}",
        )
    table.add_row("FastSim, as published", "", "", "", f"{experiment.PUBLISHED_S:,.0f}", "688")
    screen().print(table)
    return 0
