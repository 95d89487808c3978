"""Record what a Slurm prints, for tests that read it: ``python tests/rms/record_slurm.py [VERSION …]``.

It starts clusters of a version on this machine, submits jobs of all kinds, runs every command that hpctwin
reads, and writes ``tests/rms/recorded/slurm-VERSION-SITE.json.gz``: outputs by command. Names of this machine
and its folders are replaced, and times are moved: the recording is made at `NOW_S`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from hpctwin.rms.site_folder import live_command
from hpctwin.rms.slurm.site.recognition import LIVE
from tests.rms import slurm_roots
from tests.rms.beside_slurm import readable_folder, running, states
from tests.rms.recorded import NOW_S, slurm_path
from tests.rms.slurm_cluster import SlurmCluster

NODE = "Sockets=2 CoresPerSocket=4 ThreadsPerCore=1"
ONE, OTHER = "--uid=daemon", "--uid=games"

ASKED = (
    "squeue --json",
    "squeue -a -t all -o %all",
    "squeue --start -h -o '%i %S'",
    "scontrol show job",
    "scontrol show job -d -o",
    "scontrol show job --json",
    "scontrol show node",
    "scontrol show node -o",
    "scontrol show nodes --json",
    "sinfo --json",
    "sinfo -N -o %all",
    "scontrol show partition",
    "scontrol show partition -o",
    "scontrol show partition --json",
    "scontrol show reservation",
    "scontrol show reservation -o",
    "scontrol show reservation --json",
    "scontrol show config",
    "scontrol show topology",
    "scontrol show licenses",
    "scontrol show licenses --json",
)
"""Commands as a shell reads them."""
SINCE = "2000-01-01"
ACCOUNTS = (
    f"sacct -a -D -P -S {SINCE} -o ALL",
    f"sacct -a -D -S {SINCE} --json",
    "sacctmgr -P show associations",
    "sacctmgr -P show qos",
    "sacctmgr --json show associations",
    "sacctmgr --json show qos",
    "sacctmgr -nP show qos format=Name,Preempt",
    "sacctmgr -nP show user root format=AdminLevel",
    "sshare -a -l -P",
)
IMPORTED = tuple(shlex.join(live_command(LIVE[name], SINCE)) for name in LIVE)
"""What `hpctwin import slurm live` runs."""


WHOLE: tuple[tuple[str, ...], ...] = (
    ("-N1", "-Lmatlab:1,ansys:3"), ("-N4",), ("-N1", "--array=1-9:2%2"), ("-N1", "--begin=now+2hours"),
    ("-N1", "--deadline=now+3hours", "-t10"), ("-N1", "-H"), ("-N1", "--nice=50", "--comment=a b=c"),
    ("-N1", "-Cib&b", "--prefer=b"), ("-N1", "-Ca|b"), ("-N2", "-C[a*1&b*1]"),
    ("-N1", "-wn3", "-xn4", "--no-requeue"),
    ("-N1", "-pshut"), ("-N1", "-psmall,main", "-t10"), ("-N3", "-psmall"), ("-N2", "-psmall", "-t300"),
    ("-N8", "--switches=1@10:00", "--time-min=5"), ("-N1-4", "-t10"), ("-N2", ONE),
    ("-N1", OTHER, "--exclusive"),
)  # fmt: skip
AFTER = ("afterok:{0}", "afterany:{0}?afternotok:{0}", "singleton", "after:{0}+5,afterany:{0}")


@contextmanager
def whole(version: str) -> Iterator[SlurmCluster]:
    """Jobs that have whole nodes: licenses, arrays, heterogeneous jobs, dependencies, holds, reservations."""
    more = ("Licenses=matlab:2,ansys:10", "PartitionName=small Nodes=n[1-2] MaxTime=60 State=UP",
            "PartitionName=shut Nodes=n[1-8] State=DOWN")  # fmt: skip
    with cluster(
        version, nodes=8, scheduler="backfill", priority="multifactor", more=more,
        partition="PriorityTier=2 DefaultTime=30",
    ) as slurm:  # fmt: skip
        for name, features in {"n1": "a,ib", "n2": "b,ib", "n3": "a"}.items():
            about = f"AvailableFeatures={features}", f"ActiveFeatures={features}"
            slurm.say("scontrol", "update", f"NodeName={name}", *about)
        reserve(slurm, "course", "StartTime=now", "Duration=60", "Nodes=n[7-8]", "Users=root")
        reserve(slurm, "maint", "StartTime=now+1days", "Duration=120", "Nodes=ALL", "Users=root",
                "Flags=MAINT,WEEKLY")  # fmt: skip
        reserve(slurm, "lab", "StartTime=now+2days", "Duration=30", "NodeCnt=2", "Users=daemon,games",
                "Flags=DAILY,FLEX,IGNORE_JOBS", "PartitionName=main")  # fmt: skip
        reserve(slurm, "keys", "StartTime=now+3days", "Duration=60", "Licenses=matlab:1", "Users=root",
                "Flags=LICENSE_ONLY")  # fmt: skip
        first = slurm.submit(2, 30, 600)
        slurm.submit(1, 30, 600, "-L", "matlab:2")
        slurm.submit(1, 10, 600, "--reservation=course")
        wait_running(slurm, 3)
        slurm.submit_script(
            "#SBATCH -N2 -t9\n#SBATCH hetjob\n#SBATCH -N1 -t9 -p small\nsleep 600\n"
        )
        submit_all(
            slurm, (*WHOLE, *(("-N1", f"--dependency={one.format(first)}") for one in AFTER))
        )
        slurm.say("scontrol", "hold", slurm.submit(1, 10, 600))
        done = slurm.submit(1, 1, 0, "-w", "n6")
        gone = slurm.submit(1, 10, 600)
        slurm.say("scancel", gone)
        slurm.say("scontrol", "requeuehold", slurm.submit(1, 10, 600))
        slurm.say("scontrol", "update", "NodeName=n6", "State=DRAIN", "Reason=disk")
        slurm.wait(lambda: slurm.job(done)["JobState"] != "RUNNING", 60)
        wait_looked_at(slurm)
        yield slurm


SHARED: tuple[tuple[str, ...], ...] = (
    ("-n3", "-c2", "--mem-per-cpu=100"), ("-N2", "-n4", "--mem=500"), ("-n1", "--gres=gpu:1", "--mem=100"),
    ("-n1", "--gres=gpu:a:1", "--mem=100"), ("-n2", "--gpus=b:2", "--mem=100"),
    ("-n2", "--gpus-per-task=b:1", "--ntasks-per-node=1", "--mem-per-cpu=100"),
    ("-N1", "-n1", "--gpus-per-node=2", "--mem=100"), ("-n1", "--mem-per-gpu=200", "--gpus-per-node=1"),
    ("-N1", "-n2", "--gpus-per-socket=1", "--sockets-per-node=2", "--mem=10"),
    ("-n1", "-N1", "--gres=fpga:x:1,tmp:100G", "--mem=10"), ("-N1", "-n1", "--exclusive", "--mem=100"),
    ("-n1", ONE, "--exclusive=user", "--mem=10"), ("-n1", OTHER, "--exclusive=user", "--mem=10"),
    ("-n1", OTHER, "-pmine", "--mem=10"), ("-n1", "-pwhole", "--mem=10"),
    ("-n1", "--exclusive=mcs", "--mem=10"),
    ("-n1", "--oversubscribe", "--mem=10"), ("-n3", "--ntasks-per-node=2", "--mem-per-cpu=50"),
    ("-n9", "--mem-per-cpu=10"), ("-N1-2", "-n4", "--mem=10"), ("-n1",), ("-n1", "--mem=0"),
    ("-n4", "-N4", "--mem=50"), ("-n2", "--contiguous", "--mem=10"),
    ("-n6", "--spread-job", "--mem-per-cpu=10"),
    ("-n4", "--use-min-nodes", "--mem-per-cpu=10"), ("-n2", "--ntasks-per-core=1", "--mem=10"),
    ("-n2", "--ntasks-per-socket=1", "--mem=10"), ("-n2", "--threads-per-core=1", "--mem=10"),
    ("-n2", "--hint=nomultithread", "--mem=10"), ("-n2", "-mcyclic", "--mem=10"), ("-n1", "--core-spec=1"),
    ("-n1", "--thread-spec=1"), ("-n1", "--mincpus=4", "--mem=10"),
    ("-n2", "--tres-per-task=cpu:2,gres/gpu:1", "--mem=10"), ("-n2", "-c2", "--array=1-4%2", "--mem=10"),
    ("-n1", "--overcommit", "-c2", "--mem=10"), ("-n1", "-Lmatlab:1", "--mem=10"),
    ("-n1", "--qos=normal", "--mem=10"),
    ("-n1", "--signal=B:TERM@60", "--mem=10"), ("-n30", "--mem-per-cpu=10"), ("-n1", "--reboot", "--mem=10"),
)  # fmt: skip


NOT_MODELED = (
    "-N1 -n2 --gpus-per-socket=1 --sockets-per-node=2 --mem=10", "-n1 --exclusive=mcs --mem=10",
    "-n3 --ntasks-per-node=2 --mem-per-cpu=50", "-n2 --contiguous --mem=10",
    "-n2 --ntasks-per-core=1 --mem=10", "-n2 --ntasks-per-socket=1 --mem=10",
)  # fmt: skip
"""Requests of `SHARED` that the twin leaves to Slurm."""


@contextmanager
def shared(version: str) -> Iterator[SlurmCluster]:
    """Jobs that share nodes by core, memory, GPU and gres; exclusive ones by node and user."""
    more = ("Licenses=matlab:2", "PartitionName=mine Nodes=n[1-4] ExclusiveUser=YES State=UP",
            "PartitionName=whole Nodes=n[3-4] OverSubscribe=EXCLUSIVE State=UP")  # fmt: skip
    with cluster(
        version, nodes=4, cpus=8, memory=8000, select="CR_Core_Memory", scheduler="backfill", node=NODE,
        gpus={"a": 2, "b": 2}, gres=("fpga:x:2", "tmp:800G"), more=more,
    ) as slurm:  # fmt: skip
        submit_all(slurm, SHARED)
        yield slurm


@contextmanager
def running_shared(version: str) -> Iterator[SlurmCluster]:
    """As many nodes as the same jobs need, on cores of two threads: all of them run."""
    with cluster(
        version, nodes=24, cpus=8, memory=8000, select="CR_Core_Memory", scheduler="backfill",
        node="Sockets=2 CoresPerSocket=2 ThreadsPerCore=2", gpus={"a": 2, "b": 2},
        gres=("fpga:x:2", "tmp:800G"), more=("Licenses=matlab:2", "PartitionName=mine Nodes=n[1-24] "
        "ExclusiveUser=YES State=UP", "PartitionName=whole Nodes=n[1-24] OverSubscribe=EXCLUSIVE State=UP"),
    ) as slurm:  # fmt: skip
        submit_all(slurm, SHARED)
        yield slurm


TREE = "SwitchName=root Switches=s[1-2]\nSwitchName=s1 Nodes=n[1-4]\nSwitchName=s2 Nodes=n[5-8]\n"


@contextmanager
def tiers(version: str) -> Iterator[SlurmCluster]:
    """Whole-node partitions of several tiers without preemption; a tree of switches."""
    more = (
        "TopologyPlugin=topology/tree", "PriorityWeightAge=1000", "PriorityWeightJobSize=100",
        "PartitionName=debug Nodes=n[1-8] PriorityTier=9 OverSubscribe=EXCLUSIVE MaxTime=30 State=UP",
        "PartitionName=twice Nodes=n[7-8] OverSubscribe=FORCE:2 MaxTime=2-0 State=UP",
        "PartitionName=maybe Nodes=n[7-8] OverSubscribe=YES:3 MaxTime=UNLIMITED State=UP",
    )  # fmt: skip
    with cluster(
        version, nodes=8, cpus=8, memory=8000, select="CR_Core_Memory", scheduler="backfill",
        priority="multifactor", node=NODE, partition="OverSubscribe=EXCLUSIVE", more=more,
        files={"topology.conf": TREE},
    ) as slurm:  # fmt: skip
        submit_all(
            slurm,
            [("-N4",), ("-N2", "-pdebug", "-t20"), ("-n1", "-ptwice"), ("-n16", "-ptwice"),
             ("-n1", "-pmaybe", "-s"), ("-N8",), ("-N3", "--switches=1"), ("-N1", "-pdebug", "-t20"),
             ("-N1", "-n8", "--exclusive=user")],
        )  # fmt: skip
        yield slurm


@contextmanager
def preempting(version: str) -> Iterator[SlurmCluster]:
    """Jobs that are suspended, requeued or cancelled for those of higher tiers."""
    more = ("PreemptType=preempt/partition_prio", "PreemptMode=SUSPEND,GANG", *(
        f"PartitionName={name} Nodes=n[1-4] State=UP {settings}" for name, settings in {
            "high": "PriorityTier=9", "again": "PriorityTier=1 PreemptMode=REQUEUE GraceTime=5",
            "gone": "PriorityTier=1 PreemptMode=CANCEL", "safe": "PriorityTier=1 PreemptMode=OFF"}.items()
    ))  # fmt: skip
    with cluster(
        version, nodes=4, cpus=8, memory=8000, select="CR_Core_Memory", scheduler="backfill", node=NODE,
        partition="PriorityTier=1", more=more,
    ) as slurm:  # fmt: skip
        for partition in ("main", "again", "gone", "safe"):
            slurm.submit_tasks(60, 600, "-n8", "--mem=100", "-p", partition)
        wait_running(slurm, 4)
        jobs = [slurm.submit_tasks(60, 600, "-n8", "--mem=100", "-phigh") for _ in range(4)]
        slurm.wait(
            lambda: sum(states(slurm).get(i, "").startswith("RUNNING") for i in jobs) >= 3, 60
        )
        wait_looked_at(slurm)
        yield slurm


@contextmanager
def power(version: str) -> Iterator[SlurmCluster]:
    """Nodes that are off, on, switched off, switched on, drained and down."""
    more = ("SuspendProgram=/bin/true", "ResumeProgram=/bin/true", "SuspendTimeout=10", "ResumeTimeout=600",
            "SuspendTime=3600")  # fmt: skip
    with cluster(
        version, nodes=8, cpus=8, memory=8000, select="CR_Core_Memory", scheduler="backfill", node=NODE,
        more=more,
    ) as slurm:  # fmt: skip

        def turn(nodes: str, state: str, *about: str) -> None:
            slurm.say("scontrol", "update", f"NodeName={nodes}", f"State={state}", *about)

        def has(node: str, *words: str) -> bool:
            said = slurm.say("scontrol", "show", "node", node)
            found = re.search(r"State=(\S+)", said)
            return bool(found) and set(words) <= set(found[1].split("+"))

        turn("n[1-3]", "POWER_DOWN_FORCE" if version > "22.05" else "POWER_DOWN")
        slurm.wait(lambda: all(has(f"n{i}", "POWERED_DOWN") for i in (1, 2, 3)), 60)
        slurm.submit_tasks(60, 600, "-wn2", "-n4", "--mem=10")
        turn("n3", "POWER_UP")
        slurm.wait(lambda: has("n2", "POWERING_UP") and has("n3", "POWERING_UP"), 60)
        slurm.submit_tasks(60, 600, "-wn4", "-n4", "--mem=10")
        slurm.submit_tasks(60, 600, "-wn5", "-n8", "--mem=10")
        wait_running(slurm, 2)
        turn("n5", "DRAIN", "Reason=fan")
        turn("n6", "DRAIN", "Reason=disk")
        turn("n7", "DOWN", "Reason=board")
        turn("n8", "POWER_DOWN")
        slurm.wait(lambda: has("n8", "POWERING_DOWN"), 60)
        yield slurm


QOS = {
    "normal": ("Priority=100", "MaxTRESPerUser=cpu=24", "MaxJobsPU=6"),
    "high": (
        "Priority=1000",
        "Preempt=low",
        "PreemptMode=requeue",
        "MaxWall=60",
        "Flags=DenyOnLimit",
    ),
    "low": (
        "Priority=0",
        "GrpTRES=cpu=16",
        "MaxSubmitJobsPerUser=4",
        "UsageFactor=0.5",
        "GraceTime=5",
    ),
}
USERS = {"daemon": "optics", "games": "lattice", "mail": "chem"}
ENDS: tuple[tuple[str, ...], ...] = (
    ("-n2", "--mem-per-cpu=100"), ("-N2", "-n4", "-c2", "--mem=500"), ("-n1", "--gres=gpu:a:1", "--mem=100"),
    ("-N1", "--exclusive"), ("-n1", "--array=1-3%2"), ("-n1", "-Lmatlab:1", "--comment=a|b"),
    ("-n1", "-Cib", "--dependency=afterany:1"), ("-n1", "--begin=now+2"),
)  # fmt: skip


@contextmanager
def accounts(version: str) -> Iterator[SlurmCluster]:
    """Accounts, users and QOS with limits in slurmdbd; jobs that ended in all ways, run or wait."""
    with cluster(
        version, nodes=4, cpus=8, memory=8000, select="CR_Core_Memory", scheduler="backfill", node=NODE,
        gpus={"a": 2}, priority="multifactor", accounting=True,
        more=("Licenses=matlab:2", "PriorityWeightFairShare=1000", "PriorityWeightQOS=10000",
              "PriorityWeightAge=100", "PriorityDecayHalfLife=1-0", "PreemptType=preempt/qos",
              "PreemptMode=REQUEUE"),
    ) as slurm:  # fmt: skip

        def tell(*words: str) -> None:
            slurm.run("sacctmgr", "-i", *words)

        tell("add", "qos", "high,low")
        for name, settings in QOS.items():
            tell("modify", "qos", name, "set", *settings)
        tell("add", "account", "physics", "Fairshare=30", "GrpTRES=cpu=28")
        for name, parent, settings in (
            ("optics", "physics", "Fairshare=1"), ("lattice", "physics", "Fairshare=2"),
            ("chem", "root", "MaxJobs=3"),
        ):  # fmt: skip
            tell("add", "account", name, f"Parent={parent}", settings)
        for user, account in USERS.items():
            tell("add", "user", user, f"Account={account}", "Fairshare=2", "QOS=normal,high,low")
        slurm.say("scontrol", "update", "NodeName=n1", "AvailableFeatures=ib", "ActiveFeatures=ib")
        whom = [(f"--uid={user}", f"--account={account}") for user, account in USERS.items()]
        submit_all(slurm, [(*whom[i % 3], *way) for i, way in enumerate(ENDS)], "sleep 1")
        submit_all(slurm, [(*whom[0], "-n1")], "exit 3")
        submit_all(slurm, [(*whom[1], "-n1", "--qos=low", "--requeue")], "sleep 1")
        slurm.say("scancel", slurm.submit_tasks(10, 600, *whom[2], "-n1"))
        slurm.wait(lambda: not states(slurm), 120)
        low = [(*who, "-n8", "--qos=low", "--mem=10") for who in whom]
        submit_all(slurm, [*low, (*whom[0], "-n8", "--mem=10"), (*whom[0], "-n32", "--mem=10")])
        submit_all(
            slurm,
            [(*whom[1], "-n16", "--qos=high", "--mem=10"), (*whom[2], "-n1", "--qos=high", "-t90")],
        )
        yield slurm


SITES = {
    "accounts": accounts,
    "whole": whole,
    "shared": shared,
    "running": running_shared,
    "tiers": tiers,
    "preempting": preempting,
    "power": power,
}


@contextmanager
def cluster(
    version: str, files: dict[str, str] | None = None, **options: object
) -> Iterator[SlurmCluster]:
    """A cluster of a version; `files` lie beside its slurm.conf."""
    with readable_folder() as folder:
        for name, text in (files or {}).items():
            (folder / name).write_text(text)
        with running(folder, version=version, **options) as slurm:
            yield slurm


def reserve(slurm: SlurmCluster, name: str, *about: str) -> None:
    if not slurm.say("scontrol", "create", "reservation", f"ReservationName={name}", *about):
        print(f"  refused: reservation {name} {' '.join(about)}")


def submit_all(
    slurm: SlurmCluster, asked: Iterable[tuple[str, ...]], does: str = "exec sleep 600"
) -> None:
    """Submit jobs; those that this Slurm refuses are named."""
    for way in asked:
        said = slurm.say(
            "sbatch", "--parsable", "-t60", "-o", "/dev/null", "-D", "/tmp", f"-J{' '.join(way)}", *way,
            "--wrap", does,
        )  # fmt: skip
        if not said:
            print(f"  refused: {' '.join(way)}")
    wait_looked_at(slurm)


def wait_running(slurm: SlurmCluster, jobs: int) -> None:
    slurm.wait(
        lambda: sum(said.startswith("RUNNING") for said in states(slurm).values()) >= jobs, 60
    )


def wait_looked_at(slurm: SlurmCluster) -> None:
    """Until the scheduler has given each pending job its reason, and nothing changes any more."""
    before: list[dict[str, str]] = [{}]

    def settled() -> bool:
        time.sleep(3)
        now = states(slurm)
        same, before[0] = now == before[0] and "PENDING None" not in now.values(), now
        return same

    slurm.wait(settled, 60)


def record(slurm: SlurmCluster, commands: tuple[str, ...]) -> dict[str, str]:
    """Outputs by command; a command that this Slurm refuses has none."""
    slurm.env["TZ"] = "UTC"
    slurm.env["SLURM_BITSTR_LEN"] = "0"
    now_s = time.time()
    said = {}
    for command in commands:
        done = subprocess.run(
            shlex.split(command), env=slurm.env, capture_output=True, text=True, timeout=300
        )
        if done.returncode == 0:
            said[command] = done.stdout
    if any(command.startswith("squeue") for command in commands):
        fields = slurm.say("squeue", "--helpFormat").split()
        fields = [one for one in fields if slurm.say("squeue", "-O", one)]
        command = "squeue -a -t all -O " + ",".join(f"{one}:|" for one in fields)
        said[command] = slurm.say(*command.split())
    clean = cleaner(slurm, now_s)
    return {command: clean(output) for command, output in said.items()}


def cleaner(slurm: SlurmCluster, now_s: float) -> Callable[[str], str]:
    """What takes names of this machine and times of this hour out of a text."""
    ahead_s = int(NOW_S - now_s)
    full, short = socket.gethostname(), socket.gethostname().partition(".")[0]
    root = slurm_roots.root(slurm.version)
    release = os.uname().release

    def moved(found: re.Match[str]) -> str:
        then = datetime.fromisoformat(found[0]).replace(tzinfo=UTC).timestamp() + ahead_s
        return datetime.fromtimestamp(then, UTC).strftime("%Y-%m-%dT%H:%M:%S")

    def clean(text: str) -> str:
        text = text.replace(str(slurm.folder), "/etc/slurm")
        if root is not None:
            text = re.sub(rf"{re.escape(str(root))}(?:/slurm|/system)?", "", text)
        for name in dict.fromkeys((full, short)):
            text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", "host", text)
        text = text.replace(f"Linux {release} {os.uname().version}", "Linux").replace(
            release, "6.1"
        )
        text = re.sub(r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\b", moved, text)
        return re.sub(r"\b1[789]\d{8}\b", lambda found: str(int(found[0]) + ahead_s), text)

    return clean


def write(path: Path, said: dict[str, str]) -> None:
    # Without the time and the file's name, that the same outputs are the same file.
    packed = gzip.compress(json.dumps(said, indent=0).encode(), 9, mtime=0)
    path.write_bytes(packed)
    print(f"  {path.name}: {len(said)} commands, {len(packed)} bytes")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "version", nargs="*", metavar="VERSION", help=", ".join(slurm_roots.VERSIONS)
    )
    parser.add_argument(
        "--site", choices=SITES, action="append", help="Record only this site; may be repeated."
    )
    given = parser.parse_args()
    for version in given.version or slurm_roots.VERSIONS:
        print(f"Slurm {version}")
        for site in given.site or SITES:
            with SITES[site](version) as slurm:
                said = slurm.say("sh", "-c", "squeue --json=list 2>&1")
                parsers = sorted(set(re.findall(r"data_parser/(v[\d.]+)", said)))
                older = (f"squeue --json={one}" for one in parsers[:-1])
                of_accounts = ACCOUNTS + IMPORTED if site == "accounts" else ()
                commands = dict.fromkeys((*ASKED, *older, *of_accounts))
                write(slurm_path(version, site), record(slurm, tuple(commands)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
