"""Putting the hook into a PBS server, and taking it out."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from hpctwin.errors import CommandError, ConfigError
from hpctwin.model import write_atomically
from hpctwin.rms.commands import Commands
from hpctwin.rms.pbs.jobs import MARK
from hpctwin.rms.spool import checked_path

__all__ = [
    "EVENTS", "HookSettings", "hook_text", "install", "install_commands", "preempting_priority",
    "uninstall", "uninstall_commands",
]  # fmt: skip

HOOK = "hpctwin"

EVENTS = (
    "queuejob", "runjob", "postqueuejob", "jobobit", "modifyjob", "movejob", "modifyvnode",
)  # fmt: skip
"""Events on the server: the first two keep leases, and together they tell everything. MoM hooks are not
needed, and each costs a job's start more than 100 ms."""

_PREEMPTS_BY_QUEUE = {"express_queue", "normal_jobs"}

OPTIONAL = {"postqueuejob", "jobobit", "modifyvnode"}
"""Events that old versions do not have; the next look at the queue tells instead."""


@dataclass(frozen=True)
class HookSettings:
    """What is written into the hook.

    Args:
        spool: the file that it writes.
        heartbeat: the twin's; leases are given while it is fresh.
        queues: only jobs of these are the twin's; of all where none is named.
        lease_s: a job just submitted waits so long for the twin's word.
        express: jobs of a queue of this priority preempt others, and are left to PBS.
    """

    spool: Path = Path("/var/spool/hpctwin/pbs-events.jsonl")
    heartbeat: Path = Path("/run/hpctwin/alive")
    queues: tuple[str, ...] = ()
    lease_s: int = 20
    express: int = 150


def hook_text(settings: HookSettings) -> str:
    """The hook's source.

    Raises:
        ConfigError: a path is not an absolute one of plain characters, a queue has no queue's name, or
            the lease is not 1 to 600 s.
    """
    for queue in settings.queues:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", queue):
            raise ConfigError(f"{queue!r} is not the name of a queue")
    if not 1 <= settings.lease_s <= 600:
        raise ConfigError(f"the first lease is {settings.lease_s} s, expected 1 to 600 s")
    queues = "".join(f'"{queue}", ' for queue in settings.queues)
    values = {
        'SPOOL = "/var/spool/hpctwin/pbs-events.jsonl"': (
            f'SPOOL = "{checked_path(settings.spool)}"'
        ),
        'HEARTBEAT = "/run/hpctwin/alive"': f'HEARTBEAT = "{checked_path(settings.heartbeat)}"',
        "QUEUES = ()": f"QUEUES = ({queues.rstrip()})",
        "LEASE_S = 20": f"LEASE_S = {settings.lease_s}",
        "EXPRESS = 150": f"EXPRESS = {settings.express}",
    }
    source = (files("hpctwin.rms.pbs") / "hook.py").read_text()
    for line, value in values.items():
        assert source.count(line + "\n") == 1
        source = source.replace(line + "\n", value + "\n")
    return source


def preempting_priority(commands: Commands) -> int:
    """From which priority on PBS's scheduler preempts for the jobs of a queue.

    Raises:
        ConfigError: it preempts for other jobs too. It would suspend jobs for one that is to wait.
        CommandError: qmgr refused.
        UnreachableError: no answer.
    """
    said = commands.run("qmgr", ["-c", "list sched"]).decode(errors="replace")
    about = dict(re.findall(r"^\s+(preempt_\w+) = (.*?)\s*$", said, flags=re.MULTILINE))
    others = set(re.findall(r"\w+", about.get("preempt_prio", ""))) - _PREEMPTS_BY_QUEUE
    if others:
        raise ConfigError(
            f"preempt_prio of PBS's scheduler has {', '.join(sorted(others))}: it would suspend jobs "
            "for one that the twin keeps waiting; only express_queue goes with leases"
        )
    return int(about.get("preempt_queue_prio", HookSettings.express))


def install_commands(hook_file: Path) -> list[list[str]]:
    """The qmgr calls that put the hook in. Those that set an event may be refused by old versions."""
    directives = [
        # Flag r: users see it, and cannot ask for it or change it.
        f"create resource {MARK} type=long, flag=r",
        f"create hook {HOOK}",
        *(f"set hook {HOOK} event += {event}" for event in EVENTS),
        f"import hook {HOOK} application/x-python default {hook_file}",
        f"set hook {HOOK} alarm = 5",
        f"set hook {HOOK} order = 1000",
        f"set hook {HOOK} enabled = true",
    ]
    return [["qmgr", "-c", directive] for directive in directives]


def uninstall_commands() -> list[list[str]]:
    """The qmgr calls that take the hook out, and the mark: PBS keeps that while a job has it."""
    things = (f"hook {HOOK}", f"resource {MARK}")
    return [["qmgr", "-c", f"delete {thing}"] for thing in things]


def install(
    commands: Commands,
    settings: HookSettings,
    hook_file: Path,
    said: Callable[[str], None],
    *,
    user: str = "",
) -> None:
    """Make the spool's folder, write the hook and put it in; at a fault the hook is taken out again.

    Args:
        commands: runs qmgr.
        settings: what is written into it.
        hook_file: where the hook's source is put for the import; deleted afterwards.
        said: told of each step.
        user: the twin's; the folders of both files are made for its group to read and write.

    Raises:
        ConfigError: a path cannot be used, or there is no such user.
        CommandError: qmgr refused; the hook is not in.
        UnreachableError: no answer.
    """
    text = hook_text(settings)
    group = _group(user)
    try:
        for path in (settings.spool, settings.heartbeat):
            _folder(path.parent, group)
        with write_atomically(hook_file) as file:
            file.write(text.encode())
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}") from error
    try:
        _install(commands, hook_file, said)
    finally:
        hook_file.unlink(missing_ok=True)


def uninstall(commands: Commands, said: Callable[[str], None]) -> None:
    """Take the hook out, and the mark if no job has it.

    Raises:
        CommandError: qmgr refused to delete the hook.
        UnreachableError: no answer.
    """
    hook, mark = uninstall_commands()
    commands.run(hook[0], hook[1:])
    said(" ".join(hook))
    try:
        commands.run(mark[0], mark[1:])
        said(" ".join(mark))
    except CommandError as error:
        said(f"# resource {MARK} stays until no job has it: {error}")


def _group(user: str) -> int | None:
    if not user:
        return None
    try:
        return pwd.getpwnam(user).pw_gid
    except KeyError:
        raise ConfigError(f"user {user!r} is not known on this machine") from None


def _folder(folder: Path, group: int | None) -> None:
    """Make a folder that nobody else can look into; one that is there is left as it is."""
    if folder.is_dir():
        return
    folder.mkdir(mode=0o750, parents=True)
    if group is not None:
        os.chown(folder, -1, group)
        # What the server's hook writes there is for the twin's group to read.
        folder.chmod(0o2770)


def _install(commands: Commands, hook_file: Path, said: Callable[[str], None]) -> None:
    resource, first, *others = install_commands(hook_file)
    try:
        commands.run(resource[0], resource[1:])
        said(resource[-1])
    except CommandError as error:
        # It is there from an earlier time; with another type or flag it would be no mark.
        about = commands.run("qmgr", ["-c", f"list resource {MARK}"]).decode(errors="replace")
        if not re.search(r"type = long\b", about) or not re.search(r"flag = r\s", about):
            raise CommandError(
                f"resource {MARK} is there and is not the twin's: {error}"
            ) from error
    commands.run(first[0], first[1:])
    said(first[-1])
    try:
        for command in others:
            event = command[-1].rpartition("event += ")[2] if "event += " in command[-1] else None
            try:
                commands.run(command[0], command[1:])
                said(command[-1])
            except CommandError as error:
                if event not in OPTIONAL:
                    raise
                said(f"# this version has no event {event}: {error}")
    except Exception:
        commands.run("qmgr", ["-c", f"delete hook {HOOK}"])
        raise
