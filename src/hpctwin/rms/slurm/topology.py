"""How nodes are connected, by topology.conf: switches of ``topology/tree``, blocks of ``topology/block``.

Source:
    Manual page topology.conf(5), 22.05 and 24.05.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from hpctwin.errors import FormatError
from hpctwin.model.hostlist import expand
from hpctwin.model.switches import Switch, check_switches
from hpctwin.rms.site import NOT_MODELLED, TAKEN, Setting
from hpctwin.rms.slurm.conf import Row

__all__ = ["connections"]

_LOOKS = "for the placements fewest-switches (of shared nodes) and whole-blocks"
_STRICT = "; Slurm lets a job wait for a block that holds it, whole-blocks then gives it several"


def connections(
    rows: Sequence[Row], names: Sequence[str]
) -> tuple[list[dict[str, Any]], list[Setting]]:
    """The switches of a cluster, as plain fields of `Switch`, and what became of the file.

    A block is a switch with nodes; above so many of them as a larger one of ``BlockSizes`` holds is another.

    Args:
        rows: of topology.conf.
        names: of all nodes, in the order of their numbers.

    Returns:
        No switches where the file does not tell of each node, once, where it is.
    """
    if not rows:
        return [], []
    blocks = [row for row in rows if row.kind == "blockname"]
    sizes = next((row.get("blocksizes") for row in rows if row.get("blocksizes")), "")
    try:
        if blocks:
            found = _of_blocks(blocks, sizes, names)
        else:
            switches = [row for row in rows if row.kind == "switchname"]
            found = [_switch(row, names) for row in _with_nodes(switches, names)]
        check_switches([Switch.model_validate(one) for one in found], len(names), names)
    except (FormatError, ValueError) as error:
        return [], [_told(rows, NOT_MODELLED, f"no tree of all nodes: {error}")]
    return found, [_told(rows, TAKEN, _LOOKS + (_STRICT if blocks else ""))]


def _told(rows: Sequence[Row], became: str, why: str) -> Setting:
    kinds = [row.kind for row in rows]
    what = f"{kinds.count('blockname')} blocks, {kinds.count('switchname')} switches"
    return Setting("topology.conf", what, "topology.conf", became, " ".join(why.split()))


def _with_nodes(rows: Sequence[Row], names: Sequence[str]) -> list[Row]:
    """Leave out switches of which no node is available."""
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
    """Blocks, and above those that follow each other the ones that Slurm makes of them."""
    found: list[dict[str, Any]] = [
        {"name": row.get("blockname"), "nodes": _numbers(row.get("blockname"), row, names)}
        for row in rows
    ]
    level = [row.get("blockname") for row in rows]
    parts = [part.strip() for part in sizes.split(",") if part.strip()]
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise ValueError(f"BlockSizes={sizes} are no numbers of nodes")
    for smaller, larger in itertools.pairwise(parts):
        together, left = divmod(int(larger), int(smaller))
        if left or together < 2 or together & (together - 1):
            raise ValueError(
                f"BlockSizes={sizes}: each must be a power of two times the one before"
            )
        above = []
        for first in range(0, len(level), together):
            some = level[first : first + together]
            above.append(f"{some[0]}..{some[-1]}" if len(some) > 1 else f"{some[0]}/{larger}")
            found.append({"name": above[-1], "switches": some})
        level = above
    return found


def _numbers(name: str, row: Row, names: Sequence[str]) -> str:
    """Numbers of the nodes of a switch, as text; those of nodes that are there no more are left out."""
    place = {node: number for number, node in enumerate(names)}
    numbers = sorted({place[node] for node in expand(row.get("nodes")) if node in place})
    if not numbers:
        raise ValueError(f"{name} has none of the nodes")
    runs = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)
