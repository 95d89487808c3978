"""The command of each paper's experiment: what can be given to it; all are run and shown in one way."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from hpctwin.cli.options.numbers import AT_LEAST_0, AT_LEAST_1
from hpctwin.cli.options.options import ClusterOptions, Trace, TraceOptions, WindowOptions
from hpctwin.cli.output.experiment_output import run_and_show, show, shown_while_run

__all__ = [
    "cqsim_plus", "nasa_agents", "pas", "rlscheduler", "s_raps", "s_raps_incentives", "s_raps_ml",
    "s_raps_schedulers",
    "schedtwin", "spars", "surf", "theta_year",
]  # fmt: skip

Count = Annotated[int, AT_LEAST_1]
Methods = Annotated[tuple[str, ...], Parameter(name=["--method", "-m"])]
Pool = Annotated[tuple[str, ...], Parameter(name=["--policy", "-p"])]


def given(**options: Any) -> dict[str, Any]:
    """Options that were given: an experiment has its own defaults for the others."""
    return {name: value for name, value in options.items() if value not in (None, ())}


def cqsim_plus(
    *,
    case: tuple[str, ...] = (),
    strategy: Annotated[tuple[str, ...], Parameter(name=["--strategy", "-s"])] = (),
    more: bool = False,
    seeds: Count = 3,
    figures: Path | None = None,
    json: bool = False,
) -> int:
    """CQSim+ (SIGSIM-PADS 2025): jobs among two clusters, beside its tables 1 to 5.

    The published strategies are run by CQSim+'s own rule, and by ours: SGS-T as published (it knows all
    runtimes: oracle), with walltimes (honest), and with what like jobs ran lately (like-jobs). Traces come
    from the folder in HPCTWIN_TRACES.

    Args:
        case: homogeneous, heterogeneous, theta-polaris; all if left out.
        strategy: further strategies, with walltimes; see `hpctwin facility simulate --help`.
        more: all that goes beyond the paper too: peer, sampled futures, trees, moving, ….
        seeds: for strategies that draw clusters, with seeds 0, 1, ….
        figures: folder for figures like the paper's 5 to 8, and of the waits by bin.
        json: print one row per case, rule, strategy, knowledge and seed as JSON.
    """
    from hpctwin.experiments.cqsim_plus.experiment import CqsimPlus

    experiment = CqsimPlus(further=strategy, more=more, seeds=seeds, **given(cases=case))
    return run_and_show(experiment, out=figures, json=json)


def pas(
    *,
    seeds: Count = 10,
    jobs: Count = 5000,
    method: Methods = (),
    failures: float = 0.0,
    plot: Path | None = None,
    json: bool = False,
) -> int:
    """PAS: jobs that depend on each other and share four resources, beside its Table I.

    Times are milliseconds. Dependencies hold under every method; "if ignored" is what the violations
    would be if the scheduler were not told of them.

    Args:
        seeds: how many workloads, with seeds 0, 1, ….
        jobs: of each workload.
        method: fcfs, sjf, pfm, pas-published, easy, adaptive; all if left out.
        failures: share of the jobs that fail, for what prediction is worth; 0 for none, as in the paper.
        plot: file for a heat map of resources in use over time, of seed 0 (.png, .svg, .pdf).
        json: print one row per method and seed as JSON.
    """
    from hpctwin.experiments.pas import Pas

    experiment = Pas(seeds, jobs=jobs, failures=failures, **given(methods=method))
    return run_and_show(experiment, plot=plot, json=json)


def nasa_agents(
    *,
    seeds: Annotated[int, AT_LEAST_0] = 5,
    steps: Count = 6_000_000,
    out: Path = Path("out/nasa-agents"),
    json: bool = False,
) -> int:
    """Agents that switch nodes, on held-out windows of the NASA log, beside SPARS's timeouts.

    Agents are trained and chosen on the jobs before, with seeds 0, 1, …; those that --out holds already are
    not trained again, so that it can be interrupted.

    Args:
        seeds: agents; 0 for timeouts alone.
        steps: decisions that each is trained on, with each of four weights of energy.
        out: folder for agents.
        json: print a row of the table as one of JSON.
    """
    from hpctwin.experiments.spars.nasa_agents import NasaAgents

    return run_and_show(NasaAgents(seeds=seeds, steps=steps, out=out), json=json)


def rlscheduler(
    *traces: str,
    seeds: Annotated[int, AT_LEAST_0] = 0,
    steps: Count = 12_000_000,
    out: Path = Path("out/rlscheduler"),
    json: bool = False,
) -> int:
    """RLScheduler (SC20): mean bounded slowdown of heuristics and agents, beside its table.

    Agents are trained on windows of 1,024 jobs none of which is tested, with seeds 0, 1, …; those that --out
    holds already are not trained again, so that it can be interrupted.

    Args:
        traces: Lublin-1, Lublin-2, HPC2N; all if left out.
        seeds: agents of each row; 0 for heuristics alone.
        steps: decisions that each is trained on.
        out: folder for agents.
        json: print a row of the table as one of JSON.
    """
    from hpctwin.experiments.rlscheduler.experiment import RLScheduler

    return run_and_show(RLScheduler(traces, seeds=seeds, steps=steps, out=out), json=json)


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
    from hpctwin.experiments.s_raps.figures import SRaps
    from hpctwin.model import parse_duration_s
    from hpctwin.simulation import window

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
    from hpctwin.experiments.s_raps.incentives import Incentives

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
    from hpctwin.experiments.s_raps.prediction import SRapsMl
    from hpctwin.experiments.traces import need_trace
    from hpctwin.learn.prediction import Training

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
    from hpctwin.experiments.s_raps.external_schedulers import SRapsSchedulers

    experiment = SRapsSchedulers(programs=program, seed=seed, **given(jobs=jobs))
    return run_and_show(experiment, json=json)


def schedtwin(
    *,
    seeds: Count = 10,
    pool: Pool = (),
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
    from hpctwin.cli.output.output import check_outputs, note_reading
    from hpctwin.experiments.schedtwin.experiment import SchedTwin
    from hpctwin.model import parse_duration_s

    check_outputs(*filter(None, [trace]), figures=[plot])
    if stored is not None:
        from hpctwin.experiments.schedtwin.stored import Stored

        return run_and_show(Stored(stored, parse_duration_s(late)), plot=plot, json=json)
    if on is not None:
        from hpctwin.cli.papers.schedtwin_live import on_cluster

        return on_cluster(
            on, only_seed or range(seeds), compress=compress, under=under, twin=twin, conf=manager_conf,
            folder=commands, options=option, out=out, json=json,
        )  # fmt: skip
    of = given(normalise=normalise, pool=pool)
    experiment = SchedTwin(seeds, trace=trace, jobs=jobs, nodes=nodes, **of)
    if trace is not None:
        workload = experiment.points()[0][1]
        note_reading(workload)
        ClusterOptions(nodes).make(workload)  # says what is assumed
    return run_and_show(experiment, plot=plot, json=json)


def spars(
    *,
    method: Methods = (),
    timeout: Annotated[tuple[str, ...], Parameter(name=["--timeout", "-t"])] = (),
    more: bool = False,
    out: Path | None = None,
    json: bool = False,
) -> int:
    """SPARS (SoftwareX 34, 102693): six schedulers, twelve timeouts, beside its published results.

    The FCFS forms are run by the published rule too. The workload is the last fifth of the NASA iPSC/860
    log, which the folder in HPCTWIN_TRACES must have.

    Args:
        method: some of fcfs-psus, easy-psus, fcfs-auto, easy-auto, fcfs-ipm, easy-ipm; all if left out.
        timeout: idle so long, a node is switched off, such as 20m; 5 to 60 minutes if left out.
        more: also what each published fault alone moves, overestimated walltimes, and wfp-ipm, which is
            ahead of all six.
        out: folder for figures and tables.
        json: print one row per scheduler, timeout and rule as JSON.
    """
    from hpctwin.experiments.spars.experiment import OURS, Spars, SparsFaults, SparsKnowledge
    from hpctwin.model import parse_duration_s

    timeouts = given(timeouts_s=tuple(parse_duration_s(text) for text in timeout))
    chosen = method or (OURS if more or out is not None else ())
    experiment = Spars(**given(schedulers=chosen), **timeouts)
    run_and_show(experiment, out=out, json=json)
    if more and not json:
        run_and_show(SparsFaults(**timeouts))
        middle = experiment.timeouts_s[len(experiment.timeouts_s) // 3]
        run_and_show(SparsKnowledge(middle))
    return 0


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
    from hpctwin.experiments.surf import Surf

    return run_and_show(Surf(data), json=json)


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
    from hpctwin.cli.output.output import check_outputs, screen
    from hpctwin.experiments.theta_year import REPORT, ThetaYear
    from hpctwin.model import write_folder

    check_outputs(folders=[html.parent])
    if html.is_dir():
        check_outputs(files=[html])
    made = shown_while_run(ThetaYear())
    with write_folder(html.parent) as new:
        made.files[REPORT](new / html.name)
    show(made, json=json)
    screen(stderr=json).print(f"report with plots: {html}")
    return 0
