"""Installation of the hook in a PBS server, and its removal."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from hpctwin.errors import CommandError, ConfigError
from hpctwin.model import write_atomically
from hpctwin.rms.commands import Commands
from hpctwin.rms.pbs.listing.jobs import MARK, WAIT
from hpctwin.rms.polling.spool import checked_path

HOOK = "hpctwin"
LIFTING_HOOK = "hpctwin_lift"
"""The same source at a periodic event, which PBS allows only in a separate hook."""
LIFTS_EVERY_S = 10

EVENTS = ("queuejob", "runjob", "postqueuejob", "jobobit", "modifyjob", "movejob")
"""Events on the server: the first two keep leases; together they report all jobs.

MoM hooks are not needed, and each delays a job's start by more than 100 ms. The event modifyvnode
comes for each node that a job takes or leaves, 0.7 ms of the server every time.
"""

_PREEMPTS_BY_QUEUE = {"express_queue", "normal_jobs"}

OPTIONAL = {"postqueuejob", "jobobit"}
"""Events that old versions do not have; the next poll shows the change instead."""


@dataclass(frozen=True)
class HookSettings:
    """Settings written into the hook.

    Args:
        spool: File that the hook writes.
        heartbeat: Heartbeat of the twin; leases are given while it is fresh.
        queues: Only jobs of these queues are the twin's; of all if empty.
        lease_s: Time that a new job waits for the twin's decision, in seconds.
        express: Jobs of a queue with this priority preempt others, and are left to PBS.
    """

    spool: Path = Path("/var/spool/hpctwin/pbs-events.jsonl")
    heartbeat: Path = Path("/run/hpctwin/alive")
    queues: tuple[str, ...] = ()
    lease_s: int = 20
    express: int = 150


def hook_text(settings: HookSettings) -> str:
    """Return the hook's source.

    Raises:
        ConfigError: A path is not an absolute one of plain characters, a queue's name is invalid,
            or the lease is not 1 to 600 s.
    """
    for queue in settings.queues:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", queue):
            raise ConfigError(
                f"{queue!r} is not a valid queue name; expected letters, digits, and . _ -"
            )
    if not 1 <= settings.lease_s <= 600:
        raise ConfigError(f"lease_s is {settings.lease_s} s, expected 1 to 600 s")
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
    """Return the lowest queue priority for whose jobs PBS's scheduler preempts.

    Raises:
        ConfigError: It preempts for other jobs too. It would suspend jobs for one that must wait.
        CommandError: qmgr refused.
        UnreachableError: No answer.
    """
    said = commands.run("qmgr", ["-c", "list sched"]).decode(errors="replace")
    about = dict(re.findall(r"^\s+(preempt_\w+) = (.*?)\s*$", said, flags=re.MULTILINE))
    others = set(re.findall(r"\w+", about.get("preempt_prio", ""))) - _PREEMPTS_BY_QUEUE
    if others:
        raise ConfigError(
            f"preempt_prio of PBS's scheduler contains {', '.join(sorted(others))}, so it would suspend jobs "
            "for a job that the twin delays; leases work with express_queue only"
        )
    return int(about.get("preempt_queue_prio", HookSettings.express))


def install_commands(hook_file: Path) -> list[list[str]]:
    """Return the qmgr calls that install the hook.

    Old versions may refuse those for some events.
    """
    directives = [
        # Flag r: users see them, and cannot request or change them.
        *(f"create resource {name} type=long, flag=r" for name in (MARK, WAIT)),
        *_hook_directives(HOOK, EVENTS, hook_file),
        *_hook_directives(LIFTING_HOOK, ("periodic",), hook_file, f"freq = {LIFTS_EVERY_S}"),
    ]
    return [["qmgr", "-c", directive] for directive in directives]


def _hook_directives(
    name: str, events: tuple[str, ...], hook_file: Path, *settings: str
) -> Iterator[str]:
    yield f"create hook {name}"
    yield from (f"set hook {name} event += {event}" for event in events)
    yield f"import hook {name} application/x-python default {hook_file}"
    for setting in (*settings, "alarm = 5", "order = 1000", "enabled = true"):
        yield f"set hook {name} {setting}"


def uninstall_commands() -> list[list[str]]:
    """Return the qmgr calls that remove the hook, its limit and its resources.

    PBS keeps resources that a job has.
    """
    directives = [
        *(f"delete hook {name}" for name in (HOOK, LIFTING_HOOK)),
        f"unset server max_run_res.{WAIT}",
        *(f"delete resource {name}" for name in (MARK, WAIT)),
    ]
    return [["qmgr", "-c", directive] for directive in directives]


def install(
    commands: Commands,
    settings: HookSettings,
    hook_file: Path,
    said: Callable[[str], None],
    *,
    user: str = "",
) -> None:
    """Create the spool's folder, write the hook and install it; undo on errors.

    Args:
        hook_file: Path of the hook's source for the import; deleted afterwards.
        user: User of the twin; its group may read and write the folders of both files.

    Raises:
        ConfigError: A path cannot be used, or the user does not exist.
        CommandError: qmgr refused; the hook is not installed.
        UnreachableError: No answer.
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
    """Remove the hook, its limit, and its resources if no job has them."""
    hook, *others = uninstall_commands()
    commands.run(hook[0], hook[1:])
    said(" ".join(hook))
    for command in others:
        try:
            commands.run(command[0], command[1:])
            said(" ".join(command))
        except CommandError as error:
            said(f"# {command[-1]}: {error}")


def _group(user: str) -> int | None:
    if not user:
        return None
    try:
        return pwd.getpwnam(user).pw_gid
    except KeyError:
        raise ConfigError(f"user {user!r} does not exist on this host") from None


def _folder(folder: Path, group: int | None) -> None:
    """Create a folder closed to other users; an existing one is left as it is."""
    if folder.is_dir():
        return
    folder.mkdir(mode=0o750, parents=True)
    if group is not None:
        os.chown(folder, -1, group)
        # The twin's group must be able to read what the server's hook writes there.
        folder.chmod(0o2770)


def _install(commands: Commands, hook_file: Path, said: Callable[[str], None]) -> None:
    def run(command: list[str]) -> None:
        commands.run(command[0], command[1:])
        said(command[-1])

    every = install_commands(hook_file)
    resources = [command for command in every if command[-1].startswith("create resource")]
    lifting = [command for command in every if f"hook {LIFTING_HOOK} " in f"{command[-1]} "]
    first, *others = [command for command in every if command not in resources + lifting]
    for command in resources:
        _resource(commands, command, run)
    run(first)
    try:
        for command in others:
            event = command[-1].rpartition("event += ")[2] if "event += " in command[-1] else None
            try:
                run(command)
            except CommandError as error:
                if event not in OPTIONAL:
                    raise
                said(f"# this version does not support event {event}: {error}")
    except Exception:
        commands.run("qmgr", ["-c", f"delete hook {HOOK}"])
        raise
    try:
        for command in lifting:
            run(command)
    except CommandError as error:
        said(f"# the twin sets no limit, as no hook removes it again: {error}")
        with contextlib.suppress(CommandError):
            commands.run("qmgr", ["-c", f"delete hook {LIFTING_HOOK}"])


def _resource(commands: Commands, command: list[str], run: Callable[[list[str]], None]) -> None:
    try:
        run(command)
    except CommandError as error:
        # It exists from an earlier time; with another type or flag users could set it.
        name = command[-1].split()[2]
        about = commands.run("qmgr", ["-c", f"list resource {name}"]).decode(errors="replace")
        if not re.search(r"type = long\b", about) or not re.search(r"flag = r\s", about):
            raise CommandError(
                f"resource {name} exists, and hpctwin did not create it: {error}"
            ) from error
