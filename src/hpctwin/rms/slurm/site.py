"""A Slurm site's settings as a machine and a policy.

Nodes and partitions come from what ``scontrol`` prints if that is there, else from ``slurm.conf``; shares and
QOS from ``sacctmgr``. What each scheduling setting became is told, one by one (`hpctwin.rms.slurm.meaning`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hpctwin.errors import ConfigError, FormatError
from hpctwin.model.consumables import NAME, NOT_CONSUMED
from hpctwin.model.gres import gres_count, parse_gres
from hpctwin.model.hostlist import expand
from hpctwin.model.limits import ROOT
from hpctwin.model.node_group import LYING
from hpctwin.rms.machine import ListedNode, equal_nodes, group_nodes
from hpctwin.rms.records import NodeRecord
from hpctwin.rms.site import NO_BEARING, TAKEN, Setting, Site, named_cluster
from hpctwin.rms.slurm.accounts import of_cluster, shares_of
from hpctwin.rms.slurm.conf import Conf, Row, said, take
from hpctwin.rms.slurm.gres import consumables_of, gpus_by_type, gpus_of, types_by_index
from hpctwin.rms.slurm.limits import (
    enforced,
    factors_of_qos,
    limits_of_associations,
    limits_of_qos,
)
from hpctwin.rms.slurm.meaning import explained, order_and_backfill
from hpctwin.rms.slurm.partitions import described_partitions, partition_fields
from hpctwin.rms.slurm.placing import is_least_loaded, shared_placement, weights_of
from hpctwin.rms.slurm.preempted import PREEMPTION_KEYS, Found, preemption_of
from hpctwin.rms.slurm.topology import connections
from hpctwin.rms.slurm.values import node_flags

__all__ = ["SlurmSettings", "slurm_site"]

MOST_GROUPS = 128
"""Of more groups of nodes than this a simulation takes long."""
_NAMED = 10
"""A note names this many nodes."""


@dataclass
class SlurmSettings:
    """What was found of a site.

    Args:
        conf: of slurm.conf; or what ``scontrol show config`` printed, a row for each setting.
        gres: of gres.conf.
        topology: of topology.conf.
        nodes: of ``scontrol show node``.
        partitions: of ``scontrol show partition``.
        associations: of ``sacctmgr show assoc``.
        qos: of ``sacctmgr show qos``.
        reservations: of ``scontrol show reservation``.
        weights: of ``sprio -w``, which count where nothing else says them.
        notes: what of these could not be read.
    """

    conf: Conf = field(default_factory=Conf)
    gres: Conf = field(default_factory=Conf)
    topology: Conf = field(default_factory=Conf)
    nodes: list[Row] = field(default_factory=list)
    partitions: list[Row] = field(default_factory=list)
    associations: list[Row] = field(default_factory=list)
    qos: list[Row] = field(default_factory=list)
    reservations: list[Row] = field(default_factory=list)
    weights: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.nodes or self.conf.of("nodename"))

    @property
    def tells(self) -> bool:
        """Whether it says anything of scheduling, partitions, accounts or QOS."""
        return bool(
            self.conf.rows or self.partitions or self.associations or self.qos or self.weights
        )

    @property
    def values(self) -> dict[str, Row]:
        """The settings that are not of a node, partition or the like, by key; the last one counts."""
        kinds = (
            "nodename", "partitionname", "nodeset", "downnodes", "frontendname", "switchname", "blockname",
        )  # fmt: skip
        rows = [*self.weights, *(row for row in self.conf.rows if row.kind not in kinds)]
        return {key: row for row in rows for key in row.values}

    @property
    def shared(self) -> bool:
        """Whether jobs may be on one node together: cores are what is given out, not to one job alone."""
        rows = self.partitions or self.conf.of("partitionname")
        alone = [row.get("oversubscribe") or row.get("shared") for row in rows]
        # Since 23.02 cores are what is given out if nothing is said.
        select = said(self.values, "selecttype") or "select/cons_tres"
        return "linear" not in select and not (
            alone and all(a.upper() == "EXCLUSIVE" for a in alone)
        )

    @property
    def shares_memory(self) -> bool:
        """Whether memory is given out too."""
        key, values = "selecttypeparameters", self.values
        return key not in values or "MEMORY" in said(values, key).upper()


def slurm_site(found: SlurmSettings, *, assumed: int = 0) -> Site:
    """The machine and the policy of a Slurm site.

    Args:
        found: its settings.
        assumed: where these have no nodes, of so many equal ones.

    Raises:
        ConfigError: the settings have no nodes, or associations are of several clusters and nothing says of
            which this is.
    """
    notes = [*found.conf.notes, *found.gres.notes, *found.topology.notes, *found.notes]
    settings: list[Setting] = []
    kept = found.partitions or _with_defaults(found.conf.of("partitionname"), "partitionname")
    named = {row.get("partitionname"): row for row in kept}
    named |= _only_of_nodes(found.nodes, named, notes)
    preemption = preemption_of(found.values, named, found.qos, shared=found.shared)
    preempts = preemption is not None and preemption.fields is not None
    spreads = found.shared and is_least_loaded(found.values, list(named.values()))
    told_apart = {key for key, told in (("gracetime", preempts), ("lln", spreads)) if told}
    described = described_partitions(named, settings, told_apart)
    listed = _nodes(found, described, notes) if found else equal_nodes(assumed, described)
    if not listed:
        unread = [note for note in notes if re.search("left out|excluded|not there", note)]
        raise ConfigError(
            "no node is described, or none is available: slurm.conf with its NodeName lines, or what "
            "scontrol show node prints, is needed"
            + (f" ({'; '.join(unread[:3])})" if unread else "")
        )
    grouped = group_nodes(listed)
    if len(grouped.groups) > MOST_GROUPS:
        grouped = group_nodes([node._replace(features=()) for node in listed])
        notes.append(
            f"by their features nodes would be of more than {MOST_GROUPS} groups: they are left out"
        )
    holds = enforced(found.values)
    held = holds.held
    settings += _enforcing(found.values, held=held)
    by_tier = preemption is not None and preempts and preemption.by == "partition"
    whole = not found.shared and not preempts
    totals = {
        "node": len(listed),
        "cpu": sum(node.cores or 0 for node in listed),
        "gres/gpu": sum(node.gpus or 0 for node in listed),
        "mem": sum(node.memory_gb or 0 for node in listed),
    }
    policy = order_and_backfill(
        found.values, described, settings, totals=totals, preempts=by_tier, whole=whole
    )
    placement = ""
    if found.shared:
        weighted = any(node.weight for node in listed)
        placement = shared_placement(
            found.values, list(described.values()), weighted=weighted, settings=settings
        )
    if preempts:
        settings = [_youngest_taken(one) for one in settings]
    partitions = [
        partition_fields(
            name, row, list(grouped.members[name]), policy.partition_priority, held=held
        )
        for name, row in described.items()
        if name in grouped.members
    ]
    unknown = sorted(described.keys() - grouped.members.keys())
    notes += [f"partition {name} has no node that is available, left out" for name in unknown]
    called = found.values.get("clustername")
    associations = of_cluster(found.associations, called, notes)
    fields: dict[str, Any] = {
        "name": called.get("clustername") if called else "slurm",
        "nodes": [group.model_dump(exclude_defaults=True) for group in grouped.groups],
        "partitions": partitions,
        "resources": _licences(found.values, settings),
        "qos": _qos(found.qos),
        **shares_of(found.values, associations, settings, notes),
    }
    qos = found.qos
    if preemption is not None:
        settings += preemption.settings
        qos = [_without_preempt(row) for row in qos]
    fields["fairshare"] |= factors_of_qos(qos, settings, holds)
    limits = limits_of_qos(qos, settings, holds)
    limits += limits_of_associations(associations, settings, holds)
    fields |= _with_accounts(limits, fields)
    fields |= _preemption(preemption, fields)
    told = PREEMPTION_KEYS if preemption is not None else frozenset[str]()
    settings += explained(found.values, told, shared=found.shared)
    switches, became = connections(found.topology.rows, [n for some in grouped.names for n in some])
    settings += became
    if switches:
        fields["switches"] = switches
    cluster, names = named_cluster(fields, grouped.names, "slurm")
    return Site("slurm", cluster, policy.text, settings, notes, names, shared_placement=placement)


# --- nodes -----------------------------------------------------------------------------------------


def _nodes(
    found: SlurmSettings, described: Mapping[str, Row], notes: list[str]
) -> list[ListedNode]:
    """List the nodes that jobs can be given; the others are noted with their names."""
    rows = _named(found.nodes, "nodename", notes) if found.nodes else _from_conf(found, notes)
    in_partitions = _members(found, described, rows, notes)
    gres = _gres(found.gres, rows, notes)
    weights = weights_of(rows) if found.shared else {}
    typed = len({kind for text in gres.values() for kind in types_by_index(text)}) > 1
    away = _away(rows, in_partitions if described else None, notes)
    listed = []
    for name, row in rows.items():
        if name in away:
            continue
        consumables = consumables_of(gres[name])
        if typed and found.shared:
            consumables |= gpus_by_type(gres[name])
        listed.append(
            ListedNode(
                NodeRecord(name=name, state="up"),
                _cores(row),
                gpus_of(gres[name]) or 0.0,
                _memory_gb(row),
                tuple(sorted(in_partitions.get(name, ()))),
                consumables=tuple(sorted(consumables.items())),
                weight=weights.get(name, 0.0),
                features=_named_features(row),
                lying=_lying(row),
            )
        )
    return listed


_NO_STARTS = ("DOWN", "DRAIN", "FAIL", "FUTURE", "ERROR", "INVAL")
"""States of nodes on which Slurm starts no job."""
_ORDINARY = {"IDLE", "ALLOCATED", "MIXED", "COMPLETING", "UNKNOWN", "DYNAMIC_NORM"}
"""States of nodes of which nothing is said. slurm.conf says UNKNOWN of nodes that are up."""


def _away(
    rows: Mapping[str, Row], in_partitions: Mapping[str, set[str]] | None, notes: list[str]
) -> set[str]:
    """Find the nodes that jobs cannot be given, and note them and unusual states of others.

    Args:
        rows: Of the nodes, by name.
        in_partitions: The partitions of each node; None if no partition is known.
        notes: What is found is appended.
    """
    states: dict[tuple[bool, str], list[str]] = {}
    alone = []
    for name, row in rows.items():
        flags = node_flags(row.get("state"))
        powered = any(flag.startswith("POWER") for flag in flags)
        gone = not flags.isdisjoint(_NO_STARTS) or ("NOT_RESPONDING" in flags and not powered)
        if gone or flags - _ORDINARY:
            states.setdefault((not gone, row.get("state").upper()), []).append(name)
        if not gone and in_partitions is not None and name not in in_partitions:
            alone.append(name)
    for (there, state), names in sorted(states.items()):
        became = "counted as available" if there else "excluded, as Slurm starts no job there"
        notes.append(f"{_counted(names)} in state {state}: {became}")
    if alone:
        notes.append(
            f"{_counted(alone)} in no partition: excluded, as no job can be given such a node"
        )
    return {name for (there, _), names in states.items() if not there for name in names} | set(
        alone
    )


def _counted(names: Sequence[str]) -> str:
    """Count nodes and name the first of them."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    count = "1 node" if len(names) == 1 else f"{len(names):,} nodes"
    return f"{count} ({', '.join(names[:_NAMED])}{more})"


def _named(rows: Sequence[Row], kind: str, notes: list[str]) -> dict[str, Row]:
    """A row for each name; ranges are written out."""
    named: dict[str, Row] = {}
    for row in rows:
        try:
            for name in expand(row.get(kind)):
                named[name] = row
        except FormatError as error:
            notes.append(f"{row.where}: {error}, left out")
    return named


def _from_conf(found: SlurmSettings, notes: list[str]) -> dict[str, Row]:
    """Read the nodes of slurm.conf, in the states that its DownNodes lines give them."""
    named = _named(_with_defaults(found.conf.of("nodename"), "nodename"), "nodename", notes)
    for row in found.conf.of("downnodes"):
        state = row.get("state") or "DOWN"
        for name in _named([row], "downnodes", notes):
            if name in named:
                of = named[name]
                named[name] = Row({**of.values, "state": state}, of.where, of.names)
    return named


def _with_defaults(rows: Sequence[Row], kind: str) -> list[Row]:
    """Rows with what the DEFAULT lines before them say; two lines of one name are one."""
    default: dict[str, str] = {}
    made: dict[str, Row] = {}
    for row in rows:
        if row.get(kind).upper() == "DEFAULT":
            default |= {key: value for key, value in row.values.items() if key != kind}
            continue
        name = row.get(kind)
        before = made[name].values if name in made else default
        made[name] = Row({kind: name, **before, **row.values}, row.where, row.names)
    return list(made.values())


def _cores(row: Row) -> float:
    """CPUs that jobs can have, as Slurm counts them: threads, where it says nothing else."""

    def number(key: str) -> int:
        return int(row.get(key)) if row.get(key).isdigit() else 1

    if row.get("cpuefctv").isdigit():
        return float(row.get("cpuefctv"))
    threads = number("threadspercore")
    apart = threads * number("corespeccount") if row.get("corespeccount") else 0
    if row.get("cpuspeclist"):
        # CPUs of the system, by numbers that go through the threads of each core.
        apart = threads * len({int(cpu) // threads for cpu in _numbers(row.get("cpuspeclist"))})
    for key in ("cputot", "cpus", "procs"):
        if row.get(key).isdigit():
            return float(max(int(row.get(key)) - apart, 0))

    sockets = (
        number("sockets") if row.get("sockets") else number("boards") * number("socketsperboard")
    )
    return float(max(sockets * number("corespersocket") * number("threadspercore") - apart, 0))


def _memory_gb(row: Row) -> float | None:
    """What jobs can have of a node's memory; None if it is not told."""
    memory, apart = row.get("realmemory"), row.get("memspeclimit")
    if not memory.isdigit():
        return None
    return max(int(memory) - (int(apart) if apart.isdigit() else 0), 0) / 1024


def _numbers(text: str) -> list[str]:
    """Read a list of numbers such as ``0,2-3``; none if it is no such list."""
    try:
        return [number.lstrip("c") for number in expand(f"c[{text}]")]
    except FormatError:
        return []


def _gres(conf: Conf, nodes: Mapping[str, Row], notes: list[str]) -> dict[str, str]:
    """Say what each node has of generic resources, in the form of its own ``Gres``.

    gres.conf adds resources that the node's own line does not name, and types of GPUs that it only counts.
    """
    told: dict[str, dict[str, list[tuple[str, float]]]] = {}
    for row in conf.rows:
        name = row.get("name").lower()
        if not name or name in NOT_CONSUMED[1:] or not re.fullmatch(NAME, name):
            continue
        count = gres_count(row.get("count"))
        one = (row.get("type"), float(_devices(row)) if count is None else count)
        for node in _named([row], "nodename", notes) if "nodename" in row.values else [""]:
            told.setdefault(node, {}).setdefault(name, []).append(one)
    made = {}
    for node, row in nodes.items():
        own = list(parse_gres(row.get("gres")))
        parts = [row.get("gres")] if own else []
        for name, ones in (told.get("", {}) | told.get(node, {})).items():
            having = [one for one in own if one.name == name]
            same = sum(one.count for one in having) == sum(count for _, count in ones)
            written = ",".join(
                f"{name}:{kind}:{n:.0f}" if kind else f"{name}:{n:.0f}" for kind, n in ones
            )
            if not having and name in told.get(node, {}):
                parts.append(written)
            elif same and not any(one.kind for one in having) and name == "gpu":
                parts = [re.sub(r"(?<![\w.-])gpu(?![\w.-])[^,]*", written, parts[0]), *parts[1:]]
        made[node] = ",".join(parts)
    return made


def _devices(row: Row) -> int:
    """Count the device files of a line of gres.conf; 1 if it names none."""
    try:
        return sum(len(expand(part)) if "[" in part else 1 for part in _split(row.get("file"))) or 1
    except FormatError:
        return 1


# --- partitions ------------------------------------------------------------------------------------


def _only_of_nodes(
    nodes: Sequence[Row], named: Mapping[str, Row], notes: list[str]
) -> dict[str, Row]:
    """Make the partitions that nodes name (``Partitions``) and nothing else describes."""
    found: dict[str, list[Row]] = {}
    for row in nodes:
        for name in _partitions_of(row) - named.keys():
            found.setdefault(name, []).append(row)
    if found:
        notes.append(
            f"only nodes name {'partition' if len(found) == 1 else 'partitions'} {', '.join(sorted(found))}: "
            "limits, priorities and the default partition are unknown; add scontrol show partition"
        )
    return {name: Row({"partitionname": name}, found[name][0].where, {}) for name in sorted(found)}


def _partitions_of(row: Row) -> set[str]:
    names = {name.strip() for name in row.get("partitions").split(",")}
    return names - {"", "(null)", "N/A"}


def _members(
    found: SlurmSettings, described: Mapping[str, Row], nodes: Mapping[str, Row], notes: list[str]
) -> dict[str, set[str]]:
    """The partitions of each node."""
    sets: dict[str, list[str]] = {}
    for row in found.conf.of("nodeset"):
        feature = row.get("feature")
        names = [n for n, one in nodes.items() if feature and feature in _features(one)]
        names += list(_named([row], "nodes", notes)) if row.get("nodes") else []
        sets[row.get("nodeset")] = names
    partitions: dict[str, set[str]] = {}
    for name, row in nodes.items():
        if of := _partitions_of(row) & described.keys():
            partitions[name] = of
    for label, row in described.items():
        names = []
        for part in _split(row.get("nodes")):
            if part.upper() == "ALL":
                names += list(nodes)
            elif part in sets:
                names += sets[part]
            elif part.lower() not in ("(null)", ""):
                names += list(_named([Row({"nodes": part}, row.where, {})], "nodes", notes))
        for name in names:
            if name in nodes:
                partitions.setdefault(name, set()).add(label)
        missing = [name for name in names if name not in nodes]
        if missing:
            notes.append(
                f"partition {label}: {len(missing)} nodes are not described, as {missing[0]}"
            )
    return partitions


def _named_features(row: Row) -> tuple[str, ...]:
    """Those that jobs can ask for."""
    active = row.get("activefeatures")
    names = [part.strip() for part in active.split(",")] if active else _features(row)
    return tuple(sorted({name for name in names if name and name != "(null)"}))


def _lying(row: Row) -> tuple[int | None, ...]:
    """Sockets, cores of each and threads of these, where all are told and come to the node's CPUs."""
    told = [row.get(key) for key in ("sockets", "corespersocket", "threadspercore")]
    numbers = [int(text) if text.isdigit() else 0 for text in told]
    fits = 0 not in numbers and math.prod(numbers) >= _cores(row)
    return tuple(numbers) if fits else (None,) * len(LYING)


def _features(row: Row) -> list[str]:
    text = row.get("availablefeatures") or row.get("feature") or row.get("features")
    return [part.strip() for part in text.split(",")]


def _split(text: str) -> list[str]:
    """At commas that are not within brackets."""
    parts, depth, begin = [], 0, 0
    for i, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and not depth:
            parts.append(text[begin:i])
            begin = i + 1
    return [part for part in [*parts, text[begin:]] if part]


# --- the rest --------------------------------------------------------------------------------------


def _licences(values: Mapping[str, Row], settings: list[Setting]) -> dict[str, int]:
    if not said(values, "licenses"):
        return {}
    found = {}
    for part in said(values, "licenses").split(","):
        name, _, count = part.replace("=", ":").partition(":")
        found[name.partition("@")[0]] = int(count) if count.isdigit() else 1
    why = (
        "resources of the machine; accounting says which jobs held them where AccountingStorageTRES has "
        "license/NAME"
    )
    take(values, "licenses", why, settings)
    return found


def _qos(rows: Sequence[Row]) -> dict[str, float]:
    return {
        row.get("name"): float(row.get("priority"))
        for row in rows
        if row.get("name") and row.get("priority").isdigit()
    }


def _youngest_taken(one: Setting) -> Setting:
    """What is said of preempt_youngest_first, which preemption has."""
    if one.name != "SchedulerParameters: preempt_youngest_first":
        return one
    return replace(one, became=TAKEN, why="preemption: youngest_first")


def _without_preempt(row: Row) -> Row:
    """A QOS without what is told with preemption."""
    left = {key: value for key, value in row.values.items() if key != "preempt"}
    return Row(left, row.where, row.names)


def _preemption(found: Found | None, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The cluster's field, of partitions that have nodes."""
    if found is None or found.fields is None:
        return {}
    if found.by == "qos":
        return {"preemption": found.fields}
    there = {partition["name"] for partition in fields["partitions"]}
    of = {name: one for name, one in found.fields["partitions"].items() if name in there}
    if len({one["tier"] for one in of.values()}) < 2:
        return {}
    return {"preemption": found.fields | {"partitions": of}}


def _enforcing(values: Mapping[str, Row], *, held: bool) -> list[Setting]:
    key = "accountingstorageenforce"
    told = (TAKEN, "limits") if held else (NO_BEARING, "limits are not held")
    return [values[key].setting(key, *told)] if key in values else []


def _with_accounts(limits: list[dict[str, Any]], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Limits, and an account below the root for each that only a limit is known of."""
    accounts = list(fields.get("accounts", ()))
    known = {account["name"] for account in accounts} | {ROOT}
    for limit in limits:
        name = limit.get("account", ROOT)
        if accounts and name not in known:
            known.add(name)
            accounts.append({"name": name})
    return {"limits": limits, "accounts": accounts}
