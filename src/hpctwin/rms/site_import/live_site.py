"""What a running resource manager says of itself, as the files that a site would copy."""

from __future__ import annotations

import datetime as dt
import shutil
from pathlib import Path

from hpctwin.errors import CommandError, ConfigError, UnreachableError
from hpctwin.model.files.files import cause
from hpctwin.rms.commands import Commands, passed_on
from hpctwin.rms.pbs.site import recognition as pbs_site
from hpctwin.rms.slurm.site import recognition as slurm_site

__all__ = ["asked"]

_TIMEOUT_S = 600.0
_LONGER_S = {"sacct": 6 * 3600.0}  # years of it, from a database that others use too
_DAYS = 30


def asked(
    manager: str, folder: Path, *, since: str | None, beside: Path | None, commands_in: str = ""
) -> list[str]:
    """Run the commands that tell of a site, and put what they print into a folder.

    Args:
        manager: ``slurm`` or ``pbs``.
        folder: where their output goes.
        since: a date, from which on accounting is asked for; 30 days ago if left out.
        beside: folder with further files, such as accounting logs.
        commands_in: where the commands are; found on the path if empty.

    Returns:
        A sentence for each command that failed.

    Raises:
        ConfigError: ``since`` is no date, or the folder beside cannot be read.
        UnreachableError: nothing is answered at all.
    """
    site = {"slurm": slurm_site, "pbs": pbs_site}[manager]
    first = since or (dt.date.today() - dt.timedelta(days=_DAYS)).isoformat()
    try:
        dt.date.fromisoformat(first)
    except ValueError as error:
        raise ConfigError(f"--since {first!r} is no date such as 2026-10-01") from error
    names = ("SLURM_CONF", "PBS_CONF_FILE", "PBS_EXEC", "PBS_SERVER")
    commands = Commands(
        commands_in, timeout_s=_TIMEOUT_S, environment={"TZ": "UTC", **passed_on(*names)}
    )
    notes = []
    for name in site.LIVE:
        program, *arguments = site.live_command(name, first)
        path = folder / name
        try:
            with path.open("wb") as file:
                commands.run_into(
                    file, program, arguments, timeout_s=_LONGER_S.get(program, _TIMEOUT_S)
                )
            if not path.stat().st_size:
                path.unlink()  # a Slurm without switches prints nothing of them
        except (CommandError, UnreachableError) as error:
            path.unlink()  # what it wrote before it failed is not all
            notes.append(f"{program} {' '.join(arguments)[:60]}: {error}")
    if len(notes) == len(site.LIVE):
        raise UnreachableError("; ".join(notes))
    if beside is not None:
        try:
            shutil.copytree(beside, folder / "beside")
        except OSError as error:
            raise ConfigError(f"{beside}: {cause(error)}") from error
    return notes
