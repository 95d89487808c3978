"""Which files of a folder are of PBS, what each of them is; the machine and the policy that they describe.

Source:
    PBS Professional 2022.1 Administrator's Guide and Reference Guide; OpenPBS 23.06.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hpctwin.errors import FormatError
from hpctwin.formats._job_table import JobTable
from hpctwin.formats._record import Machine, Tally
from hpctwin.formats.pbs_accounting import Accounts, Meant, is_pbs_accounting, pbs_table
from hpctwin.rms.derived import in_partitions
from hpctwin.rms.machine import ListedNode, group_nodes
from hpctwin.rms.pbs.fair_share import Shares, is_resource_group, read_resource_group, told_of
from hpctwin.rms.pbs.meaning import explained, meaning_of
from hpctwin.rms.pbs.node_order import node_order
from hpctwin.rms.pbs.output import read_output
from hpctwin.rms.pbs.parse import listed_nodes, partitions_of, routed
from hpctwin.rms.pbs.placement_sets import PlacementSets, placement_sets
from hpctwin.rms.pbs.request import is_consumable
from hpctwin.rms.pbs.sched_config import (
    PARAMETERS,
    Line,
    SchedConfig,
    has_sched_config,
    read_sched_config,
)
from hpctwin.rms.pbs.site_limits import site_limits
from hpctwin.rms.pbs.values import objects, resources
from hpctwin.rms.site import Site, named_cluster

__all__ = ["LIVE", "PbsFiles", "live_command"]

LIVE: dict[str, tuple[str, ...]] = {
    "pbsnodes.json": ("pbsnodes", "-a", "-v", "-F", "json"),
    "server.txt": ("qmgr", "-c", "print server"),
    "scheduler.txt": ("qmgr", "-c", "print sched"),
}
"""What a running PBS is asked, by the file that an answer would be in."""


class PbsFiles:
    """The files of a PBS site."""

    expected = "pbsnodes -av, qmgr -c 'print server', sched_config or accounting logs are such"

    def __init__(self) -> None:
        self._logs: list[Path] = []
        self._nodes: dict[str, dict[str, Any]] = {}
        self._queues: dict[str, dict[str, Any]] = {}
        self._server: dict[str, str] = {}
        self._sched: list[Line] = []
        self._shares: list[Shares] = []
        self._where: dict[str, str] = {}
        self._notes: list[str] = []
        self._flags: dict[str, str] = {}

    def take(self, path: Path, head: bytes) -> str:
        """What a file is, by what it begins with; empty if it is nothing of PBS's."""
        if is_pbs_accounting(head):
            self._logs.append(path)
            return "accounting log"
        if b"\0" in head:
            return ""
        if head.lstrip().startswith(b"{"):
            try:
                found = read_output(path.read_bytes(), path.name, self._notes)
            except FormatError:
                return ""
            self._nodes |= objects(found, "nodes")
            return "pbsnodes" if objects(found, "nodes") else ""
        text = path.read_text(encoding="utf-8", errors="replace")
        if re.search(r"^(?:create|set) (?:queue|server|sched|resource) ", text, re.MULTILINE):
            self._take_qmgr(text, path.name)
            return "qmgr -c print"
        if has_sched_config(text):
            self._take_sched_config(text, path.name)
            return "sched_config"
        if is_resource_group(text):
            self._shares.append(read_resource_group(text, path.name))
            return "resource_group"
        if re.search(r"^\s+(?:Mom|pcpus|ntype) = ", text, re.MULTILINE):
            self._nodes |= pbsnodes_text(text)
            return "pbsnodes"
        return ""

    def _take_qmgr(self, text: str, name: str) -> None:
        for line in text.splitlines():
            match = re.match(
                r"(create|set) (queue|server|sched|resource)(?: (\S+))?(?: (\S+) (\+?=) (.*))?$",
                line.strip(),
            )
            if not match:
                continue
            verb, kind, first, second, sign, value = match.groups()
            if kind == "queue" and first:
                about = self._queues.setdefault(first, {})
                if verb == "set" and second:
                    about[second] = _more(about.get(second, ""), sign, value)
                    self._where[f"{first}: {second}"] = name
            elif kind == "resource" and second == "flag":
                self._flags[first] = value.strip()
            elif kind in ("server", "sched") and verb == "set" and second:
                # Of several schedulers the first, which is called default, is the one that is meant here.
                key = second if first in (None, "default") else f"{first} {second}"
                self._server[key] = _more(self._server.get(key, ""), sign, value)
                self._where[key] = name

    def _take_sched_config(self, text: str, name: str) -> None:
        lines = read_sched_config(text, name)
        self._sched += lines
        unread = [one for one in lines if one.fault and one.name not in PARAMETERS]
        self._notes += [f"{one.where}: {one.name[:50]!r}: {one.fault}" for one in unread]

    def site(self, *, assumed: Sequence[ListedNode] = ()) -> Site | None:
        """Cluster and policy; None if nothing tells of them.

        Args:
            assumed: the nodes, if none are described; without any: None then.
        """
        if not self._nodes and not (assumed and (self._queues or self._server or self._sched)):
            return None
        queues = {
            name: _with_nested(about)
            for name, about in self._queues.items()
            if str(about.get("queue_type", "Execution")).lower().startswith("e")
        }
        sched = SchedConfig(tuple(self._sched))
        sets = self._sets()
        listed = listed_nodes(
            self._nodes, queues, self._notes, self._consumables(sched), sets.by_queue.values()
        )
        if self._nodes and not listed:
            raise FormatError("pbsnodes: no node in it that has cores")
        order = node_order(sched, self._nodes) if self.shared[0] else None
        if order is not None:
            listed = [
                one._replace(weight=order.weights.get(one.record.name, 0.0)) for one in listed
            ]
        grouped = group_nodes(listed or in_partitions(assumed, queues))
        default = routed(self._server.get("default_queue", ""), self._queues)
        partitions = partitions_of(queues, grouped.members, default, [])
        policy = meaning_of(sched, self._server, partitions, self._shares, order)
        limits = site_limits(self._server, self._queues, self._where)
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
        cluster, names = named_cluster(fields, grouped.names, "pbs")
        return Site("pbs", cluster, policy.text, settings, list(self._notes), names)

    def _consumables(self, sched: SchedConfig) -> frozenset[str]:
        """Resources of the site's that jobs use up on nodes, and by which its scheduler goes."""
        there = {
            name
            for row in self._nodes.values()
            for name, said in resources(row.get("resources_available")).items()
            if is_consumable(name, str(said)) and "n" in self._flags.get(name, "n")
        }
        goes_by = re.split(r"[,\s]+", sched.value("resources"))
        unheeded = sorted(there - set(goes_by)) if goes_by != [""] else []
        self._notes += [
            f"resource {name} of nodes is not in 'resources' of sched_config, so PBS does not go by it"
            for name in unheeded
        ]
        return frozenset(there - set(unheeded))

    def missing(self) -> list[str]:
        """What no file tells, and what would."""
        there = {
            "nodes: what pbsnodes -av prints": self._nodes,
            "queues and limits: what qmgr -c 'print server' prints": self._queues or self._server,
            "how jobs are scheduled: sched_config, in PBS's folder sched_priv": self._sched,
            "jobs: accounting logs, in PBS's folder server_priv/accounting": self._logs,
        }
        return [what for what, found in there.items() if not found]

    @property
    def shared(self) -> tuple[bool, bool]:
        """Whether jobs share nodes, as unless each vnode goes to one job alone; and whether by memory."""
        with_cores = [row for row in self._nodes.values() if _cores(row) > 0]
        alone = [str(row.get("sharing", "")).startswith("force_excl") for row in with_cores]
        return any(_cores(row) > 1 for row in with_cores) and not (alone and all(alone)), True

    def jobs(self, tally: Tally, machine: Machine, timezone: str | None) -> JobTable:
        """All jobs of all logs."""
        return pbs_table(
            self._logs, tally, machine, meant=Meant(self.accounts, self._sets().by_queue)
        )

    def _sets(self) -> PlacementSets:
        return placement_sets(self._server, self._queues, self._where, shared=self.shared[0])

    @property
    def accounts(self) -> Accounts:
        """What jobs' accounts are: groups or projects where limits, or fair shares, are of these."""
        said = site_limits(self._server, self._queues, self._where).accounts
        entity = SchedConfig(tuple(self._sched)).value("fairshare_entity", "euser").lower()
        return "group" if (said, entity) == ("account", "egroup") else said


def pbsnodes_text(text: str) -> dict[str, dict[str, Any]]:
    """Nodes of ``pbsnodes -av``, as its JSON has them."""
    nodes: dict[str, dict[str, Any]] = {}
    for block in re.split(r"\n\s*\n", text):
        lines = block.strip("\n").splitlines()
        if not lines or " = " in lines[0]:
            continue
        about = dict(line.strip().split(" = ", 1) for line in lines[1:] if " = " in line)
        nodes[lines[0].strip()] = _with_nested(about)
    return nodes


def _more(before: str, sign: str, value: str) -> str:
    """The value of an attribute that is set, or, with ``+=``, to which more is added."""
    value = value.strip().strip('"')
    return f"{before}, {value}" if sign == "+=" and before else value


def _with_nested(about: Mapping[str, Any]) -> dict[str, Any]:
    """``resources_available.ncpus`` as ``ncpus`` within ``resources_available``."""
    made: dict[str, Any] = {}
    for key, value in about.items():
        outer, dot, inner = key.partition(".")
        if dot and outer.startswith("resources"):
            made.setdefault(outer, {})[inner] = value
        else:
            made[key] = value
    return made


def _cores(row: Mapping[str, Any]) -> int:
    has = row.get("resources_available")
    said = str(has.get("ncpus", "")) if isinstance(has, dict) else ""
    return int(said) if said.isdigit() else 0


def live_command(name: str, since: str) -> Sequence[str]:
    """A command of `LIVE`. PBS's accounting logs are files of the server, and no command prints them."""
    del since
    return LIVE[name]
