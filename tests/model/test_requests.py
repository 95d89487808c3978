"""Requests as users write them, for Slurm, PBS and Kubernetes."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import polars as pl
import pytest

from hpctwin import Cluster, Workload, simulate
from hpctwin.errors import ConfigError, TraceError, WorkloadError
from hpctwin.formats import read_workload
from hpctwin.formats.pieces import open_pieces
from hpctwin.model.requests.chunks import Tasks
from hpctwin.model.requests.requests import Request, parse_request


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
        ("-N 4 -n 2", Request(2, 2)),
        ("-n 1 --mem=16G", Request(1, 1, 1, 16, 0, 1)),
        (
            "-N 3 -n 8 --mem=16G",
            Request(1, 2, 3, 16, 0, 1, more=(Tasks(1, 2, 16),)),
        ),
        ("-N 1 -n 4 -G 1", Request(1, 1, 4, 0, 1)),
        ("-n 6 --gpus=4", Request(1, 2, 3, 0, 2)),
        ("--gpus=8 --ntasks-per-gpu=2", Request(1, 8, 2, 0, 1)),
        (
            "-N 1 --gpus-per-node=4 --cpus-per-gpu=8 --mem-per-gpu=32G",
            Request(1, 1, 32, 128, 4, 1),
        ),
        ("-N 1 --sockets-per-node=2 --gpus-per-socket=2", Request(1, 1, 1, 0, 4, 1)),
        (
            "-n 2 --tres-per-task=cpu=4,gres/gpu:a100=1",
            Request(1, 2, 4, 0, 1, consumables=(("gpu/a100", 1),)),
        ),
        ("-N 2 --tasks-per-node 4", Request(2, 8, tasks_per_node=4)),
        ("-n4 -c=2 --mem_per_cpu=1G", Request(1, 4, 2, 2)),
        ("--ntasks-per-n 4 --nodes 2", Request(2, 8, tasks_per_node=4)),
        ("-N 2 -C 'a&b|c'", Request(2, 2, features="(a|c)&(b|c)")),
        (
            "-N 2 -C 'a|b' --gres=fpga:x:1",
            Request(2, 2, 1, 0, 0, 1, features="(a|b)&x", consumables=(("fpga", 1),)),
        ),
        (
            "sbatch -N 2 -t 1-12:30 -p gpu -A lab -q high -J run --priority=7",
            Request(
                2,
                2,
                walltime_s=131_400,
                partition="gpu",
                account="lab",
                qos="high",
                name="run",
                priority=7,
            ),
        ),
        ("#SBATCH -N 2\n#SBATCH --time=90 # minutes\n", Request(2, 2, walltime_s=5400)),
        ("nodes=2:ppn=8", Request(1, 2, 8, 0, 0, 1)),
        ("-l nodes=1:ppn=4,mem=8gb", Request(1, 1, 4, 8, 0, 1)),
        ("-l nodes=1:ppn=4 -l pmem=2gb", Request(1, 1, 4, 8, 0, 1)),
        ("-l nodes=4:big:ppn=4#excl", Request(1, 4, 4, 0, 0, 1, 1, features="big")),
        (
            "nodes=2:ib:big:ppn=4:gpus=1:Shared",
            Request(1, 2, 4, 0, 1, 1, features="big&ib", ignored=("nodes Shared",)),
        ),
        ("-l procs=12,pmem=1gb", Request(1, 12, 1, 1)),
        ("-l ncpus=8,mem=16gb,walltime=1:00:00", Request(1, 1, 8, 16, walltime_s=3600)),
        ("select=2:ncpus=4:walltime=02:00:00", Request(1, 2, 4, walltime_s=7200)),
        ("select=2:mpiprocs=4", Request(1, 2, 4)),
        ("select=2:ncpus=4 place=vscatter:exclhost", Request(1, 2, 4, 0, 0, 1, 1)),
        ("select=2:ncpus=4 place=group=host", Request(1, 1, 8)),
        (
            "qsub -l select=1 -W depend=afterok:1:2,afterany:3 -q long@srv -N job -p 5",
            Request(
                1, 1, dependency="afterok:1:2,afterany:3", partition="long", name="job", priority=5
            ),
        ),
        ("--limits=xilinx.com/fpga=1", Request(1, 1, 0, consumables=(("xilinx.com/fpga", 1),))),
    ],
)
def test_requests_of_users_become_tasks(text: str, asks: Request) -> None:
    assert parse_request(text) == asks


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("-n many", "'many'; it must be a whole number"),
        ("-N 0", "'0'; it must be a whole number above 0"),
        ("--mem-per-cpu=2X -n 1", "not an amount of memory"),
        ("8 nodes", "'8' is not an option"),
        ("-n", "--ntasks has no value"),
        ("select=2:ncpus=4+", "'' is not name=value"),
        ("select=0:ncpus=4+1:ncpus=2", "asks for 0 chunks"),
        ("select=1:ncpus=four", "'four' is not a number of cores or GPUs"),
        ("select=1:mem=4xb", "mem=4xb is not a size, such as 4gb"),
        ("select=1:ncpus=4+2:ncpus=0", "a chunk of 2 requests no cores, memory or GPUs"),
        ("nodes=0:ppn=2", "nodes=0:ppn=2 asks for 0 nodes"),
        ("nodes=", "nodes= names no nodes; write a number, such as 2:ppn=8"),
        ("procs=many", "procs is 'many'; it must be a whole number"),
        (
            "--ntasks-per=4",
            "--ntasks-per is ambiguous: write --ntasks-per-core or --ntasks-per-gpu",
        ),
        (
            "--cpu-per-task=4",
            "--cpu-per-task is not an option of sbatch, .* Did you mean 'cpus-per-task'",
        ),
        ("-N 2 -y", "-y is not an option of sbatch, salloc or srun"),
        ("qsub -y 2", "-y is not an option of qsub"),
        ("--requests=cpu=half", "cpu=half is not a number of cores, such as 2, 0.5 or 500m"),
        ("--requests=memory=2GiB", "memory=2GiB is not an amount of memory, such as 512Mi"),
        (
            "--limits=nvidia.com/gpu=0.5",
            "nvidia.com/gpu=0.5: Kubernetes allocates only whole GPUs",
        ),
        (
            "--requests=cpu=1,pods=2",
            "resource 'pods' of a pod is not modeled; known are cpu, memory, eph",
        ),
        (
            "--requests=ephemeral-storage=2GB",
            "ephemeral-storage=2GB is not an amount of storage, such as",
        ),
        (
            "--limits=xilinx.com/fpga=500m",
            "xilinx.com/fpga=500m: Kubernetes allocates only whole devices",
        ),
        ("-N 1 --gres=fpga:", "--gres=fpga: is not a name and number, such as fpga:1"),
        ("-N 1 --gres=tmp:10X", "'10X' is not an amount, such as 2, 100G"),
        ("-N 1 --gres=4", "--gres=4 is not a name and number, such as fpga:1"),
        ("--requests cpu=1", "'--requests' is not supported with --requests; write --requests,"),
        ("--requests=cpu=1 -n 4", "'-n' is not supported with --requests"),
        ("--replicas=0 --requests=cpu=1", "--replicas is '0'; it must be a whole number above 0"),
        ("--requests=cpu=4 --limits=cpu=2", "a pod requests more cpu than its limit"),
        ("--replicas=2", "a pod requests no cores, memory or GPUs"),
        ("-n 'x", "No closing quotation"),
    ],
)
def test_input_that_cannot_be_parsed_is_reported(text: str, why: str) -> None:
    with pytest.raises(WorkloadError, match=why):
        parse_request(text)


@pytest.mark.parametrize(
    ("text", "ignored"),
    [
        ("-N 2 -w n[1-3]", ["--nodelist (the names)"]),
        ("-N 2-4", ["--nodes (the maximum)"]),
        ("-N 1 -p a,b", ["--partition (all but the first)"]),
        ("-N 1 --exclusive=topo", ["--exclusive=topo (treated as --exclusive)"]),
        ("-N 1 -t UNLIMITED --mem=0", ["--mem=0", "--time"]),
        ("-N 2 -C 'a*1'", ["--constraint: constraint on some of the nodes (a*2), ignored"]),
        ("srun -W 60 -l -N 2 ./a.out -n 9", ["--wait", "--label", "script"]),
        ("-W -HQn4 --nice -I60", ["--wait", "--hold", "--quiet", "--nice", "--immediate"]),
        ("--container-image=x --x11=all -N 1", ["--container-image", "--x11"]),
        ("-N 1 -c 8 : -N 2 -C ib", [
            "heterogeneous parts (merged into one job, without their constraints)"
        ]),
        ("-n 8 --mem=16G", [
            "--ntasks without --nodes, with per-node amounts (treated as one node)"
        ]),
        ("-l nodes=n1+n2:ppn=2 -j oe -V", ["-j", "-V", "nodes host"]),
        ("qsub -I -l select=1:host=n1:Qlist=b,software=x -W block=true", [
            "-I", "-W block", "select host", "select Qlist", "-l software"
        ]),
        ("select=1 place=group=a:group=b", ["place=group=b"]),
    ],
)  # fmt: skip
def test_unmodeled_settings_are_named(text: str, ignored: list[str]) -> None:
    assert list(parse_request(text).ignored) == ignored


def _manual(command: str) -> list[str]:
    """Options of a command as its manual page writes them, such as ``-A, --account=<account>``."""
    pages = sorted(Path("/usr/share/man/man1").glob(f"{command}.1*"))
    if not pages:
        pytest.skip(f"the manual page {command}(1) is not installed")
    raw = pages[0].read_bytes()
    text = (gzip.decompress(raw) if pages[0].suffix == ".gz" else raw).decode()
    plain = re.sub(r"\\f[A-Z]|\\(?=-)", "", text)
    return re.findall(r"^((?:-[A-Za-z], )?--[a-z0-9][\w-]*\S*)$", plain, re.MULTILINE)


@pytest.mark.parametrize("command", ["sbatch", "salloc", "srun"])
def test_every_option_of_the_manual_page_is_used_or_ignored(command: str) -> None:
    lines = _manual(command)
    assert len(lines) > 80
    values = {"nodelist": "n1", "mem": "1G", "gres": "gpu:1", "gpus": "2"}
    names = {name for line in lines if (name := re.match(r".*--([\w-]+)=", line))}
    valued = {match[1] for match in names}
    for line in lines:
        short, _, long = line.rpartition(", ")
        name = re.sub(r"\W.*", "", long.removeprefix("--").replace("-", "_")).replace("_", "-")
        value = values.get(name, "1") if name in valued else ""
        parse_request(f"{command} -c 1 --{name}={value}" if value else f"{command} -c 1 --{name}")
        if short:
            parse_request(f"{command} -c 1 {short} {value}")


@pytest.mark.parametrize(
    "options",
    [
        "-a 1200 -A acc -c n -C PBS -e err -f -h -I -j oe -J 1-4 -k oe -m abe -M a@b -N x -o out -p 1 -P pr "
        "-q q -r y -R eo -S /bin/sh -u me -v A=1 -V -W umask=022 -X -z -G",
        "-b 5 -d /w -D /r -F 'a b' -K 9 -L tasks=2:lprocs=4 -t 1-4%2 -T typ -w /x -x -n -E",
    ],
    ids=["PBS Professional", "Torque"],
)
def test_every_option_of_qsub_is_used_or_ignored(options: str) -> None:
    found = parse_request(f"qsub {options} -l select=2:ncpus=4 job.sh")
    assert (found.tasks, found.cores) == (2, 4)
    assert "script" in found.ignored


def test_options_of_requests_fill_the_columns_that_are_empty(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(
        "job_id,submit_s,runtime_s,walltime_s,nodes,partition,request\n"
        "1,0,60,,4,,-t 2 -p long -o out\n"
        "2,0,60,90,,short,-N 2 -t 5 -p long --begin=now\n"
        "3,0,60,,,,-n 2 -o out\n"
    )
    jobs = read_workload(path)
    assert jobs.walltime_ms.tolist() == [120_000, 90_000, 60_000]
    assert jobs.nodes.tolist() == [4, 2, 1]
    assert jobs.chunks["tasks"].tolist() == [0, 2, 2]
    assert [jobs.partition.labels[code] for code in jobs.partition.codes[:2]] == ["long", "short"]
    (line,) = [what for what in jobs.notes.counts if what.startswith("request with options")]
    assert line.endswith("(jobs by option): --output 2, --begin 1")
    assert jobs.notes.counts[line] == 3


def test_walltimes_missing_in_a_frame_are_taken_from_runtimes() -> None:
    frame = pl.DataFrame(
        {"submit_s": 0.0, "runtime_s": [60.0, 60], "nodes": 1, "request": ["-t 5", "-n 1"]}
    )
    jobs = Workload.from_frame(frame)
    assert jobs.walltime_ms.tolist() == [300_000, 60_000]
    assert jobs.notes.counts["job without walltime, given its run time"] == 1


def test_jobs_that_ask_for_nodes_alone_get_whole_ones_where_cores_are_unknown(
    tmp_path: Path,
) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("submit_s,runtime_s,request\n0,10,-N 2\n0,10,nodes=a+b+c\n0,10,-N 1\n")
    found = simulate(read_workload(path), Cluster.uniform(nodes=3), "fcfs+none")
    assert found.jobs["start_s"].to_list() == [0, 10, 20]
    path.write_text("submit_s,runtime_s,request\n0,10,-n 2 -c 4\n")
    with pytest.raises(ConfigError, match="no node group has 'cores'"):
        simulate(read_workload(path), Cluster.uniform(nodes=3), "fcfs+none")


DEPENDENCIES = [
    ("afterok:1", "9", {"1"}, ""),
    ("afterok:1:2,afterany:3", "9", {"1", "2_1", "2_2", "3.srv"}, ""),
    ("afterany:2", "9", {"2_1", "2_2"}, ""),
    ("afterok:2_2(unfulfilled)", "9", {"2_2"}, ""),
    ("afterany:3", "9", {"3.srv"}, ""),
    ("3.srv", "9", {"3.srv"}, ""),
    ("afterokarray:2[]", "9", {"2_1", "2_2"}, ""),
    ("aftercorr:2", "4_2", {"2_2"}, ""),
    ("aftercorr:2", "9", {"2_1", "2_2"}, "aftercorr"),
    ("afternotok:1", "9", {"1"}, "taken as afterany"),
    ("afterburstbuffer:1", "9", {"1"}, "taken as afterany"),
    ("afterok:1?afternotok:2_1", "9", {"1", "2_1"}, "one of several"),
    ("expand:1", "9", set(), "expand"),
    ("syncwith:1", "9", set(), "syncwith"),
    ("synccount:2", "9", set(), "synccount"),
    ("afterok:77", "9", set(), "on an unknown job"),
    ("on:1", "9", set(), ""),
]


@pytest.mark.parametrize(("text", "job", "on", "note"), DEPENDENCIES)
def test_a_list_of_dependencies_is_read_as_sbatch_and_qsub_take_it(
    text: str, job: str, on: set[str], note: str
) -> None:
    ids = ["1", "2_1", "2_2", "3.srv", "4_2", "9"]
    frame = pl.DataFrame(
        {"job_id": ids, "submit_s": 0.0, "runtime_s": 5.0, "nodes": 1}
    ).with_columns(dependency=pl.when(pl.col("job_id") == job).then(pl.lit(text)))
    jobs = Workload.from_frame(frame)
    edges = jobs.dependencies
    assert {str(jobs.job_id[row]) for row in edges.job} <= {job}
    assert {str(jobs.job_id[row]) for row in edges.on} == on
    assert any(note in what for what in jobs.notes.counts) if note else not jobs.notes.counts


def test_a_piece_of_a_table_keeps_the_dependencies_of_its_requests(tmp_path: Path) -> None:
    path = tmp_path / "jobs.parquet"
    pl.DataFrame(
        {
            "job_id": [1, 2, 3], "submit_s": 0.0, "runtime_s": 5.0, "nodes": 1,
            "request": ["-N 1", "-N 1 -d afterok:1", "-N 1"],
        }
    ).write_parquet(path)  # fmt: skip
    (whole,) = open_pieces(path, 3).batches
    assert (whole.edges.job.tolist(), whole.edges.on.tolist()) == ([2], [1])
    with pytest.raises(TraceError, match="outside the piece of 1 job;"):
        list(open_pieces(path, 1).batches)


def test_before_makes_the_other_job_wait_and_minutes_count() -> None:
    frame = pl.DataFrame(
        {
            "job_id": [1, 2, 3], "submit_s": 0.0, "runtime_s": 60.0, "nodes": 1,
            "request": ["-l nodes=1 -W depend=beforeok:2", "-l nodes=1 -W depend=on:1", "-d after:1+5"],
        }
    )  # fmt: skip
    found = simulate(Workload.from_frame(frame), Cluster.uniform(nodes=9), "fcfs+none")
    assert found.jobs.sort("job_id")["start_s"].to_list() == [0, 60, 300]


def test_singletons_of_one_name_and_user_run_one_at_a_time() -> None:
    frame = pl.DataFrame(
        {
            "job_id": [1, 2, 3, 4, 5], "submit_s": [0.0, 1, 2, 3, 4], "runtime_s": 60.0, "nodes": 1,
            "user": ["a", "a", "a", "b", "a"],
            "request": ["-J x -N1", "-J x -d singleton -N1", "-J x -d singleton -N1",
                        "-J x -d singleton -N1", "-d singleton -N1"],
        }
    )  # fmt: skip
    jobs = Workload.from_frame(frame)
    found = simulate(jobs, Cluster.uniform(nodes=9), "fcfs+none")
    assert found.jobs.sort("job_id")["start_s"].to_list() == [0, 60, 120, 3, 4]
    assert jobs.notes.counts["dependency singleton of a job without a name: ignored"] == 1


def test_the_file_of_a_request_that_cannot_be_understood_is_reported_by_name(
    tmp_path: Path,
) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text('submit_s,runtime_s,request\n0,10,"--requests=cpu=lots"\n')
    with pytest.raises(
        TraceError, match=r"jobs\.csv, line 2: request '--requests=cpu=lots': cpu=lots is"
    ):
        read_workload(path)
    path.write_text("submit_s,runtime_s,request\n0,10,-n 2\n0,10,-n many\n0,10,-n 3\n")
    with pytest.raises(TraceError, match=r"jobs\.csv, line 3: request '-n many'"):
        read_workload(path)
    jobs = read_workload(path, skip_invalid=True)
    assert jobs.chunks["tasks"].tolist() == [2, 3]
    assert "'-n many'" in jobs.notes.skipped[0]


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
