"""Placements by switches: few blocks, whole ones for large jobs; on whole nodes and on shared ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from hpctwin import Cluster, Simulation, Workload
from hpctwin.errors import ConfigError
from hpctwin.network.profiles import HomogeneousTask
from tests import strategies
from tests.engine.examples import examples
from tests.engine.test_against_reference import cases, compared, name_of
from tests.engine.test_slurm_by_node import last_nodes

POLICIES: list[dict[str, Any]] = [
    {"backfill": "none"},
    {"backfill": "easy"},
    {"backfill": "conservative"},
    {"backfill": "slurm", "settings": {"bf_interval": 4, "bf_resolution": 3}},
]
BLOCKS = [{"name": f"b{n}", "nodes": f"{4 * n}-{4 * n + 3}"} for n in range(4)]
PAIRS = [
    *BLOCKS,
    {"name": "p0", "switches": ["b0", "b1"]},
    {"name": "p1", "switches": ["b2", "b3"]},
]


@pytest.mark.parametrize("placement", ["whole-blocks", "fewest-switches", "communication-aware"])
@pytest.mark.parametrize("policy", POLICIES, ids=name_of)
@settings(max_examples=examples(100))
@given(
    case=cases(
        strategies.clusters(cleanup=True).flatmap(strategies.connected),
        strategies.workloads,
        ("fcfs", "sjf", "wfp"),
    )
)
def test_whole_nodes_are_those_that_the_reference_takes(
    policy: dict[str, Any], placement: str, case: dict[str, Any]
) -> None:
    case["placement"] = placement
    simulation, reference = compared(policy=policy, **case)
    assert last_nodes(simulation, reference) == {
        job.row: sorted(job.nodes) for job in reference if job.start_ms >= 0
    }


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    ("switches", "widths", "taken"),
    [
        # The tightest block that suffices; a large job the emptiest first, its last as tight as can be.
        (BLOCKS, [3, 1, 2, 5], [[0, 1, 2], [3], [4, 5], [6, 8, 9, 10, 11]]),
        # Six fit no block, and one pair.
        (PAIRS, [3, 6], [[0, 1, 2], [8, 9, 10, 11, 12, 13]]),
        (PAIRS, [8, 4, 3], [[0, 1, 2, 3, 4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14]]),
    ],
)
def test_jobs_are_placed_on_few_blocks(
    shared: bool, switches: list[dict[str, Any]], widths: list[int], taken: list[list[int]]
) -> None:
    cluster = Cluster.model_validate(
        {"nodes": [{"name": "n", "count": 16, "cores": 1}], "switches": switches}
    )
    size = len(widths)
    workload = Workload.build(
        submit_s=range(size),
        runtime_s=[100] * size,
        nodes=[1] * size if shared else widths,
        chunks={"tasks": widths} if shared else None,
    )
    simulation = Simulation(workload, cluster, "fcfs+easy@whole-blocks", track_nodes=True)
    simulation.advance(50)
    found: dict[int, list[int]] = {}
    if shared:
        placed = simulation.result().placements
        assert placed is not None
        for job, node in placed.select("job_id", "node").rows():
            found.setdefault(job - 1, []).append(node)
    else:
        where = simulation.result().node_map
        assert where is not None
        for job, first, count in where.select("job_id", "first_node", "count").rows():
            found.setdefault(job - 1, []).extend(range(first, first + count))
    assert [sorted(found[row]) for row in range(size)] == [sorted(nodes) for nodes in taken]


TREE = {"topology": "fat-tree", "children": [4, 2, 2], "parents": [1, 2, 2], "bandwidth": "1 GB/s"}


def placed(placement: str, profiles: list[Any], widths: list[int], **cluster: Any) -> list[Any]:
    """Return the nodes of jobs that start one after the other on 16 nodes."""
    machine = Cluster.model_validate({"nodes": [{"name": "n", "count": 16}], **cluster})
    size = len(widths)
    workload = Workload.build(
        submit_s=range(size),
        runtime_s=[100] * size,
        walltime_s=[100] * size,
        nodes=widths,
        profiles=profiles,
    )
    simulation = Simulation(
        workload, machine, f"fcfs+easy@{placement}", sharing="fair", track_nodes=True
    )
    simulation.advance(50)
    where = simulation.result().node_map
    assert where is not None
    found: list[list[int]] = [[] for _ in widths]
    for job, first, count in where.select("job_id", "first_node", "count").rows():
        found[job - 1] += range(first, first + count)
    return found


def test_the_blocks_of_a_network_are_its_switches() -> None:
    switches = [
        *BLOCKS,
        {"name": "left", "switches": ["b0", "b1"]},
        {"name": "right", "switches": ["b2", "b3"]},
        {"name": "top", "switches": ["left", "right"]},
    ]
    widths = [3, 5, 2, 4]
    for placement in ("whole-blocks", "communication-aware", "fewest-switches"):
        by_network = placed(placement, [None] * 4, widths, network=TREE)
        assert by_network == placed(placement, [None] * 4, widths, switches=switches)
    assert by_network == [[0, 1, 2], [3, 4, 5, 6, 7], [8, 9], [12, 13, 14, 15]]


def test_jobs_that_communicate_get_whole_blocks_and_others_the_gaps() -> None:
    talks = HomogeneousTask(cpu=1e9, com=1e12)
    works = HomogeneousTask(cpu=1e12, com=1e6)
    network = {**TREE, "core_speed": "1 Gflop/s"}
    jobs, widths = [works, works, talks, works], [1, 5, 6, 1]
    found = placed("communication-aware", jobs, widths, network=network)
    assert found == [[0], [1, 12, 13, 14, 15], [2, 3, 4, 5, 6, 7], [8]]
    found = placed("whole-blocks", jobs, widths, network=network)
    assert found == [[0], [1, 4, 5, 6, 7], [8, 9, 10, 11, 12, 13], [2]]


def test_a_cluster_of_which_no_blocks_are_known_is_rejected() -> None:
    workload = Workload.build(submit_s=[0], runtime_s=[1], nodes=[1])
    with pytest.raises(ConfigError, match=r"placement 'whole-blocks': cluster .* add 'switches'"):
        Simulation(workload, Cluster.uniform(nodes=4), "fcfs+easy@whole-blocks")
