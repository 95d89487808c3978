"""``hpctwin experiment``: commands of S-RAPS."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from hpctwin.cli.option_values import AT_LEAST_1
from hpctwin.cli.options import ClusterOptions, Trace, TraceOptions, WindowOptions
from hpctwin_papers.options import Count, Methods, Pool, given
from hpctwin_papers.output import run_and_show


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
    """S-RAPS, figures 4 to 6: part of a trace as recorded and under three policies.

    Args:
        trace: Trace with recorded starts, such as a data set's file or folder (`hpctwin dataset
            list`).
        policy: Policy: replay, fcfs-nobf, fcfs-easy, priority-ffbf, or any other; default these
            four. Repeatable.
        weather: Wet-bulb temperature in °C, or a CSV file of weather; adds PUE and temperatures of
            clusters with cooling.
        step: Time step of the tables over time.
        plot: Write the chart to this file (.png, .svg, .pdf).
        out: Write a table over time per policy, and the chart without --plot, to this folder.
        json: Print the statistics as JSON.
    """
    from hpctwin.cli.options import temperature_or_file
    from hpctwin.cli.output import check_outputs, need_jobs, note_reading
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
    """S-RAPS (SC25-W), figure 8: collect accounts, and redeem them under each incentive.

    The paper's day with measured power is not available. Jobs and users are four weeks of Theta's
    log of 2023 (without it, of a generated year). Each account's use of its nodes is drawn.

    Args:
        same: Collect and redeem with the same jobs, as in the paper; else two weeks for each.
        seed: Seed of the draws.
        plot: Write a chart of power under each incentive to this file (.png, .svg, .pdf).
        json: Print the results as JSON.
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
    """S-RAPS (SC25-W), figure 10: scheduling by predictions, walltimes and truth.

    The paper's data with measured power are not available, so results are waits and slowdowns, not
    power.

    Args:
        trace: Trace with users and starts; default Theta's log of 2023 in HPCTWIN_TRACES.
        method: Method: recent, like, boosting, clusters (the paper's), ensemble or hedge; default
            all. Repeatable.
        every: Number of submissions between trainings of the models.
        seed: Seed of the models' random numbers.
        plot: Write a chart to this file (.png, .svg, .pdf).
        json: Print the results as JSON.
    """
    from hpctwin.cli.output import check_outputs
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
    """S-RAPS (SC25-W), §4.2: cost of external schedulers, and agreement with internal ones.

    The paper's trace is not published; the same number of jobs is generated for the same time and
    nodes. Use --program for ScheduleFlow and Fluxion. FastSim and Maui have their own clocks;
    docs/evidence/schedulers.md compares their starts with hpctwin's.

    Args:
        jobs: Number of jobs; default the paper's 5,324.
        program: Scheduler that speaks JSON lines, as for simulate --scheduler. Repeatable.
        seed: Seed of the draws.
        json: Print the results as JSON.
    """
    from hpctwin_papers.s_raps.external_schedulers import SRapsSchedulers

    experiment = SRapsSchedulers(programs=program, seed=seed, **given(jobs=jobs))
    return run_and_show(experiment, json=json)
