"""Jobs and platforms of ElastiSim; all files are made by hand here."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation, Workload, read_cluster, read_workload, simulate
from hpctwin.cli.app import main
from hpctwin.errors import ConfigError, TraceError, WorkloadError
from hpctwin.formats import write_workload
from hpctwin.formats.json.expressions import evaluate
from hpctwin.network.profiles import StorageTransfer
from hpctwin.network.rank_tasks import PATTERNS, Exchange, Idle, RankTasks, Repeated, bytes_between

PLATFORM = """<?xml version='1.0'?>
<platform version="4.1"><zone id="D" routing="Full">
 <zone id="B" routing="Full"><host id="batch" speed="0Gf"><prop id="batch_system" value="true"/></host></zone>
 <cluster id="C" prefix="n" radical="0-3" suffix="" speed="1Gf" bw="1GBps" lat="0">
  <prop id="pfs_targets" value="{targets}"/>
  <prop id="node_local_bb" value="true"/><prop id="bb_read_bw" value="4GBps"/>
  <prop id="bb_write_bw" value="500MBps"/>{more}
  <prop id="num_gpus" value="4"/><prop id="flops_per_gpu" value="10Gf"/>
  <prop id="gpu_to_gpu_bw" value="2GBps"/></cluster>
 <zone id="P" routing="Full"><host id="fs1" speed="0Gf"><prop id="pfs_host" value="true"/></host></zone>
 <zone id="Q" routing="Full"><host id="fs2" speed="0Gf"><prop id="pfs_host" value="true"/></host></zone>
 <link id="r1" bandwidth="1GBps" latency="0"/><link id="w1" bandwidth="500MBps" latency="0"/>
 <link id="r2" bandwidth="2GBps" latency="0"/><link id="w2" bandwidth="2GBps" latency="0"/>
 <zoneRoute src="P" dst="C" gw_src="fs1" gw_dst="nC_router" symmetrical="NO"><link_ctn id="r1"/></zoneRoute>
 <zoneRoute src="C" dst="P" gw_src="nC_router" gw_dst="fs1" symmetrical="NO"><link_ctn id="w1"/></zoneRoute>
 <zoneRoute src="Q" dst="C" gw_src="fs2" gw_dst="nC_router" symmetrical="NO"><link_ctn id="r2"/></zoneRoute>
 <zoneRoute src="C" dst="Q" gw_src="nC_router" gw_dst="fs2" symmetrical="NO"><link_ctn id="w2"/></zoneRoute>
</zone></platform>"""


def cluster(folder: Path, targets: str = "fs1", more: str = "") -> Cluster:
    """Four nodes of 1 Gflop/s and 1 GB/s; their file system reads 1 GB/s and writes 0.5 GB/s."""
    (folder / "platform.xml").write_text(PLATFORM.format(targets=targets, more=more))
    return read_cluster(folder / "platform.xml")


def read(folder: Path, model: Any, *jobs: dict[str, Any], **options: Any) -> Workload:
    """Read jobs with one model; jobs are rigid on two nodes unless they say otherwise."""
    (folder / "model.json").write_text(json.dumps(model))
    common = {"submit_time": 0, "application_model": "model.json"}
    rigid = {"type": "rigid", "num_nodes": 2}
    listed = [{**common, **(rigid if "type" not in job else {}), **job} for job in jobs or ({},)]
    (folder / "jobs.json").write_text(json.dumps({"jobs": listed}))
    return read_workload(folder / "jobs.json", **options)


def phase(*tasks: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"tasks": list(tasks), **fields}


def ends(workload: Workload, on: Cluster, sharing: Any = "fair") -> list[float]:
    result = Simulation(workload, on, sharing=sharing).run().jobs.sort("job_id")
    return [round(end, 6) for end in result["end_s"].to_list()]


def cpu(flops: Any, pattern: Any = "vector", **more: Any) -> dict[str, Any]:
    return {"type": "cpu", "flops": flops, "computation_pattern": pattern, **more}


def send(size: Any, pattern: Any = "all_to_all", **more: Any) -> dict[str, Any]:
    return {"type": "cpu", "bytes": size, "communication_pattern": pattern, **more}


def delay(seconds: Any, kind: Any = "idle", **more: Any) -> dict[str, Any]:
    return {"type": kind, "delay": seconds, "pattern": "vector", **more}


def access(kind: str, size: Any, pattern: Any = "vector", **more: Any) -> dict[str, Any]:
    return {"type": kind, "bytes": size, "pattern": pattern, **more}


def gpu(flops: float, **more: Any) -> dict[str, Any]:
    return {"type": "gpu", "flops": flops, "computation_pattern": "uniform", **more}


BOTH = {"bytes": 8e9, "communication_pattern": "all_to_all"}
"""4 GB in each direction: 4 s."""


@pytest.mark.parametrize("sharing", ["fair", "simgrid"])
@pytest.mark.parametrize(
    ("tasks", "end"),
    [
        # Each rank computes 1 Gflop/s, and does not wait for the other one.
        ([cpu([2e9, 3e9])], 3),
        ([cpu(6e9, "all_ranks")], 3),
        ([cpu(6e9, "uniform")], 6),
        ([cpu(6e9, "root_only"), delay([0, 5])], 6),
        ([cpu([2e9, 3e9]), delay([2, 0])], 4),
        ([cpu([2e9, 3e9]), delay([2, 0], synchronized=True)], 5),
        ([delay([1, 2], iterations=3)], 6),
        ([delay([1, 2], "busy_wait"), cpu([1e9, 0])], 2),
        # A sequence with a meeting
        (
            [
                {
                    "type": "sequence",
                    "iterations": "1 + 1",
                    "tasks": [delay([1, 2]), delay([2, 1], synchronized=True)],
                },
                cpu([1e9, 0]),
            ],
            # meetings at 2 and at 5 (rank 0: 4 + 1, rank 1: 3 + 2); rank 0 is at 7, and computes
            8,
        ),
        # Communication begins when all ranks have come; it and computation overlap.
        ([send(8e9)], 4),
        ([delay([0, 1]), send(8e9)], 5),
        ([cpu([2e9, 3e9], **BOTH)], 4),
        ([cpu([6e9, 3e9], **BOTH)], 6),
        ([cpu([6e9, 3e9], **BOTH), delay([0, 4])], 8),
        # Coupled, both progress at the rate of the slower one.
        ([cpu([2e9, 3e9], coupled=True, iterations=3, **BOTH)], 12),
        ([send([0, 1e9, 2e9, 0], "matrix")], 2),
        ([send(4e9, "gather")], 2),
        ([send(4e9, "scatter")], 2),
        ([send(4e9, "ring_clockwise")], 2),
        # The ranks share the file system: both 0.5 GB/s, then the second one 1 GB/s.
        ([access("pfs_read", [1e9, 2e9])], 3),
        ([access("pfs_write", 2e9, "all_ranks")], 4),
        ([access("pfs_write", 2e9, "even_ranks")], 4),
        ([access("bb_read", [8e9, 4e9])], 2),
        ([access("bb_write", 1e9, "odd_ranks")], 2),
        # Asynchronous accesses run next to later tasks, up to the end of the phase or sequence.
        ([access("pfs_write", [1e9, 1e9], **{"async": True}), delay([5, 5], "busy_wait")], 5),
        ([access("pfs_write", [1e9, 1e9], **{"async": True}), delay([1, 1], "busy_wait")], 4),
        (
            [access("pfs_write", [1e9, 0], iterations=2, **{"async": True}), cpu(1e9, "uniform")],
            4,
        ),
        (
            [
                {
                    "type": "sequence",
                    "iterations": 3,
                    "tasks": [
                        access("pfs_write", [1e9, 0], synchronized=True, **{"async": True}),
                        cpu(1e9, "uniform"),
                    ],
                },
                cpu(1e9, "uniform"),
            ],
            7,
        ),
    ],
)  # fmt: skip
def test_times_of_tasks(
    tmp_path: Path, tasks: list[dict[str, Any]], end: float, sharing: Any
) -> None:
    workload = read(tmp_path, {"phases": [phase(*tasks)]})
    assert ends(workload, cluster(tmp_path), sharing) == [end]


@pytest.mark.parametrize(
    ("task", "end"),
    [
        (gpu(4e10), 2),  # 20 Gflop on each of two GPUs
        # Each GPU sends 1 GB to each of three others: 2 GB between two GPUs of a node (1 s), and
        # 4 GB from node to node (4 s).
        (gpu(4e10, bytes=12e9, communication_pattern="all_to_all"), 4),
        (gpu(1e11, bytes=12e9, communication_pattern="all_to_all"), 5),
        # Of a ring of four GPUs, each gets 3 GB from its neighbor: 3 GB in a node (two GPUs form a
        # ring of their own: 1.5 GB each way), and 3 GB from node to node.
        ({"type": "gpu", "bytes": 12e9, "communication_pattern": "ring_clockwise"}, 3),
    ],
)
def test_gpus_compute_while_they_and_nodes_send(tmp_path: Path, task: Any, end: float) -> None:
    workload = read(tmp_path, {"phases": [phase(task)]}, {"num_gpus_per_node": 2})
    assert workload.per_node["gpus"].tolist() == [2]
    assert ends(workload, cluster(tmp_path)) == [end]


def test_one_gpu_per_node_sends_like_its_node(tmp_path: Path) -> None:
    task = {"type": "gpu", "bytes": 4e9, "communication_pattern": "gather"}
    workload = read(tmp_path, {"phases": [phase(task)]}, {"num_gpus_per_node": 1})
    assert ends(workload, cluster(tmp_path)) == [2]


def test_a_file_system_of_two_hosts_is_striped(tmp_path: Path) -> None:
    model = {"phases": [phase(access("pfs_read", 4e9, "root_only"))]}
    # The node's own 1 GB/s limit it: half from each. One alone has 1 GB/s too.
    for targets in ("fs1,fs2", "fs1; fs2", "", "fs2"):
        assert ends(read(tmp_path, model), cluster(tmp_path, targets)) == [4]
    model = {"phases": [phase(access("pfs_write", 2e9, "root_only"))]}
    assert ends(read(tmp_path, model), cluster(tmp_path, "fs1")) == [4]
    assert ends(read(tmp_path, model), cluster(tmp_path, "fs1,fs2")) == [2]
    with pytest.raises(ConfigError, match="unknown host or router 'fs3'"):
        cluster(tmp_path, "fs1,fs3")


def test_striped_burst_buffers(tmp_path: Path) -> None:
    more = '<prop id="wide_striping" value="true"/><prop id="flops_per_byte" value="{}"/>'
    model = {"phases": [phase(access("bb_write", 2e9, "root_only"))]}
    # 1 GB into the own buffer, and 1 GB into that of the other node, at 0.5 GB/s each
    assert ends(read(tmp_path, model), cluster(tmp_path, more=more.format("0"))) == [2]
    # each node computes 3 flops for each of its 1e9 bytes
    assert ends(read(tmp_path, model), cluster(tmp_path, more=more.format("3f"))) == [3]
    model = {"phases": [phase(access("bb_read", 4e9, "root_only"))]}
    assert ends(read(tmp_path, model), cluster(tmp_path, more=more.format("0"))) == [2]


def test_jobs_share_the_file_system_by_ranks(tmp_path: Path) -> None:
    model = {"phases": [phase(access("pfs_read", "size", "uniform"))]}
    one = {"num_nodes": 1, "arguments": {"size": 1e9}}
    three = {"num_nodes": 3, "arguments": {"size": 1e9}}
    # Four ranks share 1 GB/s equally, so that a job of three gets 3 of 4 parts.
    assert ends(read(tmp_path, model, one, three), cluster(tmp_path)) == [4, 4]


@pytest.mark.parametrize(
    ("model", "end"),
    [
        ({"phases": [phase(delay([1, 2]), iterations=3)]}, 6),
        ({"phases": [phase(delay([1, 2]), iterations=3, barrier=False)]}, 6),
        ({"phases": [phase(delay([1, 2])), phase(delay([2, 1]))]}, 4),
        ({"phases": [phase(delay([1, 2])), phase(delay([2, 1]), barrier=False)]}, 3),
        (
            {
                "phases": [
                    phase(delay([1, 2]), iterations=2),  # all are at 2 s, then 3 and 4 s
                    phase(delay([2, 1]), iterations=2, barrier=False),  # 7 and 6 s
                    phase(delay([0, 2])),
                ]
            },
            9,
        ),
        ({"on_init": phase(delay([1, 3])), "phases": [phase(delay([2, 1]))]}, 5),
        ({"on_init": phase(delay([1, 3]), iterations=2), "phases": [phase(delay([2, 1]))]}, 8),
        (
            {
                "on_init": phase(access("pfs_write", [1e9, 0], **{"async": True}), delay([1, 1])),
                "on_reconfiguration": phase(delay([9, 9])),
                "on_expansion": phase(delay([9, 9])),
                "phases": [phase(delay([2, 1]))],
            },
            4,
        ),
    ],
)
def test_phases_wait_for_all_ranks_unless_they_have_no_barrier(
    tmp_path: Path, model: Any, end: float
) -> None:
    workload = read(tmp_path, model)
    assert ends(workload, cluster(tmp_path)) == [end]
    # The same on the network, where the length is computed step by step
    model["phases"][-1]["tasks"].append(cpu([1e-3, 1e-3]))
    workload = read(tmp_path, model)
    assert workload.profiles is not None
    assert workload.profiles[0] is not None
    assert workload.profiles[0].length_s is None
    assert ends(workload, cluster(tmp_path)) == [end]


def test_jobs_that_only_wait_need_no_network(tmp_path: Path) -> None:
    model = {
        "phases": [phase({"type": "busy_wait", "delay": "work / num_nodes", "pattern": "uniform"})]
    }
    jobs = read(
        tmp_path, model, {"arguments": {"work": 100}}, {"num_nodes": 3, "arguments": {"work": 9}}
    )
    assert jobs.runtime_ms.tolist() == [50_000, 3_000]
    assert jobs.walltime_ms.tolist() == [50_000, 3_000]
    assert simulate(jobs, 4, "fcfs+none").jobs["end_s"].to_list() == [50, 53]


def test_amounts_are_expressions_of_nodes_and_arguments(tmp_path: Path) -> None:
    model = {"phases": [phase(cpu("flops / num_nodes ^ alpha", "uniform"), iterations="rounds")]}
    arguments = {"flops": 8e9, "alpha": "0.5", "rounds": 3, "jobid": "12_a"}
    workload = read(tmp_path, model, {"num_nodes": 4, "arguments": arguments})
    assert ends(workload, cluster(tmp_path)) == [12]


def test_jobs_of_all_types(tmp_path: Path) -> None:
    model = {
        "phases": [
            phase(cpu("4e9 / num_nodes", "uniform"), evolving_request="num_nodes - 1", iterations=2)
        ]
    }
    sizes = {"num_nodes_min": 1, "num_nodes_max": 4}
    kinds = ["moldable", "malleable", "Evolving", "adaptive"]
    jobs = [{"type": kind, "submit_time": 10 * (4 - i), **sizes} for i, kind in enumerate(kinds)]
    workload = read(tmp_path, model, *jobs)
    # Jobs are numbered by submission.
    assert workload.job_id.tolist() == [0, 1, 2, 3]
    assert workload.submit_ms.tolist() == [10_000, 20_000, 30_000, 40_000]
    assert workload.nodes.tolist() == [4] * 4
    assert ends(workload, cluster(tmp_path)) == [12, 22, 32, 42]
    assert workload.notes.counts == {
        "moldable job, which keeps its largest number of nodes": 1,
        "malleable job, which keeps its largest number of nodes": 1,
        "evolving job, which keeps its largest number of nodes": 1,
        "adaptive job, which keeps its largest number of nodes": 1,
        "job with an evolving request, which is declined": 2,
        "job without walltime, given a walltime of 1e+09 s": 4,
    }


@pytest.mark.parametrize(
    ("delay", "most", "speedup"),
    [
        ("600 / num_nodes", 4, "linear"),
        ("600 / num_nodes", 400, "linear"),
        ("200 + 600 / num_nodes", 4, "amdahl:0.25"),
        ("700 - 100 * num_nodes", 4, "1.0/1.0/1.25/1.6666666666666667"),
        ("700 - num_nodes", 400, None),  # too many numbers of nodes for a table
        ("100 * num_nodes", 4, None),  # more nodes make it longer
    ],
)
def test_a_job_that_only_waits_has_a_known_speedup(
    tmp_path: Path, delay: str, most: int, speedup: str | None
) -> None:
    model = {"phases": [phase({"type": "busy_wait", "delay": delay, "pattern": "uniform"})]}
    job = {"type": "moldable", "num_nodes_min": 2, "num_nodes_max": most}
    found = read(tmp_path, model, job, {}).malleable
    if speedup is None:
        assert found is None
        return
    assert found is not None
    assert found.min_nodes.tolist() == [2, 2]
    assert found.max_nodes.tolist() == [most, 2]
    assert found.speedup.labels == (speedup,)
    assert found.speedup.codes.tolist() == [0, -1]


def test_a_sizing_decides_how_many_nodes_jobs_get(tmp_path: Path) -> None:
    sizing = pytest.importorskip("hpctwin_sizing")
    model = {"phases": [phase({"type": "idle", "delay": "work / num_nodes", "pattern": "uniform"})]}
    jobs = [
        {"type": "moldable", "num_nodes_min": 2, "num_nodes_max": 3, "arguments": {"work": 30}},
        {"type": "moldable", "num_nodes_min": 1, "num_nodes_max": 3, "arguments": {"work": 30}},
    ]

    def as_many_as_are_free(view: Any) -> Any:
        free, sizes = view.free_nodes, {}
        for job in view.jobs:
            nodes = min(free, job.max_nodes)
            if job.size == 0 and nodes >= job.min_nodes:
                sizes[job.job_id] = nodes
                free -= nodes
        return sizing.Sizes(sizes)

    result = simulate(read(tmp_path, model, *jobs), 4, sizing=sizing.Sizing(as_many_as_are_free))
    assert result.stretches is not None
    assert result.stretches.sort("job_id").select("end_s", "nodes").rows() == [(10, 3), (30, 1)]


def test_scheduling_points_are_barriers_for_jobs_that_use_them(tmp_path: Path) -> None:
    tasks = (
        {"type": "idle", "delay": 2, "pattern": "even_ranks"},
        {**delay(1), "pattern": "odd_ranks"},
    )
    points = [phase(tasks[0], barrier=False), phase(tasks[1], barrier=False)]
    sizes = {"num_nodes_min": 1, "num_nodes_max": 2}
    for kind, end in (("moldable", 2), ("evolving", 2), ("malleable", 3), ("adaptive", 3)):
        assert ends(
            read(tmp_path, {"phases": points}, {"type": kind, **sizes}), cluster(tmp_path)
        ) == [end]
    points[1]["evolving_request"] = "num_nodes"
    points[1]["scheduling_point"] = False
    for kind, end in (("malleable", 2), ("evolving", 3)):
        assert ends(
            read(tmp_path, {"phases": points}, {"type": kind, **sizes}), cluster(tmp_path)
        ) == [end]


def test_walltime_priority_and_unread_fields(tmp_path: Path) -> None:
    model = {
        "phases": [phase({**cpu(5e9, "uniform"), "nmae": "x"}, final_scheduling_point=True)],
        "x": 1,
    }
    job = {"walltime": 2.5, "attributes": {"priority": 7, "project": "a"}, "deadline": 3}
    workload = read(tmp_path, model, job)
    assert ends(workload, cluster(tmp_path)) == [2.5]
    assert workload.priority.tolist() == [7]
    assert workload.notes.counts == {
        "field 'deadline' of a job, ignored": 1,
        "field 'project' of a job's attributes, ignored": 1,
        "field 'x' of an application model, ignored": 1,
        "field 'final_scheduling_point' of a phase, ignored": 1,
        "field 'nmae' of a task, ignored": 1,
    }


def test_models_are_found_below_the_folder_of_the_jobs(tmp_path: Path) -> None:
    (tmp_path / "jobs" / "sub").mkdir(parents=True)
    model = {"phases": [phase(delay([1, 1]))]}
    (tmp_path / "secret.json").write_text(json.dumps(model))
    for name in ("/data/input/model.json", "data/model.json", "./model.json"):
        assert len(read(tmp_path / "jobs", model, {"application_model": name})) == 1
    (tmp_path / "jobs" / "sub" / "other.json").write_text(json.dumps(model))
    assert len(read(tmp_path / "jobs", model, {"application_model": "run/sub/other.json"})) == 1
    for name in ("../secret.json", str(tmp_path / "secret.json"), "..", "x\0y"):
        with pytest.raises(TraceError, match="no such file in the folder of the jobs"):
            read(tmp_path / "jobs", model, {"application_model": name})


FINE = {"phases": [phase(delay([1, 1]))]}


@pytest.mark.parametrize(
    ("model", "job", "says"),
    [
        ([], {}, "job 0: the model is []"),
        ({}, {}, "the model: phases is missing, expected a list"),
        ({"phases": [1]}, {}, "phases[0] is 1, expected an object"),
        ({"phases": [{}]}, {}, "the model, phases[0]: tasks is missing"),
        ({"phases": [phase({"type": "cqu"})]}, {}, "type is 'cqu'; supported are cpu, gpu"),
        ({"phases": [phase({"type": "cpu"})]}, {}, "flops is missing, and so is bytes"),
        ({"phases": [phase({"type": "cpu", "flops": 1})]}, {}, "computation_pattern is missing"),
        ({"phases": [phase(cpu("2 * x", "uniform"))]}, {}, "'2 * x' has the unknown variable 'x'"),
        ({"phases": [phase(cpu("1 -", "uniform"))]}, {}, "ends where a value is expected"),
        ({"phases": [phase(cpu("1 - num_nodes", "uniform"))]}, {}, "is -1, expected a number from 0"),
        ({"phases": [phase(cpu(-1, "uniform"))]}, {}, "flops is -1, expected a number"),
        ({"phases": [phase(cpu([1, 2, 3]))]}, {}, "has 3 numbers, expected one for each of the 2 nodes"),
        ({"phases": [phase(cpu([1, "a"]))]}, {}, "flops has 'a'"),
        ({"phases": [phase(send([1], "matrix"))]}, {}, "bytes has 1 numbers, expected 2 × 2"),
        ({"phases": [phase(send(1, "rign"))]}, {}, "Did you mean 'ring'"),
        ({"phases": [phase(gpu(1))]}, {}, "the job has no GPUs; give it num_gpus_per_node"),
        (
            {"phases": [phase({**gpu(1), "bytes": 1, "communication_pattern": "gather"})]},
            {"num_gpus_per_node": 2},
            "communication_pattern is 'gather'; supported are all_to_all, ring",
        ),
        (
            {"phases": [phase(cpu([1, 2]))]},
            {"type": "moldable", "num_nodes_min": 1, "num_nodes_max": 2},
            "flops is a list; only rigid jobs",
        ),
        ({"phases": [phase(delay([1, 1]), iterations=0)]}, {}, "iterations is 0"),
        ({"phases": [phase(delay([1, 1]), iterations="num_nodes")]}, {}, "unknown variable 'num_nodes'"),
        ({"phases": [phase(delay([1, 1]), barrier=1)]}, {}, "barrier is 1, expected true or false"),
        (
            {"phases": [phase(access("pfs_read", [1, 1], **{"async": True}), barrier=False)]},
            {},
            "does not work with barrier false",
        ),
        (
            {"phases": [phase(access("pfs_read", [1, 1], iterations=9999, **{"async": True}))]},
            {},
            "iterations is 9,999 for an asynchronous task",
        ),
        (FINE, {"type": "elastic"}, "type is 'elastic', expected rigid, moldable"),
        (FINE, {"num_nodes": 0}, "num_nodes is 0"),
        (FINE, {"type": "moldable", "num_nodes_max": 2}, "num_nodes_min is missing"),
        (
            FINE,
            {"type": "moldable", "num_nodes_max": 2, "num_nodes_min": 3},
            "num_nodes_min is 3, above num_nodes_max, which is 2",
        ),
        (FINE, {"application_model": None}, "application_model is missing"),
        (FINE, {"arguments": [1]}, "arguments is [1]"),
        (FINE, {"arguments": {"a": None}}, "arguments has 'a': None"),
        (FINE, {"submit_time": "now"}, "submit_time is 'now'"),
    ],
)  # fmt: skip
def test_errors_name_job_and_place(
    tmp_path: Path, model: Any, job: dict[str, Any], says: str
) -> None:
    with pytest.raises(TraceError) as caught:
        read(tmp_path, model, job)
    assert len(str(caught.value).splitlines()) == 1
    assert says in str(caught.value)
    assert "job 0" in str(caught.value)
    rest = read(tmp_path, model, job, format="elastisim", skip_invalid=True)
    assert (len(rest), len(rest.notes.skipped)) == (0, 1)


def test_nested_too_deeply(tmp_path: Path) -> None:
    task: dict[str, Any] = delay([1, 1])
    for _ in range(60):
        task = {"type": "sequence", "tasks": [task]}
    with pytest.raises(TraceError, match="nested more than 50 levels deep"):
        read(tmp_path, {"phases": [phase(task)]})


def test_platforms_without_what_a_job_uses(tmp_path: Path) -> None:
    bare = Cluster(
        name="bare",
        nodes=[{"name": "n", "count": 2, "gpus": 1}],
        network={"topology": "star", "bandwidth": "1 GB/s", "core_speed": "1 Gflop/s"},
    )
    for task, says in (
        (access("pfs_read", [1, 1]), "no storage that hosts share"),
        (access("bb_read", [1, 1]), "0 kinds of storage on nodes"),
        (gpu(1), "host 'n0' needs flops_per_gpu"),
    ):
        workload = read(tmp_path, {"phases": [phase(task)]}, {"num_gpus_per_node": 1})
        with pytest.raises(ConfigError, match=says) as caught:
            ends(workload, bare)
        assert "job 0" in str(caught.value)
    text = PLATFORM.format(targets="", more="").replace(
        '<prop id="flops_per_gpu" value="10Gf"/>', ""
    )
    (tmp_path / "p.xml").write_text(text)
    workload = read(tmp_path, {"phases": [phase(gpu(1))]}, {"num_gpus_per_node": 1})
    with pytest.raises(ConfigError, match="host 'n0' needs flops_per_gpu"):
        ends(workload, read_cluster(tmp_path / "p.xml"))


def test_nodes_without_speed_wait_but_do_not_compute(tmp_path: Path) -> None:
    slow = Cluster(
        name="slow",
        nodes=[{"name": "n", "count": 2}],
        network={"topology": "star", "bandwidth": "1 GB/s"},
    )
    model = {"phases": [phase(delay([1, 2], "busy_wait"), send(2e9))]}
    assert ends(read(tmp_path, model), slow) == [3]
    model = {"phases": [phase({"type": "sequence", "tasks": [cpu([1, 2])]})]}
    with pytest.raises(
        ConfigError, match="job 0 computes, but nodes of cluster 'slow' have no speed"
    ):
        ends(read(tmp_path, model), slow)


def test_storages_of_a_cluster_file(tmp_path: Path) -> None:
    own = Cluster(
        name="own",
        nodes=[{"name": "n", "count": 4, "gpus": 2}],
        network={
            "topology": "star",
            "bandwidth": "1 GB/s",
            "core_speed": "1 Gflop/s",
            "gpu_speed": "2 Tflop/s",
            "gpu_bandwidth": "2.6666666666666665 GB/s",
        },
        storage=[
            {"name": "scratch", "bandwidth": "500 MB/s"},
            {"name": "nvme", "place": "node", "bandwidth": "2 GB/s"},
        ],
    )
    model = {"phases": [phase(access("pfs_read", [1e9, 0])), phase(access("bb_read", [4e9, 2e9]))]}
    assert ends(read(tmp_path, model), own) == [4]
    model = {"phases": [phase(gpu(4e12)), phase(gpu(1, bytes=8e9, communication_pattern="ring"))]}
    job = {"num_nodes": 1, "num_gpus_per_node": 2}
    assert ends(read(tmp_path, model, job), own) == [4]  # 1 s, and 8 GB between the two GPUs
    # Profiles of Batsim, too, use the storage of each rank's own node.
    jobs = Workload.build(
        submit_s=[0], nodes=[3], walltime_s=[99], runtime_s=[99],
        profiles=[StorageTransfer(read=4e9, write=2e9, storage="nvme")],
    )  # fmt: skip
    assert ends(jobs, own) == [3]


@pytest.mark.parametrize("sharing", ["fair", "simgrid"])
def test_interrupted_and_forked_runs_are_the_same(tmp_path: Path, sharing: Any) -> None:
    background = {"async": True}
    model = {
        "on_init": phase(access("pfs_read", "2e9 / num_nodes", "uniform")),
        "phases": [
            phase(
                access("pfs_write", 1e9, "even_ranks", **background),
                cpu("1e9 * num_nodes", "all_ranks", **BOTH),
                delay("0.1 * num_nodes", "busy_wait", **{"pattern": "odd_ranks"}),
                access("bb_write", 1e8, "uniform", synchronized=True),
                iterations=3,
            )
        ],
    }
    jobs = [{"submit_time": 0.3 * i, "num_nodes": 1 + i % 3, "walltime": 30} for i in range(9)]
    workload, on = read(tmp_path, model, *jobs), cluster(tmp_path)
    whole = ends(workload, on, sharing)
    assert len(set(whole)) > 5
    walked = Simulation(workload, on, sharing=sharing)
    for step in range(1, 25):
        walked.advance(1.7 * step)
        if step % 4 == 0:
            fork = walked.fork().run().jobs.sort("job_id")["end_s"]
            assert [round(end, 6) for end in fork.to_list()] == whole
    assert [round(end, 6) for end in walked.run().jobs.sort("job_id")["end_s"].to_list()] == whole


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read(tmp_path, {"phases": [phase(send(8e9))]})
    cluster(tmp_path)
    jobs, platform = str(tmp_path / "jobs.json"), str(tmp_path / "platform.xml")

    def run(*command: str) -> Any:
        with pytest.raises(SystemExit) as caught:
            main([*command])
        return caught.value.code

    assert run("simulate", jobs, "--cluster", platform, "--sharing", "fair", "--json") == 0
    assert json.loads(capsys.readouterr().out)["makespan_s"] == 4
    assert run("simulate", jobs, "--cluster", platform) != 0
    assert "add --sharing fair" in capsys.readouterr().err
    assert run("cluster", "check", platform) == 0
    assert "storage bb on each node" in capsys.readouterr().out


def test_tasks_of_ranks_cannot_be_written(tmp_path: Path) -> None:
    workload = read(tmp_path, {"phases": [phase(send(8e9))]})
    assert write_workload(workload, tmp_path / "w.json", format="batsim") == (
        "Batsim cannot store tasks of ranks, so the length of these jobs is an upper bound",
    )
    with pytest.raises(WorkloadError, match="elastisim can only be read"):
        write_workload(workload, tmp_path / "w.json", format="elastisim")


def test_no_jobs(tmp_path: Path) -> None:
    (tmp_path / "jobs.json").write_text('{"jobs": []}')
    assert len(read_workload(tmp_path / "jobs.json", format="elastisim")) == 0
    (tmp_path / "jobs.json").write_text('{"jobs": [3]}')
    with pytest.raises(TraceError, match=r"jobs\[0\] is 3"):
        read_workload(tmp_path / "jobs.json", format="elastisim")


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns(pattern: str) -> None:
    n, amount = 5, 120.0
    com = bytes_between(pattern, amount, n)
    if pattern == "all_to_all":
        com = com[0] * (1 - np.eye(n))
    total = {"gather": 96, "scatter": 96, "master_worker": 480}.get(pattern, amount)
    assert com.sum() == pytest.approx(total)
    assert np.diag(com).sum() == 0
    assert np.array_equal(com, com.T) == (pattern in ("all_to_all", "ring", "master_worker"))
    assert not bytes_between(pattern, amount, 1).any()
    if pattern == "ring_clockwise":
        assert com[0, 1] == com[4, 0] == 24


tasks_of_two = st.recursive(
    st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 3), st.booleans()).map(
        lambda t: Idle(np.array([t[0], t[1]], float), repeat=t[2], synchronized=t[3])
    ),
    lambda inner: st.tuples(st.lists(inner, max_size=3), st.integers(0, 3), st.booleans()).map(
        lambda t: Repeated(tuple(t[0]), repeat=t[1], synchronized=t[2])
    ),
    max_leaves=8,
)


@given(st.lists(tasks_of_two, min_size=1, max_size=4))
def test_the_length_of_waits_is_that_on_the_network(tasks: list[Any]) -> None:
    on = Cluster(
        name="c",
        nodes=[{"name": "n", "count": 2}],
        network={"topology": "star", "bandwidth": "1 GB/s", "core_speed": "1 Gflop/s"},
    )
    waits = RankTasks(2, tuple(tasks))
    tail = Exchange(np.full(2, 1e-3), None)
    assert waits.length_s is not None
    jobs = Workload.build(
        submit_s=[0], nodes=[2], walltime_s=[1e6], runtime_s=[1e6],
        profiles=[RankTasks(2, (*tasks, tail))],
    )  # fmt: skip
    assert ends(jobs, on) == [pytest.approx(waits.length_s, abs=1e-6)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", 7), ("-2^2", -4), ("2^3^2", 512), ("2^-1", 0.5), ("1 - -1", 2), ("1-2-3", -4),
        ("8 / n ^ a", 4), ("7 % 4 * 2", 6), ("n % 2 == 0 ? n - 4 : n + 4", 0), ("1e3*.5", 500),
        ("n = 3 ? 1 : n > 3 ? 2 : 3", 2), ("if(n > 3, max(1, 2, n), 0)", 4), ("n <> 4 or n != 3", 1),
        ("not(n) and 1", 0), ("floor(2.7) + round(-2.5)", -1), ("clamp(1, 5, 3)", 3), ("+3", 3),
        ("n == 0 ? 1 / (n - 4) : 7", 7), ("pow(2, 3) + sqrt(9) + abs(-1)", 12), ("1 < 2 & 2 >= 2", 1),
    ],
)  # fmt: skip
def test_expressions(text: str, value: float) -> None:
    assert evaluate(text, {"n": 4.0, "a": 0.5}) == value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "ends where a value"), ("2 3", "'3' where it should end"), ("(1", r"ends where '\)'"),
        ("x + 1", "unknown variable 'x'; known variables: n"), ("foo(1)", "unknown function 'foo'"),
        ("1 / 0", "no finite value"), ("9^9^9", "no finite value"), ("pow(2)", "gives 1 values"),
        ("(" * 200, "nested more than 100"), ("1;2", "has ';'"), ("1 ? 2", "ends where ':'"),
        ("__import__('os')", "unknown function"), ("1" * 20_000, "longer than"), ("* 2", r"has '\*'"),
    ],
)  # fmt: skip
def test_wrong_expressions(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        evaluate(text, {"n": 4.0})


@given(st.text("0123456789.+-*/%^()<>=?:,!&| nemaxif", max_size=30))
def test_any_text_has_a_value_or_an_error(text: str) -> None:
    with suppress(ConfigError):
        assert math.isfinite(evaluate(text, {"n": 4.0}))
