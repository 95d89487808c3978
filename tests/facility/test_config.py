"""A facility in YAML."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpctwin.errors import ConfigError, WorkloadError
from hpctwin.facility import Facility, simulate_facility
from hpctwin.model import Category
from tests.facility.test_facility import jobs

GOOD = """
name: alcf
kinds:
  - {name: gpu, gpus: true}
  - {name: cpu}
origin: {by: user, clusters: {"0": polaris, "1": theta}}
staging:
  - {source: polaris, target: theta, time: 10m}
clusters:
  - name: polaris
    nodes: 552
    power_w: 1500
    carbon: 400
  - name: theta
    machine: theta.yaml
    policy: wfp+easy
    kinds: [cpu]
    factor: {cpu: 4}
    max_queued: 1000
"""


def written(tmp_path: Path, text: str) -> Path:
    (tmp_path / "theta.yaml").write_text("nodes: [{name: knl, count: 4360}]")
    path = tmp_path / "facility.yaml"
    path.write_text(text)
    return path


def test_a_facility_is_read_with_the_machines_it_names(tmp_path: Path) -> None:
    facility = Facility.from_yaml(written(tmp_path, GOOD))
    polaris, theta = facility.clusters
    assert (polaris.cluster.node_count, theta.cluster.node_count) == (552, 4360)
    assert theta.cluster.name == "theta"
    assert theta.factor_of("cpu") == 4
    assert polaris.factor_of("cpu") == 1
    assert facility.staging_s("polaris", "theta") == 600
    assert facility.staging_s("theta", "polaris") == 0


@pytest.mark.parametrize(
    ("good", "bad", "says"),
    [
        ("nodes: 552", "nodes: 0", "clusters.0.nodes: it must be 1 or more, not 0"),
        ("    nodes: 552\n", "", "cluster 'polaris': give either nodes or machine"),
        ("name: theta\n", "name: polaris\n", "cluster 'polaris' is listed twice"),
        ("kinds: [cpu]", "kinds: [cpus]", "kind 'cpus' does not exist; known: gpu, cpu, any"),
        ("factor: {cpu: 4}", "factor: {cpu: 0}", "must be more than 0"),
        ("wfp+easy", "wfq+easy", "Did you mean 'wfp'"),
        ("theta.yaml", "thetta.yaml", "thetta.yaml: No such file"),
        ('"1": theta', '"1": cori', "cluster 'cori' does not exist; known: polaris, theta"),
        ("time: 10m", "time: soon", "'soon' is not a duration"),
        ("carbon: 400", "carbon: [400, 300]", "one per hour (24)"),
        ("max_queued", "max_waiting", "max_waiting: unknown field. Did you mean"),
        ("name: alcf", "name: [", "not YAML"),
    ],
)
def test_errors_are_named(tmp_path: Path, good: str, bad: str, says: str) -> None:
    assert good in GOOD
    path = written(tmp_path, GOOD.replace(good, bad))
    with pytest.raises(ConfigError) as found:
        Facility.from_yaml(path)
    assert says in str(found.value)


def test_a_label_without_a_cluster_is_reported_by_name(tmp_path: Path) -> None:
    facility = Facility.from_yaml(written(tmp_path, GOOD))
    workload = jobs(submit_s=[0], runtime_s=[1], user=Category.of(["7"]))
    with pytest.raises(WorkloadError, match="user '7' is not among the origins"):
        simulate_facility(facility, workload)
