"""Limits of a PBS server and its queues on jobs, and placement sets.

A placement set holds the vnodes of one ``node_group_key`` value. The sets apply to jobs without
``place=group=``.

Source:
    PBS Professional 2022.1 Administrator's Guide, "Managing resource usage by users, groups, and
    projects" and "Placement sets"; OpenPBS 23.06: a queue's key replaces the server's.
    docs/reference/rules/limits-and-fair-share.md, "One group of nodes", explains which set a job gets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hpctwin.formats.accounting.pbs_accounting import Accounts
from hpctwin.model.requests.chunks import GROUP
from hpctwin.model.requests.pbs_requests import memory_gb
from hpctwin.rms.site import IMPORTED, NO_EFFECT, NOT_MODELED, Setting

_KEY, _ENABLE = "node_group_key", "node_group_enable"
_OF_SCHED = ("do_not_span_psets", "only_explicit_psets")
_ON = ("true", "t", "yes", "y", "1")


@dataclass
class PlacementSets:
    """Resource whose values make the sets.

    Args:
        by_queue: Resource of each queue that has a key; of all others under an empty name.
        told: Treatment of each setting; a queue's under ``queue: attribute``.
    """

    by_queue: dict[str, str] = field(default_factory=dict)
    told: dict[str, Setting] = field(default_factory=dict)


def placement_sets(
    server: Mapping[str, str],
    queues: Mapping[str, Mapping[str, Any]],
    where: Mapping[str, str],
    *,
    shared: bool,
) -> PlacementSets:
    """Return the placement sets of a site.

    Args:
        where: File of each attribute; a queue's under ``queue: attribute``.
    """
    made = PlacementSets()
    on = server.get(_ENABLE, "").lower() in _ON
    keys = {"": server.get(_KEY, "")} | {name: str(q.get(_KEY, "")) for name, q in queues.items()}
    for queue, value in keys.items():
        if not value:
            continue
        key = f"{queue}: {_KEY}" if queue else _KEY
        names = [name.strip() for name in value.split(",") if name.strip()]
        became, why = IMPORTED, "group_by of jobs, and node features with the values"
        if not on:
            became, why = NO_EFFECT, "node_group_enable is off"
        elif not shared:
            became, why = NOT_MODELED, "placement sets are modeled only where jobs share nodes"
        elif names[0] in ("host", "vnode") or not re.fullmatch(GROUP, names[0]):
            became, why = (
                NOT_MODELED,
                "placement sets need a resource shared by several nodes, such as rack",
            )
        else:
            made.by_queue[queue] = names[0]
            if len(names) > 1:
                became, why = NOT_MODELED, f"placement sets use only the first resource, {names[0]}"
        title = f"queue {key}" if queue else key
        made.told[key] = Setting(title, value[:80], where.get(key, ""), became, why)
    if _ENABLE in server:
        told = (IMPORTED, "placement sets") if made.by_queue else (NO_EFFECT, "")
        made.told[_ENABLE] = Setting(_ENABLE, server[_ENABLE], where.get(_ENABLE, ""), *told)
    for name in _OF_SCHED:
        if server.get(name, "false").lower() in _ON and made.by_queue:
            why = {
                "do_not_span_psets": "jobs that fit in no placement set may use any nodes",
                "only_explicit_psets": "nodes without a value also form a placement set",
            }[name]
            told = (NOT_MODELED, why)
        elif name in server:
            told = (NO_EFFECT, "")
        else:
            continue
        made.told[name] = Setting(name, server[name], where.get(name, ""), *told)
    return made


_COUNTS = {"max_run": "jobs", "max_queued": "submitted"}
_OLD = {
    "max_running": ("jobs", "[o:PBS_ALL={}]"),
    "max_user_run": ("jobs", "[u:PBS_GENERIC={}]"),
    "max_group_run": ("jobs", "[g:PBS_GENERIC={}]"),
    "max_queuable": ("submitted", "[o:PBS_ALL={}]"),
    "max_user_queuable": ("submitted", "[u:PBS_GENERIC={}]"),
}
_OLD_OF_AMOUNTS = {"max_user_res": "[u:PBS_GENERIC={}]", "max_group_res": "[g:PBS_GENERIC={}]"}
_ACCOUNTS: dict[str, Accounts] = {"g": "group", "p": "project"}
_MEASURES = {"ncpus": "cores", "nodect": "nodes", "ngpus": "gpus", "mem": "memory_gb"}
_WHO = re.compile(r'\[\s*([ougp]):\s*"?([^="\]]+?)"?\s*=\s*([^\]]*?)\s*\]')


class One(NamedTuple):
    """A single limit.

    Args:
        kind: ``o`` of all, ``u`` of a user, ``g`` of a group, ``p`` of a project.
        name: Name of the user, group or project.
        fields: Fields of a limit; empty if the value is no limit.
    """

    kind: str
    name: str
    fields: dict[str, Any]


@dataclass
class SiteLimits:
    """The limits of a site.

    Args:
        limits: Limits of the cluster.
        accounts: Meaning of jobs' accounts, so that limits of groups or projects apply: ``group``
            or ``project``; ``account`` if there are none.
        told: Treatment of each setting; a queue's under ``queue: attribute``.
    """

    limits: list[dict[str, Any]] = field(default_factory=list)
    accounts: Accounts = "account"
    told: dict[str, Setting] = field(default_factory=dict)


def site_limits(
    server: Mapping[str, str], queues: Mapping[str, Mapping[str, Any]], where: Mapping[str, str]
) -> SiteLimits:
    """Return the limits in the attributes of a server and of its queues.

    Args:
        where: File of each attribute; a queue's under ``queue: attribute``.
    """
    made = SiteLimits(accounts=_accounts(server, queues))
    for queue, about in queues.items():
        for name, value in _flat(about).items():
            _take(made, f"{queue}: {name}", name, str(value), where, queue)
    for name, value in server.items():
        _take(made, name, name, value, where, "")
    return made


def _accounts(server: Mapping[str, str], queues: Mapping[str, Mapping[str, Any]]) -> Accounts:
    """Return the meaning of accounts: groups or projects, whichever have more limits.

    If the numbers are equal, accounts are groups.
    """
    counts = dict.fromkeys(_ACCOUNTS, 0)
    for about in (server, *queues.values()):
        for name, value in _flat(about).items():
            measure, written = _measure(name, str(value))
            for kind, _, _ in _WHO.findall(written) if measure else ():
                if kind in counts:
                    counts[kind] += 1
    most = max(counts, key=lambda kind: counts[kind])
    return _ACCOUNTS[most] if counts[most] else "account"


def _flat(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``ncpus`` within ``max_run_res`` as ``max_run_res.ncpus``."""
    found: dict[str, Any] = {}
    for key, value in about.items():
        if isinstance(value, Mapping):
            found |= {f"{key}.{inner}": one for inner, one in value.items()}
        else:
            found[key] = value
    return found


def _take(
    made: SiteLimits, key: str, name: str, value: str, where: Mapping[str, str], queue: str
) -> None:
    """Import a limit, and record its treatment."""
    measure, written = _measure(name, value)
    if measure is None:
        return
    found = [One(kind, who, _fields(measure, said)) for kind, who, said in _WHO.findall(written)]
    left = []
    for one in found:
        why = _why_not(one, made.accounts)
        if not why:
            made.limits.append(_limit([queue] if queue else "all", one))
        else:
            left.append(f"{one.kind}:{one.name}: {why}")
    if not found:
        told = NO_EFFECT, "not a limit that PBS accepts; expected one such as [u:PBS_GENERIC=5]"
    else:
        told = (NOT_MODELED, "; ".join(left)) if left else (IMPORTED, "limits")
    title = f"queue {key}" if queue else name
    made.told[key] = Setting(title, value[:80], where.get(key, ""), *told)


def _measure(name: str, value: str) -> tuple[str | None, str]:
    """Return a limit's measure, None for others, and its value as newer PBS writes it."""
    if name in _OLD:
        measure, written = _OLD[name]
        return measure, written.format(value)
    if name in _COUNTS:
        return _COUNTS[name], value
    outer, _, inner = name.partition(".")
    if outer in _OLD_OF_AMOUNTS:
        return _MEASURES.get(inner), _OLD_OF_AMOUNTS[outer].format(value)
    return (_MEASURES.get(inner) if outer == "max_run_res" else None), value


def _fields(measure: str, said: str) -> dict[str, Any]:
    if measure == "memory_gb":
        amount = memory_gb(said)
        return {} if amount is None else {measure: amount}
    if not re.fullmatch(r"\d{1,12}", said):
        return {}
    return {measure: float(said) if measure in ("cores", "gpus") else int(said)}


def _why_not(one: One, accounts: Accounts) -> str:
    """Return why a limit has no counterpart; empty if it has one."""
    if not one.fields:
        return "not a number"
    if _ACCOUNTS.get(one.kind, accounts) != accounts:
        return f"accounts of the cluster are {accounts}s, which have more limits"
    return ""


def _limit(partitions: list[str] | str, one: One) -> dict[str, Any]:
    """Return a limit of a queue, or of all; it applies in addition to other limits."""
    made: dict[str, Any] = {"partitions": partitions}
    if one.kind == "u" and one.name == "PBS_GENERIC":
        made["per"] = "user"
    elif one.kind == "u":
        made["user"] = one.name
    elif one.kind in _ACCOUNTS and one.name == "PBS_GENERIC":
        made["per"] = "account"
    elif one.kind in _ACCOUNTS:
        made["account"] = one.name
    return {**made, **one.fields}
