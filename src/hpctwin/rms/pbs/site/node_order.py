"""In which order PBS's scheduler tries the vnodes, by ``node_sort_key``.

Source:
    PBS Professional 2022.1 Administrator's Guide, "Sorting vnodes on a key"; OpenPBS 23.06: vnodes go by the
    first key, equal ones by the next; of ``total``, which is meant where nothing is said, the order stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hpctwin.rms.pbs.listing.request import memory_gb
from hpctwin.rms.pbs.listing.values import resources
from hpctwin.rms.pbs.site.sched_config import Line, SchedConfig

__all__ = ["NodeOrder", "node_order"]

_NEAREST = {
    "high unused": "@spread",
    "low assigned": "@spread",
    "low unused": "@best-fit",
    "high assigned": "@best-fit",
}
_PASSED_OVER = (
    "PBS passes over it: after the resource it says HIGH or LOW, then total, assigned or unused"
)


class _Key(NamedTuple):
    """What a line sorts by: a resource, or ``sort_priority``; whether the most comes first; of what of it."""

    name: str
    high: bool
    of: str


@dataclass
class NodeOrder:
    """The order in which vnodes are tried.

    Args:
        placement: as a policy's.
        taken: what the lines became.
        left: why some have no counterpart.
        weights: of vnodes by name: those with the smallest come first.
    """

    placement: str = ""
    taken: str = ""
    left: dict[Line, str] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)


def node_order(sched: SchedConfig, rows: Mapping[str, Mapping[str, Any]]) -> NodeOrder:
    """The order in which PBS tries vnodes, where jobs share them.

    Args:
        sched: sched_config.
        rows: vnodes of ``pbsnodes`` by name.
    """
    made = NodeOrder()
    keys: dict[Line, _Key] = {}
    for line in sched.all("node_sort_key"):
        key = _read(line.value)
        if key is None:
            made.left[line] = _PASSED_OVER
        else:
            keys[line] = key
    now = [key for key in keys.values() if key.of != "total"]
    if sched.value("smp_cluster_dist") == "round_robin" and not now:
        made.placement = "@round-robin"
        made.left |= dict.fromkeys(
            keys, "smp_cluster_dist has jobs go round the nodes: @round-robin"
        )
        return made
    fixed = []
    for line, key in keys.items():
        if key.of == "total":
            fixed.append(key)
        elif _ranks(rows, fixed) or made.placement or key.name != "ncpus":
            made.left[line] = (
                f"by what is {key.of} of {key.name} at the moment nodes are sorted only where that is ncpus, "
                "and nothing tells them apart before"
            )
        else:
            made.placement = _NEAREST[f"{'high' if key.high else 'low'} {key.of}"]
            made.taken = f"{made.placement}, the nearest"
    ranks = _ranks(rows, fixed)
    if ranks and not made.placement:
        made.placement, made.weights = "@weight", ranks
        made.taken = "weight of node groups, and @weight"
    elif fixed and not made.taken:
        made.taken = "no vnode has more of it than others"
    return made


def _read(value: str) -> _Key | None:
    """A line of ``node_sort_key``; None where PBS passes over it."""
    name, way, *rest = [*value.split(), "", ""][:4]
    of = rest[0] or "total"
    if way not in ("high", "HIGH", "High", "low", "LOW", "Low"):
        return None
    return _Key(name, way.lower() == "high", of) if of in ("total", "assigned", "unused") else None


def _ranks(rows: Mapping[str, Mapping[str, Any]], keys: list[_Key]) -> dict[str, float]:
    """The place of each vnode by keys that do not change; empty where all are equal."""
    values = {
        name: tuple((-1 if key.high else 1) * _amount(row, key.name) for key in keys)
        for name, row in rows.items()
    }
    places = {value: float(place) for place, value in enumerate(sorted(set(values.values())))}
    if len(places) < 2:
        return {}
    return {name: places[value] for name, value in values.items()}


def _amount(row: Mapping[str, Any], name: str) -> float:
    """What a vnode has of something; 0 where it says nothing, as PBS takes it."""
    said = (
        row.get("Priority")
        if name == "sort_priority"
        else resources(row.get("resources_available")).get(name)
    )
    try:
        return float(str(said))
    except ValueError:
        return memory_gb(str(said)) or 0.0
