"""Requests as users write them, for Slurm, PBS and Kubernetes."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpctwin import Cluster, simulate
from hpctwin.errors import TraceError, WorkloadError
from hpctwin.formats import read_workload
from hpctwin.model.chunks import Tasks
from hpctwin.model.requests import Request, parse_request


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("-n 64 --mem-per-cpu=2G", Request(tasks=64, memory_gb=2)),
        ("-N1 -n8", Request(1, 8)),
        ("-N 2 --ntasks-per-node=4 -c 2", Request(2, 8, 2, tasks_per_node=4)),
        ("-N 2 -n 8 -c 4 --mem=64G", Request(2, 2, 16, 64, 0, 1)),
        (
            "--nodes=2 --gres=gpu:a100:4 --mem-per-gpu=16G",
            Request(2, 2, 1, 64, 4, 1, consumables=(("gpu/a100", 4),)),
        ),
        (
            "-N 1 --gres=gpu:a100:2,gpu:t4:1",
            Request(1, 1, 1, 0, 3, 1, consumables=(("gpu/a100", 2), ("gpu/t4", 1))),
        ),
        ("-n 2 --gpus=a100:4", Request(tasks=2, gpus=2, consumables=(("gpu/a100", 2),))),
        (
            "-N 1 -n 2 --gpus-per-task=a100:1 --gpus-per-node=t4:1",
            Request(1, 1, 2, 0, 3, 1, consumables=(("gpu/a100", 2), ("gpu/t4", 1))),
        ),
        ("-n 4 --gpus=8 -C ib", Request(tasks=4, gpus=2, features="ib")),
        ("-N 3 --exclusive", Request(3, 3, exclusive=1)),
        ("-n 4 --exclusive=user", Request(tasks=4, shared_with=1)),
        ("--spread-job -n 8 -c 2", Request(tasks=8, cores=2, spread_job=1)),
        ("-N 2 -n 8 --spread-job", Request(2, 8)),
        ("-N 2 -n 4 --mem=8G --exclusive=mcs", Request(2, 2, 2, 8, 0, 1, shared_with=2)),
        ("--ntasks=2 --mem-per-cpu=4000", Request(tasks=2, memory_gb=4000 / 1024)),
        ("select=3:ncpus=8:ngpus=1 place=scatter", Request(1, 3, 8, 0, 1, 1)),
        ("select=2:ncpus=4 place=scatter:group=rack", Request(1, 2, 4, 0, 0, 1, group_by="rack")),
        ("select=2:ncpus=4 place=pack:group=rack", Request(1, 1, 8, group_by="rack")),
        ("-l select=2:ncpus=4:mem=8gb -l place=free:excl", Request(1, 2, 4, 8, exclusive=1)),
        ("select=2:ncpus=4+ncpus=1:ngpus=1 place=pack", Request(1, 1, 9, 0, 1)),
        (
            "select=2:ncpus=8:mem=16gb+1:ncpus=32:ngpus=4",
            Request(1, 2, 8, 16, more=(Tasks(1, 32, 0, 4),)),
        ),
        (
            "select=1:ncpus=4+2:mem=1gb+ngpus=1 place=scatter:excl",
            Request(1, 1, 4, 0, 0, 1, 1, more=(Tasks(2, 1, 1), Tasks(1, 1, 0, 1))),
        ),
        ("--requests=cpu=500m,memory=2Gi --replicas=4", Request(1, 4, 0.5, 2)),
        ("--requests=cpu=2 --limits=cpu=4,nvidia.com/gpu=1", Request(1, 1, 2, 0, 1)),
        ("--limits=cpu=0.1,memory=1G", Request(1, 1, 0.1, 1e9 / 2**30)),
        ("--requests=memory=1048576", Request(1, 1, 0, 1 / 1024)),
        (
            "-N 2 -n 8 --gres=fpga:xilinx:1,tmp:100G",
            Request(
                2, 2, 4, 0, 0, 1, features="xilinx", consumables=(("fpga", 1), ("tmp", 100 * 2**30))
            ),
        ),
        (
            "-N 1 --gres=gpu:a100,nic",
            Request(1, 1, 1, 0, 1, 1, consumables=(("nic", 1), ("gpu/a100", 1))),
        ),
        ("-N 1 --gres=none", Request(1, 1)),
        (
            "select=2:ncpus=2:scratch=100gb+1:fpga=1",
            Request(
                1,
                2,
                2,
                consumables=(("scratch", 100),),
                more=(Tasks(1, 1, consumables=(("fpga", 1),)),),
            ),
        ),
        (
            "select=2:ncpus=2:scratch=512mb+1:ncpus=1:fpga=2 place=pack",
            Request(1, 1, 5, consumables=(("scratch", 1), ("fpga", 2))),
        ),
        (
            "--limits=xilinx.com/fpga=2 --requests=cpu=1,ephemeral-storage=10Gi",
            Request(1, 1, 1, consumables=(("xilinx.com/fpga", 2), ("ephemeral-storage", 10))),
        ),
        ("--limits=xilinx.com/fpga=1", Request(1, 1, 0, consumables=(("xilinx.com/fpga", 1),))),
    ],
)
def test_what_users_write_is_brought_to_tasks(text: str, asks: Request) -> None:
    assert parse_request(text) == asks


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("-n many", "'many', it must be a whole number"),
        ("-N 0", "'0', it must be a whole number above 0"),
        ("--mem-per-cpu=2X -n 1", "no amount of memory"),
        ("8 nodes", "'8' is no option"),
        ("-n", "--ntasks has no value"),
        ("select=2:ncpus=4+", "'' is not name=value"),
        ("select=0:ncpus=4+1:ncpus=2", "asks for 0 chunks"),
        ("select=1:ncpus=four", "'four' is not a number of cores or GPUs"),
        ("select=1:mem=4xb", "mem=4xb is no size, such as 4gb"),
        ("select=1:ncpus=4+2:ncpus=0", "a chunk of 2 asks for no cores, memory or GPUs"),
        ("nodes=0:ppn=2", "nodes=0:ppn=2 asks for 0 nodes"),
        ("nodes=", "nodes= names no nodes; write a number, such as 2:ppn=8"),
        ("procs=many", "procs is 'many', it must be a whole number"),
        (
            "--ntasks-per=4",
            "--ntasks-per is ambiguous: write --ntasks-per-core or --ntasks-per-gpu",
        ),
        (
            "--cpu-per-task=4",
            "--cpu-per-task is no option of sbatch, .* Did you mean 'cpus-per-task'",
        ),
        ("-N 2 -y", "-y is no option of sbatch, salloc or srun"),
        ("qsub -y 2", "-y is no option of qsub"),
        ("--requests=cpu=half", "cpu=half is no number of cores, such as 2, 0.5 or 500m"),
        ("--requests=memory=2GiB", "memory=2GiB is no amount of memory, such as 512Mi"),
        ("--limits=nvidia.com/gpu=0.5", "nvidia.com/gpu=0.5: Kubernetes gives whole GPUs only"),
        (
            "--requests=cpu=1,pods=2",
            "resource 'pods' of a pod is not modelled; known are cpu, memory, eph",
        ),
        (
            "--requests=ephemeral-storage=2GB",
            "ephemeral-storage=2GB is no amount of storage, such as",
        ),
        (
            "--limits=xilinx.com/fpga=500m",
            "xilinx.com/fpga=500m: Kubernetes gives whole devices only",
        ),
        ("-N 1 --gres=fpga:", "--gres=fpga: is no name and number, such as fpga:1"),
        ("-N 1 --gres=tmp:10X", "'10X' is no amount, such as 2, 100G"),
        ("-N 1 --gres=4", "consumable '4': that is no name"),
        ("--requests cpu=1", "'--requests' is not read beside what pods ask; write --requests,"),
        ("--requests=cpu=1 -n 4", "'-n' is not read beside what pods ask"),
        ("--replicas=0 --requests=cpu=1", "--replicas is '0', it must be a whole number above 0"),
        ("--requests=cpu=4 --limits=cpu=2", "a pod requests more cpu than its limit is"),
        ("--replicas=2", "a pod asks for no cores, memory or GPUs"),
        ("-n 'x", "No closing quotation"),
    ],
)
def test_what_cannot_be_understood_is_told(text: str, why: str) -> None:
    with pytest.raises(WorkloadError, match=why):
        parse_request(text)


def test_the_file_of_a_request_that_cannot_be_understood_is_named(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text('submit_s,runtime_s,request\n0,10,"--requests=cpu=lots"\n')
    with pytest.raises(TraceError, match=r"jobs\.csv: request '--requests=cpu=lots': cpu=lots is"):
        read_workload(path)


def test_a_table_of_requests_is_read_and_simulated(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(
        "submit_s,runtime_s,request\n"
        "0,10,-n 4 -c 2\n"
        "0,10,select=2:ncpus=8 place=scatter\n"
        "0,10,--nodes=1 --gres=gpu:1\n"
        '20,10,"--replicas=2 --requests=cpu=500m --limits=nvidia.com/gpu=1"\n'
    )
    jobs = read_workload(path)
    assert jobs.chunks["tasks"].tolist() == [4, 2, 1, 2]
    assert jobs.chunks["cores_per_task"].tolist() == [2, 8, 1, 0.5]
    machine = Cluster.model_validate({"nodes": [{"name": "a", "count": 2, "cores": 8, "gpus": 1}]})
    assert simulate(jobs, machine, "fcfs+easy").jobs["start_s"].to_list() == [0, 10, 0, 20]
