"""``hpctwin experiment``: the command of SchedTwin."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from hpctwin.cli.options.numbers import AT_LEAST_1
from hpctwin.cli.options.options import ClusterOptions, Trace
from hpctwin_papers.options import Count, Pool, given
from hpctwin_papers.output import run_and_show

__all__ = ["schedtwin"]


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
    of = given(normalise=normalise, pool=pool)
    experiment = SchedTwin(seeds, trace=trace, jobs=jobs, nodes=nodes, **of)
    if trace is not None:
        workload = experiment.points()[0][1]
        note_reading(workload)
        ClusterOptions(nodes).make(workload)  # says what is assumed
    return run_and_show(experiment, plot=plot, json=json)
