"""What is put beside a Slurm controller: the event script, and the submit rule."""

from __future__ import annotations

import grp
import os
import pwd
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from hpctwin.errors import ConfigError
from hpctwin.model import write_atomically
from hpctwin.model.files.trusted import check_trusted
from hpctwin.rms.polling.spool import checked_path

__all__ = ["Rule", "events_script", "install_events", "rule_text"]


@dataclass(frozen=True)
class Rule:
    """What the submit rule is to do.

    Args:
        partitions: only jobs that run in these alone are the twin's; all if there are none.
        users: names or numbers of those who may end leases of their own jobs.
        heartbeat: the file that is fresh while the twin is in charge.
        spool: the file that is told of each submission.
        lease_s: how long a first lease is, seconds.
    """

    partitions: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    heartbeat: Path = Path("/run/hpctwin/alive")
    spool: Path = Path("/var/spool/hpctwin/slurm-events.jsonl")
    lease_s: float = 20.0


def rule_text(rule: Rule) -> str:
    """The ``job_submit.lua``.

    Raises:
        ConfigError: a name, path or number cannot be written into it.
    """
    for name in rule.partitions:
        if not name.replace("-", "").replace("_", "").isalnum():
            raise ConfigError(f"{name!r} is not the name of a partition")
    lease_s = round(rule.lease_s)
    if not 1 <= lease_s <= 3600:
        raise ConfigError(f"the first lease is {rule.lease_s:g} s, expected 1 to 3600 s")
    names = ", ".join(f'["{name}"] = true' for name in rule.partitions)
    trusted = ", ".join(f"[{uid}] = true" for uid in dict.fromkeys([0, *map(_uid, rule.users)]))
    text = (files("hpctwin.rms.slurm") / "job_submit.lua").read_text()
    for line, made in (
        ("local PARTITIONS = {}", f"local PARTITIONS = {{{names}}}"),
        ("local TRUSTED = {[0] = true}", f"local TRUSTED = {{{trusted}}}"),
        (f'"{Rule.heartbeat}"', f'"{checked_path(rule.heartbeat)}"'),
        (f'"{Rule.spool}"', f'"{checked_path(rule.spool)}"'),
        ("local LEASE_S = 20 ", f"local LEASE_S = {lease_s} "),
    ):
        assert line in text
        text = text.replace(line, made)
    return text


def events_script(spool: Path) -> str:
    """The script's text, for one spool.

    Raises:
        ConfigError: the path is not an absolute one of plain characters.
    """
    text = (files("hpctwin.rms.slurm") / "events.sh").read_text()
    line = "SPOOL=/var/spool/hpctwin/slurm-events.jsonl"
    assert line in text
    return text.replace(line, f"SPOOL={checked_path(spool)}")


def install_events(script: Path, spool: Path, owner: str) -> None:
    """Make the spool's folder, mode 2750, and write the script.

    Args:
        script: where it is written.
        spool: the file that it will write.
        owner: whose the folder is to be, ``USER`` or ``USER:GROUP``.

    Raises:
        ConfigError: a path cannot be used, there is no such user or group, or others may write where the
            script is put: it runs as the SlurmUser.
        OutputError: the script cannot be written.
    """
    text = events_script(spool)
    uid, gid = _ids(owner)
    check_trusted(script.parent)
    folder = spool.parent
    try:
        made = not folder.exists()
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        if folder.is_symlink() or not folder.is_dir():
            raise ConfigError(f"{folder}: must be a folder of its own, for the spool alone")
        if made:
            os.chown(folder, uid, gid, follow_symlinks=False)
            # Not less than that by a umask; what the script writes there is for the folder's group to read.
            folder.chmod(0o2750)
        elif folder.stat().st_mode & 0o022:
            raise ConfigError(f"{folder}: others may write there; chmod 750 {folder}")
    except OSError as error:
        raise ConfigError(f"{folder}: {error.strerror}") from error
    with write_atomically(script) as file:
        file.write(text.encode())
    script.chmod(0o755)


def _uid(user: str) -> int:
    try:
        return int(user) if user.isdigit() else pwd.getpwnam(user).pw_uid
    except KeyError:
        raise ConfigError(f"there is no user {user!r} on this machine") from None


def _ids(owner: str) -> tuple[int, int]:
    user, _, group = owner.partition(":")
    try:
        about = pwd.getpwnam(user)
        return about.pw_uid, grp.getgrnam(group).gr_gid if group else about.pw_gid
    except KeyError as error:
        raise ConfigError(f"--owner {owner}: there is no such user or group here") from error
