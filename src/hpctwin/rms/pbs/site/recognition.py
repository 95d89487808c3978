"""Files of PBS or Torque in a folder, with the cluster and policy they describe.

Source:
    PBS Professional 2022.1 Administrator's Guide and Reference Guide; OpenPBS 23.06; Torque 6.1
    Administrator Guide.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from hpctwin.errors import ConfigError, FormatError
from hpctwin.formats.accounting.pbs_accounting import Accounts, Meant, is_pbs_accounting, pbs_table
from hpctwin.formats.job_table import JobTable
from hpctwin.formats.record import Machine, Tally
from hpctwin.model.requests.pbs_requests import is_consumable
from hpctwin.model.text import count_text
from hpctwin.rms.derived_nodes import in_partitions
from hpctwin.rms.pbs.listing.node_attributes import (
    as_pbs,
    is_nodes_file,
    is_passing,
    is_torque,
    node_settings,
    nodes_file,
    nodes_xml,
)
from hpctwin.rms.pbs.listing.output import integer, is_true, objects, read_output, resources
from hpctwin.rms.pbs.listing.parse import listed_nodes, needed_of, partitions_of, routed
from hpctwin.rms.pbs.site.config_files import (
    PARAMETERS,
    Line,
    Parameter,
    SchedConfig,
    has_sched_config,
    is_maui,
    maui_meaning,
    read_maui,
    read_sched_config,
)
from hpctwin.rms.pbs.site.limits import PlacementSets, placement_sets, site_limits
from hpctwin.rms.pbs.site.ordering import node_order
from hpctwin.rms.pbs.site.policy import (
    Shares,
    explained,
    is_resource_group,
    meaning_of,
    read_resource_group,
    told_of,
)
from hpctwin.rms.site import ListedNode, Setting, Site, group_nodes, named_cluster

_SHOWN = 50
_QMGR = "queue|server|sched|resource|node"
"""Objects in lines of ``qmgr -c print``."""

LIVE: dict[str, tuple[str, ...]] = {
    "pbsnodes.json": ("pbsnodes", "-a", "-v", "-F", "json"),
    "server.txt": ("qmgr", "-c", "print server"),
    "scheduler.txt": ("qmgr", "-c", "print sched"),
}
"""Commands for a running PBS, by the file that would have each answer."""


class PbsFiles:
    """The files of a PBS site."""

    expected = (
        "expected the output of pbsnodes -av (Torque: pbsnodes -a or -x), the output of qmgr -c 'print "
        "server', sched_config or accounting logs"
    )

    def __init__(self) -> None:
        self._logs: list[Path] = []
        self._nodes: dict[str, dict[str, Any]] = {}
        self._configured: dict[str, dict[str, Any]] = {}
        self._maui: list[Parameter] = []
        self._away: frozenset[str] = frozenset()
        self._queues: dict[str, dict[str, Any]] = {}
        self._server: dict[str, str] = {}
        self._sched: list[Line] = []
        self._shares: list[Shares] = []
        self._where: dict[str, str] = {}
        self._notes: list[str] = []
        self._flags: dict[str, str] = {}

    def take(self, path: Path, head: bytes) -> str:
        """Return a file's kind, by its first bytes; empty if it is not PBS's."""
        if is_pbs_accounting(head):
            self._logs.append(path)
            return "accounting log"
        if b"\0" in head:
            return ""
        if head.lstrip().startswith(b"{"):
            return self._take_json(path)
        text = path.read_text(encoding="utf-8-sig", errors="replace")
        if "<Node>" in text:
            self._add_nodes(nodes_xml(text, path.name, self._notes), path.name)
            return "pbsnodes -x"
        if re.search(rf"^(?:create|set) (?:{_QMGR}) ", text, re.MULTILINE):
            self._take_qmgr(text, path.name)
            return "qmgr -c print"
        if has_sched_config(text):
            self._take_sched_config(text, path.name)
            return "sched_config"
        if is_resource_group(text):
            self._shares.append(read_resource_group(text, path.name))
            return "resource_group"
        if is_maui(text):
            self._maui += read_maui(text, path.name)
            return "configuration of Maui or Moab"
        if found := pbsnodes_text(text):
            self._add_nodes(found, path.name)
            return "pbsnodes"
        if is_nodes_file(text, path.name):
            found = nodes_file(text, path.name, self._notes)
            self._configured |= found
            return "Torque's file of nodes"
        listed = re.match(r"\s*(Job Id|Queue|Server): ?\S", text)
        return self._not_used(path.name, listed[1].split()[0]) if listed else ""

    def _take_json(self, path: Path) -> str:
        notes: list[str] = []
        try:
            found = read_output(path.read_bytes(), path.name, notes)
        except FormatError as error:
            self._notes.append(f"{error}; the file is ignored")
            return ""
        if nodes := objects(found, "nodes"):
            self._notes += notes
            self._add_nodes(nodes, path.name)
            return "pbsnodes"
        listed = [key for key in ("Jobs", "Queue", "Server") if objects(found, key)]
        return self._not_used(path.name, listed[0].removesuffix("s")) if listed else ""

    def _not_used(self, name: str, what: str) -> str:
        """Return the command that printed a current list; note what to give instead."""
        command, instead = {
            "Job": (
                "qstat -f",
                "add accounting logs (server_priv/accounting) for recorded jobs",
            ),
            "Queue": ("qstat -Qf", "add the output of qmgr -c 'print server'"),
            "Server": ("qstat -Bf", "add the output of qmgr -c 'print server'"),
        }[what]
        self._notes.append(
            f"{name} is ignored: import does not use the output of {command}; {instead}"
        )
        return f"{command}, ignored"

    def _add_nodes(self, rows: Mapping[str, Mapping[str, Any]], name: str) -> None:
        """Import nodes; if two files list a node, the later file counts."""
        for node, row in rows.items():
            self._nodes[node] = as_pbs(row)
            self._where[f"node {node}"] = name

    def _take_qmgr(self, text: str, name: str) -> None:
        for line in text.splitlines():
            match = re.match(
                rf"(create|set) ({_QMGR})(?: (\S+))?(?: (\S+) (\+?=) (.*))?$", line.strip()
            )
            if not match:
                continue
            verb, kind, first, second, sign, value = match.groups()
            if kind == "queue" and first:
                about = self._queues.setdefault(first, {})
                if verb == "set" and second:
                    about[second] = _more(about.get(second, ""), sign, value)
                    self._where[f"{first}: {second}"] = name
            elif kind == "node" and first and first != "@default":
                about = self._configured.setdefault(first, {})
                if verb == "set" and second:
                    about[second] = _more(about.get(second, ""), sign, value)
            elif kind == "resource" and second == "flag":
                self._flags[first] = value.strip()
            elif kind in ("server", "sched") and verb == "set" and second:
                # Of several schedulers the first, named default, is the one meant here.
                key = second if first in (None, "default") else f"{first} {second}"
                self._server[key] = _more(self._server.get(key, ""), sign, value)
                self._where[key] = name

    def _take_sched_config(self, text: str, name: str) -> None:
        lines = read_sched_config(text, name)
        self._sched += lines
        unread = [one for one in lines if one.fault and one.name not in PARAMETERS]
        self._notes += [f"{one.where}: {one.name[:50]!r}: {one.fault}" for one in unread]

    def site(self, *, assumed: Sequence[ListedNode] = ()) -> Site | None:
        """Return cluster and policy; None if no file describes them.

        Args:
            assumed: Nodes to use if none are described; without any, the result is None then.
        """
        self._take_configured()
        if not self._nodes and not (assumed and self._tells):
            return None
        queues = {
            name: _with_nested(about)
            for name, about in self._queues.items()
            if str(about.get("queue_type", "Execution")).lower().startswith("e")
        }
        if not self._queues:
            # Nodes that are bound to queues name these queues.
            queues |= {str(row["queue"]): {} for row in self._nodes.values() if row.get("queue")}
        sched = SchedConfig(tuple(self._sched))
        sets = self._sets()
        listed = listed_nodes(
            self._nodes, queues, self._notes, self._consumables(sched), sets.by_queue.values()
        )
        listed = self._available(listed)
        order = node_order(sched, self._nodes) if self.shared[0] else None
        if order is not None:
            listed = [
                one._replace(weight=order.weights.get(one.record.name, 0.0)) for one in listed
            ]
        grouped = group_nodes(listed or in_partitions(assumed, queues))
        default = routed(self._server.get("default_queue", ""), self._queues)
        without: list[str] = []
        partitions = partitions_of(queues, grouped.members, default, without)
        self._notes += [note for note in without if "has no nodes" in note]
        policy = meaning_of(sched, self._server, partitions, self._shares, order)
        text, _, of_maui = self._by_maui
        if text:  # Maui or Moab schedules, in place of PBS's own scheduler.
            policy = policy._replace(text=text, taken={}, fairshare={})
        there = {one.name for one in partitions}
        limited = {name: about for name, about in self._queues.items() if name in there}
        limits = site_limits(self._server, limited, self._where)
        fields = {
            "name": "pbs",
            "nodes": [group.model_dump(exclude_defaults=True) for group in grouped.groups],
            "partitions": [one.model_dump(exclude_defaults=True) for one in partitions],
            "limits": limits.limits,
            "fairshare": policy.fairshare,
        }
        settings = [told_of(one, policy.fairshare) for one in self._shares]
        settings += explained(
            policy, sched, self._server, self._queues, self._where, limits.told | sets.told
        )
        needed = {name for about in queues.values() for name in needed_of(about)}
        settings += [*of_maui, *node_settings(self._nodes, self._where, listed, needed)]
        cluster, names = named_cluster(fields, grouped.names, "pbs")
        return Site("pbs", cluster, policy.text, settings, list(self._notes), names)

    @property
    def _tells(self) -> bool:
        """Whether there are settings besides nodes."""
        return bool(self._queues or self._server or self._sched or self._maui)

    @cached_property
    def _by_maui(self) -> tuple[str, bool, list[Setting]]:
        return maui_meaning(self._maui) if self._maui else ("", False, [])

    def _take_configured(self) -> None:
        """Import nodes of server_priv/nodes and of qmgr if pbsnodes lists none."""
        left = [name for name in self._configured if name not in self._nodes]
        if self._nodes and left:
            self._notes.append(
                f"{count_text(len(left), 'node')} of the nodes file or qmgr omitted, as pbsnodes "
                "does not list them: "
                f"{_some(left)}"
            )
        elif left:
            slots = str(integer(self._server.get("np_default")) or 1)
            for name, about in self._configured.items():
                row = _with_nested(about)
                self._nodes[name] = as_pbs(
                    {**row, "np": row["np"] or slots} if "np" in row else row
                )
        self._configured = {}

    def _available(self, listed: list[ListedNode]) -> list[ListedNode]:
        """Return nodes that can run jobs; a note names all others."""
        out = {
            one.record.name: str(self._nodes[one.record.name].get("state", ""))
            for one in listed
            if one.record.state != "up" and not is_passing(self._nodes[one.record.name])
        }
        if out:
            self._notes.append(
                f"{len(out)} of {count_text(len(listed), 'node')} unavailable and omitted from cluster.yaml: "
                + _some([f"{name} ({state})" for name, state in out.items()])
            )
        self._away = frozenset(out)
        found = [one for one in listed if one.record.name not in out]
        if self._nodes and not found:
            why = self._notes[-1] if self._notes else "no node has cores"
            raise ConfigError(f"pbsnodes: none of {len(self._nodes)} nodes can run jobs: {why}")
        return found

    def _consumables(self, sched: SchedConfig) -> frozenset[str]:
        """Return custom resources that jobs use up on nodes and that the scheduler heeds."""
        there = {
            name
            for row in self._nodes.values()
            for name, said in resources(row.get("resources_available")).items()
            if is_consumable(name, str(said)) and "n" in self._flags.get(name, "n")
        }
        goes_by = re.split(r"[,\s]+", sched.value("resources"))
        unheeded = sorted(there - set(goes_by)) if goes_by != [""] else []
        self._notes += [
            f"node resource {name} is not in 'resources' of sched_config, so PBS ignores it"
            for name in unheeded
        ]
        return frozenset(there - set(unheeded))

    def missing(self) -> list[str]:
        """Return the information that no file has, and the file that would have it."""
        there = {
            "nodes: output of pbsnodes -av": self._nodes,
            "queues and limits: output of qmgr -c 'print server'": self._queues or self._server,
            _SCHEDULING[any(map(is_torque, self._nodes.values()))]: self._sched or self._maui,
            "jobs: accounting logs (server_priv/accounting)": self._logs,
        }
        return [what for what, found in there.items() if not found]

    @property
    def shared(self) -> tuple[bool, bool]:
        """Whether jobs share nodes, and whether by memory.

        They share nodes unless each vnode goes to one job alone.
        """
        with_cores = [row for row in self._nodes.values() if _cores(row) > 0]
        alone = [str(row.get("sharing", "")).startswith("force_excl") for row in with_cores]
        if self._by_maui[1] or is_true(self._server.get("job_exclusive_on_use")):
            return False, True
        return any(_cores(row) > 1 for row in with_cores) and not (alone and all(alone)), True

    def jobs(self, tally: Tally, machine: Machine, timezone: str | None) -> JobTable:
        """Return all jobs of all logs."""
        table = pbs_table(
            self._logs, tally, machine, meant=Meant(self.accounts, self._sets().by_queue)
        )
        if self._away and len(table) and "recorded_nodes" in table.columns:
            there = pl.element().is_in(sorted(self._away))
            on = pl.col("recorded_nodes").str.split(",").list.eval(there).list.any()
            ran = table.scan().select(on.sum()).collect(engine="streaming").item() or 0
            if ran:
                tally.remarks.append(
                    f"{count_text(ran, 'job')} ran on nodes that are unavailable now; add these nodes to "
                    "cluster.yaml to simulate the past"
                )
        return table

    def _sets(self) -> PlacementSets:
        return placement_sets(self._server, self._queues, self._where, shared=self.shared[0])

    @property
    def accounts(self) -> Accounts:
        """Meaning of jobs' accounts: groups or projects if limits or shares are of these."""
        said = site_limits(self._server, self._queues, self._where).accounts
        entity = SchedConfig(tuple(self._sched)).value("fairshare_entity", "euser").lower()
        return "group" if (said, entity) == ("account", "egroup") else said


_SCHEDULING = {
    False: "scheduling: sched_config (sched_priv)",
    True: "scheduling: maui.cfg, moab.cfg, or sched_config of pbs_sched",
}


def _some(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def pbsnodes_text(text: str) -> dict[str, dict[str, Any]]:
    """Return nodes of ``pbsnodes -av``, or Torque's ``pbsnodes -a``, as JSON has them.

    The result is empty for any other text.
    """
    nodes: dict[str, dict[str, Any]] = {}
    about: dict[str, Any] | None = None
    for line in text.splitlines():
        name = re.fullmatch(r"(\S+)\s*", line)
        if name:
            about = nodes.setdefault(name[1], {})
        elif about is not None and " = " in line and line[0].isspace():
            key, _, value = line.strip().partition(" =")
            about[key] = value.strip()
    known = {"state", "np", "ntype", "Mom", "pcpus"}
    is_one = [bool(known & one.keys()) or any("." in key for key in one) for one in nodes.values()]
    if not any(is_one):
        return {}
    return {name: _with_nested(one) for name, one in nodes.items() if one}


def _more(before: str, sign: str, value: str) -> str:
    """Return an attribute's value after it is set, or extended with ``+=``."""
    value = value.strip().strip('"')
    return f"{before}, {value}" if sign == "+=" and before else value


def _with_nested(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes with ``resources_available.ncpus`` and the like nested."""
    made: dict[str, Any] = {}
    for key, value in about.items():
        outer, dot, inner = key.partition(".")
        if dot and outer.startswith(("resources", "default_chunk")):
            made.setdefault(outer, {})[inner] = value
        else:
            made[key] = value
    return made


def _cores(row: Mapping[str, Any]) -> int:
    has = row.get("resources_available")
    said = str(has.get("ncpus", "")) if isinstance(has, dict) else ""
    return int(said) if said.isdecimal() else 0
