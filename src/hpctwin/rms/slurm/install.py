"""Putting the event script beside a Slurm controller."""

from __future__ import annotations

import grp
import os
import pwd
from importlib.resources import files
from pathlib import Path

from hpctwin.errors import ConfigError
from hpctwin.model import write_atomically
from hpctwin.model.trusted import check_trusted
from hpctwin.rms.spool import checked_path

__all__ = ["events_script", "install_events"]


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
    """Make the spool's folder, mode 0750, and write the script.

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
            # Not less than that by a umask.
            folder.chmod(0o750)
        elif folder.stat().st_mode & 0o022:
            raise ConfigError(f"{folder}: others may write there; chmod 750 {folder}")
    except OSError as error:
        raise ConfigError(f"{folder}: {error.strerror}") from error
    with write_atomically(script) as file:
        file.write(text.encode())
    script.chmod(0o755)


def _ids(owner: str) -> tuple[int, int]:
    user, _, group = owner.partition(":")
    try:
        about = pwd.getpwnam(user)
        return about.pw_uid, grp.getgrnam(group).gr_gid if group else about.pw_gid
    except KeyError as error:
        raise ConfigError(f"--owner {owner}: there is no such user or group here") from error
