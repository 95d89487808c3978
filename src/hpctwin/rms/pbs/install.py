"""Putting the hook into a PBS server, and taking it out."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from hpctwin.errors import ConfigError
from hpctwin.model import write_atomically
from hpctwin.rms.commands import Commands, Failed
from hpctwin.rms.spool import checked_path

__all__ = ["EVENTS", "hook_text", "install", "install_commands", "uninstall", "uninstall_commands"]

HOOK = "hpctwin"

EVENTS = ("runjob", "postqueuejob", "jobobit", "modifyjob", "movejob", "modifyvnode")
"""Events on the server that together tell everything; MoM hooks are not needed, and each costs a job's
start more than 100 ms."""

INSTEAD = {"postqueuejob": ("queuejob",), "jobobit": (), "modifyvnode": ()}
"""What takes the place of an event that this version does not have; where nothing does, the next look at
the queue tells."""


def hook_text(spool: Path) -> str:
    """The hook's source, for one spool.

    Raises:
        ConfigError: the path is not an absolute one of plain characters.
    """
    source = (files("hpctwin.rms.pbs") / "hook.py").read_text()
    line = 'SPOOL = "/var/spool/hpctwin/pbs-events.jsonl"'
    assert line in source
    return source.replace(line, f'SPOOL = "{checked_path(spool)}"')


def install_commands(hook_file: Path) -> list[list[str]]:
    """The qmgr calls that put the hook in. Those that set an event may be refused by old versions."""
    directives = [
        f"create hook {HOOK}",
        *(f"set hook {HOOK} event += {event}" for event in EVENTS),
        f"import hook {HOOK} application/x-python default {hook_file}",
        f"set hook {HOOK} alarm = 5",
        f"set hook {HOOK} order = 1000",
        f"set hook {HOOK} enabled = true",
    ]
    return [["qmgr", "-c", directive] for directive in directives]


def uninstall_commands() -> list[list[str]]:
    """The qmgr call that takes the hook out."""
    return [["qmgr", "-c", f"delete hook {HOOK}"]]


def install(commands: Commands, spool: Path, hook_file: Path, said: Callable[[str], None]) -> None:
    """Make the spool's folder, write the hook and put it in; at a fault all is undone.

    Args:
        commands: runs qmgr.
        spool: the file that the hook writes.
        hook_file: where the hook's source is put for the import; deleted afterwards.
        said: told of each step.

    Raises:
        ConfigError: a path cannot be used.
        Failed: qmgr refused; the hook is not in.
        UnreachableError: no answer.
    """
    text = hook_text(spool)
    try:
        spool.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        with write_atomically(hook_file) as file:
            file.write(text.encode())
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}") from error
    try:
        _install(commands, hook_file, said)
    finally:
        hook_file.unlink(missing_ok=True)


def uninstall(commands: Commands, said: Callable[[str], None]) -> None:
    """Take the hook out.

    Raises:
        Failed: qmgr refused.
        UnreachableError: no answer.
    """
    for command in uninstall_commands():
        commands.run(command[0], command[1:])
        said(" ".join(command))


def _install(commands: Commands, hook_file: Path, said: Callable[[str], None]) -> None:
    first, *others = install_commands(hook_file)
    commands.run(first[0], first[1:])
    said(first[-1])
    try:
        for command in others:
            event = command[-1].rpartition("event += ")[2] if "event += " in command[-1] else None
            try:
                commands.run(command[0], command[1:])
                said(command[-1])
            except Failed as error:
                if event not in INSTEAD:
                    raise
                said(f"# this version has no event {event}: {error}")
                for other in INSTEAD[event]:
                    commands.run("qmgr", ["-c", f"set hook {HOOK} event += {other}"])
                    said(f"set hook {HOOK} event += {other}")
    except Exception:
        uninstall(commands, said)
        raise
