"""Limits of QOS and associations in sacctmgr's output, as limits of a cluster.

Source:
    Slurm's documentation, "Resource Limits", and sacctmgr(1), 20.11 to 24.05.
    docs/reference/rules/limits-and-fair-share.md explains which of several limits counts, and what
    happens to a job that would break one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from hpctwin.model.cluster.limits import ROOT, WALL
from hpctwin.rms.site import IMPORTED, NO_EFFECT, NOT_MODELED, Setting
from hpctwin.rms.slurm.listing.conf import Row, said
from hpctwin.rms.slurm.listing.resources import MB
from hpctwin.rms.slurm.listing.values import limit_s

_MEASURES = {"cpu": "cores", "node": "nodes", "mem": "memory_gb", "gres/gpu": "gpus"}

# Columns of sacctmgr, in a table or a dump: the scope and the field of each limit.
_SAYS = {
    "grpjobs": ("all", "jobs"),
    "grpsubmit": ("all", "submitted"),
    "grptres": ("all", "amounts"),
    "grptresrunmins": ("all", "minutes"),
    "grptresmins": ("all", "used_minutes"),
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
    "mintres": ("job", "min_request"),
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
"""Columns with limits."""

_WHY = {
    "maxtresrunminspu": "limits on remaining minutes are modeled only for all jobs together",
    "maxtresrunminspa": "limits on remaining minutes are modeled only for all jobs together",
    "preempt": "no job is preempted",
    "usagethres": "usage does not block jobs",
}
_NOTHING = ("", "-1", "(null)", "n/a", "none")
_NOT_HELD = "AccountingStorageEnforce does not contain limits, so Slurm does not enforce it"


_FACTOR_SAFE = "UsageFactorSafe"
_MOST_TIMES = 1_000_000
_NO_USE = "Slurm counts no usage under priority/basic"
_UNKNOWN = "usage before the first job is assumed to be 0"


class Enforced(NamedTuple):
    """Which limits Slurm enforces.

    Args:
        held: Whether it enforces any.
        safe: Whether a job starts only if it can run for its walltime under limits of use.
        counts: Whether it counts past use.
        decays: Whether past use decays.
    """

    held: bool
    safe: bool
    counts: bool
    decays: bool


def enforced(values: Mapping[str, Row]) -> Enforced:
    """Return what Slurm enforces by ``AccountingStorageEnforce``.

    Without any settings, it is assumed to enforce limits.
    """
    if not values:
        return Enforced(held=True, safe=False, counts=True, decays=True)
    words = {word.strip().lower() for word in said(values, "accountingstorageenforce").split(",")}
    half = said(values, "prioritydecayhalflife")
    return Enforced(
        held=bool(words & {"limits", "safe", "all", "3", "7"}),
        safe=bool(words & {"safe", "all"}),
        # The default is multifactor since 23.11.
        counts=not said(values, "prioritytype").endswith("basic"),
        decays=not re.fullmatch(r"[0:-]+", half),
    )


def tres(text: str) -> tuple[dict[str, float], list[str]]:
    """Return ``cpu=8,mem=4G,gres/gpu=1`` in hpctwin's measures, and unsupported parts.

    Memory is in GB.
    """
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
    """Return the limits of ``sacctmgr show qos``; ``settings`` gets the treatments."""
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
                continue  # `factors_of_qos` reports it
            became, why = (IMPORTED, "jobs that can never start are rejected")
            if flag == "NoDecay":
                became, why = (IMPORTED, "decays: false in limits on usage")
            elif flag != "DenyOnLimit":
                became, why = (NOT_MODELED, "the flag has no counterpart")
            elif not held:
                became, why = (NO_EFFECT, _NOT_HELD)
            settings.append(Setting(f"QOS {name}: Flags", flag, row.where, became, why))
        if deny:
            # Limits of associations count for these jobs in the same way.
            here = [{**limit, "deny": True} for limit in here] or [{"qos": name, "deny": True}]
        made += [limit for limit in here if limit not in made]
    return made


def factors_of_qos(rows: Sequence[Row], settings: list[Setting], holds: Enforced) -> dict[str, Any]:
    """Return fields of ``fairshare`` with the weight of each QOS's use.

    Treatments are added to ``settings``.

    Source:
        sacctmgr(1), ``UsageFactor`` and ``UsageFactorSafe``: a job's own QOS counts, not its
        partition's.
    """
    factors: dict[str, float] = {}
    safe = []
    for row in rows:
        name = row.get("name")
        if name and _said(row, "usagefactor") and not _is(row.get("usagefactor"), 1.0):
            factor = _number(row.get("usagefactor"))
            became, why = IMPORTED, "fairshare.factors"
            if not 0 <= factor <= _MOST_TIMES:
                became, why = (
                    NOT_MODELED,
                    f"not a number from 0 to {_MOST_TIMES:,}; usage counts once",
                )
            elif not holds.counts:
                became, why = NO_EFFECT, _NO_USE
            else:
                factors[name] = factor
            settings.append(row.setting("usagefactor", became, why, of=f"QOS {name}"))
        if name and _FACTOR_SAFE in _flags(row):
            became, why = NO_EFFECT, "usage counts once"
            if name in factors:
                safe.append(name)
                became, why = IMPORTED, "fairshare.safe_factors"
            settings.append(Setting(f"QOS {name}: Flags", _FACTOR_SAFE, row.where, became, why))
    return {"factors": factors, "safe_factors": safe} if factors else {}


def limits_of_associations(
    rows: Iterable[Row], settings: list[Setting], holds: Enforced
) -> list[dict[str, Any]]:
    """Return the limits of ``sacctmgr show assoc`` or ``dump``.

    Treatments are added to ``settings``. A limit per user or job in an account's row applies to its
    users, and to users of the accounts below it, unless they have one of the same kind.
    """
    made: list[dict[str, Any]] = []
    for row in rows:
        account, user = row.get("account") or ROOT, row.get("user")
        what = f"Association {f'user {user} of ' if user else ''}account {account}"
        if row.get("partition"):
            if any(_said(row, key) for key in (*_SAYS, *_WHY)):
                why = "limits per association and partition are not modeled"
                settings.append(Setting(what, row.get("partition"), row.where, NOT_MODELED, why))
            continue
        of = {"account": account, **({"user": user} if user else {})}
        told: list[Setting] = []
        here = _limits(of, what, row, told, holds)
        # A limit in both a table and a dump is one limit.
        if here and all(limit in made for limit in here):
            told = [one for one in told if one.became != IMPORTED]
        settings += told
        made += [limit for limit in here if limit not in made]
    return made


def _limits(
    of: Mapping[str, str], what: str, row: Row, settings: list[Setting], holds: Enforced
) -> list[dict[str, Any]]:
    """Return the limits of a row: one for each set of jobs that are counted together."""
    limits: dict[tuple[str, str], dict[str, Any]] = {}
    for written, value in row.values.items():
        key = _ALSO.get(written, written)
        if not _said(row, written):
            continue
        if key in _WHY and not (key == "usagethres" and _is(value, 1.0)):
            settings.append(row.setting(written, NOT_MODELED, _WHY[key], of=what))
        if key not in _SAYS:
            continue
        per, says = _SAYS[key]
        if "qos" in of and key in ("maxjobs", "maxsubmit"):
            per = "user"  # as older versions called those of each user
        if not holds.held:
            settings.append(row.setting(written, NO_EFFECT, _NOT_HELD, of=what))
            continue
        of_use = says in ("used_minutes", "wall")
        if of_use and not holds.counts:
            settings.append(row.setting(written, NO_EFFECT, _NO_USE, of=what))
            continue
        fields, others = _fields(says, value)
        if others:
            why = "only cpu, node, mem and gres/gpu are counted"
            unread = ",".join(others)
            settings.append(row.setting(written, NOT_MODELED, why, of=what, value=unread))
        if not fields:
            continue
        settings.append(
            row.setting(written, IMPORTED, _of_use(holds) if of_use else "limits", of=what)
        )
        if "user" in of and per == "user":
            per = "all"  # for one user in an account it is the same
        # Two numbers of one kind, as MaxJobs and GrpJobs of a user, are two limits.
        if of_use:
            ways = {
                **({} if holds.decays else {"decays": False}),
                **({"safe": True} if holds.safe else {}),
            }
            used = limits.setdefault(("used", ""), {**of, "used_minutes": {}, **ways})
            used["used_minutes"] |= fields["used_minutes"]
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
    """Return the fields of a limit from a value, and its parts that are not counted."""
    if says in ("jobs", "submitted"):
        return ({says: int(value)}, []) if value.isdecimal() else ({}, [value])
    if says in ("walltime", "wall"):
        seconds = limit_s(value)
        if says == "wall":
            # 0 is a limit here, as for TRES-minutes: no job may start.
            used = 0.0 if re.fullmatch(r"[0:-]+", value) else seconds
            return ({}, [value]) if used is None else ({"used_minutes": {WALL: used / 60}}, [])
        return ({says: seconds}, []) if seconds else ({}, [value])
    found, others = tres(value)
    if says == "amounts":
        return {k: int(v) if k == "nodes" else v for k, v in found.items()}, others
    return ({says: found} if found else {}), others


def _of_use(holds: Enforced) -> str:
    """Return the treatment of a limit on past use."""
    runs_on = (
        "" if holds.safe else "; running jobs continue when it is reached, but Slurm ends them"
    )
    return f"limits; {_UNKNOWN}{runs_on}"


def _said(row: Row, key: str) -> bool:
    return row.get(key).strip().lower() not in _NOTHING


def _flags(row: Row) -> list[str]:
    return [flag.strip() for flag in row.get("flags").split(",") if flag.strip()]


def _number(text: str) -> float:
    """Return the number in a text; not a number if there is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _is(text: str, number: float) -> bool:
    return _number(text) == number
