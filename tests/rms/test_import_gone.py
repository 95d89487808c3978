"""Accounting that names what a site's settings do not have any more: it is simulated, and told of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpctwin import simulate
from hpctwin.cli import main
from hpctwin.formats.accounting.workload import workload_of
from hpctwin.rms.site_folder import Imported, import_site, pseudonyms

NOON = 1_780_000_000
QUEUES = "create queue workq\nset queue workq queue_type = Execution\n"
NODES = (("a1", 8), ("a2", 8), ("b1", 16))
CONF = (
    "ClusterName=c\nSelectType=select/linear\nNodeName=a[1-4] CPUs=8\nNodeName=b[1-2] CPUs=16\n"
    "PartitionName=main Nodes=a[1-4],b[1-2]\nPartitionName=top Nodes=b[1-2] PriorityTier=9\n"
)


def pbs_line(number: int, queue: str, vnodes: str = "(a1:ncpus=8)", seconds: int = 60) -> str:
    start = NOON + number
    return (
        f"05/28/2026 20:00:00;E;{number}.s;user=ann queue={queue} ctime={start} qtime={start} start={start} "
        f"exec_vnode={vnodes} Resource_List.ncpus=8 Resource_List.nodect=1 Resource_List.select=1:ncpus=8 "
        f"Resource_List.place=excl Resource_List.walltime=00:10:00 end={start + seconds} Exit_status=0\n"
    )


def pbs(folder: Path, *lines: str, server: str = QUEUES, bound: str = "") -> Imported:
    folder.mkdir(exist_ok=True)
    (folder / "20260528").write_text("".join(lines))
    (folder / "server").write_text(server)
    own = f"\n     queue = {bound}" if bound else ""
    (folder / "nodes").write_text(
        "\n\n".join(
            f"{name}\n     Mom = {name}\n     state = free\n     sharing = force_excl\n"
            f"     resources_available.ncpus = {cores}{own}"
            for name, cores in NODES
        )
        + "\n"
    )
    return import_site("pbs", folder)


def slurm(folder: Path, header: str, *rows: str, **texts: str) -> Imported:
    folder.mkdir(exist_ok=True)
    (folder / "sacct.txt").write_text("\n".join([header, *rows]) + "\n")
    for name, text in {"slurm_conf": CONF, **texts}.items():
        (folder / name.replace("_", ".")).write_text(text)
    return import_site("slurm", folder)


def ran(made: Imported) -> list[str]:
    run = simulate(workload_of(made.jobs, "past", made.tally), made.site.cluster, made.site.policy)
    return run.jobs["state"].to_list()


def groups(made: Imported) -> dict[str, tuple[str, ...] | None]:
    return {one.name: one.groups for one in made.site.cluster.partitions}


def test_jobs_of_deleted_queues_are_simulated_and_reported_by_name(tmp_path, capsys):
    folder = tmp_path / "site"
    lines = [pbs_line(1, "workq"), pbs_line(2, "old"), pbs_line(3, "old"), pbs_line(4, "x")]
    made = pbs(folder, *lines)
    assert ran(made) == ["completed"] * 4
    assert any(
        "3 jobs belong to 2 queues missing" in n and "old (2), x (1)" in n for n in made.site.notes
    )
    told = {s.name: s.value for s in made.site.settings if s.where == "accounting"}
    assert told == {"queue old": "2 jobs", "queue x": "1 job"}
    for arguments in (
        ["import", "pbs", "--from", str(folder), "--out", str(tmp_path / "out")],
        ["simulate", str(tmp_path / "out"), "--json"],
    ):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert not ended.value.code
    assert json.loads(capsys.readouterr().out.partition("\n{")[2].join("{ "))["jobs"] == 4


def test_a_queue_that_is_gone_has_the_nodes_on_which_its_jobs_ran(tmp_path):
    big = "(b1:ncpus=8)"
    made = pbs(
        tmp_path / "site", pbs_line(1, "big", big), pbs_line(2, "all"), pbs_line(3, "all", big)
    )
    assert groups(made) == {"workq": ("a", "b"), "big": ("b",), "all": ("a", "b")}
    # Of nodes that are gone too, nothing tells what they were like.
    made = pbs(tmp_path / "site", pbs_line(1, "big", big), pbs_line(2, "big", "(old7:ncpus=8)"))
    assert groups(made)["big"] == ("a", "b")


def test_queues_without_nodes_and_those_of_reservations_are_simulated(tmp_path):
    server = QUEUES + "create queue gpu\nset queue gpu queue_type = Execution\n"
    lines = [pbs_line(i, q) for i, q in enumerate(["R17", "S18", "R19", "M4", "workq"], start=1)]
    made = pbs(tmp_path / "site", *lines, pbs_line(6, "gpu"), server=server, bound="workq")
    assert groups(made) == {"workq": ("a", "b"), "reservations": ("a",), "gpu": ("a",)}
    assert made.jobs["partition"].to_list() == [*["reservations"] * 4, "workq", "gpu"]
    assert any("4 jobs ran in queues of reservations" in note for note in made.site.notes)
    assert ran(made) == ["completed"] * 6


def test_deleted_partitions_accounts_and_qos_are_simulated_and_reported(tmp_path):
    header = "JobID|Submit|Start|End|NNodes|State|Timelimit|User|Account|Partition|QOS|NodeList"
    at = "2026-05-28T20:00:00|2026-05-28T20:00:00|2026-05-28T20:10:00|1|COMPLETED|01:00:00"
    made = slurm(
        tmp_path / "site",
        header,
        f"1|{at}|ann|chem|main|normal|a1",
        f"2|{at}|ben|gone|main|normal|a2",
        f"3|{at}|ann|chem|fat|long|b[1-2]",
        f"4|{at}|ann|chem|odd|normal|None assigned",
        f"5|{at}|ann|chem||normal|a3",
        assoc_txt="Cluster|Account|ParentName|User|Share\nc|root|||1\nc|chem|root||1\nc|chem||ann|1\n",
        qos_txt="Name|Priority|MaxJobsPU\nnormal|5|9\n",
    )
    assert ran(made) == ["completed"] * 5
    assert groups(made)["fat"] == ("b",)
    assert groups(made)["odd"] == ("a", "b")
    assert groups(made)["unnamed"] == ("a",)
    said = " ".join(made.site.notes)
    assert "1 job belongs to 1 account missing from the settings: gone (1)" in said
    assert "1 job belongs to 1 QOS missing from the settings: long (1)" in said
    assert "1 job names no partition: assigned to unnamed" in said
    # None of them goes before those that the settings set above others.
    priority = {one.name: one.priority for one in made.site.cluster.partitions}
    assert priority["fat"] == priority["main"] < priority["top"]


def test_nothing_is_reported_if_nothing_is_missing(tmp_path):
    made = pbs(tmp_path / "site", pbs_line(1, "workq"))
    assert groups(made) == {"workq": ("a", "b")}
    assert not [s for s in made.site.settings if s.where == "accounting"]


def test_names_of_queues_that_are_gone_are_replaced_too(tmp_path):
    hidden = pseudonyms(pbs(tmp_path / "site", pbs_line(1, "secretq")), b"s" * 16)
    assert "secretq" not in str(hidden.site)
    assert ran(hidden) == ["completed"]
