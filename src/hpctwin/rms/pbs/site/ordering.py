"""In which order PBS's scheduler goes through jobs, as one of our orderings.

Source:
    OpenPBS 23.06: jobs go by ``job_sort_formula``, then by fair share, then by ``job_sort_key``, then by the
    time at which they came into their queue; those of express queues come before all others.

In which order PBS's scheduler tries the vnodes, by ``node_sort_key``.

Source:
    PBS Professional 2022.1 Administrator's Guide, "Sorting vnodes on a key"; OpenPBS 23.06: vnodes go by the
    first key, equal ones by the next; of ``total``, which is meant where nothing is said, the order stays.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hpctwin.model import Partition
from hpctwin.rms.pbs.listing.output import resources
from hpctwin.rms.pbs.listing.request import memory_gb
from hpctwin.rms.pbs.site.sched_config import Line, SchedConfig

__all__ = ["TERMS", "Meaning", "NodeOrder", "node_order", "ordering_of"]

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


class Key(NamedTuple):
    """A resource that jobs are sorted by.

    Args:
        name: as formulas here have it.
        scale: so much of it is 1.
        span: it is a whole number below this.
    """

    name: str
    scale: int
    span: int


_KEYS = {
    "ncpus": Key("ncpus", 1, 2**22),
    "ngpus": Key("ngpus", 1, 2**20),
    "mem": Key("mem", 1024, 2**30),  # MB
    "nodect": Key("nodect", 1, 2**20),
    "walltime": Key("walltime", 1, 2**26),
    "job_priority": Key("job_priority", 1, 2**12),
    "sort_priority": Key("job_priority", 1, 2**12),
}
TERMS = frozenset(
    (
        "eligible_time", "ncpus", "ngpus", "mem", "nodect", "walltime", "job_priority", "queue_priority",
        "fairshare_factor", "sqrt", "log", "log2", "log10", "exp", "floor", "ceil", "pow", "min", "max",
        "abs",
    )
)  # fmt: skip
"""What a formula may be of."""
_SHARES_SPAN = 2**26
"""Factors of fair shares that differ by less than one of so many are equal, where sort keys follow."""
_EXACT = 2**53
_AFTER_FORMULA = "the formula goes first; between equal ones time decides"
_EXPRESS = 10**12
"""Far more than times and most formulas; of fair shares, which are at most 1, a million is."""


class Meaning(NamedTuple):
    """A policy, or its ordering alone.

    Args:
        text: as a policy's.
        taken: what settings became, by name.
        left: why others have no counterpart, by name.
        keys: lines of sort keys that have none, with the reason.
        fairshare: of the cluster: how past use counts.
    """

    text: str
    taken: dict[str, str]
    left: dict[str, str]
    keys: dict[Line, str]
    fairshare: Mapping[str, Any] = {}


def ordering_of(
    sched: SchedConfig, server: Mapping[str, str], queues: Sequence[Partition]
) -> Meaning:
    """The ordering, and what became of the settings that tell it."""
    made = Meaning("", {}, {}, {})
    text = _by_formula(server, made)
    fair = sched.is_on("fair_share")
    if text and fair:
        made.left["fair_share"] = (
            "it decides between jobs of which the formula makes no difference; here time does"
        )
    keys = sched.all("job_sort_key")
    if text:
        made.keys.update(dict.fromkeys(keys, _AFTER_FORMULA))
        exact = True
    else:
        text, exact = _by_share_and_keys(keys, fair, made)
    return made._replace(text=_express_first(text, exact, sched, server, queues, made))


def _by_formula(server: Mapping[str, str], made: Meaning) -> str:
    """``job_sort_formula`` as an ordering; empty if there is none that is understood."""
    said = server.get("job_sort_formula", "").strip()
    if not said:
        return ""
    # PBS counts memory in KB.
    text = re.sub(r"\bmem\b", "(mem*1048576)", said)
    what = "the same formula" if text == said else "the same formula, of memory in KB"
    if server.get("eligible_time_enable", "").lower() == "false" and "eligible_time" in text:
        text = re.sub(r"\beligible_time\b", "0", text)
        what += "; eligible_time is 0, as eligible_time_enable is False"
    if fault := _fault(text):
        made.left["job_sort_formula"] = f"{fault}; jobs go as if there were no formula"
        return ""
    made.taken["job_sort_formula"] = what
    least = server.get("job_sort_formula_threshold", "")
    if not least:
        return f"pbs:{text}"
    if not re.fullmatch(r"-?\d{1,15}(\.\d{1,15})?", least):
        made.left["job_sort_formula_threshold"] = (
            "not a number: jobs run whatever the formula's value"
        )
        return f"pbs:{text}"
    made.taken["job_sort_formula_threshold"] = (
        "the formula is -1e999 up to it: such jobs do not run"
    )
    return f"pbs:({text}) if ({text}) > {least} else -1e999"


def _fault(text: str) -> str:
    """Why a formula is none that is understood; empty if it is."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError):
        return "it cannot be read"
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    unknown = sorted(names - TERMS)
    return f"jobs do not say {', '.join(unknown)} here" if unknown else ""


def _by_share_and_keys(keys: Sequence[Line], fair: bool, made: Meaning) -> tuple[str, bool]:
    """By fair share, sort keys, or both; and whether something greater can still be put in front."""
    terms: list[tuple[str, int]] = []
    room = _EXACT // (_SHARES_SPAN if fair else 1)
    for line in keys:
        name, _, way = line.value.partition(" ")
        key = _KEYS.get(name)
        if way.lower() not in ("high", "low"):
            made.keys[line] = "PBS passes over it: after the resource it says HIGH or LOW"
        elif key is None:
            made.keys[line] = f"jobs do not say their {name} here; {', '.join(_KEYS)} are sorted by"
        elif room // key.span == 0:
            made.keys[line] = "more keys than one number can tell apart"
        else:
            room //= key.span
            sign = "-" if way.lower() == "high" else ""
            terms.append(
                (f"{sign}{key.name}" + (f"*{key.scale}" if key.scale > 1 else ""), key.span)
            )
    if fair:
        made.taken["fair_share"] = "ordering fairshare, by use in node-seconds and shares"
    if terms:
        made.taken["job_sort_key"] = "sorted by, in this order"
    if not terms:
        return ("fairshare" if fair else "fcfs"), True
    text = terms[-1][0]
    weight = terms[-1][1]
    for term, span in reversed(terms[:-1]):
        text = f"{term}*{weight} + {text}".replace("+ -", "- ")
        weight *= span
    if fair:
        text = f"-fairshare*{_SHARES_SPAN * weight} + {text}".replace("+ -", "- ")
    return text, len(terms) == 1 and not fair


def _express_first(
    text: str,
    exact: bool,
    sched: SchedConfig,
    server: Mapping[str, str],
    queues: Sequence[Partition],
    made: Meaning,
) -> str:
    """Put jobs of express queues first, where queues do not go by their priority anyway."""
    said = server.get("preempt_queue_prio", "150")
    least = int(said) if said.isdigit() else 150
    express = [queue.name for queue in queues if queue.priority >= least]
    if not sched.is_on("preemptive_sched", default=not sched.lines) or not 0 < len(express) < len(
        queues
    ):
        return text
    made.left["preemptive_sched"] = f"no job is preempted; those of {', '.join(express)} go first"
    if sched.is_on("by_queue", default=not sched.lines) or sched.is_on("round_robin"):
        return text
    if not exact:
        made.left["preemptive_sched"] = (
            "no job is preempted, nor do those of express queues go first beside fair share or several sort "
            "keys; with by_queue they would"
        )
        return text
    before = {"fcfs": "submit", "fairshare": "-fairshare"}.get(text, text)
    weight = 1_000_000 if text == "fairshare" else _EXPRESS
    if text.startswith("pbs:"):
        return f"pbs:({text.removeprefix('pbs:')}) + {weight}*(queue_priority >= {least})"
    return f"{before} - {weight}*(queue_priority >= {least})"
