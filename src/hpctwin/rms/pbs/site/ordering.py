"""Orders in which PBS's scheduler tries jobs and vnodes, as hpctwin orderings.

Jobs are ordered by ``job_sort_formula``, then by fair share, then by ``job_sort_key``, then by the
time at which they entered their queue. Jobs of express queues come before all others. Vnodes are
ordered by the first ``node_sort_key``, equal ones by the next. By ``total``, the default, the order
never changes.

Source:
    OpenPBS 23.06; PBS Professional 2022.1 Administrator's Guide, "Sorting vnodes on a key".
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hpctwin.model import Partition
from hpctwin.model.requests.pbs_requests import memory_gb
from hpctwin.rms.pbs.listing.output import resources
from hpctwin.rms.pbs.site.config_files import Line, SchedConfig

_NEAREST = {
    "high unused": "@spread",
    "low assigned": "@spread",
    "low unused": "@best-fit",
    "high assigned": "@best-fit",
}
_PASSED_OVER = (
    "PBS ignores the line; expected a resource, HIGH or LOW, and total, assigned or unused"
)


class _Key(NamedTuple):
    """Sort key of a line: a resource or ``sort_priority``.

    ``high`` says whether the most comes first, and ``of`` which amount of it counts.
    """

    name: str
    high: bool
    of: str


@dataclass
class NodeOrder:
    """Order in which vnodes are tried.

    Args:
        placement: Placement part of a policy.
        taken: Counterpart of the lines.
        left: Reasons why some lines have no counterpart.
        weights: Weights of vnodes by name; vnodes with the smallest come first.
    """

    placement: str = ""
    taken: str = ""
    left: dict[Line, str] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)


def node_order(sched: SchedConfig, rows: Mapping[str, Mapping[str, Any]]) -> NodeOrder:
    """Return the order in which PBS tries vnodes if jobs share them.

    Args:
        rows: Vnodes of ``pbsnodes`` by name.
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
            keys, "smp_cluster_dist distributes jobs over the nodes: @round-robin"
        )
        return made
    fixed = []
    for line, key in keys.items():
        if key.of == "total":
            fixed.append(key)
        elif _ranks(rows, fixed) or made.placement or key.name != "ncpus":
            made.left[line] = (
                f"sorting by {key.of} {key.name} is modeled only for ncpus, as the first key that "
                "distinguishes nodes"
            )
        else:
            made.placement = _NEAREST[f"{'high' if key.high else 'low'} {key.of}"]
            made.taken = f"{made.placement}, the nearest placement"
    ranks = _ranks(rows, fixed)
    if ranks and not made.placement:
        made.placement, made.weights = "@weight", ranks
        made.taken = "weight of node groups, with placement @weight"
    elif fixed and not made.taken:
        made.taken = "the value is equal on all vnodes"
    return made


def _read(value: str) -> _Key | None:
    """Return the key of a line of ``node_sort_key``; None if PBS skips the line."""
    name, way, *rest = [*value.split(), "", ""][:4]
    of = rest[0] or "total"
    if way not in ("high", "HIGH", "High", "low", "LOW", "Low"):
        return None
    return _Key(name, way.lower() == "high", of) if of in ("total", "assigned", "unused") else None


def _ranks(rows: Mapping[str, Mapping[str, Any]], keys: list[_Key]) -> dict[str, float]:
    """Return each vnode's rank by keys that do not change; empty if all are equal."""
    values = {
        name: tuple((-1 if key.high else 1) * _amount(row, key.name) for key in keys)
        for name, row in rows.items()
    }
    places = {value: float(place) for place, value in enumerate(sorted(set(values.values())))}
    if len(places) < 2:
        return {}
    return {name: places[value] for name, value in values.items()}


def _amount(row: Mapping[str, Any], name: str) -> float:
    """Return an amount of a vnode; 0 without a value, as in PBS."""
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
    """A resource by which jobs are sorted.

    Args:
        name: Name in formulas of hpctwin.
        scale: Amount that counts as 1.
        span: Exclusive upper bound of its whole-number value.
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
"""Names that a formula may contain."""
_SHARES_SPAN = 2**26
"""Steps of fair-share factors if sort keys follow; closer factors are equal."""
_EXACT = 2**53
_AFTER_FORMULA = "the formula comes first; jobs with equal values are ordered by time"
_EXPRESS = 10**12
"""Offset far above times and most formulas.

For fair shares, which are at most 1, a million is enough.
"""


class Meaning(NamedTuple):
    """A policy, or its ordering alone.

    Args:
        text: Text of the policy.
        taken: Counterparts of settings, by name.
        left: Reasons why others have no counterpart, by name.
        keys: Lines of sort keys without a counterpart, with the reason.
        fairshare: Fair share of the cluster: how past use counts.
    """

    text: str
    taken: dict[str, str]
    left: dict[str, str]
    keys: dict[Line, str]
    fairshare: Mapping[str, Any] = {}


def ordering_of(
    sched: SchedConfig, server: Mapping[str, str], queues: Sequence[Partition]
) -> Meaning:
    """Return the ordering, and the treatment of the settings that define it."""
    made = Meaning("", {}, {}, {})
    text = _by_formula(server, made)
    fair = sched.is_on("fair_share")
    if text and fair:
        made.left["fair_share"] = (
            "PBS orders jobs with equal formula values by fair share, the simulation by time"
        )
    keys = sched.all("job_sort_key")
    if text:
        made.keys.update(dict.fromkeys(keys, _AFTER_FORMULA))
        exact = True
    else:
        text, exact = _by_share_and_keys(keys, fair, made)
    return made._replace(text=_express_first(text, exact, sched, server, queues, made))


def _by_formula(server: Mapping[str, str], made: Meaning) -> str:
    """Return ``job_sort_formula`` as an ordering; empty if there is no supported one."""
    said = server.get("job_sort_formula", "").strip()
    if not said:
        return ""
    # PBS counts memory in KB.
    text = re.sub(r"\bmem\b", "(mem*1048576)", said)
    what = "the same formula" if text == said else "the same formula, with memory in KB"
    if server.get("eligible_time_enable", "").lower() == "false" and "eligible_time" in text:
        text = re.sub(r"\beligible_time\b", "0", text)
        what += "; eligible_time is 0, as eligible_time_enable is False"
    if fault := _fault(text):
        made.left["job_sort_formula"] = f"{fault}; jobs are ordered without the formula"
        return ""
    made.taken["job_sort_formula"] = what
    least = server.get("job_sort_formula_threshold", "")
    if not least:
        return f"pbs:{text}"
    if not re.fullmatch(r"-?\d{1,15}(\.\d{1,15})?", least):
        made.left["job_sort_formula_threshold"] = (
            "not a number: jobs run with any value of the formula"
        )
        return f"pbs:{text}"
    made.taken["job_sort_formula_threshold"] = (
        "jobs with a formula value up to it do not run (value -1e999)"
    )
    return f"pbs:({text}) if ({text}) > {least} else -1e999"


def _fault(text: str) -> str:
    """Return why a formula is not supported; empty if it is."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError):
        return "the formula is not valid Python"
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    unknown = sorted(names - TERMS)
    return f"unknown terms in the formula: {', '.join(unknown)}" if unknown else ""


def _by_share_and_keys(keys: Sequence[Line], fair: bool, made: Meaning) -> tuple[str, bool]:
    """Return the ordering by fair share, sort keys, or both.

    The flag says whether a larger term can still be put in front.
    """
    terms: list[tuple[str, int]] = []
    room = _EXACT // (_SHARES_SPAN if fair else 1)
    for line in keys:
        name, _, way = line.value.partition(" ")
        key = _KEYS.get(name)
        if way.lower() not in ("high", "low"):
            made.keys[line] = "PBS ignores the line; expected a resource and HIGH or LOW"
        elif key is None:
            made.keys[line] = f"jobs cannot be sorted by {name}, only by {', '.join(_KEYS)}"
        elif room // key.span == 0:
            made.keys[line] = "too many sort keys for one number; this key is ignored"
        else:
            room //= key.span
            sign = "-" if way.lower() == "high" else ""
            terms.append(
                (f"{sign}{key.name}" + (f"*{key.scale}" if key.scale > 1 else ""), key.span)
            )
    if fair:
        made.taken["fair_share"] = "ordering fairshare, from shares and usage in node-seconds"
    if terms:
        made.taken["job_sort_key"] = "sort keys of the ordering"
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
    """Put jobs of express queues first, unless queues are ordered by priority anyway."""
    said = server.get("preempt_queue_prio", "150")
    least = int(said) if said.isdecimal() else 150
    express = [queue.name for queue in queues if queue.priority >= least]
    if not sched.is_on("preemptive_sched", default=not sched.lines) or not 0 < len(express) < len(
        queues
    ):
        return text
    made.left["preemptive_sched"] = f"no job is preempted; jobs of {', '.join(express)} come first"
    if sched.is_on("by_queue", default=not sched.lines) or sched.is_on("round_robin"):
        return text
    if not exact:
        made.left["preemptive_sched"] = (
            "no job is preempted; jobs of express queues come first only with by_queue, or without fair "
            "share and with one sort key"
        )
        return text
    before = {"fcfs": "submit", "fairshare": "-fairshare"}.get(text, text)
    weight = 1_000_000 if text == "fairshare" else _EXPRESS
    if text.startswith("pbs:"):
        return f"pbs:({text.removeprefix('pbs:')}) + {weight}*(queue_priority >= {least})"
    return f"{before} - {weight}*(queue_priority >= {least})"
