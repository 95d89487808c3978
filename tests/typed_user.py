"""What users write, for type checkers: `make lint` runs mypy over it, `make package` pyright too."""

from pathlib import Path

import polars as pl

from hpctwin import (
    Cluster,
    HpctwinError,
    Policy,
    Result,
    Simulation,
    Workload,
    compare,
    formula,
    generate,
    make_policy,
    multifactor,
    ordering,
    parse_policy,
    read_cluster,
    read_workload,
    replay,
    simulate,
    simulate_stream,
    write_workload,
)
from hpctwin.policies import JobView


@ordering
def patient(now: float, job: JobView) -> float:
    """The longest wait for its walltime first."""
    return float(-job.wait / job.walltime)


def year(folder: Path) -> dict[str, float]:
    """A trace under several policies, and one of them looked at."""
    workload: Workload = read_workload(folder / "trace.swf").window("1d", "2d").scale(load=0.9)
    cluster: Cluster = read_cluster(folder / "cluster.yaml")
    own: Policy = make_policy(patient, "easy")
    pool: list[str | Policy] = [
        "fcfs+easy",
        parse_policy("wfp+easy~psus:20m"),
        make_policy(formula("wait/walltime")),
        own,
    ]
    results: dict[str, Result] = compare(workload, cluster, pool, threads=2, log=True, seed=1)
    comparison = compare(workload, 16, ["fcfs+easy"])
    table: pl.DataFrame = comparison.summary()
    latex: str = comparison.to_latex()
    print(table, latex, comparison.plot.wait_cdf())
    for result in results.values():
        jobs: pl.DataFrame = result.jobs
        print(jobs.height, result.summary()["mean_wait_s"], result.breakdown("size"))
        result.plot.queue(title="Queue").savefig(folder / "queue.png")
    return {name: float(result.summary()["utilization"]) for name, result in results.items()}


def half(folder: Path) -> Result:
    """Stop, look, fork, go on."""
    workload = generate("poisson", jobs=1000, nodes=128, seed=1)
    write_workload(workload, folder / "jobs.parquet")
    simulation = Simulation(
        workload, 128, "fcfs+easy", order=multifactor(age=1.0), track_nodes=True
    )
    simulation.advance(until_s=3600.0)
    print(len(workload), simulation.now_s, simulation.fork().run().policy)
    replay(workload, Cluster.uniform(nodes=128))
    simulate_stream(folder / "jobs.parquet", 128, "sjf", out=folder / "out", batch=1000, seed=2)
    try:
        return simulate(workload, 128, "wfp", "easy", overrun="continue", placement="contiguous")
    except HpctwinError as error:
        raise SystemExit(str(error)) from error
