"""What a running manager prints becomes files, however much it is; what fails is told."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest

from hpctwin import Cluster
from hpctwin.cli import main
from hpctwin.errors import UnreachableError
from hpctwin.policies import parse_policy
from hpctwin.policies.policy import read_policy
from hpctwin.rms import commands
from hpctwin.rms.managers import probe
from hpctwin.rms.site_folder import asked, import_site, live_command
from hpctwin.rms.slurm.site import recognition as slurm_site
from tests.rms.beside_slurm import readable_folder, running, states
from tests.rms.record_slurm import SINCE, cluster
from tests.rms.recorded import slurm as slurm_said
from tests.rms.slurm_roots import VERSIONS

SITE = Path(__file__).parent / "recorded" / "slurm-site"
HEADER = "JobID|Submit|Start|End|ElapsedRaw|TimelimitRaw|NNodes|AllocCPUS|State"


def command(folder: Path, name: str, script: str) -> None:
    """A program that does this."""
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def bin_(tmp_path: Path) -> Path:
    """Slurm's commands: 30 jobs, and what the recorded site printed."""
    folder = tmp_path / "bin"
    folder.mkdir()
    times = "2026-10-01T10:10:00|2026-10-01T10:20:00|600|15|1|2|COMPLETED"
    lines = [HEADER, *(f"{job}|2026-10-01T10:00:{job:02}|{times}" for job in range(1, 31))]
    (tmp_path / "past.txt").write_text("\n".join(lines) + "\n")
    command(folder, "sacct", f'echo "$@" > {tmp_path}/asked; cat {tmp_path}/past.txt')
    command(
        folder,
        "scontrol",
        f'case "$2" in config) exit 1;; *) cat {SITE}/"$2"s.txt;; esac',
    )
    command(folder, "sacctmgr", f'cat {SITE}/"$(echo $3 | sed s/associations/assoc/)".txt')
    return folder


def test_accounting_of_any_length_is_read(
    bin_: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commands, "MAX_OUTPUT", 200)
    with pytest.raises(SystemExit) as ended:
        main(
            ["import", "slurm", "live", "--commands", str(bin_), "--out", str(tmp_path / "out"), "--json",
             "--since", "2026-10-01"]
        )  # fmt: skip
    assert not ended.value.code
    told = json.loads(capsys.readouterr().out)
    assert (told["jobs"], told["nodes"], told["partitions"]) == (30, 8, 3)
    assert (tmp_path / "asked").read_text().strip().endswith("-S 2026-10-01")
    assert any("scontrol show config" in note for note in told["notes"])


def test_output_of_a_command_that_failed_is_not_used(bin_: Path, tmp_path: Path) -> None:
    command(bin_, "sacct", f"head -5 {tmp_path}/past.txt; echo database gone >&2; exit 1")
    (tmp_path / "files").mkdir()
    notes = asked("slurm", tmp_path / "files", since=None, beside=None, commands_in=str(bin_))
    assert [note.rpartition(": ")[2] for note in notes if note.startswith("sacct ")] == [
        "database gone"
    ]
    assert not (tmp_path / "files" / "sacct.txt").exists()
    assert (tmp_path / "files" / "nodes.txt").exists()


def test_nothing_that_answers_is_an_error(bin_: Path, tmp_path: Path) -> None:
    shutil.rmtree(bin_)
    with pytest.raises(UnreachableError, match="command not found"):
        asked("slurm", tmp_path, since=None, beside=None, commands_in=str(bin_))


def test_reservations_are_asked_for(
    bin_: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = (
        "ReservationName=repair StartTime=2026-10-01T10:05:00 EndTime=2026-10-01T10:15:00 Duration=00:10:00 "
        "Nodes=cn[01-02] NodeCnt=2 CoreCnt=16 Features=(null) PartitionName=(null) Flags=MAINT TRES=cpu=16 "
        "Users=root Groups=(null) Accounts=(null) Licenses=(null) State=ACTIVE BurstBuffer=(null) Watts=n/a "
        "MaxStartDelay=(null)"
    )
    (tmp_path / "shown.txt").write_text(shown + "\n")
    command(
        bin_,
        "scontrol",
        f'case "$*" in "show config") exit 1;; "show reservation -o") cat {tmp_path}/shown.txt;; '
        f'*) cat {SITE}/"$2"s.txt;; esac',
    )
    with pytest.raises(SystemExit) as ended:
        main(
            ["import", "slurm", "live", "--commands", str(bin_), "--out", str(tmp_path / "out"), "--json",
             "--since", "2026-10-01"]
        )  # fmt: skip
    assert not ended.value.code
    told = json.loads(capsys.readouterr().out)
    assert told["read"]["files"]["reservations.txt"] == "scontrol show reservation"
    made = Cluster.from_yaml(tmp_path / "out" / "cluster.yaml").reservations
    assert [(one.name, one.end - one.start, one.nodes) for one in made] == [("repair", 600, "0-1")]


@pytest.mark.slurm
def test_a_running_slurm_with_accounting_is_imported_with_limits_shares_and_jobs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    slurm_version: str,
) -> None:  # fmt: skip
    weights = ("PriorityWeightFairshare=1000", "PriorityWeightQOS=100")
    options = {"nodes": 2, "cpus": 4, "memory": 4000, "priority": "multifactor", "more": weights}
    user = ("--uid=games", "--account=physics", "--mem=100")
    with (
        readable_folder() as folder,
        running(
            folder, version=slurm_version, accounting=True, select="CR_Core_Memory", **options
        ) as slurm,
    ):
        for change in (
            "add qos high", "modify qos high set Priority=9 MaxWall=60 MaxTRESPerUser=cpu=4",
            "add account physics GrpTRES=cpu=6 Fairshare=3",
            "add user games Account=physics QOS=normal,high Fairshare=2",
        ):  # fmt: skip
            slurm.run("sacctmgr", "-i", *change.split())
        # slurmdbd passes changes on after sacctmgr has ended.
        known = ("scontrol", "show", "assoc_mgr", "users=games", "flags=assoc")
        slurm.wait(lambda: "UserName=games(" in slurm.say(*known), 60)
        for asked_for in (("-n2",), ("-n1", "--qos=high"), ("-n1", "--array=1-2")):
            slurm.submit_tasks(10, 1, *user, *asked_for)
        slurm.wait(lambda: not states(slurm), 60)
        # Accounting learns of a job's end later than the scheduler does.
        said = ("sacct", "-anX", "-o", "State")
        slurm.wait(lambda: slurm.say(*said).split() == ["COMPLETED"] * 4, 60)
        monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
        with pytest.raises(SystemExit) as ended:
            main(["import", "slurm", "live", "--out", str(tmp_path / "out"), "--json"])
    assert not ended.value.code
    told = json.loads(capsys.readouterr().out)
    assert (told["jobs"], told["nodes"], told["partitions"]) == (4, 2, 1)
    made = Cluster.from_yaml(tmp_path / "out" / "cluster.yaml")
    assert made.qos == {"normal": 0, "high": 9}
    shares = {account.name: (account.share, account.users) for account in made.accounts}
    assert shares["physics"] == (3, {"games": 2})
    limits = {(one.qos, one.account, one.per): (one.walltime, one.cores) for one in made.limits}
    assert limits == {
        ("high", None, "job"): (3600, None),
        ("high", None, "user"): (None, 4),
        (None, "physics", "all"): (None, 6),
    }


def test_the_recorded_accounts_of_each_version_of_slurm_are_imported_the_same(
    tmp_path: Path,
) -> None:
    made = {}
    for version in VERSIONS:
        folder = tmp_path / version
        folder.mkdir()
        said = slurm_said(version, "accounts")
        for name in slurm_site.LIVE:
            (folder / name).write_bytes(
                said[shlex.join(live_command(slurm_site.LIVE[name], SINCE))]
            )
        site = import_site("slurm", folder).site
        assert site is not None
        # Newer versions round up when they backfill, as the policy says.
        made[version] = (site.cluster, site.policy.replace(",bf_round_up=no", ""))
    cluster, policy = made["22.05"]
    assert (len(cluster.accounts), len(cluster.qos)) == (5, 3)  # root too
    assert made == dict.fromkeys(VERSIONS, (cluster, policy))


@pytest.mark.slurm
def test_a_running_slurm_its_files_and_its_json_give_the_same_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    slurm_version: str,
) -> None:  # fmt: skip
    parts = ("s1 Nodes=n1", "s2 Nodes=n2", "root Switches=s[1-2]")
    tree = "".join(f"SwitchName={one}\n" for one in parts)
    more = ("TopologyPlugin=topology/tree",)
    exclusive = "Exclusive=NODE" if slurm_version >= "26.05" else "OverSubscribe=EXCLUSIVE"
    options = {
        "nodes": 2,
        "cpus": 4,
        "scheduler": "backfill",
        "partition": exclusive,
        "events": True,
    }
    with cluster(slurm_version, {"topology.conf": tree}, more=more, **options) as slurm:
        monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
        with pytest.raises(SystemExit) as ended:
            main(["import", "slurm", "live", "--out", str(tmp_path / "out"), "--json"])
        config = slurm.say("scontrol", "show", "config")
        forms = {
            "conf": {"slurm.conf": slurm.conf.read_text(), "topology.conf": tree},
            "json": {
                "topology.txt": slurm.say("scontrol", "show", "topology"),
                "nodes.json": slurm.say("scontrol", "show", "nodes", "--json"),
                "partitions.json": slurm.say("scontrol", "show", "partitions", "--json"),
            },
        }
        (found,) = [one for one in probe(conf=slurm.conf) if one.manager == "slurm"]
    assert not ended.value.code
    capsys.readouterr()
    # Since 24.05 the configuration has PrologSlurmctld[0].
    assert {one.what: one.works for one in found.findings}["pushed starts"]
    live = Cluster.from_yaml(tmp_path / "out" / "cluster.yaml")
    policy = parse_policy(read_policy(tmp_path / "out" / "policy.yaml")).name
    assert len(live.switches) == 3
    assert policy.endswith("@contiguous")
    if slurm_version < "26.05":
        # scontrol of 22.05 has no JSON, that of 24.11 does not say which partition is the default.
        del forms["json"]
    for name, files in forms.items():
        (tmp_path / name).mkdir()
        for file, text in {**files, "config.txt": config}.items():
            (tmp_path / name / file).write_text(text)
        made = import_site("slurm", tmp_path / name).site
        assert made is not None
        assert made.cluster.model_dump() == live.model_dump(), name
        assert parse_policy(made.policy).name == policy, name
