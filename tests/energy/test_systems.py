"""Machines that come with the package, and what machines of components draw."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hpctwin import Cluster, generate, read_cluster, simulate
from hpctwin.cli import main
from hpctwin.energy.power.rating import constants, fed_w, machine_w, machine_w_sd
from hpctwin.errors import ConfigError
from hpctwin.formats.datasets import DATASETS, write_sample
from hpctwin.formats.systems import system_names
from hpctwin.model.cluster.power import Converter, Racks, node_w

# Measured by running ExaDigiT/RAPS 6c142bf, idle and full: W of a node with its converter, kW of the machine.
MEASURED = {
    "frontier": (652.3, 2772.7, 7306.5, 28227.9),
    "marconi100": (555.8, 1865.3, 605.9, 1889.2),
    "fugaku": (54.1, 176.5, 9200.7, 29478.3),
    "lassen": (533.8, 1923.3, 477.7, 1578.2),
    "adastraMI250": (583.8, 2361.4, 251.7, 910.8),
    "summit": (733.4, 2626.8, 3552.4, 12676.1),
    "aurora": (923.7, 4589.0, 12055.9, 52618.7),
    "bluewaters": (278.8, 395.2, 10257.9, 13608.1),
    "kestrel": (561.3, 2161.3, 1661.4, 6269.4),
    "perlmutter": (652.3, 1711.5, 10659.5, 25911.7),
    "gcloudv2": (293.1, 487.0, 5014.9, 7539.4),
    "selene": (1103.3, 4038.0, 1436.1, 3148.0),
    "lumi/lumi-c": (385.0, 772.7, 231.6, 438.4),
    "lumi/lumi-g": (652.3, 2772.7, 2961.0, 11442.6),
    "setonix/part-cpu": (385.0, 772.7, 712.4, 1358.6),
    "setonix/part-gpu": (652.3, 2772.7, 156.7, 580.8),
    "mit_supercloud/part-cpu": (203.3, 213.5, 310.1, 315.2),
    "mit_supercloud/part-gpu": (538.0, 1385.0, 142.9, 340.5),
    "philly/2-gpu": (446.2, 1262.5, 48.2, 118.7),
    "philly/8-gpu": (793.1, 2793.1, 397.1, 1374.1),
}


@pytest.mark.parametrize("name", MEASURED)
def test_a_system_draws_idle_and_full_what_raps_was_measured_to_give(name: str) -> None:
    (group,) = read_cluster(name).nodes
    assert group.racks is not None
    for use, node, machine in zip((0.0, 1.0), MEASURED[name][:2], MEASURED[name][2:], strict=True):
        each = group.racks.converter.taken(node_w(group.components, use))
        assert float(each) == pytest.approx(node, abs=0.051)
        assert machine_w(read_cluster(name), use) == pytest.approx(1000 * machine, abs=51)


@pytest.mark.parametrize("name", system_names())
def test_every_number_of_a_system_has_its_source(name: str) -> None:
    cluster = read_cluster(name)
    assert cluster.name == name
    assert cluster.about
    numbers = constants(cluster)
    assert numbers
    assert not [row["path"] for row in numbers if not row["source"]]
    # No source speaks of a number that is not there.
    for path in cluster.sources:
        assert any((row["path"] + ".").startswith(path + ".") for row in numbers), path


def test_a_rack_that_is_not_there_loses_nothing() -> None:
    frontier = read_cluster("frontier")
    (group,) = frontier.nodes
    assert group.racks is not None
    used = group.count * node_w(group.components, 0.0) + 74 * 8 * 4 * 250 + 25 * 8473.47
    # RAPS's own 571.65 kW count the rectifiers of the eight chassis that are not there, with their switches.
    absent = 8 * ((1000 + 4 * 17) / 0.96 - 1000)
    assert machine_w(frontier, 0.0) - used == pytest.approx(571_650 - absent, abs=6)
    assert list(group.racks.chassis_of_cdu).count(13) == 16
    assert list(group.racks.chassis_of_cdu).count(12) == 24


def test_fewer_rectifiers_work_at_a_small_load() -> None:
    racks = Racks(
        nodes_per_chassis=16,
        rectifiers=4,
        rectifier=Converter(constant_w=100.0),
        rectifier_load_w=1000.0,
    )
    given = np.array([0.0, 1.0, 1000.0, 1001.0, 3999.0, 9000.0])
    assert (racks.chassis_taken(given) - given).tolist() == [100, 100, 100, 200, 400, 400]


def test_a_curve_of_efficiency_is_taken_between_its_points_and_held_beyond() -> None:
    stage = Converter(curve=((100.0, 0.8), (300.0, 0.9)))
    assert stage.taken([50.0, 100.0, 200.0, 300.0, 450.0]) == pytest.approx(
        [62.5, 125.0, 200 / 0.85, 300 / 0.9, 500.0]
    )


def test_deviations_of_components_add_as_squares_and_pass_through_the_converters() -> None:
    cluster = Cluster.checked(
        {
            "nodes": [
                {
                    "name": "node",
                    "count": 10,
                    "components": {
                        "cpu": {"count": 2, "idle_w": 50, "max_w": 200, "uncertainty": 0.1},
                        "gpu": {"idle_w": 30, "max_w": 300, "uncertainty": 0.05},
                        "memory": {"idle_w": 40, "uncertainty": 0.2},
                    },
                    "racks": {"nodes_per_chassis": 5, "cdus": 2, "converter": {"efficiency": 0.8}},
                }
            ]
        },
        "machine",
    )
    assert machine_w_sd(cluster, 1.0) == pytest.approx(10 / 0.8 * np.hypot(40, np.hypot(15, 8)))
    assert machine_w_sd(cluster, 0.0) == pytest.approx(10 / 0.8 * np.hypot(10, np.hypot(1.5, 8)))


def test_nodes_of_components_compute_at_full_power_and_are_idle_at_idle_power() -> None:
    cluster = read_cluster("marconi100")
    assert Cluster.checked(cluster.model_dump(mode="json"), "again") == cluster
    energy = simulate(generate("poisson", jobs=20, nodes=980, seed=1), cluster).energy
    assert energy is not None
    (group,) = cluster.nodes
    idle, full = node_w(group.components, 0.0), node_w(group.components, 1.0)
    assert energy.watts[:2, 0].tolist() == [idle, full]
    assert fed_w(group, full) > group.count * full


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"racks": {"nodes_per_chassis": 4}}, "'racks' but no 'components'"),
        (
            {"components": {"cpu": {"idle_w": 9}}, "racks": {"nodes_per_chassis": 4}},
            "has 10 nodes, but its racks have 4",
        ),
        ({"components": {"cpu": {"idle_w": 9, "max_w": 3}}}, "max_w is 3, less than idle_w, 9"),
        (
            {"components": {"cpu": {"idle_w": 9}}, "modes": {"base": {"power_w": 10}}},
            "remove 'modes'",
        ),
        (
            {
                "components": {"cpu": {"idle_w": 9}},
                "racks": {"nodes_per_chassis": 10, "rectifier": {"curve": [[9, 0.5], [9, 0.6]]}},
            },
            "increasing loads, each load once",
        ),
        (
            {
                "components": {"cpu": {"idle_w": 9}},
                "racks": {"nodes_per_chassis": 10, "missing": [1]},
            },
            "missing rack 1 does not exist; racks are 0 to 0",
        ),
        ({"components": {"cpu": {"idle": 9}}}, "Did you mean 'idle_w'?"),
    ],
)
def test_impossible_components_and_racks_are_reported(fields: dict, said: str) -> None:
    with pytest.raises(ConfigError, match=r"nodes\.0") as told:
        Cluster.checked({"nodes": [{"name": "n", "count": 10, **fields}]}, "machine.yaml")
    assert said in str(told.value)


def test_a_folder_called_as_a_system_does_not_stand_in_its_way(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_sample(DATASETS["marconi100"], tmp_path / "marconi100", jobs=5)
    assert read_cluster("marconi100").node_count == 980
    # The data set's machine is the package's, whatever lies here.
    (tmp_path / "marconi100" / "marconi100").write_text("not a machine")
    monkeypatch.chdir(tmp_path / "marconi100")
    with pytest.raises(SystemExit) as ended:
        main(["replay", "job_table.parquet", "--json"])
    assert not ended.value.code


def test_a_system_is_shown_and_its_name_stands_where_a_cluster_file_may(capsys, tmp_path) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("submit_s,runtime_s,nodes\n0,60,9472\n")
    for arguments, code in (
        (["system", "show", "frontier", "--json"], 0),
        (["simulate", str(trace), "--cluster", "frontier", "--json"], 0),
        (["system", "list", "--json"], 0),
        (["simulate", str(trace), "--cluster", "fronteir"], 2),
        (["system", "show", "lumi/lumi-x"], 2),
    ):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == code
        out, err = capsys.readouterr()
        if arguments[1] == "show" and code == 0:
            shown = json.loads(out)
            assert shown["nodes"] == 9472
            assert shown["idle_power_kw"] == pytest.approx(7306.5, abs=0.05)
            assert shown["full_power_kw"] == pytest.approx(28227.9, abs=0.05)
            assert all(row["source"] for row in shown["constants"])
        elif arguments[1] == "list":
            assert {row["name"] for row in json.loads(out)} == set(system_names())
        elif code == 0:
            assert json.loads(out)["nodes"] == 9472
        else:
            assert "Did you mean" in err
