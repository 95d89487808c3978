"""What there is of PBS on this machine: its version, our rights, what would work."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
from collections.abc import Callable

from hpctwin.errors import CommandError, UnreachableError
from hpctwin.rms.pbs.install import LIFTING_HOOK
from hpctwin.rms.pbs.listing.parse import server_attributes
from hpctwin.rms.pbs.manager import PbsManager
from hpctwin.rms.probe import Probe, look, tried

__all__ = ["probe_pbs"]

MOST_ITERATION_S = 60
"""PBS's scheduler should look at its jobs so often by itself."""


def probe_pbs(folder: str) -> Probe:
    """See `ManagerSettings.probe`."""
    result = Probe("pbs")
    manager = PbsManager("probe", folder=folder)
    run = manager.commands.run
    about = tried(
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
    look(manager, result)
    try:
        said = run("qmgr", ["-c", "list hook hpctwin"]).decode(errors="replace")
        enabled = re.search(r"enabled = true", said, re.I) is not None
        result.add(
            "pushed events", enabled, "the hook is in" + ("" if enabled else ", not enabled")
        )
        _places(run, result)
    except CommandError as error:
        says = f"{error}; `hpctwin rms pbs install` puts the hook in, as root on the server"
        result.add("pushed events", False, says)
    except UnreachableError as error:
        result.add("pushed events", None, str(error))
    return result


def _places(run: Callable[..., bytes], result: Probe) -> None:
    """Whether ``act.by: start`` would run jobs on the vnodes that the twin chooses."""
    what = "starts where the twin says (`act.by: start`)"
    try:
        said = run("qmgr", ["-c", "export hook hpctwin application/x-python default"])
    except (CommandError, UnreachableError) as error:
        result.add(what, None, f"the hook's text could not be read: {error}")
        return
    watches = b"has no room for" in said
    says = "qrun -H: the hook lets none run where there is no room" if watches else (
        "qrun, and PBS chooses the vnodes: the hook is an older one; `hpctwin rms pbs install` renews it"
    )  # fmt: skip
    result.add(what, watches, says)


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
