"""Settings of a Slurm connection, the probe of Slurm on this host, and its gate.

The probe reports the version, the user's rights, and which ways to act would work. The gate submits
jobs with the key in the comment.
"""

from __future__ import annotations

import getpass
import math
import os
import pwd
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from hpctwin.errors import CommandError, ConfigError, FormatError, UnreachableError
from hpctwin.formats.accounting.slurm_values import number, said
from hpctwin.model.cluster.node_group import Sleep
from hpctwin.model.cluster.power import Watts
from hpctwin.model.settings import Duration, Settings
from hpctwin.model.text import expand
from hpctwin.rms.commands import Commands, not_inherited
from hpctwin.rms.gate import CommandGate, Gate, JobRequest, ListedJob, Mark
from hpctwin.rms.manager import ResourceManager, Way
from hpctwin.rms.settings import PolledSettings, Probe, is_here, look, tried
from hpctwin.rms.site import Sleeping
from hpctwin.rms.slurm.listing.listing import rows_of
from hpctwin.rms.slurm.listing.parse import settings
from hpctwin.rms.slurm.listing.values import whole, words
from hpctwin.rms.slurm.manager import SlurmManager

OLDEST_SLURM = (22, 5)


def probe_slurm(folder: str, conf: Path | None) -> Probe:
    """See `ManagerSettings.probe`."""
    result = Probe("slurm")
    for name in not_inherited("SLURM_CONF") if conf is None else ():
        result.add(
            "environment", False, f"{name} is ignored; use --manager-conf (manager.conf) instead"
        )
    manager = SlurmManager("probe", folder=folder, conf=conf)
    run = manager.commands.run
    text = tried(lambda: run("squeue", ["--version"]).decode(), result, "squeue")
    version = re.search(r"(\d+)\.(\d+)[\w.-]*", text or "")
    if version:
        result.version = version[0]
        new_enough = (int(version[1]), int(version[2])) >= OLDEST_SLURM
        says = f"Slurm {version[0]}" + (
            "" if new_enough else "; the oldest supported version is 22.05"
        )
        result.add("version", new_enough, says)
    look(manager, result)
    about = tried(lambda: settings(run("scontrol", ["show", "config"])), result, "config")
    if about is not None:
        _slurm_settings(about, result)
        _slurm_rights(run, about, result)
    return result


def _slurm_settings(about: dict[str, str], result: Probe) -> None:
    scheduler = about.get("SchedulerType", "?")
    result.add("own scheduler", True, scheduler)
    estimates = scheduler == "sched/backfill"
    says = "squeue --start shows estimates" if estimates else f"{scheduler} makes no estimates"
    result.add("own start-time estimates", estimates, says)
    lua = "lua" in about.get("JobSubmitPlugins", "")
    result.add(
        "acting by lease",
        lua,
        "JobSubmitPlugins contains lua; check that job_submit.lua contains `hpctwin rms slurm rule`"
        if lua
        else "set JobSubmitPlugins=lua, with the output of `hpctwin rms slurm rule`",
    )
    multifactor = about.get("PriorityType") == "priority/multifactor"
    result.add("acting by priority", multifactor, f"PriorityType={about.get('PriorityType', '?')}")
    if multifactor and "ACCRUE_ALWAYS" not in about.get("PriorityFlags", ""):
        says = "without PriorityFlags=ACCRUE_ALWAYS, the age factor of leased jobs does not grow"
        result.add("age priority under leases", False, says)
    for what, key, wanted in (
        ("pushed starts", "PrologSlurmctld", "the script of `hpctwin rms slurm events`"),
        ("pushed ends", "JobCompType", "jobcomp/script"),
    ):
        value = about.get(key) or "not set"
        fine = "hpctwin" in value if key == "PrologSlurmctld" else value == "jobcomp/script"
        says = f"{key}={value}" if fine else f"{key} is {value}, expected {wanted}"
        result.add(
            what, fine, says + ("" if fine else "; without it, the twin sees changes by polling")
        )


def _slurm_rights(run: Callable[..., bytes], about: dict[str, str], result: Probe) -> None:
    me = getpass.getuser()
    owner = about.get("SlurmUser", "").partition("(")[0]
    if os.getuid() == 0 or me == owner:
        result.add("rights", True, f"{me} may change every job (operator rights would be enough)")
        return
    try:
        said = run("sacctmgr", ["-nP", "show", "user", me, "format=AdminLevel"]).decode().strip()
    except (CommandError, UnreachableError) as error:
        result.add("rights", None, f"the admin level of {me} is unknown: {error}")
        return
    fine = said in ("Operator", "Administrator")
    says = f"{me} is {said or 'an ordinary user'}" + ("" if fine else "; acting requires Operator")
    result.add("rights", fine, says)


_ENDED = {
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
    "PREEMPTED", "REVOKED", "TIMEOUT",
}  # fmt: skip


class SlurmGate(CommandGate):
    """Gate into Slurm, see `CommandGate`; the owner is this user or that of ``--uid``.

    Args:
        commands: Slurm's commands.
        mark: Marks written into comments.
        options: Further options of ``sbatch``, such as ``--chdir=/scratch``.
        changed: Function called after a job was submitted or admitted, because its events
            will follow.

    Raises:
        ConfigError: The user does not exist.
    """

    manager = "Slurm"
    submitter = "sbatch"
    admitter = ("scontrol", "release")
    canceller = ("scancel",)
    id = re.compile(r"[1-9]\d{0,11}")
    lost = re.compile(r"timed out|took longer|socket|communication", re.I)

    def __init__(
        self,
        commands: Commands,
        mark: Mark,
        options: Sequence[str] = (),
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(commands, mark, _owner(options), options, changed)

    def _listed(self) -> Iterator[ListedJob]:
        try:
            rows = rows_of(self.commands.run("squeue", ["-a", "--json", "-u", str(self.owner)]))
        except (CommandError, FormatError) as error:
            raise UnreachableError(f"Slurm: {error}") from error
        for row in rows:
            states = words(row.get("job_state"))
            if not states & _ENDED:
                # A held job has priority 0.
                held = "PENDING" in states and number(row.get("priority")) == 0
                owner = number(row.get("user_id"))
                yield ListedJob(
                    said(row.get("comment")), owner, str(whole(row.get("job_id"))), held
                )

    def _asked(self, job: JobRequest, delay_s: float) -> list[str]:
        asked = {
            "nodes": str(job.nodes),
            "time": str(math.ceil(job.walltime_s / 60)),
            "job-name": job.name or job.key,
            "partition": job.partition,
            "account": job.account,
            "qos": job.qos,
            "begin": f"now+{math.ceil(delay_s)}seconds" if delay_s > 0 else "",
            "mincpus": str(math.ceil(job.cores)) if job.cores else "",
            "gpus-per-node": str(math.ceil(job.gpus)) if job.gpus else "",
            "mem": f"{math.ceil(1024 * job.memory_gb)}M" if job.memory_gb else "",
            "comment": self.mark.of(job.key),
        }
        options = [f"--{name}={value}" for name, value in asked.items() if value]
        return ["--parsable", "--hold", *options]


def _owner(options: Sequence[str]) -> int:
    """Return the owner of jobs that ``sbatch`` submits: this user, or ``--uid``'s."""
    said = [*options, ""]
    for option, following in pairwise(said):
        name, equals, value = option.partition("=")
        if name != "--uid":
            continue
        user = value if equals else following
        try:
            return int(user) if user.isdecimal() else pwd.getpwnam(user).pw_uid
        except KeyError as error:
            raise ConfigError(
                f"options: --uid: user {user!r} does not exist on this host"
            ) from error
    return os.getuid()


class SleepingNodes(Settings):
    """Nodes that Slurm switches off and on, as it does by itself with ``SuspendTime``.

    Args:
        nodes: Names of the nodes, as in ``cn[1-64]``; by default all.
        power_w: Power while a job runs, in W.
        idle_w: Power while no job runs, in W.
        sleep: How they switch off and on; times as they usually are, not Slurm's bounds.
    """

    nodes: str = ""
    power_w: Watts
    idle_w: Watts
    sleep: Sleep

    @field_validator("nodes")
    @classmethod
    def _readable(cls, value: str) -> str:
        try:
            expand(value)
        except FormatError as error:
            raise ValueError(str(error)) from error
        return value


class SlurmSettings(PolledSettings):
    """A Slurm controller, reached by its commands.

    Args:
        folder: Folder of ``squeue``, ``sinfo`` and ``scontrol``; by default the path is searched.
        conf: Value of ``SLURM_CONF``, if it is not the default.
        heartbeat: File that the submit rule reads; it is renewed while the twin is in control.
        first_lease: Length of the lease that the submit rule gives; `hpctwin rms slurm rule -c`
            uses it.
        events: Source of the events that `hpctwin rms slurm events` writes.
        power: Nodes that sleep; if omitted, all nodes that Slurm has switched off count as on. The
            first entry that names a node applies.
    """

    ways: ClassVar[tuple[Way, ...]] = ("lease", "priority")
    drifting: ClassVar[bool] = True

    kind: Literal["slurm"]
    cluster: str = "slurm"
    folder: str = ""
    conf: Path | None = None
    min_poll_interval: Duration = Field(default=0.3, gt=0)
    first_lease: Duration = Field(default=20.0, ge=1, le=3600)
    power: tuple[SleepingNodes, ...] = ()

    def open(self, *, longest_lease_s: float = 600.0) -> ResourceManager:
        """See `ManagerSettings`."""
        return SlurmManager(
            self.cluster,
            folder=self.folder,
            conf=self.conf,
            timeout_s=self.timeout,
            heartbeat_file=self.heartbeat,
            longest_lease_s=longest_lease_s,
            first_lease_s=self.first_lease,
            sleeping=[
                (one.nodes, Sleeping(one.power_w, one.idle_w, one.sleep)) for one in self.power
            ],
        )

    def gate(
        self,
        manager: ResourceManager,
        mark: Mark,
        options: tuple[str, ...],
        changed: Callable[[], None],
    ) -> Gate:
        """See `ManagerSettings`."""
        assert isinstance(manager, SlurmManager)
        # Separate commands: the mirror's poller runs them in another thread.
        return SlurmGate(manager.commands.again(), mark, options, changed)

    @classmethod
    def probe(cls, folder: str = "", conf: Path | None = None) -> Probe | None:
        """See `ManagerSettings`."""
        return probe_slurm(folder, conf) if is_here(folder, "squeue") else None

    def environment(self) -> dict[str, tuple[str, ...]]:
        """See `ManagerSettings`."""
        return {} if self.conf is not None else {"conf": ("SLURM_CONF",)}
