"""Files installed next to a Slurm controller: event script and submit rule."""

from __future__ import annotations

import grp
import os
import pwd
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from hpctwin.errors import ConfigError
from hpctwin.model import write_atomically
from hpctwin.model.trusted import check_trusted
from hpctwin.rms.polling.spool import checked_path


@dataclass(frozen=True)
class Rule:
    """Configuration of the submit rule.

    Args:
        partitions: Only jobs that run in these alone are the twin's; if empty, all jobs are.
        users: Names or numbers of users allowed to end the leases of their jobs.
        heartbeat: File that is fresh while the twin is in control.
        spool: File to which each submission is written.
        lease_s: Length of a first lease, in seconds.
    """

    partitions: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    heartbeat: Path = Path("/run/hpctwin/alive")
    spool: Path = Path("/var/spool/hpctwin/slurm-events.jsonl")
    lease_s: float = 20.0


def rule_text(rule: Rule) -> str:
    """Return the ``job_submit.lua``."""
    for name in rule.partitions:
        if not name.replace("-", "").replace("_", "").isalnum():
            raise ConfigError(
                f"{name!r} is not a valid partition name; expected letters, digits, - and _"
            )
    lease_s = round(rule.lease_s)
    if not 1 <= lease_s <= 3600:
        raise ConfigError(f"lease_s is {rule.lease_s:g} s, expected 1 to 3600 s")
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
    """Return the script's text for one spool."""
    text = (files("hpctwin.rms.slurm") / "events.sh").read_text()
    line = "SPOOL=/var/spool/hpctwin/slurm-events.jsonl"
    assert line in text
    return text.replace(line, f"SPOOL={checked_path(spool)}")


def install_events(script: Path, spool: Path, owner: str) -> None:
    """Create the spool's folder, mode 2750, and write the script.

    Args:
        owner: Owner of the folder, ``USER`` or ``USER:GROUP``.

    Raises:
        ConfigError: A path cannot be used, the user or group does not exist, or other users may
            write in the script's folder: the script runs as the SlurmUser.
        OutputError: The script cannot be written.
    """
    text = events_script(spool)
    uid, gid = _ids(owner)
    check_trusted(script.parent)
    folder = spool.parent
    try:
        made = not folder.exists()
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        if folder.is_symlink() or not folder.is_dir():
            raise ConfigError(f"{folder}: the spool needs a folder without other files")
        if made:
            os.chown(folder, uid, gid, follow_symlinks=False)
            # A umask must not reduce this; the folder's group reads what the script writes there.
            folder.chmod(0o2750)
        elif folder.stat().st_mode & 0o022:
            raise ConfigError(
                f"{folder}: other users may write into the folder; run chmod 750 {folder}"
            )
    except OSError as error:
        raise ConfigError(f"{folder}: {error.strerror}") from error
    with write_atomically(script) as file:
        file.write(text.encode())
    script.chmod(0o755)


def _uid(user: str) -> int:
    try:
        return int(user) if user.isdecimal() else pwd.getpwnam(user).pw_uid
    except KeyError:
        raise ConfigError(f"user {user!r} does not exist on this host") from None


def _ids(owner: str) -> tuple[int, int]:
    user, _, group = owner.partition(":")
    try:
        about = pwd.getpwnam(user)
        return about.pw_uid, grp.getgrnam(group).gr_gid if group else about.pw_gid
    except KeyError as error:
        raise ConfigError(
            f"--owner: user or group {owner!r} does not exist on this host"
        ) from error
