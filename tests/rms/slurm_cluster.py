"""A real Slurm of 32 emulated nodes on this machine, in a folder of its own."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import socket
import stat
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from tests.rms import slurm_roots

NODES = 32
QUICK = "batch_sched_delay=0,sched_min_interval=10000,sched_interval=1,bf_interval=1"
"""A pass each second; a Slurm as shipped makes one a minute, and three seconds after a submission."""
_TAKEN = itertools.count()
JOBS = ("slurmstepd", "slurm_script", "sleep")
DAEMONS = ("slurmctld", "slurmd", "sbatch", "squeue")

CONF = """
ClusterName=emul
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/{select}
SchedulerType=sched/{scheduler}
{parameters}
PriorityType=priority/{priority}
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=60
BatchStartTimeout=180
InactiveLimit=0
MinJobAge=300
KillWait=2
SlurmdParameters=config_overrides
{more}
NodeName=DEFAULT CPUs={cpus} RealMemory={memory} {node}
NodeName=n[1-{nodes}] NodeHostName={host} NodeAddr=127.0.0.1 Port=[{first}-{last}]
PartitionName=main Nodes={main} Default=YES MaxTime=INFINITE State=UP {partition}
"""


def chosen(version: str | None = None) -> str:
    """The version of Slurm to use: the given one, HPCTWIN_SLURM's, or the one that is installed."""
    return version or os.environ.get("HPCTWIN_SLURM") or slurm_roots.installed() or ""


def missing(version: str | None = None) -> list[str]:
    """What this machine lacks for a cluster of a version."""
    lacks = [name for name in ("munged", "munge") if shutil.which(name) is None]
    try:
        folder = slurm_roots.bin_folder(chosen(version))
    except slurm_roots.UnavailableError as error:
        return [*lacks, str(error)]
    return lacks + [
        name for name in DAEMONS if shutil.which(name, path=search_path(folder)) is None
    ]


class SlurmCluster:
    """Starts and stops it; only processes that it started itself are ended."""

    def __init__(
        self,
        folder: Path,
        *,
        version: str | None = None,
        scheduler: str = "builtin",
        priority: str = "basic",
        rule: Path | None = None,
        events: Path | None = None,
        nodes: int = NODES,
        cpus: int = 1,
        select: str = "CR_Core",
        memory: int | None = None,
        gpus: int | dict[str, int] = 0,
        gres: tuple[str, ...] = (),
        node: str = "",
        parameters: str = QUICK,
        partition: str = "",
        main: str = "",
        more: tuple[str, ...] = (),
    ) -> None:
        """Write the cluster's configuration; `begin` starts it.

        Args:
            folder: An empty folder for all that the cluster writes.
            version: Slurm's version; see `chosen`.
            scheduler: Name of the scheduler plugin.
            priority: Name of the priority plugin.
            rule: The site's submit rule.
            events: The site's event script.
            nodes: Number of nodes.
            cpus: CPUs of each node; with more than one, jobs share nodes.
            select: What jobs share nodes by.
            memory: Memory of each node, in MB.
            gpus: GPUs of each node, all of one type or by type; files stand for the devices.
            gres: Further gres of each node, such as ``fpga:x:2``.
            node: Further settings of all nodes.
            parameters: SchedulerParameters; empty for Slurm's defaults.
            partition: Further settings of the partition.
            more: Further lines of slurm.conf.
        """
        self.folder = folder
        self.version = chosen(version)
        self.bin = slurm_roots.bin_folder(self.version)
        self.nodes = nodes
        self.conf = folder / "slurm.conf"
        for name in ("state", "spool"):
            (folder / name).mkdir()
        host = socket.gethostname().partition(".")[0]
        first = free_ports(nodes + 1)
        more = list(more)
        if plugins := slurm_roots.plugin_folder(self.version):
            more.append(f"PluginDir={plugins}")
        if self.version > "22.05":
            # Jobs run where no cgroup may be made.
            (folder / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
        lines = []
        if gpus:
            types = gpus if isinstance(gpus, dict) else {"a": gpus}
            for kind, count in types.items():
                devices = [folder / f"gpu-{kind}{number}" for number in range(count)]
                for device in devices:
                    # Slurm takes only what is a device: this one is another /dev/null.
                    os.mknod(device, stat.S_IFCHR | 0o600, os.makedev(1, 3))
                files = ",".join(map(str, devices))
                lines.append(f"NodeName=n[1-{nodes}] Name=gpu Type={kind} File={files}")
            gres = (*(f"gpu:{kind}:{count}" for kind, count in types.items()), *gres)
        for name, *kind, count in (one.split(":") for one in gres if not one.startswith("gpu:")):
            about = "".join(f" Type={one}" for one in kind)
            lines.append(f"NodeName=n[1-{nodes}] Name={name}{about} Count={count}")
        if gres:
            (folder / "gres.conf").write_text("\n".join(lines) + "\n")
            names = dict.fromkeys(one.partition(":")[0] for one in gres)
            more.append(f"GresTypes={','.join(names)}")
            node += f" Gres={','.join(gres)}"
        if rule is not None:
            shutil.copy(rule, folder / "job_submit.lua")
            more.append("JobSubmitPlugins=lua")
        if events is not None:
            more += [
                f"PrologSlurmctld={events}",
                "JobCompType=jobcomp/script",
                f"JobCompLoc={events}",
            ]
        self.conf.write_text(
            CONF.format(
                host=host, folder=folder, port=first + nodes, first=first, last=first + nodes - 1,
                nodes=nodes, scheduler=scheduler, priority=priority, cpus=cpus, node=node,
                memory=memory or 100 * cpus,
                select="linear" if cpus == 1 else f"cons_tres\nSelectTypeParameters={select}",
                parameters=f"SchedulerParameters={parameters}" if parameters else "",
                partition=partition, main=main or f"n[1-{nodes}]", more="\n".join(more),
            )
        )  # fmt: skip
        self.env = {**os.environ, "SLURM_CONF": str(self.conf), "PATH": search_path(self.bin)}

    def begin(self) -> None:
        begin_munge()
        self.begin_controller()
        # A job's daemon is looked for where Debian installs it, not beside slurmd.
        steps = ("-d", str(self.bin / "slurmstepd")) if self.bin else ()
        for number in range(1, self.nodes + 1):
            self.run("slurmd", "-f", str(self.conf), "-N", f"n{number}", *steps)
        self.wait(
            lambda: self.say("sinfo", "-h", "-o", "%T %D").split() == ["idle", str(self.nodes)], 60
        )

    def begin_controller(self) -> None:
        self.run("slurmctld", "-f", str(self.conf))
        self.wait(lambda: "UP" in self.say("scontrol", "ping"), 30)

    def end_controller(self) -> None:
        pid = int((self.folder / "slurmctld.pid").read_text())
        os.kill(pid, signal.SIGTERM)
        self.wait(lambda: not Path(f"/proc/{pid}").exists(), 30)

    def end(self) -> None:
        for path in self.folder.glob("slurm*.pid"):
            try:
                pid = int(path.read_text())
                # The pid may be another's by now.
                if b"slurm" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
            except (OSError, ValueError):
                continue
        self._end_jobs()

    def _end_jobs(self) -> None:
        """End jobs that still run: told of later, their ends would be taken for those of a cluster to come.

        What watches a job tells the controller's port of its end again and again, whoever listens by then.
        """
        ours = f"SLURM_CONF={self.conf}".encode()
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (process / "comm").read_text().strip() not in JOBS:
                    continue
                # Since 24.11 slurmstepd overwrites its environment, but its working folder is ours.
                own = ours in (process / "environ").read_bytes().split(b"\0")
                if own or Path(os.readlink(process / "cwd")).is_relative_to(self.folder):
                    os.kill(int(process.name), signal.SIGKILL)

    def say(self, *command: str) -> str:
        """What a command prints; empty if it fails."""
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=300)
        return done.stdout

    def submit(self, nodes: int, minutes: int, runs_s: float, *options: str) -> str:
        """Submit a job that sleeps; its id."""
        said = self.say(
            "sbatch", "--parsable", f"-N{nodes}", f"-t{minutes}", "-o", "/dev/null", "-D", "/tmp",
            *options, "--wrap", f"exec sleep {runs_s}",
        ).strip()  # fmt: skip
        assert said, "sbatch failed"
        return said.partition(";")[0]

    def submit_script(self, text: str) -> str:
        """Submit a script, given without its first line; the job's id."""
        path = self.folder / "job.sh"
        path.write_text("#!/bin/sh\n" + text)
        return self.say("sbatch", "--parsable", "-o", "/dev/null", "-D", "/tmp", str(path)).strip()

    def submit_tasks(self, minutes: float, runs_s: float, *options: str) -> str:
        """Submit a job that shares its nodes; its id."""
        said = self.say(
            "sbatch", "--parsable", f"-t{minutes}", "-o", "/dev/null", "-D", "/tmp", *options, "--wrap",
            f"exec sleep {runs_s}",
        ).strip()  # fmt: skip
        assert said, "sbatch failed"
        return said

    def job(self, job_id: str) -> dict[str, str]:
        line = self.say("scontrol", "show", "job", "-o", job_id)
        return dict(part.split("=", 1) for part in line.split() if "=" in part)

    def wait(self, done, seconds: float) -> None:
        """Until something is so; five minutes at least, for the machine may be busy."""
        until = time.monotonic() + max(seconds, 300)
        while not done():
            if time.monotonic() > until:
                log = self.folder / "slurmctld.log"
                raise TimeoutError(log.read_text()[-2000:] if log.exists() else "no log")
            time.sleep(0.05)

    def run(self, *command: str) -> None:
        """Run a command; an error if it fails."""
        subprocess.run(command, env=self.env, check=True, capture_output=True, timeout=300)


def search_path(folder: Path | None) -> str:
    """The search path of commands, with those of a folder first."""
    return os.pathsep.join([*([str(folder)] if folder else []), slurm_roots.PATH])


def begin_munge() -> None:
    """munged, once per machine; it is left running as a service would be."""
    if subprocess.run(["munge", "-n"], capture_output=True).returncode == 0:
        return
    run = Path("/run/munge")
    run.mkdir(exist_ok=True)
    shutil.chown(run, "munge", "munge")
    subprocess.run(["su", "-s", "/bin/sh", "munge", "-c", "munged --force"], check=True)


def free_ports(count: int) -> int:
    """The first of so many consecutive ports that are free on loopback; never the same ones again.

    They lie below those that Linux gives to connections, and each test process has its own.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    last = 10_000 + 5_000 * (worker % 4 + 1)
    while (first := last - 5_000 + next(_TAKEN) * count) + count <= last:
        sockets = []
        try:
            for port in range(first, first + count):
                one = socket.socket()
                sockets.append(one)
                one.bind(("127.0.0.1", port))
        except OSError:
            continue
        else:
            return first
        finally:
            for one in sockets:
                one.close()
    raise OSError("no free ports")
