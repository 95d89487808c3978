"""Limits of QOS and associations, as ``sacctmgr`` prints them, as limits of a cluster.

Source:
    Slurm's documentation, "Resource Limits", and sacctmgr(1), 20.11 to 24.05; which of several limits counts,
    and what becomes of a job that would break one, is in docs/engine.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hpctwin.model.limits import ROOT
from hpctwin.rms.site import NO_BEARING, NOT_MODELLED, TAKEN, Setting
from hpctwin.rms.slurm.conf import Row, said
from hpctwin.rms.slurm.gres import MB
from hpctwin.rms.slurm.values import limit_s

__all__ = ["LIMITS", "enforced", "limits_of_associations", "limits_of_qos", "tres"]

_MEASURES = {"cpu": "cores", "node": "nodes", "mem": "memory_gb", "gres/gpu": "gpus"}

# What sacctmgr writes, in a table or a dump: what it is of, and in which field of a limit it goes.
_SAYS = {
    "grpjobs": ("all", "jobs"),
    "grpsubmit": ("all", "submitted"),
    "grptres": ("all", "amounts"),
    "grptresrunmins": ("all", "minutes"),
    "maxjobspu": ("user", "jobs"),
    "maxsubmitpu": ("user", "submitted"),
    "maxtrespu": ("user", "amounts"),
    "maxjobspa": ("account", "jobs"),
    "maxsubmitpa": ("account", "submitted"),
    "maxtrespa": ("account", "amounts"),
    "maxtres": ("job", "amounts"),
    "maxtresmins": ("job", "minutes"),
    "maxwall": ("job", "walltime"),
    "mintres": ("job", "least"),
    "maxjobs": ("user", "jobs"),
    "maxsubmit": ("user", "submitted"),
}
_ALSO = {
    "grpsubmitjobs": "grpsubmit",
    "maxjobsperuser": "maxjobspu",
    "maxsubmitjobsperuser": "maxsubmitpu",
    "maxsubmitjobspu": "maxsubmitpu",
    "maxtresperuser": "maxtrespu",
    "maxjobsperaccount": "maxjobspa",
    "maxsubmitjobsperaccount": "maxsubmitpa",
    "maxsubmitjobspa": "maxsubmitpa",
    "maxtresperaccount": "maxtrespa",
    "maxtresperjob": "maxtres",
    "maxtrespj": "maxtres",
    "maxtresminsperjob": "maxtresmins",
    "maxtresminspj": "maxtresmins",
    "maxwalldurationperjob": "maxwall",
    "maxwallpj": "maxwall",
    "maxwalldurationpj": "maxwall",
    "mintresperjob": "mintres",
    "mintrespj": "mintres",
    "maxsubmitjobs": "maxsubmit",
    "maxtrespn": "maxtrespernode",
}
LIMITS = frozenset({*_SAYS, *_ALSO})
"""The columns that say limits."""

_WHY = {
    "grpwall": "what has been used in all is not limited",
    "grptresmins": "what has been used in all is not limited",
    "maxtrespernode": "what a job has of each node is not limited",
    "maxtresrunminspu": "minutes that are left are limited of all jobs together",
    "maxtresrunminspa": "minutes that are left are limited of all jobs together",
    "preempt": "no job is preempted",
    "usagefactor": "use counts as it is",
    "usagethres": "use does not keep jobs out",
}
_NOTHING = ("", "-1", "(null)", "n/a", "none")
_NOT_HELD = "AccountingStorageEnforce does not say limits, so Slurm does not hold it"


def enforced(values: Mapping[str, Row]) -> bool:
    """Whether Slurm holds limits, by ``AccountingStorageEnforce``; without any settings it is taken to."""
    if not values:
        return True
    words = {word.strip().lower() for word in said(values, "accountingstorageenforce").split(",")}
    return bool(words & {"limits", "safe", "all", "3", "7"})


def tres(text: str) -> tuple[dict[str, float], list[str]]:
    """What ``cpu=8,mem=4G,gres/gpu=1`` says in our measures, memory in GB; and what is none of them."""
    found: dict[str, float] = {}
    others = []
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, _, value = part.partition("=")
        measure = _MEASURES.get(name.lower())
        match = re.fullmatch(r"(\d{1,15}(?:\.\d+)?)([KMGTP]?)", value)
        if measure is None or match is None or (match[2] and measure != "memory_gb"):
            if value != "-1":
                others.append(part)
            continue
        number = float(match[1])
        found[measure] = number * MB[match[2]] / 1024 if measure == "memory_gb" else number
    return found, others


def limits_of_qos(
    rows: Sequence[Row], settings: list[Setting], *, held: bool
) -> list[dict[str, Any]]:
    """The limits of ``sacctmgr show qos``; what became of each is appended to ``settings``."""
    made: list[dict[str, Any]] = []
    for row in rows:
        name = row.get("name")
        if not name:
            continue
        here = _limits({"qos": name}, f"QOS {name}", row, settings, held=held)
        flags = [flag.strip() for flag in row.get("flags").split(",") if flag.strip()]
        deny = held and "DenyOnLimit" in flags
        for flag in flags:
            became, why = (TAKEN, "jobs that could never start are rejected")
            if flag != "DenyOnLimit":
                became, why = (NOT_MODELLED, "the flag has no counterpart")
            elif not held:
                became, why = (NO_BEARING, _NOT_HELD)
            settings.append(Setting(f"QOS {name}: Flags", flag, row.where, became, why))
        if deny:
            # Limits of associations count for these jobs in the same way.
            here = [{**limit, "deny": True} for limit in here] or [{"qos": name, "deny": True}]
        made += [limit for limit in here if limit not in made]
    return made


def limits_of_associations(
    rows: Iterable[Row], settings: list[Setting], *, held: bool
) -> list[dict[str, Any]]:
    """The limits of ``sacctmgr show assoc`` or ``dump``; what became of each, to ``settings``.

    What an account's row says of each user or job holds for its users, and those of the accounts below it,
    who have none of their own.
    """
    made: list[dict[str, Any]] = []
    for row in rows:
        account, user = row.get("account") or ROOT, row.get("user")
        what = f"Association {f'user {user} of ' if user else ''}account {account}"
        if row.get("partition"):
            if any(_said(row, key) for key in (*_SAYS, *_WHY)):
                why = "of one partition alone"
                settings.append(Setting(what, row.get("partition"), row.where, NOT_MODELLED, why))
            continue
        of = {"account": account, **({"user": user} if user else {})}
        told: list[Setting] = []
        here = _limits(of, what, row, told, held=held)
        # What a table and a dump both tell is one limit.
        if here and all(limit in made for limit in here):
            told = [one for one in told if one.became != TAKEN]
        settings += told
        made += [limit for limit in here if limit not in made]
    return made


def _limits(
    of: Mapping[str, str], what: str, row: Row, settings: list[Setting], *, held: bool
) -> list[dict[str, Any]]:
    """The limits that a row says: one for each thing that is counted together."""
    limits: dict[tuple[str, str], dict[str, Any]] = {}
    for written, value in row.values.items():
        key = _ALSO.get(written, written)
        if not _said(row, written):
            continue
        if key in _WHY and not (key in ("usagefactor", "usagethres") and _is(value, 1.0)):
            settings.append(row.setting(written, NOT_MODELLED, _WHY[key], of=what))
        if key not in _SAYS:
            continue
        per, says = _SAYS[key]
        if "qos" in of and key in ("maxjobs", "maxsubmit"):
            per = "user"  # as older versions called those of each user
        if not held:
            settings.append(row.setting(written, NO_BEARING, _NOT_HELD, of=what))
            continue
        fields, others = _fields(says, value)
        if others:
            why = "only cpu, node, mem and gres/gpu are counted"
            unread = ",".join(others)
            settings.append(row.setting(written, NOT_MODELLED, why, of=what, value=unread))
        if not fields:
            continue
        settings.append(row.setting(written, TAKEN, "limits", of=what))
        if "user" in of and per == "user":
            per = "all"  # of a user in an account it is the same
        # Two numbers of one kind, as MaxJobs and GrpJobs of a user, are two limits.
        number = sum(
            key[0] == per and set(fields) & set(one) != set() for key, one in limits.items()
        )
        limit = limits.setdefault(
            (per, str(number)), {**of, **({} if per == "all" else {"per": per})}
        )
        limit |= fields
    return list(limits.values())


def _fields(says: str, value: str) -> tuple[dict[str, Any], list[str]]:
    """The fields of a limit that a value gives, and what of it is nothing that is counted."""
    if says in ("jobs", "submitted"):
        return ({says: int(value)}, []) if value.isdigit() else ({}, [value])
    if says == "walltime":
        seconds = limit_s(value)
        return ({says: seconds}, []) if seconds else ({}, [value])
    found, others = tres(value)
    if says == "amounts":
        return {k: int(v) if k == "nodes" else v for k, v in found.items()}, others
    return ({says: found} if found else {}), others


def _said(row: Row, key: str) -> bool:
    return row.get(key).strip().lower() not in _NOTHING


def _is(text: str, number: float) -> bool:
    try:
        return float(text) == number
    except ValueError:
        return False
