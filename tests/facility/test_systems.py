"""Machines that come with the package, in a facility."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpctwin.errors import ConfigError
from hpctwin.facility import Facility


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


def test_a_machine_that_is_neither_a_file_nor_comes_with_the_package_is_told(
    tmp_path: Path,
) -> None:
    path = tmp_path / "facility.yaml"
    path.write_text("clusters:\n  - {name: a, machine: fronteer}\n")
    with pytest.raises((ConfigError, LookupError), match="Did you mean 'frontier'"):
        Facility.from_yaml(path)
    path.write_text("clusters:\n  - {name: a, machine: nowhere.yaml}\n")
    with pytest.raises(ConfigError, match=r"nowhere\.yaml"):
        Facility.from_yaml(path)
