"""Limits of QOS and associations, as ``sacctmgr`` prints them, as limits of a cluster.

Source:
    Slurm's documentation, "Resource Limits", and sacctmgr(1), 20.11 to 24.05; which of several limits counts,
    and what becomes of a job that would break one, is in docs/engine.md.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from hpctwin.model.cluster.limits import ROOT, WALL
from hpctwin.rms.site.findings import NO_BEARING, NOT_MODELLED, TAKEN, Setting
from hpctwin.rms.slurm.listing.conf import Row, said
from hpctwin.rms.slurm.listing.gres import MB
from hpctwin.rms.slurm.listing.values import limit_s

__all__ = [
    "LIMITS", "Enforced", "enforced", "factors_of_qos", "limits_of_associations", "limits_of_qos", "tres",
]  # fmt: skip

_MEASURES = {"cpu": "cores", "node": "nodes", "mem": "memory_gb", "gres/gpu": "gpus"}

# What sacctmgr writes, in a table or a dump: what it is of, and in which field of a limit it goes.
_SAYS = {
    "grpjobs": ("all", "jobs"),
    "grpsubmit": ("all", "submitted"),
    "grptres": ("all", "amounts"),
    "grptresrunmins": ("all", "minutes"),
    "grptresmins": ("all", "used"),
    "grpwall": ("all", "wall"),
    "maxjobspu": ("user", "jobs"),
    "maxsubmitpu": ("user", "submitted"),
    "maxtrespu": ("user", "amounts"),
    "maxjobspa": ("account", "jobs"),
    "maxsubmitpa": ("account", "submitted"),
    "maxtrespa": ("account", "amounts"),
    "maxtres": ("job", "amounts"),
    "maxtresmins": ("job", "minutes"),
    "maxwall": ("job", "walltime"),
    "maxtrespernode": ("job", "per_node"),
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
    "maxtresrunminspu": "minutes that are left are limited of all jobs together",
    "maxtresrunminspa": "minutes that are left are limited of all jobs together",
    "preempt": "no job is preempted",
    "usagethres": "use does not keep jobs out",
}
_NOTHING = ("", "-1", "(null)", "n/a", "none")
_NOT_HELD = "AccountingStorageEnforce does not say limits, so Slurm does not hold it"


_FACTOR_SAFE = "UsageFactorSafe"
_MOST_TIMES = 1_000_000
_NO_USE = "under priority/basic Slurm does not count what was used"
_UNKNOWN = "what was used before the first job is taken for nothing"


class Enforced(NamedTuple):
    """What of limits Slurm holds.

    Args:
        held: any.
        safe: a job starts only if it can run for its walltime under limits of use.
        counts: it counts what has been used.
        decays: … which decays.
    """

    held: bool
    safe: bool
    counts: bool
    decays: bool


def enforced(values: Mapping[str, Row]) -> Enforced:
    """What Slurm holds, by ``AccountingStorageEnforce``; without any settings it is taken to hold limits."""
    if not values:
        return Enforced(held=True, safe=False, counts=True, decays=True)
    words = {word.strip().lower() for word in said(values, "accountingstorageenforce").split(",")}
    half = said(values, "prioritydecayhalflife")
    return Enforced(
        held=bool(words & {"limits", "safe", "all", "3", "7"}),
        safe=bool(words & {"safe", "all"}),
        # Where nothing is said it is multifactor, since 23.11.
        counts=not said(values, "prioritytype").endswith("basic"),
        decays=not re.fullmatch(r"[0:-]+", half),
    )


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
    rows: Sequence[Row], settings: list[Setting], holds: Enforced
) -> list[dict[str, Any]]:
    """The limits of ``sacctmgr show qos``; what became of each is appended to ``settings``."""
    held = holds.held
    made: list[dict[str, Any]] = []
    for row in rows:
        name = row.get("name")
        if not name:
            continue
        flags = _flags(row)
        deny = held and "DenyOnLimit" in flags
        own = holds._replace(decays=holds.decays and "NoDecay" not in flags)
        here = _limits({"qos": name}, f"QOS {name}", row, settings, own)
        for flag in flags:
            if flag == _FACTOR_SAFE:
                continue  # `factors_of_qos` tells
            became, why = (TAKEN, "jobs that could never start are rejected")
            if flag == "NoDecay":
                became, why = (TAKEN, "limits of what was used: decays: false")
            elif flag != "DenyOnLimit":
                became, why = (NOT_MODELLED, "the flag has no counterpart")
            elif not held:
                became, why = (NO_BEARING, _NOT_HELD)
            settings.append(Setting(f"QOS {name}: Flags", flag, row.where, became, why))
        if deny:
            # Limits of associations count for these jobs in the same way.
            here = [{**limit, "deny": True} for limit in here] or [{"qos": name, "deny": True}]
        made += [limit for limit in here if limit not in made]
    return made


def factors_of_qos(rows: Sequence[Row], settings: list[Setting], holds: Enforced) -> dict[str, Any]:
    """Fields of ``fairshare``: how often use counts by QOS; what became of it goes to ``settings``.

    Source:
        sacctmgr(1), ``UsageFactor`` and ``UsageFactorSafe``: a job's own QOS tells, not its partition's.
    """
    factors: dict[str, float] = {}
    safe = []
    for row in rows:
        name = row.get("name")
        if name and _said(row, "usagefactor") and not _is(row.get("usagefactor"), 1.0):
            factor = _number(row.get("usagefactor"))
            became, why = TAKEN, "fairshare.factors"
            if not 0 <= factor <= _MOST_TIMES:
                became, why = (
                    NOT_MODELLED,
                    f"not a number from 0 to {_MOST_TIMES:,}: use counts once",
                )
            elif not holds.counts:
                became, why = NO_BEARING, _NO_USE
            else:
                factors[name] = factor
            settings.append(row.setting("usagefactor", became, why, of=f"QOS {name}"))
        if name and _FACTOR_SAFE in _flags(row):
            became, why = NO_BEARING, "use counts once"
            if name in factors:
                safe.append(name)
                became, why = TAKEN, "fairshare.safe_factors"
            settings.append(Setting(f"QOS {name}: Flags", _FACTOR_SAFE, row.where, became, why))
    return {"factors": factors, "safe_factors": safe} if factors else {}


def limits_of_associations(
    rows: Iterable[Row], settings: list[Setting], holds: Enforced
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
        here = _limits(of, what, row, told, holds)
        # What a table and a dump both tell is one limit.
        if here and all(limit in made for limit in here):
            told = [one for one in told if one.became != TAKEN]
        settings += told
        made += [limit for limit in here if limit not in made]
    return made


def _limits(
    of: Mapping[str, str], what: str, row: Row, settings: list[Setting], holds: Enforced
) -> list[dict[str, Any]]:
    """The limits that a row says: one for each thing that is counted together."""
    limits: dict[tuple[str, str], dict[str, Any]] = {}
    for written, value in row.values.items():
        key = _ALSO.get(written, written)
        if not _said(row, written):
            continue
        if key in _WHY and not (key == "usagethres" and _is(value, 1.0)):
            settings.append(row.setting(written, NOT_MODELLED, _WHY[key], of=what))
        if key not in _SAYS:
            continue
        per, says = _SAYS[key]
        if "qos" in of and key in ("maxjobs", "maxsubmit"):
            per = "user"  # as older versions called those of each user
        if not holds.held:
            settings.append(row.setting(written, NO_BEARING, _NOT_HELD, of=what))
            continue
        of_use = says in ("used", "wall")
        if of_use and not holds.counts:
            settings.append(row.setting(written, NO_BEARING, _NO_USE, of=what))
            continue
        fields, others = _fields(says, value)
        if others:
            why = "only cpu, node, mem and gres/gpu are counted"
            unread = ",".join(others)
            settings.append(row.setting(written, NOT_MODELLED, why, of=what, value=unread))
        if not fields:
            continue
        settings.append(
            row.setting(written, TAKEN, _of_use(holds) if of_use else "limits", of=what)
        )
        if "user" in of and per == "user":
            per = "all"  # of a user in an account it is the same
        # Two numbers of one kind, as MaxJobs and GrpJobs of a user, are two limits.
        if of_use:
            ways = {
                **({} if holds.decays else {"decays": False}),
                **({"safe": True} if holds.safe else {}),
            }
            used = limits.setdefault(("used", ""), {**of, "used": {}, **ways})
            used["used"] |= fields["used"]
            continue
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
    if says in ("walltime", "wall"):
        seconds = limit_s(value)
        if says == "wall":
            # 0 is a limit here, as of TRES-minutes: nobody may start.
            used = 0.0 if re.fullmatch(r"[0:-]+", value) else seconds
            return ({}, [value]) if used is None else ({"used": {WALL: used / 60}}, [])
        return ({says: seconds}, []) if seconds else ({}, [value])
    found, others = tres(value)
    if says == "amounts":
        return {k: int(v) if k == "nodes" else v for k, v in found.items()}, others
    return ({says: found} if found else {}), others


def _of_use(holds: Enforced) -> str:
    """What becomes of a limit of what was used."""
    runs_on = "" if holds.safe else "; who runs when it is reached runs on, where Slurm ends it"
    return f"limits; {_UNKNOWN}{runs_on}"


def _said(row: Row, key: str) -> bool:
    return row.get(key).strip().lower() not in _NOTHING


def _flags(row: Row) -> list[str]:
    return [flag.strip() for flag in row.get("flags").split(",") if flag.strip()]


def _number(text: str) -> float:
    """What a text says; not a number if that is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _is(text: str, number: float) -> bool:
    return _number(text) == number
