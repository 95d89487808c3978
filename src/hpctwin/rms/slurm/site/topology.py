"""Connections of nodes: ``topology/tree`` switches and ``topology/block`` blocks.

Source:
    Manual pages topology.conf(5) and topology.yaml(5), 22.05 to 26.05; outputs of ``scontrol show
    topology``.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpctwin.errors import FormatError
from hpctwin.model.cluster.switches import Switch, check_switches
from hpctwin.model.text import count_text, expand, number_ranges
from hpctwin.rms.site import IMPORTED, NO_EFFECT, NOT_MODELED, Setting
from hpctwin.rms.slurm.listing.conf import Row

_LOOKS = "switches, for the placements fewest-switches and whole-blocks"
_STRICT = "; a job that fits in no block waits in Slurm, while whole-blocks gives it several blocks"


_KIND = {"switchname": "tree", "blockname": "block", "ringname": "ring", "torusname": "torus3d"}
"""Kinds of topologies by the first keys of their rows."""
_LISTS = {
    "tree": ("switches", {"switchname": "switch", "switches": "children", "nodes": "nodes"}),
    "block": ("blocks", {"blockname": "block", "nodes": "nodes"}),
    "ring": ("rings", {"ringname": "ring", "nodes": "nodes"}),
    "torus3d": ("toruses", {"torusname": "name", "nodes": "nodes"}),
}
"""Each kind's list in topology.yaml, and its fields by topology.conf's keys."""
_WHY = {
    "ring": "placements do not support rings",
    "torus3d": "placements do not support tori",
}


@dataclass(frozen=True)
class Topology:
    """A topology of topology.yaml.

    Args:
        name: Name by which partitions choose it.
        kind: ``tree``, ``block``, ``flat``, ``ring``, ``torus3d`` or another word.
        rows: The same as rows of topology.conf.
        where: Name of the file.
        default: Whether it is the cluster's default.
    """

    name: str
    kind: str
    rows: tuple[Row, ...]
    where: str
    default: bool = False


@dataclass(frozen=True)
class Chosen:
    """Connections of a cluster's nodes.

    Args:
        rows: Rows as in topology.conf.
        source: Source of the rows, for reports.
        name: Name of the default topology of topology.yaml.
        plugin: The ``TopologyPlugin`` in effect, by key, if slurm.conf does not set it.
        others: Treatment of topologies that are not in effect.
    """

    rows: Sequence[Row] = ()
    source: str = "topology.conf"
    name: str = ""
    plugin: Mapping[str, Row] = field(default_factory=dict)
    others: Sequence[Setting] = ()


def topologies_of(content: Any, where: str) -> list[Topology]:
    """Return the topologies of topology.yaml, or of ``scontrol show topoconf``.

    Returns:
        The topologies; none if it is no list of them.
    """
    listed = [one for one in content if isinstance(one, dict)] if isinstance(content, list) else []
    found = []
    for one in listed:
        if not isinstance(one.get("topology"), str):
            continue
        told = {
            key: value for key, value in one.items() if key not in ("topology", "cluster_default")
        }
        # Slurm prints kinds that a topology lacks as {}.
        kind = next((key for key, value in told.items() if value), "flat")
        name, about = one["topology"], told.get(kind)
        rows = tuple(_rows_of_yaml(kind, about if isinstance(about, dict) else {}, where))
        found.append(Topology(name, str(kind), rows, where, one.get("cluster_default") is True))
    return found


def _rows_of_yaml(kind: str, about: Mapping[str, Any], where: str) -> list[Row]:
    within, keys = _LISTS.get(kind, ("", {}))
    listed = about.get(within)
    rows = []
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, dict):
            values = {key: _written(one.get(of)) for key, of in keys.items()}
            rows.append(Row({k: v for k, v in values.items() if v}, where, {}))
    if sizes := _written(about.get("block_sizes")):
        rows.append(Row({"blocksizes": sizes}, where, {}))
    return [row for row in rows if row.values]


def _written(value: Any) -> str:
    parts = value if isinstance(value, list) else [] if value is None else [value]
    return ",".join(map(str, parts))


def chosen_topology(
    conf: Sequence[Row], shown: Sequence[Row], topologies: Sequence[Topology]
) -> Chosen:
    """Return the topology in effect.

    What Slurm shows counts, else topology.yaml, else topology.conf.
    """
    # A folder may have both topology.yaml and scontrol's output of it.
    topologies = list({one.name: one for one in reversed(topologies)}.values())[::-1]
    shown = list({tuple(row.values.items()): row for row in shown}.values())
    default = next((one for one in topologies if one.default), next(iter(topologies), None))
    if default is None and not shown:
        return Chosen(conf)
    others = [
        Setting(
            f"topology {one.name}", one.kind, one.where, NOT_MODELED,
            "all partitions use the cluster's default topology",
        )
        for one in topologies
        if one is not default
    ]  # fmt: skip
    if conf:
        why = (
            "Slurm ignores it if topology.yaml exists"
            if topologies
            else "the output of Slurm is used instead"
        )
        others.append(Setting("topology.conf", "", "topology.conf", NO_EFFECT, why))
    source, kind, where = "scontrol show topology", "", ""
    rows: Sequence[Row] = shown
    if default is not None:
        source, kind, where, rows = (
            f"topology {default.name}", default.kind, default.where, shown or default.rows,
        )  # fmt: skip
    if rows:
        kind, where = (
            next((_KIND[row.kind] for row in rows if row.kind in _KIND), kind),
            rows[0].where,
        )
    elif kind != "flat":
        others.append(Setting(source, kind, where, NOT_MODELED, _WHY.get(kind, "not known here")))
    key = "topologyplugin"
    plugin = {key: Row({key: f"topology/{kind}"}, where, {key: "TopologyPlugin"})}
    return Chosen(rows, source, default.name if default else "", plugin, others)


def connections(chosen: Chosen, names: Sequence[str]) -> tuple[list[dict[str, Any]], list[Setting]]:
    """Return a cluster's switches, as plain fields of `Switch`, and the treatment.

    A block is a switch with nodes. Above as many blocks as a larger one of ``BlockSizes`` holds is
    another switch.

    Args:
        names: Names of all nodes, in the order of their numbers.

    Returns:
        No switches if the topology does not place each node exactly once.
    """
    rows = chosen.rows
    if not rows:
        return [], []
    for kind in [_KIND[row.kind] for row in rows if row.kind in ("ringname", "torusname")]:
        return [], [_told(chosen, NOT_MODELED, _WHY[kind])]
    blocks = [row for row in rows if row.kind == "blockname"]
    sizes = next((row.get("blocksizes") for row in rows if row.get("blocksizes")), "")
    shown = {int(row.get("blocksize")) for row in rows if row.get("blocksize").isdecimal()}
    try:
        if blocks:
            found = _of_blocks(blocks, sizes or ",".join(map(str, sorted(shown))), names)
        else:
            switches = [row for row in rows if row.kind == "switchname"]
            found = [_switch(row, names) for row in _with_nodes(switches, names)]
        check_switches([Switch.model_validate(one) for one in found], len(names), names)
    except (FormatError, ValueError) as error:
        return [], [_told(chosen, NOT_MODELED, f"not a tree of all nodes: {error}")]
    return found, [_told(chosen, IMPORTED, _LOOKS + (_STRICT if blocks else ""))]


def _told(chosen: Chosen, became: str, why: str) -> Setting:
    kinds = [row.kind for row in chosen.rows]
    switches = count_text(kinds.count("switchname"), "switch", "switches")
    what = f"{count_text(kinds.count('blockname'), 'block')}, {switches}"
    where = chosen.rows[0].where.partition(":")[0]
    return Setting(chosen.source, what, where, became, " ".join(why.split()))


def _with_nodes(rows: Sequence[Row], names: Sequence[str]) -> list[Row]:
    """Return switches except those without any available node."""
    here = set(names)
    empty = {
        row.get("switchname")
        for row in rows
        if row.get("nodes") and here.isdisjoint(expand(row.get("nodes")))
    }
    if len(empty) == len(rows):
        return list(rows)
    kept = []
    for row in rows:
        below = [one for one in expand(row.get("switches")) if one not in empty]
        if row.get("switchname") not in empty or below:
            values = {**row.values, "switches": ",".join(below)}
            kept.append(Row(values, row.where, row.names))
    return kept


def _switch(row: Row, names: Sequence[str]) -> dict[str, Any]:
    name = row.get("switchname")
    if row.get("switches"):
        return {"name": name, "switches": expand(row.get("switches"))}
    return {"name": name, "nodes": _numbers(name, row, names)}


def _of_blocks(rows: Sequence[Row], sizes: str, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return blocks, and above consecutive ones Slurm's larger blocks."""
    found: list[dict[str, Any]] = [
        {"name": row.get("blockname"), "nodes": _numbers(row.get("blockname"), row, names)}
        for row in rows
    ]
    level = [row.get("blockname") for row in rows]
    parts = [part.strip() for part in sizes.split(",") if part.strip()]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise ValueError(f"BlockSizes={sizes}: expected numbers of nodes")
    for smaller, larger in itertools.pairwise(parts):
        together, left = divmod(int(larger), int(smaller))
        if left or together < 2 or together & (together - 1):
            raise ValueError(
                f"BlockSizes={sizes}: each size must be a power of two times the previous one"
            )
        above = []
        for first in range(0, len(level), together):
            some = level[first : first + together]
            above.append(f"{some[0]}..{some[-1]}" if len(some) > 1 else f"{some[0]}/{larger}")
            found.append({"name": above[-1], "switches": some})
        level = above
    return found


def _numbers(name: str, row: Row, names: Sequence[str]) -> str:
    """Return the node numbers of a switch, as text; nodes that are gone are omitted."""
    place = {node: number for number, node in enumerate(names)}
    numbers = sorted({place[node] for node in expand(row.get("nodes")) if node in place})
    if not numbers:
        raise ValueError(f"{name} has no available node")
    return number_ranges(numbers)
