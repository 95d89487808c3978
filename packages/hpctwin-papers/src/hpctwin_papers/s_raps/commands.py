"""``hpctwin experiment``: commands of S-RAPS."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from hpctwin.cli.options.numbers import AT_LEAST_1
from hpctwin.cli.options.options import ClusterOptions, Trace, TraceOptions, WindowOptions
from hpctwin_papers.options import Count, Methods, Pool, given
from hpctwin_papers.output import run_and_show

__all__ = ["s_raps", "s_raps_incentives", "s_raps_ml", "s_raps_schedulers"]


def s_raps(
    trace: Trace,
    /,
    *,
    reading: TraceOptions = TraceOptions(),  # noqa: B008
    part: WindowOptions = WindowOptions(),  # noqa: B008
    machine: ClusterOptions = ClusterOptions(),  # noqa: B008
    policy: Pool = (),
    weather: str | None = None,
    step: str = "1m",
    plot: Path | None = None,
    out: Path | None = None,
    json: bool = False,
) -> int:
    """S-RAPS, figures 4 to 6: a part of a trace as it was, and under three policies.

    Args:
        trace: with recorded starts, such as a data set's file or folder (`hpctwin dataset list`).
        policy: replay, fcfs-nobf, fcfs-easy, priority-ffbf (all four if left out), or any policy.
        weather: wet-bulb temperature, °C, or a CSV file of weather: PUE and temperatures, of machines with
            cooling.
        step: of what is told over time.
        plot: file for the figure (.png, .svg, .pdf).
        out: folder for a table over time of each policy, and the figure where --plot is not given.
        json: print the statistics as JSON.
    """
    from hpctwin.cli.options.options import temperature_or_file
    from hpctwin.cli.output.output import check_outputs, need_jobs, note_reading
    from hpctwin.model import parse_duration_s
    from hpctwin.simulation import window
    from hpctwin_papers.s_raps.figures import SRaps

    check_outputs(trace, folders=[out], figures=[plot])
    wet_bulb = temperature_or_file(weather)
    workload = reading.read(trace)
    need_jobs(workload)
    ends = workload.recorded_start_ms + workload.runtime_ms
    chosen = part.cut(workload) or window(workload, 0.0, float(ends.max()) / 1000)
    note_reading(chosen.workload)
    experiment = SRaps(
        chosen,
        machine.make(workload, trace, reading.timezone),
        wet_bulb=wet_bulb,
        step_s=parse_duration_s(step),
        **given(policies=policy),
    )
    return run_and_show(experiment, plot=plot, out=out, json=json)


def s_raps_incentives(
    *, same: bool = False, seed: int = 0, plot: Path | None = None, json: bool = False
) -> int:
    """S-RAPS (SC25-W), figure 8: accounts are collected, and redeemed under each incentive.

    The paper's day with measured power cannot be had; jobs and users are four weeks of Theta's of 2023 (a
    generated year without the trace), how much each account uses its nodes is drawn.

    Args:
        same: the same jobs collect and redeem, as in the paper; else two weeks collect and two redeem.
        seed: of what is drawn.
        plot: figure (.png, .svg, .pdf) of the power drawn under each incentive.
        json: print it as JSON.
    """
    from hpctwin_papers.s_raps.incentives import Incentives

    return run_and_show(Incentives(same=same, seed=seed), plot=plot, json=json)


def s_raps_ml(
    trace: Trace | None = None,
    /,
    *,
    method: Methods = (),
    every: Count = 1000,
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
        method: recent, like, boosting, clusters (the paper's), ensemble or hedge; all if left out.
            Once for each.
        every: models are trained again after so many submissions.
        seed: of what models draw.
        plot: file for a figure (.png, .svg, .pdf).
        json: print it as JSON.
    """
    from hpctwin.cli.output.output import check_outputs
    from hpctwin.learn.prediction import Training
    from hpctwin_papers.s_raps.prediction import SRapsMl
    from hpctwin_papers.traces import need_trace

    path = trace or need_trace("Theta-2023-lumos.swf")
    check_outputs(path, figures=[plot])
    workload = reading.jobs(path, machine)
    experiment = SRapsMl(
        workload,
        machine.make(workload, path, reading.timezone),
        training=Training(every=every, seed=seed),
        **given(methods=method),
    )
    return run_and_show(experiment, plot=plot, json=json)


def s_raps_schedulers(
    *,
    jobs: Annotated[int | None, AT_LEAST_1] = None,
    program: Annotated[tuple[str, ...], Parameter(name="--program")] = (),
    seed: int = 0,
    json: bool = False,
) -> int:
    """S-RAPS (SC25-W), §4.2: what it costs that a scheduler is outside, and whether it decides as within.

    The paper's trace is not published; as many jobs in as much time on as many nodes are generated.
    ScheduleFlow and Fluxion go as a --program; FastSim and Maui go by clocks of their own, and
    docs/schedulers.md holds their starts against ours.

    Args:
        jobs: how many; 5,324, as the paper's, if left out.
        program: a scheduler that speaks JSON lines, as for simulate --scheduler; once for each.
        seed: of what is drawn.
        json: print it as JSON.
    """
    from hpctwin_papers.s_raps.external_schedulers import SRapsSchedulers

    experiment = SRapsSchedulers(programs=program, seed=seed, **given(jobs=jobs))
    return run_and_show(experiment, json=json)
