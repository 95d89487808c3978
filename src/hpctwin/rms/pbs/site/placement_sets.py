"""Placement sets: vnodes of one ``node_group_key`` value for each job.

They apply to jobs without ``place=group=``.

Source:
    PBS Professional 2022.1 Administrator's Guide, "Placement sets"; OpenPBS 23.06: a queue's key
    replaces the server's. docs/reference/rules/shared-nodes.md, "One group of nodes", explains which set a job gets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hpctwin.model.requests.chunks import GROUP
from hpctwin.rms.site.findings import NO_BEARING, NOT_MODELLED, TAKEN, Setting

__all__ = ["PlacementSets", "placement_sets"]

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
        server: Attributes of the server, and of its scheduler.
        queues: Attributes of each queue.
        where: File of each attribute; a queue's under ``queue: attribute``.
        shared: Whether jobs share nodes.
    """
    made = PlacementSets()
    on = server.get(_ENABLE, "").lower() in _ON
    keys = {"": server.get(_KEY, "")} | {name: str(q.get(_KEY, "")) for name, q in queues.items()}
    for queue, value in keys.items():
        if not value:
            continue
        key = f"{queue}: {_KEY}" if queue else _KEY
        names = [name.strip() for name in value.split(",") if name.strip()]
        became, why = TAKEN, "jobs get nodes of one value (group_by), features of nodes have it"
        if not on:
            became, why = NO_BEARING, "node_group_enable is off"
        elif not shared:
            became, why = NOT_MODELLED, "placement sets are looked at where jobs share nodes"
        elif names[0] in ("host", "vnode") or not re.fullmatch(GROUP, names[0]):
            became, why = NOT_MODELLED, "sets are of several nodes, by a name such as rack"
        else:
            made.by_queue[queue] = names[0]
            if len(names) > 1:
                became, why = NOT_MODELLED, f"sets are of one resource, the first: {names[0]}"
        title = f"queue {key}" if queue else key
        made.told[key] = Setting(title, value[:80], where.get(key, ""), became, why)
    if _ENABLE in server:
        told = (TAKEN, "placement sets") if made.by_queue else (NO_BEARING, "")
        made.told[_ENABLE] = Setting(_ENABLE, server[_ENABLE], where.get(_ENABLE, ""), *told)
    for name in _OF_SCHED:
        if server.get(name, "false").lower() in _ON and made.by_queue:
            why = {
                "do_not_span_psets": "a job that no set could hold may have any nodes",
                "only_explicit_psets": "nodes without a value are a set, too",
            }[name]
            told = (NOT_MODELLED, why)
        elif name in server:
            told = (NO_BEARING, "")
        else:
            continue
        made.told[name] = Setting(name, server[name], where.get(name, ""), *told)
    return made
