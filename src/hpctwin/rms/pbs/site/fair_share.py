"""PBS's fair share as that of a cluster: decay of past use, and shares of users.

Source:
    OpenPBS 23.06: ``sched_config`` and ``resource_group``. Users (``fairshare_entity``) are the
    leaves of a tree of shares. Two users are compared at the point where their branches part: the
    branch that has used less for its share goes first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hpctwin.rms.pbs.listing.request import parse_duration
from hpctwin.rms.pbs.site.sched_config import SchedConfig
from hpctwin.rms.site.findings import NO_BEARING, NOT_MODELLED, TAKEN, Setting

__all__ = ["Shares", "fair_share", "is_resource_group", "read_resource_group", "told_of"]

_LINE = re.compile(r"^\s*(\S+)\s+\d+\s+(\S+)\s+(\d{1,9})\s*$")
_ROOT = "root"
_BY = {"euser": "user", "egroup": "account", "account_name": "account"}


class Shares(NamedTuple):
    """A file of shares.

    Args:
        parents: Group of each entity.
        shares: Share of each entity among its siblings.
        where: Name of the file.
    """

    parents: dict[str, str]
    shares: dict[str, int]
    where: str


def is_resource_group(text: str) -> bool:
    """Return whether a text is a file of shares.

    Each line has a name, a number, the group, and shares.
    """
    lines = [
        line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")
    ]
    return bool(lines) and all(map(_LINE.match, lines))


def read_resource_group(text: str, name: str) -> Shares:
    """Return the shares in a file.

    PBS skips a line whose group does not exist yet, or whose name already does.
    """
    parents: dict[str, str] = {}
    shares: dict[str, int] = {}
    for line in text.splitlines():
        match = _LINE.match(line)
        if line.lstrip().startswith("#") or match is None or match[1] in parents:
            continue
        if match[2] == _ROOT or match[2] in parents:
            parents[match[1]] = match[2]
            shares[match[1]] = int(match[3])
    return Shares(parents, shares, name)


def fair_share(
    sched: SchedConfig, shares: Sequence[Shares], taken: dict[str, str], left: dict[str, str]
) -> dict[str, Any]:
    """Return the cluster's fair share if jobs are ordered by it.

    Args:
        sched: sched_config.
        shares: Shares of a file ``resource_group``, if there is one.
        taken: Counterparts of settings, by name; entries are added.
        left: Reasons why other settings have no counterpart, by name; entries are added.
    """
    names = ("fairshare_decay_time", "fairshare_decay_factor", "half_life")
    every = sched.value("fairshare_decay_time") or sched.value("half_life", "24:00:00")
    try:
        factor = float(sched.value("fairshare_decay_factor", "0.5"))
    except ValueError:
        factor = 0.0
    # PBS ignores a value that is no such factor.
    factor = factor if 0 < factor < 1 else 0.5
    seconds = (parse_duration(every) or 86_400.0) * math.log(0.5) / math.log(factor)
    taken |= dict.fromkeys(names, "fairshare.half_life: it decays all the time, not in steps")
    made: dict[str, Any] = {"half_life": round(seconds, 3)}
    entity = sched.value("fairshare_entity", "euser")
    by = _BY.get(entity.lower())
    if by is None:
        left["fairshare_entity"] = "use is of users"
    else:
        taken["fairshare_entity"] = f"fairshare.by: {by}"
        made["by"] = by
    if shares and by is not None:
        made["shares"] = _of_leaves(shares[-1])
        left["unknown_shares"] = "who has no shares has as much as who has the least"
    return made


def _of_leaves(found: Shares) -> dict[str, float]:
    """Return the part of the whole that each leaf of the tree has; the least is 1."""
    together: dict[str, int] = {}
    for name, parent in found.parents.items():
        together[parent] = together.get(parent, 0) + found.shares[name]
    parts: dict[str, float] = {_ROOT: 1.0}
    for name, parent in found.parents.items():  # a group comes before its members
        parts[name] = parts[parent] * found.shares[name] / max(together[parent], 1)
    leaves = {
        name: parts[name] for name in found.parents if name not in together and parts[name] > 0
    }
    least = min(leaves.values(), default=1.0)
    return {name: round(part / least, 9) for name, part in leaves.items()}


def told_of(found: Shares, fairshare: Mapping[str, Any]) -> Setting:
    """Return the treatment of a file of shares.

    Args:
        found: The file's shares.
        fairshare: Fair share of the cluster.
    """
    without = sum(not share for share in found.shares.values())
    if not fairshare:
        told = NO_BEARING, "jobs do not go by fair share"
    elif "shares" not in fairshare:
        told = NOT_MODELLED, "use is of users"
    elif without:
        told = (
            NOT_MODELLED,
            f"{without} have no shares and never run there; here they have as much as who has least",
        )
    elif any(parent != _ROOT for parent in found.parents.values()):
        told = (
            NOT_MODELLED,
            "each has its part of the whole tree; what its group has used is not looked at",
        )
    else:
        told = TAKEN, "fairshare.shares"
    return Setting("resource_group", f"{len(found.shares)} shares", found.where, *told)
