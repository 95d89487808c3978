"""``hpctwin experiment``: the command of SchedTwin."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from hpctwin.cli.option_values import AT_LEAST_1
from hpctwin.cli.options import ClusterOptions, Trace
from hpctwin_papers.options import Count, Pool, given
from hpctwin_papers.output import run_and_show


def schedtwin(
    *,
    seeds: Count = 10,
    pool: Pool = (),
    normalize: str = "mean",
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
    """SchedTwin (arXiv 2512.18894): the twin, FCFS, SJF and WFP on four phases.

    With --on, the jobs are submitted to a real idle cluster of 32 nodes, and the run is stored in
    --out. --stored prints the tables of such runs, compared with the emulated one.

    Args:
        seeds: Number of workloads, with seeds 0, 1, ….
        pool: Policy that the twin can choose; default the paper's three. Repeatable.
        normalize: Normalization of metrics: mean, best, range or none.
        trace: Use a real trace instead, once.
        jobs: Use only the first N jobs of the trace.
        nodes: Number of nodes of the cluster; default 32, or the trace's.
        on: Run on the Slurm or PBS cluster of SLURM_CONF or PBS_CONF_FILE.
        compress: With --on: factor by which the experiment's time is shortened.
        only_seed: With --on: run only this workload. Repeatable.
        under: With --on: name for the manager's configuration.
        twin: With --on: configuration of a running twin that acts on the cluster.
        manager_conf: With --on: SLURM_CONF or PBS_CONF_FILE, if not from the environment.
        commands: With --on: folder of the manager's commands; by default found on the PATH.
        option: With --on: further option of sbatch or qsub. Repeatable.
        out: Folder for stored runs.
        stored: Print the tables of the stored runs in this folder instead of running.
        late: With --stored: exclude runs with a submission later than this.
        plot: Write the Kiviat chart to this file (.png, .svg, .pdf).
        json: Print one row per method and seed as JSON.
    """
    from hpctwin.cli.output import check_outputs, note_reading
    from hpctwin.model import parse_duration_s
    from hpctwin_papers.schedtwin.experiment import SchedTwin

    check_outputs(*filter(None, [trace]), figures=[plot])
    if stored is not None:
        from hpctwin_papers.schedtwin.stored import Stored

        return run_and_show(Stored(stored, parse_duration_s(late)), plot=plot, json=json)
    if on is not None:
        from hpctwin_papers.schedtwin.on_cluster import on_cluster

        return on_cluster(
            on, only_seed or range(seeds), compress=compress, under=under, twin=twin, conf=manager_conf,
            folder=commands, options=option, out=out, json=json,
        )  # fmt: skip
    of = given(normalize=normalize, pool=pool)
    experiment = SchedTwin(seeds, trace=trace, jobs=jobs, nodes=nodes, **of)
    if trace is not None:
        workload = experiment.points()[0][1]
        note_reading(workload)
        ClusterOptions(nodes).make(workload)  # prints the assumptions
    return run_and_show(experiment, plot=plot, json=json)
