"""Nodes of Torque, converted to PBS's form.

Source:
    Torque 6.1 Administrator Guide, "Managing nodes", "Server node file configuration",
    ``pbsnodes``.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from typing import Any

from hpctwin.errors import FormatError
from hpctwin.model.text import expand
from hpctwin.rms.pbs.listing.output import integer, resources

__all__ = ["as_pbs", "is_nodes_file", "is_torque", "nodes_file", "nodes_xml", "properties_of"]

_ATTRIBUTE = r"[A-Za-z_][\w]*=\S+"
_NODE_LINE = re.compile(rf"[A-Za-z0-9][\w.\[\],:-]*(?:\s+(?:{_ATTRIBUTE}|[\w.+-]+))*\s*")


def is_torque(row: Mapping[str, Any]) -> bool:
    """Return whether a node is listed by Torque: it has slots (``np``)."""
    kind = str(row.get("ntype", "")).lower()
    return "np" in row or (kind == "cluster" and "resources_available" not in row)


def as_pbs(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a node with ``resources_available``.

    It is made of Torque's ``np``, ``gpus`` and ``status``.
    """
    if not is_torque(row):
        return dict(row)
    status = resources(row.get("status"))
    size = integer(row.get("np")) or integer(status.get("ncpus"))
    has = {
        "ncpus": size or None,
        "ngpus": integer(row.get("gpus")) or None,
        "mem": status.get("physmem"),
    }
    return {**row, "resources_available": {k: v for k, v in has.items() if v is not None}}


def properties_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of a Torque node's properties."""
    return tuple(re.findall(r"[\w.-]+", str(row.get("properties", ""))))


def nodes_xml(text: str, name: str, notes: list[str]) -> dict[str, dict[str, Any]]:
    """Return the nodes of ``pbsnodes -x``.

    Args:
        text: Content of the file.
        name: Name of the file, for messages.
        notes: List to which a sentence is added if a node is cut off.
    """
    found = {}
    blocks = re.split(r"<Node>", text)[1:]
    for block in blocks:
        body, end, _ = block.partition("</Node>")
        about = {k: html.unescape(v) for k, v in re.findall(r"<(\w+)>(.*?)</\1>", body, re.DOTALL)}
        node = about.pop("name", "")
        if not end or not node:
            notes.append(f"{name}: node {node or block[:40]!r} is cut off: omitted")
            continue
        found[node] = about
    return found


def is_nodes_file(text: str, name: str) -> bool:
    """Return whether a text is Torque's ``server_priv/nodes``.

    It has a node per line, and at least one with ``np=``.
    """
    lines = [line for line in map(str.strip, text.splitlines()) if line and line[0] != "#"]
    if not lines or not all(map(_NODE_LINE.fullmatch, lines)):
        return False
    return name == "nodes" or any(re.search(r"\s(?:np|gpus)=\d", line) for line in lines)


def nodes_file(text: str, name: str, notes: list[str]) -> dict[str, dict[str, Any]]:
    """Return nodes of ``server_priv/nodes``, as in ``node[1-4] np=16 gpus=2 bigmem``.

    Args:
        text: Content of the file.
        name: Name of the file, for messages.
        notes: List to which a sentence is added for a line that cannot be read.
    """
    found: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        first, *words = line.split()
        about = dict(word.split("=", 1) for word in words if "=" in word)
        named = [word for word in words if "=" not in word]
        if "properties" in about:
            named += about["properties"].split(",")
        if first.endswith(":ts"):
            notes.append(
                f"{name}:{number}: {first} is time-shared, and gets no jobs of nodes: omitted"
            )
            continue
        try:
            nodes = expand(first)
        except FormatError as error:
            notes.append(f"{name}:{number}: {first[:40]!r} is no name of nodes: {error}; omitted")
            continue
        row = {
            "np": "",
            **about,
            "ntype": "cluster",
            "state": "free",
            "properties": ",".join(named),
        }
        found |= {node: dict(row) for node in nodes}
    return found
