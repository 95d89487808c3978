"""What there is on this machine: which resource manager, its version, our rights, what would work."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from hpctwin.errors import CommandError, HpctwinError, UnreachableError
from hpctwin.rms.commands import not_inherited
from hpctwin.rms.manager import ResourceManager
from hpctwin.rms.pbs.install import LIFTING_HOOK
from hpctwin.rms.pbs.manager import PbsManager
from hpctwin.rms.pbs.parse import server_attributes
from hpctwin.rms.slurm.manager import SlurmManager

__all__ = ["Finding", "Probe", "probe"]

T = TypeVar("T")

OLDEST_SLURM = (22, 5)
MOST_ITERATION_S = 60
"""PBS's scheduler should look at its jobs so often by itself."""


@dataclass(frozen=True)
class Finding:
    """One thing that was tried.

    Args:
        what: what.
        works: whether it would; None where that cannot be told without doing it.
        says: how that is known, or what is missing.
    """

    what: str
    works: bool | None
    says: str


@dataclass
class Probe:
    """What was found of one resource manager.

    Args:
        manager: ``slurm`` or ``pbs``.
        version: as it says itself; empty where it did not answer.
        findings: what was tried. Nothing is changed by trying.
    """

    manager: str
    version: str = ""
    findings: list[Finding] = field(default_factory=list)

    def add(self, what: str, works: bool | None, says: str) -> None:
        """Note a finding."""
        self.findings.append(Finding(what, works, says))


def probe(folder: str = "", conf: Path | None = None) -> list[Probe]:
    """Look for resource managers here. Only commands that read are run.

    Args:
        folder: where the commands are; the path is searched if empty.
        conf: ``SLURM_CONF``, where it is not the default.
    """
    found = []
    where = folder or None
    if shutil.which("squeue", path=where):
        found.append(_probe_slurm(folder, conf))
    if shutil.which("qstat", path=where) and shutil.which("pbsnodes", path=where):
        found.append(_probe_pbs(folder))
    return found


def _probe_slurm(folder: str, conf: Path | None) -> Probe:
    result = Probe("slurm")
    for said in not_inherited("SLURM_CONF") if conf is None else ():
        result.add("environment", False, f"{said} is not used: give it as --conf (manager.conf)")
    manager = SlurmManager("probe", folder=folder, conf=conf)
    run = manager.commands.run
    text = _try(lambda: run("squeue", ["--version"]).decode(), result, "squeue")
    version = re.search(r"(\d+)\.(\d+)[\w.-]*", text or "")
    if version:
        result.version = version[0]
        new_enough = (int(version[1]), int(version[2])) >= OLDEST_SLURM
        says = f"Slurm {version[0]}" + ("" if new_enough else "; 22.05 is the oldest that is read")
        result.add("version", new_enough, says)
    _look(manager, result)
    config = _try(
        lambda: run("scontrol", ["show", "config"]).decode(errors="replace"), result, "config"
    )
    if config is not None:
        about = {
            k: v.strip() for k, v in re.findall(r"^(\w+)\s*= (.*)$", config, flags=re.MULTILINE)
        }
        _slurm_settings(about, result)
        _slurm_rights(run, about, result)
    return result


def _slurm_settings(about: dict[str, str], result: Probe) -> None:
    scheduler = about.get("SchedulerType", "?")
    result.add("own scheduler", True, scheduler)
    estimates = scheduler == "sched/backfill"
    says = "squeue --start has estimates" if estimates else f"{scheduler} makes none"
    result.add("own start-time estimates", estimates, says)
    lua = "lua" in about.get("JobSubmitPlugins", "")
    result.add(
        "acting by lease",
        lua,
        "JobSubmitPlugins has lua; the rule of `hpctwin rms slurm-rule` must be in it"
        if lua
        else "needs JobSubmitPlugins=lua with the rule of `hpctwin rms slurm-rule`",
    )
    multifactor = about.get("PriorityType") == "priority/multifactor"
    result.add("acting by priority", multifactor, f"PriorityType={about.get('PriorityType', '?')}")
    if multifactor and "ACCRUE_ALWAYS" not in about.get("PriorityFlags", ""):
        says = "without PriorityFlags=ACCRUE_ALWAYS, jobs grow no older while they are leased"
        result.add("age priority under leases", False, says)
    for what, key, wanted in (
        ("pushed starts", "PrologSlurmctld", "the script of `hpctwin rms slurm-events`"),
        ("pushed ends", "JobCompType", "jobcomp/script"),
    ):
        value = about.get(key, "(null)").strip()
        fine = "hpctwin" in value if key == "PrologSlurmctld" else value == "jobcomp/script"
        says = f"{key}={value}" if fine else f"{key} is {value}; it would be {wanted}"
        result.add(what, fine, says + ("" if fine else "; without it, changes are seen by polling"))


def _slurm_rights(run: Callable[..., bytes], about: dict[str, str], result: Probe) -> None:
    me = getpass.getuser()
    owner = about.get("SlurmUser", "").partition("(")[0]
    if os.getuid() == 0 or me == owner:
        result.add("rights", True, f"{me} may change every job (operator's rights would do)")
        return
    try:
        said = run("sacctmgr", ["-nP", "show", "user", me, "format=AdminLevel"]).decode().strip()
    except (CommandError, UnreachableError) as error:
        result.add("rights", None, f"{me}: the level cannot be asked for ({error})")
        return
    fine = said in ("Operator", "Administrator")
    says = f"{me} is {said or 'an ordinary user'}" + ("" if fine else "; acting needs Operator")
    result.add("rights", fine, says)


def _probe_pbs(folder: str) -> Probe:
    result = Probe("pbs")
    manager = PbsManager("probe", folder=folder)
    run = manager.commands.run
    about = _try(
        lambda: server_attributes(run("qstat", ["-B", "-f", "-F", "json"])), result, "server"
    )
    if about is not None:
        result.version = about["pbs_version"]
        result.add("version", True, f"PBS {result.version}")
        result.add("own scheduling", True, f"scheduling is {about.get('scheduling', '?')}")
        _pbs_ends(run, about, result)
        estimates = "est_start_time_freq" in about
        result.add(
            "own start-time estimates",
            estimates,
            "est_start_time_freq is set" if estimates else "est_start_time_freq is not set",
        )
        _pbs_rights(about, result)
    _look(manager, result)
    try:
        said = run("qmgr", ["-c", "list hook hpctwin"]).decode(errors="replace")
        enabled = re.search(r"enabled = true", said, re.I) is not None
        result.add(
            "pushed events", enabled, "the hook is in" + ("" if enabled else ", not enabled")
        )
    except CommandError as error:
        says = f"{error}; `hpctwin rms pbs install` puts the hook in, as root on the server"
        result.add("pushed events", False, says)
    except UnreachableError as error:
        result.add("pushed events", None, str(error))
    return result


def _pbs_ends(run: Callable[..., bytes], about: dict[str, object], result: Probe) -> None:
    """Whether PBS looks at the jobs of a twin that is gone."""
    with contextlib.suppress(CommandError, UnreachableError):
        said = run("qmgr", ["-c", f"list hook {LIFTING_HOOK}"]).decode(errors="replace")
        if re.search(r"enabled = true", said, re.I):
            result.add("ends of leases", True, f"the hook {LIFTING_HOOK} sees to them")
            return
    every = str(about.get("scheduler_iteration", "600"))
    soon = every.isdigit() and int(every) <= MOST_ITERATION_S
    says = f"no hook {LIFTING_HOOK}, scheduler_iteration is {every} s"
    says += "" if soon else f"; at most {MOST_ITERATION_S} s, so that lost leases end soon"
    result.add("ends of leases", soon, says)


def _pbs_rights(about: dict[str, object], result: Probe) -> None:
    me = getpass.getuser()
    lists = f"{about.get('managers', '')},{about.get('operators', '')}"
    named = {entry.strip().partition("@")[0] for entry in lists.split(",")}
    if me in named:
        result.add("rights", True, f"{me} is among the operators or managers")
    elif os.getuid() == 0:
        result.add("rights", None, "root is manager where acl_roots or the server's host says so")
    else:
        result.add("rights", False, f"{me} is neither operator nor manager; acting needs operator")


def _look(manager: ResourceManager, result: Probe) -> None:
    """Read the whole state once, as the twin would."""
    snapshot = _try(manager.snapshot, result, "reading the state")
    if snapshot is None:
        return
    running = sum(job.start_s is not None for job in snapshot.jobs)
    partitions = ", ".join(p.name for p in snapshot.machine.partitions) or "none"
    result.add(
        "reading the state",
        True,
        f"{len(snapshot.nodes)} nodes, {running} jobs running, {len(snapshot.jobs) - running} waiting; "
        f"partitions: {partitions}",
    )
    for note in manager.report().notes[:20]:
        result.add("not modelled", False, note)


def _try(ask: Callable[[], T], result: Probe, what: str) -> T | None:
    try:
        return ask()
    except CommandError as error:
        result.add(what, False, str(error))
    except HpctwinError as error:
        result.add(what, False, str(error))
    return None
