"""Nodes of a Slurm site: sizes, partitions, and whether jobs can be given them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from hpctwin.errors import FormatError
from hpctwin.model.cluster.node_group import LYING
from hpctwin.model.requests.resources import (
    MOST,
    NAME,
    NOT_CONSUMED,
    check_names,
    gres_count,
    parse_gres,
)
from hpctwin.model.text import count_text, expand
from hpctwin.rms.records.records import NodeRecord
from hpctwin.rms.site import NOT_MODELED, ListedNode, Setting
from hpctwin.rms.slurm.listing.conf import Conf, Row
from hpctwin.rms.slurm.listing.resources import (
    consumables_of,
    gpus_by_type,
    gpus_of,
    types_by_index,
)
from hpctwin.rms.slurm.listing.values import node_flags
from hpctwin.rms.slurm.site.partitions import weights_of

_NAMED = 10
"""Number of nodes that a note names."""
_USED = {
    "nodename", "cpus", "procs", "boards", "sockets", "socketsperboard", "corespersocket", "threadspercore",
    "corespeccount", "cpuspeclist", "realmemory", "memspeclimit", "gres", "feature", "features", "state",
    "weight",
}  # fmt: skip
"""Keys of NodeName lines that are read."""
_NO_EFFECT = {
    "arch", "bcastaddr", "certtoken", "cpubind", "nodeaddr", "nodehostname", "port", "reason",
}  # fmt: skip
_WHY = {
    "restrictedcorespergpu": "jobs without GPUs may use all cores",
    "tmpdisk": "accounting does not record requests for local disks",
    "topology": "switches of all nodes are read from topology.conf",
    "tresweights": "nodes are chosen without weights of TRES",
    "weight": "exclusive nodes are chosen by number",
}
"""Reasons why keys of NodeName lines have no counterpart."""


def node_settings(conf: Conf, *, shared: bool) -> list[Setting]:
    """Return keys of NodeName and FrontendName lines that are not modeled, once each."""
    made: dict[str, Setting] = {}
    for row in [*conf.of("nodename"), *conf.of("frontendname")]:
        used = _NO_EFFECT | (_USED if shared else _USED - {"weight"})
        for key in row.values.keys() - (used if row.kind == "nodename" else ()):
            front = "jobs run on compute nodes, not on front ends"
            why = front if row.kind == "frontendname" else _WHY.get(key, "unknown setting")
            name = row.names.get(key, key)
            of = f"{row.names[row.kind]}: {name}" if key != row.kind else name
            made.setdefault(of, Setting(of, row.get(key)[:80], row.where, NOT_MODELED, why))
    return [made[name] for name in sorted(made)]


def listed_nodes(
    shown: Sequence[Sequence[Row]],
    conf: Conf,
    gres_conf: Conf,
    described: Mapping[str, Row],
    notes: list[str],
    *,
    shared: bool,
) -> list[ListedNode]:
    """Return the nodes that jobs can be given; the others are noted with their names.

    Args:
        shown: Rows of scontrol show node as text, as JSON, and of sinfo; see `completed`.
        notes: List to which remarks are added.
    """
    rows = completed([_named(some, "nodename", notes) for some in shown], _from_conf(conf, notes))
    in_partitions = _members(conf, described, rows, notes)
    gres = _gres(gres_conf, rows, notes)
    weights = weights_of(rows) if shared else {}
    typed = len({kind for text in gres.values() for kind in types_by_index(text)}) > 1
    away = _away(rows, in_partitions if described else None, notes)
    listed = []
    for name, row in rows.items():
        if name in away:
            continue
        consumables = consumables_of(gres[name])
        if typed and shared:
            consumables |= gpus_by_type(gres[name])
        for one in [key for key in consumables if not _possible(key, consumables[key])]:
            amount = f"{consumables.pop(one):.15g}"
            of = f"{row.where}: {row.get('nodename')}"
            notes.append(f"{of}: Gres {one} ({amount}) is omitted: it cannot be modeled")
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


_SAME = {
    "shared": "oversubscribe", "priority": "prioritytier", "exclusiveuser": "exclusive",
    "exclusivetopo": "exclusive",
}  # fmt: skip
"""Keys whose meaning another key has as well."""


def completed(shown: Sequence[Mapping[str, Row]], written: Mapping[str, Row]) -> dict[str, Row]:
    """Return rows by name; each form fills the gaps of the forms before it.

    Args:
        shown: Output of a running Slurm; the text, which is complete, comes first.
        written: Lines of slurm.conf, which add no name if anything is shown.
    """
    whole, *parts = shown
    made = dict(whole)
    for some in parts:
        for name, row in some.items():
            if name not in whole:
                made[name] = _filled(made[name], row) if name in made else row
    if not made:
        return dict(written)
    return {
        name: _filled(row, written[name]) if name in written and name not in whole else row
        for name, row in made.items()
    }


def _filled(row: Row, other: Row) -> Row:
    more = {
        key: value
        for key, value in other.values.items()
        if key not in row.values and _SAME.get(key) not in row.values
    }
    return Row({**row.values, **more}, row.where, {**other.names, **row.names})


_NO_STARTS = ("DOWN", "DRAIN", "FAIL", "FUTURE", "ERROR", "INVAL")
"""States of nodes on which Slurm starts no job."""
_ORDINARY = {"IDLE", "ALLOCATED", "MIXED", "COMPLETING", "UNKNOWN", "DYNAMIC_NORM"}
"""States that need no note; slurm.conf says UNKNOWN for nodes that are up."""


def _away(
    rows: Mapping[str, Row], in_partitions: Mapping[str, set[str]] | None, notes: list[str]
) -> set[str]:
    """Return nodes that jobs cannot be given; note them and other unusual states.

    Args:
        rows: Rows of the nodes, by name.
        in_partitions: Partitions of each node; None if no partition is known.
        notes: List to which remarks are added.
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
        became = "counted as available" if there else "excluded, as Slurm starts no jobs there"
        notes.append(f"{_counted(names)} in state {state}: {became}")
    if alone:
        notes.append(f"{_counted(alone)} in no partition: excluded, as jobs cannot use them")
    return {name for (there, _), names in states.items() if not there for name in names} | set(
        alone
    )


def _possible(name: str, amount: float) -> bool:
    """Return whether a node can have a consumable of this name and amount."""
    try:
        check_names([name])
    except ValueError:
        return False
    return amount <= MOST


def _counted(names: Sequence[str]) -> str:
    """Return the number of nodes and the names of the first."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{count_text(len(names), 'node')} ({', '.join(names[:_NAMED])}{more})"


def _named(rows: Sequence[Row], kind: str, notes: list[str]) -> dict[str, Row]:
    """Return a row for each name; ranges are expanded."""
    named: dict[str, Row] = {}
    for row in rows:
        try:
            for name in expand(row.get(kind)):
                named[name] = row
        except FormatError as error:
            notes.append(f"{row.where}: the line is omitted: {error}")
    return named


def _from_conf(conf: Conf, notes: list[str]) -> dict[str, Row]:
    """Return the nodes of slurm.conf, in the states of its DownNodes lines."""
    named = _named(with_defaults(conf.of("nodename"), "nodename"), "nodename", notes)
    for row in conf.of("downnodes"):
        state = row.get("state") or "DOWN"
        for name in _named([row], "downnodes", notes):
            if name in named:
                of = named[name]
                named[name] = Row({**of.values, "state": state}, of.where, of.names)
    return {name: _laid_out(row) for name, row in named.items()}


def _laid_out(row: Row) -> Row:
    """Return a NodeName line with inferred sockets, cores and threads, as in Slurm."""

    def number(key: str) -> int:
        return int(row.get(key)) if row.get(key).isdecimal() else 0

    cores, threads = number("corespersocket") or 1, number("threadspercore") or 1
    sockets = number("sockets") or (number("boards") or 1) * number("socketsperboard")
    sockets = sockets or max((number("cpus") or number("procs")) // (cores * threads), 1)
    inferred = {"sockets": sockets, "corespersocket": cores, "threadspercore": threads}
    values = {**row.values, **{key: str(value) for key, value in inferred.items()}}
    return Row(values, row.where, row.names)


def with_defaults(rows: Sequence[Row], kind: str) -> list[Row]:
    """Return rows with the values of earlier DEFAULT lines; equal names are merged."""
    default = Row({}, "", {})
    made: dict[str, Row] = {}
    for row in rows:
        name = row.get(kind)
        before = made.get(name, default)
        values = {kind: name, **before.values, **row.values}
        whole = Row(values, row.where, {**before.names, **row.names})
        if name.upper() == "DEFAULT":
            values.pop(kind)
            default = whole
        else:
            made[name] = whole
    return list(made.values())


def _cores(row: Row) -> float:
    """Return the CPUs that jobs can have, as Slurm counts them: threads by default."""

    def number(key: str) -> int:
        return int(row.get(key)) if row.get(key).isdecimal() else 1

    if row.get("cpuefctv").isdecimal():
        return float(row.get("cpuefctv"))
    threads = number("threadspercore")
    apart = threads * number("corespeccount") if row.get("corespeccount") else 0
    if row.get("cpuspeclist"):
        # CPUs of the system, by numbers that count the threads of each core.
        apart = threads * len({int(cpu) // threads for cpu in _numbers(row.get("cpuspeclist"))})
    for key in ("cputot", "cpus", "procs"):
        if row.get(key).isdecimal():
            return float(max(int(row.get(key)) - apart, 0))

    sockets = (
        number("sockets") if row.get("sockets") else number("boards") * number("socketsperboard")
    )
    return float(max(sockets * number("corespersocket") * number("threadspercore") - apart, 0))


def _memory_gb(row: Row) -> float | None:
    """Return the memory of a node that jobs can have; None if not given."""
    memory, apart = row.get("realmemory"), row.get("memspeclimit")
    if not memory.isdecimal():
        return None
    return max(int(memory) - (int(apart) if apart.isdecimal() else 0), 0) / 1024


def _numbers(text: str) -> list[str]:
    """Return a list of numbers such as ``0,2-3``; none if it is no such list."""
    try:
        return [number.lstrip("c") for number in expand(f"c[{text}]")]
    except FormatError:
        return []


def _gres(conf: Conf, nodes: Mapping[str, Row], notes: list[str]) -> dict[str, str]:
    """Return the generic resources of each node, in the form of its ``Gres``.

    gres.conf adds resources that the node's own line does not name, and types of GPUs that it only
    counts.
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
            same = sum(one.amount for one in having) == sum(count for _, count in ones)
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
    """Return the number of device files in a line of gres.conf; 1 if it names none."""
    try:
        return sum(len(expand(part)) if "[" in part else 1 for part in _split(row.get("file"))) or 1
    except FormatError:
        return 1


def named_by_nodes(
    nodes: Sequence[Row], named: Mapping[str, Row], notes: list[str]
) -> dict[str, Row]:
    """Return partitions that only nodes name (``Partitions``)."""
    found: dict[str, list[Row]] = {}
    for row in nodes:
        for name in _partitions_of(row) - named.keys():
            found.setdefault(name, []).append(row)
    if found:
        notes.append(
            f"{'partition' if len(found) == 1 else 'partitions'} {', '.join(sorted(found))}: limits, "
            "priorities and the default partition are unknown; add the output of scontrol show partition"
        )
    return {name: Row({"partitionname": name}, found[name][0].where, {}) for name in sorted(found)}


def _partitions_of(row: Row) -> set[str]:
    names = {name.strip() for name in row.get("partitions").split(",")}
    return names - {"", "(null)", "N/A"}


def _members(
    conf: Conf, described: Mapping[str, Row], nodes: Mapping[str, Row], notes: list[str]
) -> dict[str, set[str]]:
    """Return the partitions of each node."""
    sets: dict[str, list[str]] = {}
    for row in conf.of("nodeset"):
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
                f"partition {label}: {count_text(len(missing), 'node')} without a description, "
                f"such as {missing[0]}"
            )
    return partitions


def _named_features(row: Row) -> tuple[str, ...]:
    """Return the features that jobs can request."""
    active = row.get("activefeatures")
    names = [part.strip() for part in active.split(",")] if active else _features(row)
    return tuple(sorted({name for name in names if name and name != "(null)"}))


def _lying(row: Row) -> tuple[int | None, ...]:
    """Return sockets, cores per socket, threads per core if they match the CPUs."""
    told = [row.get(key) for key in ("sockets", "corespersocket", "threadspercore")]
    numbers = [int(text) if text.isdecimal() else 0 for text in told]
    fits = 0 not in numbers and math.prod(numbers) >= _cores(row)
    return tuple(numbers) if fits else (None,) * len(LYING)


def _features(row: Row) -> list[str]:
    text = row.get("availablefeatures") or row.get("feature") or row.get("features")
    return [part.strip() for part in text.split(",")]


def _split(text: str) -> list[str]:
    """Return the parts between commas that are not within brackets."""
    parts, depth, begin = [], 0, 0
    for i, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and not depth:
            parts.append(text[begin:i])
            begin = i + 1
    return [part for part in [*parts, text[begin:]] if part]
