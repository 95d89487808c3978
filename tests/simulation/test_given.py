"""What may be given for a workload and a machine, and what is said of anything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from hpctwin import Cluster, Simulation, Workload, compare, replay, simulate, write_workload
from hpctwin.errors import ConfigError, WorkloadError

JOBS = Workload.build(
    submit_s=[0, 1, 2], runtime_s=[5, 6, 7], nodes=[4, 4, 2], recorded_start_s=[0, 5, 11]
)


def test_a_path_is_read_and_a_number_is_a_number_of_nodes(tmp_path: Path) -> None:
    write_workload(JOBS, tmp_path / "jobs.parquet")
    (tmp_path / "c.yaml").write_text("nodes: [{name: a, count: 4}]\n")
    expected = simulate(JOBS, Cluster.uniform(nodes=4)).jobs["start_s"].to_list()
    for workload in (tmp_path / "jobs.parquet", str(tmp_path / "jobs.parquet"), JOBS):
        for cluster in (4, "4", np.int64(4), tmp_path / "c.yaml", str(tmp_path / "c.yaml")):
            assert simulate(workload, cluster).jobs["start_s"].to_list() == expected
            assert Simulation(workload, cluster).run().jobs["start_s"].to_list() == expected
            found = compare(workload, cluster, ["fcfs+easy"])["fcfs+easy"]
            assert found.jobs["start_s"].to_list() == expected
            assert replay(workload, cluster).without_start == 0


@pytest.mark.parametrize(
    ("workload", "cluster", "error", "told"),
    [
        (JOBS, 0, ConfigError, "it must be 1 or more"),
        (JOBS, -3, ConfigError, "it must be 1 or more"),
        (JOBS, 4.5, ConfigError, "4.5 is not a cluster; give a Cluster, a number of nodes"),
        (JOBS, True, ConfigError, "is not a cluster"),
        (JOBS, None, ConfigError, "None is not a cluster"),
        (JOBS, "none.yaml", ConfigError, "none.yaml: No such file"),
        ("none.swf", 4, WorkloadError, "none.swf: No such file"),
        (JOBS.to_frame(), 4, WorkloadError, r"Workload.from_frame\(table\)"),
        (pl.DataFrame().to_dict(), 4, WorkloadError, "is not a workload"),
        (None, 4, WorkloadError, "None is not a workload; give a Workload or the path of a trace"),
    ],
)
def test_anything_else_is_reported(
    workload: Any, cluster: Any, error: type[Exception], told: str
) -> None:
    for function in (simulate, replay, lambda w, c: compare(w, c, ["fcfs+easy"])):
        with pytest.raises(error, match=told):
            function(workload, cluster)
