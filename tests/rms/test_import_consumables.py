"""Sites whose nodes have consumables: gres of Slurm's, resources of hosts of PBS's."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpctwin import simulate
from hpctwin.formats import read_workload
from hpctwin.rms.site_folder import import_site

SLURM_CONF = """ClusterName=made
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu,fpga,tmp,net
NodeName=a[1-2] CPUs=8 RealMemory=8192 Gres=gpu:a100:2,fpga:xilinx:2,tmp:800G,net:no_consume:4,shard:8
NodeName=b[1-2] CPUs=8 RealMemory=8192
PartitionName=all Nodes=ALL Default=YES MaxTime=1-0
"""
GRES_CONF = "NodeName=b2 Name=fpga Count=4\nNodeName=b2 Name=tmp Count=100K\n"
SACCT = """JobID|Submit|Start|ElapsedRaw|Timelimit|NNodes|AllocCPUS|AllocTRES|User|Partition|State|NodeList
1|2026-01-01T00:00:00|2026-01-01T00:00:00|600|01:00:00|2|4|cpu=4,gres/fpga=2,gres/tmp=1073741824,mem=2G,node=2|ann|all|COMPLETED|a[1-2]
2|2026-01-01T00:00:00|2026-01-01T00:01:00|540|01:00:00|1|4|cpu=4,gres/fpga:xilinx=1,gres/nic=1,mem=2G,node=1|ben|all|COMPLETED|a1
3|2026-01-01T00:00:00|2026-01-01T00:02:00|480|01:00:00|1|1|cpu=1,gres/gpu=1,gres/gpu:a100=1,mem=2G,node=1|ben|all|COMPLETED|a1
"""
VNODE = """vn{n}
     Mom = host
     ntype = PBS
     state = free
     resources_available.arch = linux
     resources_available.host = host{n}
     resources_available.mem = 8gb
     resources_available.ncpus = 8
     resources_available.vnode = vn{n}
     resources_available.rank = {n}
     resources_available.Qlist = big
     resources_available.fpga = 2
     resources_available.scratch = 800gb
     sharing = default_shared

"""
QMGR = """create resource scratch
set resource scratch type = size
set resource scratch flag = hn
create resource fpga
set resource fpga type = long
set resource fpga flag = hn
create resource rank
set resource rank type = long
set resource rank flag = h
create queue workq
set queue workq queue_type = Execution
set server scheduling = True
"""
PBS_LOG = "".join(
    f"01/01/2026 00:1{n}:00;E;{n}.vm;user=ann group=users project=_pbs_project_default queue=workq "
    f"ctime=1767225600 qtime=1767225600 etime=1767225600 start=1767225600 exec_host=host1/0*2 "
    f"exec_vnode={vnode} Resource_List.ncpus=2 Resource_List.nodect=1 "
    f"Resource_List.place=free Resource_List.select={select} Resource_List.walltime=01:00:00 session=1 "
    f"end=1767226200 Exit_status=0 resources_used.walltime=00:10:00 run_count=1\n"
    for n, (select, vnode) in enumerate(
        (
            ("1:ncpus=2:scratch=100gb", "(vn1:ncpus=2:scratch=104857600kb)"),
            ("1:ncpus=2:fpga=1:rank=1", "(vn1:ncpus=2:fpga=1)"),
            ("1:ncpus=2+1:ncpus=1:fpga=2", "(vn1:ncpus=2)+(vn2:ncpus=1:fpga=2)"),
        ),
        start=1,
    )
)


def written(tmp_path: Path, **files: str) -> Path:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_generic_resources_of_slurm_become_consumables_and_jobs_ask_for_what_they_had(
    tmp_path: Path,
) -> None:
    made = import_site(
        "slurm",
        written(tmp_path, **{"slurm.conf": SLURM_CONF, "gres.conf": GRES_CONF, "sacct": SACCT}),
    )
    assert [(g.count, g.gpus, g.consumables) for g in made.site.cluster.nodes] == [
        (2, 2, {"fpga": 2, "tmp": 800 * 2**30}),
        (1, 0, {}),
        (1, 0, {"fpga": 4, "tmp": 100 * 1024}),
    ]
    jobs = made.jobs
    assert jobs["consumable_fpga"].to_list() == [1, 1, 0]
    assert jobs["consumable_tmp"].to_list() == [2**29, 0, 0]
    assert "consumable_nic" not in jobs.columns
    assert made.tally.counts["job with nic, which no node has: request ignored"] == 1


def test_where_nodes_have_gpus_of_several_types_jobs_ask_for_that_of_those_that_they_had(
    tmp_path: Path,
) -> None:
    conf = SLURM_CONF.replace("gpu:a100:2,fpga", "gpu:a100:2,gpu:t4:4,fpga")
    head, _, *jobs = SACCT.splitlines()
    had = (
        "gres/gpu=3,gres/gpu:a100=3,mem=2G,node=2", "gres/gpu=2,gres/gpu:a100=1,gres/gpu:t4=1,mem=2G",
        "gres/gpu=1,mem=2G", "gres/gpu:t4=2,mem=2G",
    )  # fmt: skip
    rows = [
        jobs[0]
        .replace("2|", f"{n}|", 1)
        .replace("gres/fpga:xilinx=1,gres/nic=1,mem=2G,node=1", text)
        for n, text in enumerate(had, 1)
    ]
    rows[0] = rows[0].replace("|540|01:00:00|1|", "|540|01:00:00|2|").replace("|a1", "|a[1-2]")
    files = {"slurm.conf": conf, "gres.conf": GRES_CONF, "sacct": "\n".join([head, *rows]) + "\n"}
    made = import_site("slurm", written(tmp_path, **files))
    group = made.site.cluster.nodes[0]
    assert (group.gpus, group.consumables["gpu/a100"], group.consumables["gpu/t4"]) == (6, 2, 4)
    asked = made.jobs.sort("job_id").select(
        "gpus_per_task", "consumable_gpu/a100", "consumable_gpu/t4"
    )
    # The second had some of each: it asks for any.
    assert asked.rows() == [(2, 2, 0), (2, 0, 0), (1, 0, 0), (2, 0, 2)]
    made.jobs.write_parquet(tmp_path / "jobs.parquet")
    found = simulate(read_workload(tmp_path / "jobs.parquet"), made.site.cluster, "fcfs+easy")
    assert found.jobs["state"].to_list() == ["completed"] * 4


@pytest.mark.parametrize(
    ("sched", "consumables"),
    [
        ("", {"fpga": 2, "scratch": 800}),
        ('resources: "ncpus, mem, arch, host, vnode, scratch"\n', {"scratch": 800}),
    ],
)
def test_resources_of_hosts_of_pbs_that_are_used_up_become_consumables(
    tmp_path: Path, sched: str, consumables: dict[str, float]
) -> None:
    nodes = "".join(VNODE.format(n=n) for n in (1, 2))
    files = {"pbsnodes": nodes, "server": QMGR, "log": PBS_LOG}
    if sched:
        files["sched_config"] = f"{sched}strict_ordering: true all\n"
    made = import_site("pbs", written(tmp_path, **files))
    assert [(g.count, g.consumables) for g in made.site.cluster.nodes] == [(2, consumables)]
    heeded = "fpga" in consumables
    assert any("node resource fpga is not in" in note for note in made.site.notes) != heeded
    path = tmp_path / "jobs.parquet"
    made.jobs.write_parquet(path)
    jobs = read_workload(path)
    assert jobs.consumables["scratch"].tolist() == [100, 0, 0]
    assert jobs.more_tasks.labels == (("1:cores=1.0:fpga=2.0",) if heeded else ("1:cores=1.0",))
    found = simulate(jobs, made.site.cluster, "fcfs+easy")
    assert found.placements is not None
    assert found.placements["scratch"].sum() == 100
    assert found.jobs["wait_s"].to_list() == [0, 0, 0]
