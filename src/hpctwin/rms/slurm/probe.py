"""What there is of Slurm on this machine: its version, our rights, what would work."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Callable
from pathlib import Path

from hpctwin.errors import CommandError, UnreachableError
from hpctwin.rms.commands import not_inherited
from hpctwin.rms.probe import Probe, look, tried
from hpctwin.rms.slurm.listing.parse import settings
from hpctwin.rms.slurm.manager import SlurmManager

__all__ = ["probe_slurm"]

OLDEST_SLURM = (22, 5)


def probe_slurm(folder: str, conf: Path | None) -> Probe:
    """See `ManagerSettings.probe`."""
    result = Probe("slurm")
    for said in not_inherited("SLURM_CONF") if conf is None else ():
        result.add(
            "environment", False, f"{said} is not used: give it as --manager-conf (manager.conf)"
        )
    manager = SlurmManager("probe", folder=folder, conf=conf)
    run = manager.commands.run
    text = tried(lambda: run("squeue", ["--version"]).decode(), result, "squeue")
    version = re.search(r"(\d+)\.(\d+)[\w.-]*", text or "")
    if version:
        result.version = version[0]
        new_enough = (int(version[1]), int(version[2])) >= OLDEST_SLURM
        says = f"Slurm {version[0]}" + ("" if new_enough else "; 22.05 is the oldest that is read")
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
    says = "squeue --start has estimates" if estimates else f"{scheduler} makes none"
    result.add("own start-time estimates", estimates, says)
    lua = "lua" in about.get("JobSubmitPlugins", "")
    result.add(
        "acting by lease",
        lua,
        "JobSubmitPlugins has lua; the rule of `hpctwin rms slurm rule` must be in it"
        if lua
        else "needs JobSubmitPlugins=lua with the rule of `hpctwin rms slurm rule`",
    )
    multifactor = about.get("PriorityType") == "priority/multifactor"
    result.add("acting by priority", multifactor, f"PriorityType={about.get('PriorityType', '?')}")
    if multifactor and "ACCRUE_ALWAYS" not in about.get("PriorityFlags", ""):
        says = "without PriorityFlags=ACCRUE_ALWAYS, jobs grow no older while they are leased"
        result.add("age priority under leases", False, says)
    for what, key, wanted in (
        ("pushed starts", "PrologSlurmctld", "the script of `hpctwin rms slurm events`"),
        ("pushed ends", "JobCompType", "jobcomp/script"),
    ):
        value = about.get(key) or "not set"
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
