"""Attributes of nodes that ``pbsnodes`` prints, and how hpctwin treats each.

It also reads the resources that a PBS site has created, and whether jobs use them up on vnodes.
Nodes of Torque are converted to PBS's form.

Source:
    pbs_node_attributes(7B) of OpenPBS 23.06; Torque 6.1 Administrator Guide, "Managing nodes",
    "Server node file configuration", ``pbsnodes``.
"""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from hpctwin.errors import CommandError, FormatError
from hpctwin.model.requests.pbs_requests import is_consumable
from hpctwin.model.text import expand
from hpctwin.rms.commands import Commands
from hpctwin.rms.pbs.listing.output import integer, resources
from hpctwin.rms.site import IMPORTED, NO_EFFECT, NOT_MODELED, ListedNode, Setting

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
        notes: List to which a sentence is added if a node is cut off.
    """
    found = {}
    blocks = re.split(r"<Node>", text)[1:]
    for block in blocks:
        body, end, _ = block.partition("</Node>")
        about = {k: html.unescape(v) for k, v in re.findall(r"<(\w+)>(.*?)</\1>", body, re.DOTALL)}
        node = about.pop("name", "")
        if not end or not node:
            notes.append(
                f"{name}: node {node or block[:40]!r} is omitted: its description is truncated"
            )
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
                f"{name}:{number}: {first} is omitted: a time-shared host runs no batch jobs"
            )
            continue
        try:
            nodes = expand(first)
        except FormatError as error:
            notes.append(f"{name}:{number}: {first[:40]!r} is omitted: not a node name: {error}")
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


class SiteResources:
    """Custom resources that the server reports.

    They are queried before the first job asks for one.

    Args:
        commands: Runner of qmgr.
    """

    def __init__(self, commands: Commands) -> None:
        self.commands = commands
        self.used_up: dict[str, bool] = {}
        self.notes: list[str] = []

    def ask(self, every_s: float) -> None:
        """Query the resources unless that was done within ``every_s`` seconds.

        Raises:
            UnreachableError: No answer. A refusal is only noted, and then no resource is known.
        """
        try:
            said = self.commands.run_at_times("qmgr", ["-c", "print resource"], every_s)
        except CommandError as error:
            self.used_up = {}
            self.notes = [f"custom resources are not modeled, as qmgr does not list them: {error}"]
        else:
            self.used_up = used_up_of(said)
            self.notes = []

    def consumables(self) -> list[str]:
        """Return the resources that jobs use up."""
        return [name for name, is_so in self.used_up.items() if is_so]

    def known(self, asked: Iterable[str]) -> frozenset[str]:
        """Return the resources on which another query would show nothing new.

        The server does not list PBS's own resources.
        """
        return frozenset(self.used_up if self.notes else {*asked, *self.used_up})


def used_up_of(text: bytes) -> dict[str, bool]:
    """Return whether jobs use up each of the site's resources on vnodes.

    It reads ``qmgr -c 'print resource'``. GPUs (``ngpus``) are a resource that sites create, but
    they are modeled as GPUs.
    """
    flags = re.findall(
        r"^set resource (\S+) flag = (\S+)", text.decode(errors="replace"), re.MULTILINE
    )
    names = re.findall(r"^create resource (\S+)", text.decode(errors="replace"), re.MULTILINE)
    found = {**dict.fromkeys(names, False), **{name: {"h", "n"} <= set(of) for name, of in flags}}
    return {name: used for name, used in found.items() if is_consumable(name, "1")}


_PASSING = {"provisioning", "wait-provisioning", "initializing", "sleep"}
"""States that end by themselves, or when a job needs the node."""

_IMPORTED = {
    "np": "cores", "gpus": "gpus", "properties": "features", "queue": "partitions",
    "state": "cluster.yaml has no nodes that are down or offline", "sharing": "whether jobs share nodes",
    "Priority": "node order, if node_sort_key is sort_priority", "status": "memory_gb, from physmem",
    "pcpus": "cores of nodes without ncpus",
    "resources_available.ncpus": "cores", "resources_available.ngpus": "gpus",
    "resources_available.mem": "memory_gb", "resources_available.host": "", "resources_available.vnode": "",
    "resources_available.arch": "",
}  # fmt: skip
_PLAIN = {
    "Mom", "Port", "Host", "ntype", "pbs_version", "license", "lictype", "license_info", "comment", "note",
    "last_state_change_time", "last_used_time", "jobs", "reservations", "resv", "hpcbp_enable", "pnames",
    "hpcbp_user_name", "hpcbp_webservice_address", "hpcbp_stage_protocol", "topology_info", "partition_name",
    "in_multivnode_host", "server_instance_id", "mom_service_port", "mom_manager_port", "gpu_status",
    "mic_status", "requestid", "total_sockets", "total_numa_nodes", "total_cores", "total_threads",
    "dedicated_sockets", "dedicated_numa_nodes", "dedicated_cores", "dedicated_threads",
    "current_eoe", "resv_enable", "version",
}  # fmt: skip
_WHY = {
    "power_state": "nodes are always on; add sleep states to cluster.yaml",
    "mics": "accelerators other than GPUs are ignored",
    "num_node_boards": "each node is one board",
    "numa_board_str": "each node is one board",
    "numa_gpu_node_str": "each node is one board",
    "TTL": "nodes are permanent",
    "acl": "all users may use all nodes of a queue",
    "max_running": "limits of single nodes are not modeled",
    "max_user_run": "limits of single nodes are not modeled",
    "max_group_run": "limits of single nodes are not modeled",
    "no_multinode_jobs": "jobs with several nodes may use the node",
    "partition": "one scheduler uses all nodes",
    "current_aoe": "nodes are not provisioned",
    "provision_enable": "nodes are not provisioned",
    "power_provisioning": "nodes are always on",
    "poweroff_eligible": "nodes are always on",
    "maintenance_jobs": "jobs are not moved for maintenance",
}
_DEFAULTS = dict.fromkeys(
    ("no_multinode_jobs", "provision_enable", "power_provisioning", "poweroff_eligible"), "false"
) | {"power_state": "running", "num_node_boards": "1", "mics": "0"}


def is_passing(row: Mapping[str, Any]) -> bool:
    """Return whether a node is away for a moment, and not down or offline."""
    words = {word.strip().lower() for word in str(row.get("state", "")).split(",")}
    return bool(words) and words <= _PASSING | {"free"}


def is_parent(row: Mapping[str, Any]) -> bool:
    """Return whether a vnode represents a host whose cores are all in other vnodes."""
    has = resources(row.get("resources_available"))
    return str(has.get("ncpus", "")) == "0" and integer(row.get("in_multivnode_host")) > 0


def node_settings(
    rows: Mapping[str, Mapping[str, Any]],
    where: Mapping[str, str],
    listed: Iterable[ListedNode],
    needed: Collection[str],
) -> list[Setting]:
    """Return the treatment of each attribute that any node has, and of omitted nodes.

    An attribute is shown with the value of the first node.

    Args:
        where: File of each, under ``node NAME``.
        needed: Resources by which queues have some nodes alone.
    """
    known = {one.record.name: one for one in listed if one.record.name in rows}
    consumables = {name for one in known.values() for name, _ in one.consumables}
    keys = {
        text.partition("=")[0] for one in known.values() for text in one.features if "=" in text
    }
    first: dict[str, tuple[str, str]] = {}
    for node, row in rows.items():
        for name, value in row.items():
            if name == "resources_assigned":
                continue
            inner = resources(value) if name == "resources_available" else None
            pairs = {f"{name}.{k}": v for k, v in inner.items()} if inner else {name: value}
            # Torque's nodes have no separate resources: these were made of other attributes.
            for key, said in pairs.items() if not inner or "np" not in row else ():
                first.setdefault(key, (node, str(said)))
    made = [
        Setting(
            f"node {node}: state", str(row.get("state", "")), where.get(f"node {node}", ""), IMPORTED,
            "not in cluster.yaml",
        )
        for node, row in rows.items()
        if node not in known and not is_parent(row)
    ]  # fmt: skip
    for key, (node, said) in first.items():
        resource = key.removeprefix("resources_available.")
        if key in _IMPORTED:
            became, why = (IMPORTED, _IMPORTED[key]) if _IMPORTED[key] else (NO_EFFECT, "")
        elif key != resource and resource in consumables:
            became, why = IMPORTED, "consumables"
        elif key != resource and resource in keys:
            became, why = IMPORTED, "node features, for placement sets"
        elif key != resource and resource in needed:
            became, why = IMPORTED, "partitions"
        elif key in _PLAIN or said.lower() == _DEFAULTS.get(key):
            became, why = NO_EFFECT, ""
        elif key != resource:
            became, why = (
                NOT_MODELED,
                "jobs do not request this resource, so it does not affect the choice of nodes",
            )
        else:
            became, why = NOT_MODELED, _WHY.get(key, "unknown node attribute")
        # Names of users, and of hosts, are in no report.
        value = {"acl": "…", "status": f"physmem={resources(said).get('physmem', '')}"}.get(
            key, said
        )
        value = re.sub(r"\s+", " ", value)[:80]
        made.append(
            Setting(f"node {node}: {key}", value, where.get(f"node {node}", ""), became, why)
        )
    return made
