"""What a user sees of our objects in Python and in a notebook, and what can be made of a workload."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation, Workload, simulate
from hpctwin.errors import ConfigError, WorkloadError
from hpctwin.metrics.description import describe
from hpctwin.model import Dependencies
from hpctwin.model.workload.dependencies import DependencyKind


def made(jobs: int = 6) -> Workload:
    rows = np.arange(jobs)
    return Workload.build(
        submit_s=rows * 100, runtime_s=rows + 50, nodes=rows % 3 + 1, name="a<b", nodes_hint=4
    )


def table(thing: object) -> dict[str, str]:
    """A notebook's table, by names; it is well-formed."""
    html = ET.fromstring(thing._repr_html_())  # type: ignore[attr-defined]
    return {row.find("th").text: row.find("td").text for row in html.iter("tr")}  # type: ignore[union-attr,misc]


def test_each_shows_itself_in_one_line_and_as_a_table() -> None:
    workload, cluster = made(), Cluster.uniform(nodes=4, name="small")
    simulation = Simulation(workload, cluster, "sjf+easy")
    assert repr(workload) == "<Workload a<b: 6 jobs, 1 to 3 nodes each, 8.33 min of submissions>"
    assert repr(cluster) == "<Cluster small: 4 nodes>"
    simulation.advance(120)
    assert repr(simulation) == (
        "<Simulation a<b under sjf+easy on small: 2 min from time zero, 6 jobs, 2 submitted, "
        "0 waiting, 1 running>"
    )
    result = simulate(workload, cluster)
    assert repr(result) == "<Result a<b under fcfs+easy: 6 jobs completed, 4 nodes>"
    assert table(workload)["median runtime"] == "52.5 s"
    assert table(cluster)["nodes"] == "4"
    assert table(simulation)["running"] == "1"
    assert table(result)["mean wait"] == "0 s"
    assert table(simulate(Workload.build(submit_s=[], runtime_s=[], nodes=[]), 4))["nodes"] == "4"


@given(load=st.floats(0.05, 3), nodes=st.integers(3, 500))
def test_a_scaled_workload_offers_the_load_that_was_asked_for(load: float, nodes: int) -> None:
    workload = made(40)
    scaled = workload.scale(load=load, nodes=nodes)
    assert describe(scaled, nodes).figures["offered_load"] == pytest.approx(load, rel=1e-3)
    assert (np.diff(scaled.submit_ms) >= 0).all()
    assert sorted(scaled.job_id) == sorted(workload.job_id)
    assert (scaled.recorded_start_ms < 0).all()


def test_workloads_that_cannot_be_scaled_are_reported() -> None:
    with pytest.raises(ConfigError, match="give nodes, as in"):
        made().replace(nodes_hint=None).scale(0.9)
    with pytest.raises(ConfigError, match="load is 0; it must be above 0"):
        made().scale(0)
    with pytest.raises(WorkloadError, match="the same submit time"):
        made(1).scale(0.9)


def test_windows_samples_and_slices_keep_whole_jobs_in_order() -> None:
    workload = made(10)
    assert workload.window("3m", 400).job_id.tolist() == [3, 4]
    assert workload.window(700).job_id.tolist() == [8, 9, 10]
    assert workload[2:5].job_id.tolist() == [3, 4, 5]
    assert workload[workload.nodes == 3].job_id.tolist() == [3, 6, 9]
    few = workload.sample(4, seed=3)
    assert len(few) == 4
    assert few.job_id.tolist() == sorted(few.job_id)
    assert few.job_id.tolist() == workload.sample(0.4, seed=3).job_id.tolist()
    with pytest.raises(ConfigError, match="up to 10, or a share"):
        workload.sample(11)
    with pytest.raises(ConfigError, match="or a share such as"):
        workload.sample(1.5)


def test_dependencies_on_removed_jobs_are_dropped() -> None:
    workload = made(4).replace(
        dependencies=Dependencies.of(
            [(1, 0, DependencyKind.AFTEROK, 0), (3, 2, DependencyKind.AFTEROK, 0)]
        )
    )
    assert len(workload[1:].dependencies) == 1
