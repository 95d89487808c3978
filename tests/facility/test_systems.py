"""Machines that come with the package, in a facility."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from hpctwin import Workload
from hpctwin.errors import ConfigError
from hpctwin.facility import Facility, simulate_facility
from hpctwin.model.workload.jobs import Usage


def test_a_facility_names_machines_that_come_with_the_package(tmp_path: Path) -> None:
    path = tmp_path / "facility.yaml"
    path.write_text(
        "clusters:\n  - {name: a, machine: frontier}\n  - {name: b, machine: lumi/lumi-g}\n"
    )
    clusters = Facility.from_yaml(path).clusters
    assert [one.cluster.node_count for one in clusters] == [9472, 3840]
    assert clusters[0].node_w > 600
    in_python = Facility(clusters=[{"name": "a", "machine": "frontier"}])  # type: ignore[list-item]
    assert in_python.clusters[0].cluster.node_count == 9472


def test_the_power_of_jobs_goes_with_them_to_their_clusters() -> None:
    watts = [400.0, 900.0, 1500.0, 700.0]
    jobs = Workload.build(
        submit_s=[0, 0, 10, 20],
        runtime_s=[100, 200, 300, 400],
        nodes=[700, 700, 600, 500],
        usage={"node_w": Usage.traces([[one] for one in watts], 20)},
    )
    names = {"a": "marconi100", "b": "lassen"}
    facility = Facility(clusters=[{"name": n, "machine": m} for n, m in names.items()])  # type: ignore[misc]
    clusters = simulate_facility(facility, jobs).clusters
    found = {}
    for one in clusters.values():
        assert one.energy is not None
        ran = one.energy.jobs.filter(pl.col("start_s").is_not_null())
        assert len(ran)
        found |= dict(ran.select("job_id", "energy_j").iter_rows())
    seconds_and_nodes = [(100, 700), (200, 700), (300, 600), (400, 500)]
    assert found == {
        row + 1: pytest.approx(watts[row] * seconds * nodes)
        for row, (seconds, nodes) in enumerate(seconds_and_nodes)
    }


def test_an_unknown_cluster_file_or_name_is_reported(
    tmp_path: Path,
) -> None:
    path = tmp_path / "facility.yaml"
    path.write_text("clusters:\n  - {name: a, machine: fronteer}\n")
    with pytest.raises((ConfigError, LookupError), match="Did you mean 'frontier'"):
        Facility.from_yaml(path)
    path.write_text("clusters:\n  - {name: a, machine: nowhere.yaml}\n")
    with pytest.raises(ConfigError, match=r"nowhere\.yaml"):
        Facility.from_yaml(path)
