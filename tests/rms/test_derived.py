"""Nodes derived from where jobs ran, of sites that give nothing but accounting."""

from __future__ import annotations

import json
import random
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from hpctwin.cli.app import main
from hpctwin.errors import ConfigError
from hpctwin.rms.site_folder import import_site

HEADER = (
    "JobID|Submit|Start|End|ElapsedRaw|Timelimit|NNodes|AllocCPUS|AllocTRES|User|Account|Partition|State|"
    "NodeList"
)
ZERO = datetime(2026, 1, 1)


def row(
    job: int, start: int, run: int, nodes: str, cores: int, *, count: int = 1, gpus: int = 0, mem: int = 0,
    partition: str = "p", state: str = "COMPLETED",
) -> str:  # fmt: skip
    """A line of sacct; times in seconds, cores, GPUs and memory of the whole job."""
    begin, end = ((ZERO + timedelta(seconds=at)).isoformat() for at in (start, start + run))
    tres = (
        f"cpu={cores},node={count}"
        + (f",gres/gpu={gpus}" if gpus else "")
        + (f",mem={mem}G" if mem else "")
    )
    return (
        f"{job}|{ZERO.isoformat()}|{begin}|{end}|{run}|1-00:00:00|{count}|{cores}|{tres}|"
        f"u{job % 3}|a|{partition}|{state}|{nodes}"
    )


def imported(tmp_path: Path, rows: list[str], header: str = HEADER, **texts: str):
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sacct.txt").write_text("\n".join([header, *rows]) + "\n")
    for name, text in texts.items():
        (folder / name.replace("_", ".")).write_text(text)
    return import_site("slurm", folder)


def sizes(made) -> list[tuple[str, int, float | None, float | None]]:
    return [(one.name, one.count, one.cores, one.gpus) for one in made.site.cluster.nodes]


def filled(nodes: list[tuple[str, int, int]], seed: int, jobs: int = 400) -> list[str]:
    """Jobs placed first-fit on nodes of a name, cores and GPUs, so that these are full at times."""
    draw, free, running, rows, now = random.Random(seed), {}, [], [], 0
    for name, cores, gpus in nodes:
        free[name] = [cores, gpus]
    for job in range(1, jobs + 1):
        size = draw.choice([1, 2, 4, 8, 16, 32])
        card = draw.choice([0, 1]) if any(gpus for _, _, gpus in nodes) else 0
        run = draw.randint(600, 6000)
        while True:
            fitting = [n for n, (c, g) in free.items() if c >= size and g >= card]
            if card == 0:
                fitting = sorted(fitting, key=lambda n: free[n][1])
            if fitting:
                break
            running.sort()
            now, name, c, g = running.pop(0)
            free[name][0] += c
            free[name][1] += g
        name = fitting[0]
        free[name][0] -= size
        free[name][1] -= card
        running.append((now + run, name, size, card))
        rows.append(row(job, now, run, name, size, gpus=card, mem=size))
    return rows


def test_one_core_jobs_on_full_nodes_give_these_nodes_and_share_them(tmp_path):
    rows = [row(i, 0, 3600, f"n{i % 4 + 1:03}", 1, mem=1) for i in range(128)]
    made = imported(tmp_path, rows)
    assert sizes(made) == [("n", 4, 32, 0)]
    assert made.site.cluster.nodes[0].memory_gb == 32
    assert {"tasks", "cores_per_task"} <= set(made.jobs.columns)
    notes = " ".join(made.site.notes)
    assert "124 of 128 jobs started on a node where another job ran" in notes
    assert "4 nodes nN with 32 cores, 32 GiB" in notes
    assert "lower bounds" in notes


@pytest.mark.parametrize("seed", range(3))
def test_nodes_of_a_busy_shared_cluster_are_found_again(tmp_path, seed):
    nodes = [(f"r{rack}n{i:02}", 32, 0) for rack in (1, 2) for i in range(4)]
    nodes += [(f"gpu{i}", 64, 4) for i in range(2)]
    rows = filled(nodes, seed)
    used = {one.rpartition("|")[2] for one in rows if "|r" in one}
    made = imported(tmp_path, rows)
    found = {one.cores: (one.count, one.gpus) for one in made.site.cluster.nodes}
    assert found == {32: (len(used), 0), 64: (2, 4)}


def test_jobs_with_whole_nodes_give_whole_nodes(tmp_path):
    rows = [row(i, 100 * i, 100, f"n{i % 8 + 1}", 48) for i in range(40)]
    rows += [
        row(100 + i, 200 * i, 200, "n[1-4,7],fat[01-02]", 48 * 7, count=7) for i in range(30, 40)
    ]
    rows += [row(200 + i, 200 * i, 200, f"fat0{i % 2 + 1}", 48) for i in range(10)]
    made = imported(tmp_path, rows)
    assert sizes(made) == [("n", 10, 48, 0)]
    assert "tasks" not in made.jobs.columns
    assert "jobs have exclusive nodes: 0 of 60 jobs" in " ".join(made.site.notes)


def test_nodes_of_one_name_and_two_sizes_are_distinguished_by_their_maximum(tmp_path):
    rows = []
    for i in range(20):
        cores = 32 if i < 14 else 64
        rows += [row(100 * i + j, 0, 3600, f"c{i:03}", cores // 4) for j in range(4)]
    rows.append(row(9000, 7200, 100, "c019", 64))
    rows += [row(9001 + i, 7200, 100, "c003", 4) for i in range(3)]
    assert sorted(sizes(imported(tmp_path, rows))) == [("c", 14, 32, 0), ("c-2", 6, 64, 0)]


def test_a_node_that_was_never_full_gets_the_size_of_those_like_it(tmp_path):
    rows = [row(i, 0, 3600, f"n{i % 10}", 8) for i in range(40)]
    rows += [row(100 + i, 0, 3600, "n10", 1) for i in range(3)]
    made = imported(tmp_path, rows)
    assert sizes(made) == [("n", 11, 32, 0)]
    assert "10 had all cores in use" in " ".join(made.site.notes)


def test_a_job_that_starts_in_the_second_in_which_another_ends_shares_nothing(tmp_path):
    rows = [row(i, 60 * i, 60, "n[1-2]", 64, count=2) for i in range(50)]
    assert sizes(imported(tmp_path, rows)) == [("n", 2, 32, 0)]


def test_partitions_are_of_the_kinds_of_nodes_on_which_their_jobs_ran(tmp_path):
    rows = [row(i, 0, 3600, f"n{i % 4}", 8, partition="cpu") for i in range(16)]
    rows += [row(100 + i, 0, 3600, f"g{i % 2}", 16, gpus=2, partition="gpu") for i in range(4)]
    rows += [
        row(200, 9000, 60, "n1", 8, partition="all"),
        row(201, 9000, 60, "g1", 8, partition="all"),
    ]
    made = imported(tmp_path, rows)
    groups = {one.name: one.groups for one in made.site.cluster.partitions}
    assert groups == {"all": ("n", "g"), "cpu": ("n",), "gpu": ("g",)}


def test_jobs_without_a_list_of_nodes_are_counted_and_the_widest_still_fits(tmp_path):
    rows = [row(i, 0, 3600, f"n{i % 2}", 8) for i in range(8)]
    rows += [
        row(50, 0, 60, "None assigned", 96, count=3),
        row(51, 0, 60, "n[1-", 1),
        row(52, 0, 60, "", 1),
    ]
    made = imported(tmp_path, rows)
    assert sum(one.count for one in made.site.cluster.nodes) == 3
    notes = " ".join(made.site.notes)
    assert "3 of 11 jobs that ran have no node list or an unreadable one, such as 'n[1-'" in notes
    assert "the node lists contain 2 nodes, but one job had 3" in notes


def test_without_any_list_of_nodes_cores_in_use_at_once_give_the_size(tmp_path):
    header = HEADER.removesuffix("|NodeList")
    rows = [row(i, 0, 3600, "", (16, 32)[i % 2]).rpartition("|")[0] for i in range(8)]
    made = imported(tmp_path, rows, header)
    assert sizes(made) == [("node", 6, 32, 0)]
    assert "uncertain whether jobs share nodes" in " ".join(made.site.notes)
    assert "add NodeList" in " ".join(made.site.notes)


def test_even_cpu_counts_are_reported_as_possible_hardware_threads(tmp_path):
    rows = [row(i, 0, 3600, f"n{i % 2}", (2, 4)[i % 2]) for i in range(16)]
    assert "they may be hardware threads" in " ".join(imported(tmp_path, rows).site.notes)


def test_growth_of_a_cluster_is_reported(tmp_path):
    rows = [row(i, 100 * i, 100, f"n{i % (4 if i < 50 else 8)}", 32) for i in range(100)]
    made = imported(tmp_path, rows)
    assert made.site.cluster.node_count == 8
    assert "4 of 8 nodes ran jobs in the first half" in " ".join(made.site.notes)


def test_settings_without_nodes_keep_their_partitions_on_the_derived_nodes(tmp_path):
    rows = [row(i, 0, 3600, f"n{i % 4}", 8, partition="p") for i in range(16)]
    rows += [row(100 + i, 0, 3600, f"g{i % 2}", 16, gpus=2, partition="g") for i in range(4)]
    text = (
        "PartitionName={}\n   AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL\n   MaxTime=02:00:00\n"
        "   State=UP TotalCPUs=32 TotalNodes=4\n\n"
    )
    shown = "".join(text.format(name) for name in ("p", "g", "idle"))
    made = imported(tmp_path, rows, partitions_txt=shown)
    groups = {one.name: one.groups for one in made.site.cluster.partitions}
    assert groups == {"p": ("n",), "g": ("g",), "idle": ("n", "g")}
    assert {one.max_walltime for one in made.site.cluster.partitions} == {7200}
    assert "no file describes the nodes: they are derived from accounting" in made.site.notes


def test_a_dump_of_unknown_columns_ends_the_import_unless_others_can_be_read(tmp_path):
    header = "JobID|User|Submit|Start|End|NNodes|AllocCPUS|NodeList|State"
    cells = "7|ada|2026-01-01T00:00:00|2026-01-01T00:00:00|2026-01-01T01:00:00|1|4|n1|COMPLETED\n"
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "old.txt").write_text(cells)
    (folder / "slurm.conf").write_text(
        "ClusterName=c\nNodeName=n[1-4] CPUs=8\nPartitionName=p Nodes=ALL\n"
    )
    with pytest.raises(
        ConfigError, match=r"old.txt, line 1: found '7\|ada.*no known column order.*--columns"
    ):
        import_site("slurm", folder)
    told = import_site("slurm", folder, columns=header.replace("|", ","))
    assert told.jobs["job_id"].to_list() == [7]
    (folder / "new.txt").write_text(f"{header}\n" + cells.replace("7", "8", 1))
    (folder / "few.txt").write_text("JobID|Elapsed|State\n1|01:00:00|COMPLETED\n")
    made = import_site("slurm", folder)
    assert made.jobs["job_id"].to_list() == [8]
    notes = " ".join(made.site.notes)
    assert "old.txt is ignored: found '7|ada" in notes
    assert "few.txt is ignored: Submit: the column is missing" in notes
    assert [name for name, kind in made.files.items() if not kind] == ["few.txt", "old.txt"]


def test_a_trace_of_accounting_is_simulated_on_the_nodes_that_it_shows(tmp_path, capsys):
    path = tmp_path / "sacct.txt"
    rows = [row(i, 3600 * (i // 64), 3600, f"n{i % 2}", 1) for i in range(128)]
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    with pytest.raises(SystemExit, match="0"):
        main(["simulate", str(path), "--json"])
    shown = capsys.readouterr()
    assert json.loads(shown.out)["mean_wait_s"] == 1800
    assert "2 nodes nN with 32 cores" in shown.err
    assert "jobs share nodes" in shown.err


def test_pbs_accounting_gives_its_vnodes_in_the_same_way(tmp_path):
    folder = tmp_path / "site"
    folder.mkdir()
    lines = [
        f"01/01/2026 01:00:00;E;{i}.pbs;user=u project=_pbs_project_default queue=work ctime=1767225600 "
        f"qtime=1767225600 etime=1767225600 start=1767225600 exec_host=h{i % 2}/0*8 "
        f"exec_vnode=(h{i % 2}:ncpus=8:mem=4194304kb) Resource_List.mem=4gb Resource_List.ncpus=8 "
        f"Resource_List.nodect=1 Resource_List.place=pack Resource_List.select=1:ncpus=8:mem=4gb "
        f"Resource_List.walltime=02:00:00 session=1 end=1767229200 Exit_status=0"
        for i in range(8)
    ]
    (folder / "20260101").write_text("\n".join(lines) + "\n")
    made = import_site("pbs", folder)
    assert sizes(made) == [("h", 2, 32, 0)]
    assert "jobs share nodes: 6 of 8" in " ".join(made.site.notes)
