"""A Slurm site's settings as a cluster and a policy.

Nodes and partitions come from the output of ``scontrol`` if it exists, else from ``slurm.conf``;
shares and QOS from ``sacctmgr``. `hpctwin.rms.slurm.site.policy` reports the treatment of each
scheduling setting.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hpctwin.errors import ConfigError
from hpctwin.model.cluster.limits import ROOT
from hpctwin.rms.derived_nodes import in_partitions
from hpctwin.rms.site import (
    IMPORTED,
    NO_EFFECT,
    ListedNode,
    Setting,
    Site,
    group_nodes,
    named_cluster,
)
from hpctwin.rms.slurm.listing.conf import Conf, Row, said, take
from hpctwin.rms.slurm.site.accounts import of_cluster, shares_of
from hpctwin.rms.slurm.site.limits import (
    enforced,
    factors_of_qos,
    limits_of_associations,
    limits_of_qos,
)
from hpctwin.rms.slurm.site.nodes import (
    completed,
    listed_nodes,
    named_by_nodes,
    node_settings,
    with_defaults,
)
from hpctwin.rms.slurm.site.partitions import (
    PREEMPTION_KEYS,
    Found,
    described_partitions,
    gives_whole_nodes,
    is_least_loaded,
    partition_fields,
    preemption_of,
    shared_placement,
)
from hpctwin.rms.slurm.site.policy import explained, order_and_backfill
from hpctwin.rms.slurm.site.topology import Topology, chosen_topology, connections

MOST_GROUPS = 128
"""Number of node groups above which a simulation is slow."""


@dataclass
class SlurmSettings:
    """Settings found of a site.

    Args:
        conf: Lines of slurm.conf, or of ``scontrol show config``, a row for each setting.
        gres: Lines of gres.conf.
        topology: Lines of topology.conf.
        shown_topology: Rows of ``scontrol show topology``.
        topologies: Topologies of topology.yaml.
        nodes: Rows of ``scontrol show node``.
        partitions: Rows of ``scontrol show partition``.
        associations: Rows of ``sacctmgr show assoc``.
        qos: Rows of ``sacctmgr show qos``.
        reservations: Rows of ``scontrol show reservation``.
        documents: Rows of the same commands and ``sinfo`` with ``--json``, by the name of the list.
        version: Slurm's version in such a document.
        weights: Rows of ``sprio -w``, which count if no other source has them.
        notes: Parts of these that could not be read.
    """

    conf: Conf = field(default_factory=Conf)
    gres: Conf = field(default_factory=Conf)
    topology: Conf = field(default_factory=Conf)
    shown_topology: list[Row] = field(default_factory=list)
    topologies: list[Topology] = field(default_factory=list)
    nodes: list[Row] = field(default_factory=list)
    partitions: list[Row] = field(default_factory=list)
    associations: list[Row] = field(default_factory=list)
    qos: list[Row] = field(default_factory=list)
    reservations: list[Row] = field(default_factory=list)
    documents: dict[str, list[Row]] = field(default_factory=dict)
    version: str = ""
    weights: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(any(self.shown_nodes) or self.conf.of("nodename"))

    @property
    def shown_nodes(self) -> list[list[Row]]:
        """Rows of nodes that a running Slurm printed: text first, then JSON and sinfo."""
        return [self.nodes, *self._of_documents("nodes", "nodename")]

    @property
    def shown_partitions(self) -> list[list[Row]]:
        """Rows of partitions that a running Slurm printed: text, then JSON and sinfo."""
        return [self.partitions, *self._of_documents("partitions", "partitionname")]

    def _of_documents(self, name: str, kind: str) -> list[list[Row]]:
        of_sinfo = [row for row in self.documents.get("sinfo", ()) if row.kind == kind]
        return [self.documents.get(name, []), of_sinfo]

    def named_partitions(self) -> dict[str, Row]:
        """Return rows of partitions by name."""
        shown = [{row.get("partitionname"): row for row in some} for some in self.shown_partitions]
        written = with_defaults(self.conf.of("partitionname"), "partitionname")
        return completed(shown, {row.get("partitionname"): row for row in written})

    def as_text_or_json(self, name: str, text: list[Row]) -> list[Row]:
        """Return rows of text, or of a document if there are none."""
        return text or self.documents.get(name, [])

    @property
    def tells(self) -> bool:
        """Whether there is any setting of scheduling, partitions, accounts or QOS."""
        return bool(
            self.conf.rows
            or any(self.shown_partitions)
            or self.associations
            or self.qos
            or self.weights
            or self.documents.keys() & {"associations", "qos"}
        )

    @property
    def values(self) -> dict[str, Row]:
        """Settings not of a node, partition or the like, by key; the last one counts."""
        kinds = (
            "nodename", "partitionname", "nodeset", "downnodes", "frontendname", "switchname", "blockname",
        )  # fmt: skip
        rows = [*self.weights, *(row for row in self.conf.rows if row.kind not in kinds)]
        return {key: row for row in rows for key in row.values}

    @property
    def slurm_version(self) -> str:
        """Slurm's version from settings, a document or else nodes; empty without one."""
        told = said(self.values, "slurm_version") or self.version
        nodes = {row.get("version") for some in self.shown_nodes for row in some}
        known = [text for text in nodes if re.match(r"\d+\.\d+\b", text)]
        return told or max(
            known, key=lambda text: [int(n) for n in re.findall(r"\d+", text)], default=""
        )

    @property
    def shared(self) -> bool:
        """Whether jobs may share nodes: cores are allocated, and not to one job alone."""
        alone = [gives_whole_nodes(row) for row in self.named_partitions().values()]
        # Since 23.02 cores are allocated by default.
        select = said(self.values, "selecttype") or "select/cons_tres"
        return "linear" not in select and not (alone and all(alone))

    @property
    def shares_memory(self) -> bool:
        """Whether memory is allocated too."""
        key, values = "selecttypeparameters", self.values
        return key not in values or "MEMORY" in said(values, key).upper()


def slurm_site(found: SlurmSettings, *, assumed: Sequence[ListedNode] = ()) -> Site:
    """Return the cluster and the policy of a Slurm site.

    Args:
        assumed: Nodes to use if the settings have none.

    Raises:
        ConfigError: The settings have no nodes, or associations belong to several clusters and no
            setting names this one.
    """
    notes = [*found.conf.notes, *found.gres.notes, *found.topology.notes, *found.notes]
    settings: list[Setting] = []
    qos = found.as_text_or_json("qos", found.qos)
    named = found.named_partitions()
    named |= named_by_nodes([row for some in found.shown_nodes for row in some], named, notes)
    notes += _untold(found)
    topology = chosen_topology(found.topology.rows, found.shown_topology, found.topologies)
    values = found.values
    placed = {**values, **topology.plugin}
    shared = found.shared
    preemption = preemption_of(values, named, qos, shared=shared)
    preempts = preemption is not None and preemption.fields is not None
    spreads = shared and is_least_loaded(values, list(named.values()))
    told_apart = {key for key, told in (("gracetime", preempts), ("lln", spreads)) if told}
    described = described_partitions(
        named, settings, told_apart, whole=not shared, topology=topology.name
    )
    listed = (
        listed_nodes(found.shown_nodes, found.conf, found.gres, described, notes, shared=shared)
        if found
        else in_partitions(assumed, described)
    )
    settings += node_settings(found.conf, shared=shared)
    if not listed:
        unread = [note for note in notes if re.search("omitted|excluded|missing", note)]
        raise ConfigError(
            "no available node is described; add slurm.conf with its NodeName lines, or the output of "
            "scontrol show node" + (f" ({'; '.join(unread[:3])})" if unread else "")
        )
    grouped = group_nodes(listed)
    if len(grouped.groups) > MOST_GROUPS:
        grouped = group_nodes([node._replace(features=()) for node in listed])
        notes.append(
            f"node features are omitted: they would need more than {MOST_GROUPS} node groups"
        )
    holds = enforced(values)
    held = holds.held
    settings += _enforcing(values, held=held)
    by_tier = preemption is not None and preempts and preemption.by == "partition"
    whole = not shared and not preempts
    totals = {
        "node": len(listed),
        "cpu": sum(node.cores or 0 for node in listed),
        "gres/gpu": sum(node.gpus or 0 for node in listed),
        "mem": sum(node.memory_gb or 0 for node in listed),
    }
    with_version = values
    if version := found.slurm_version:
        with_version = {**values, "slurm_version": Row({"slurm_version": version}, "", {})}
    policy = order_and_backfill(
        with_version,
        described,
        settings,
        totals=totals,
        preempts=by_tier,
        whole=whole,
    )
    placement = ""
    if shared:
        weighted = any(node.weight for node in listed)
        placement = shared_placement(
            placed, list(described.values()), weighted=weighted, settings=settings
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
    for one in (defaults := [one for one in partitions if one.get("default")])[:-1]:
        del one["default"]
        notes.append(
            f"partitions {one['name']} and {defaults[-1]['name']} are both the default; the latter is used"
        )
    unknown = sorted(described.keys() - grouped.members.keys())
    notes += [f"partition {name} is omitted: it has no available node" for name in unknown]
    called = values.get("clustername")
    associations = of_cluster(
        found.as_text_or_json("associations", found.associations), called, notes
    )
    fields: dict[str, Any] = {
        "name": called.get("clustername") if called else "slurm",
        "nodes": [group.model_dump(exclude_defaults=True) for group in grouped.groups],
        "partitions": partitions,
        "resources": _licences(values, settings),
        "qos": _qos(qos),
        **shares_of(values, associations, settings, notes),
    }
    if preemption is not None:
        settings += preemption.settings
        qos = [_without_preempt(row) for row in qos]
    fields["fairshare"] |= factors_of_qos(qos, settings, holds)
    limits = limits_of_qos(qos, settings, holds)
    limits += limits_of_associations(associations, settings, holds)
    fields |= _with_accounts(limits, fields)
    fields |= _preemption(preemption, fields)
    told = PREEMPTION_KEYS if preemption is not None else frozenset[str]()
    settings += explained(placed, told, shared=shared)
    switches, became = connections(topology, [n for some in grouped.names for n in some])
    settings += [*became, *topology.others]
    if switches:
        fields["switches"] = switches
    cluster, names = named_cluster(fields, grouped.names, "slurm")
    return Site("slurm", cluster, policy.text, settings, notes, names, shared_placement=placement)


def _untold(found: SlurmSettings) -> list[str]:
    """Return notes on what JSON of some versions lacks, if no other form has it."""
    notes = []
    text, *documents = found.shown_partitions
    written = found.conf.of("partitionname")
    if (
        not text
        and not written
        and any("default" not in row.values for some in documents for row in some)
    ):
        notes.append(
            "JSON of this Slurm lacks the default partition, and LLN, RootOnly, ReqResv, ExclusiveUser, "
            "ExclusiveTopo and PreemptMode of partitions; add the output of scontrol show partition"
        )
    text, nodes, of_sinfo = found.shown_nodes
    if of_sinfo and not text and not nodes:
        notes.append(
            "only sinfo describes nodes: it omits hidden partitions, and shows features and generic "
            "resources of one node per state; add the output of scontrol show node and partition"
        )
    if (
        not text
        and not found.conf.of("nodename")
        and any("cpuefctv" not in row.values for row in nodes)
    ):
        notes.append(
            "JSON of this Slurm lacks the cores and memory reserved for the system (CoreSpecCount, "
            "CpuSpecList, MemSpecLimit), so jobs may use all; add the output of scontrol show node"
        )
    return notes


def _licences(values: Mapping[str, Row], settings: list[Setting]) -> dict[str, int]:
    if not said(values, "licenses"):
        return {}
    found = {}
    for part in said(values, "licenses").split(","):
        name, _, count = part.replace("=", ":").partition(":")
        found[name.partition("@")[0]] = int(count) if count.isdecimal() else 1
    why = (
        "resources of the cluster; accounting records which jobs held them if AccountingStorageTRES "
        "contains license/NAME"
    )
    take(values, "licenses", why, settings)
    return found


def _qos(rows: Sequence[Row]) -> dict[str, float]:
    return {
        row.get("name"): float(row.get("priority"))
        for row in rows
        if row.get("name") and row.get("priority").isdecimal()
    }


def _youngest_taken(one: Setting) -> Setting:
    """Return the treatment of preempt_youngest_first, which preemption has."""
    if one.name != "SchedulerParameters: preempt_youngest_first":
        return one
    return replace(one, became=IMPORTED, why="preemption: youngest_first")


def _without_preempt(row: Row) -> Row:
    """Return a QOS without the fields that are reported with preemption."""
    left = {key: value for key, value in row.values.items() if key != "preempt"}
    return Row(left, row.where, row.names)


def _preemption(found: Found | None, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cluster's field, for partitions that have nodes."""
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
    told = (IMPORTED, "limits") if held else (NO_EFFECT, "limits are not enforced")
    return [values[key].setting(key, *told)] if key in values else []


def _with_accounts(limits: list[dict[str, Any]], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return limits, and a root-level account for each name that only a limit has."""
    accounts = list(fields.get("accounts", ()))
    known = {account["name"] for account in accounts} | {ROOT}
    for limit in limits:
        name = limit.get("account", ROOT)
        if accounts and name not in known:
            known.add(name)
            accounts.append({"name": name})
    return {"limits": limits, "accounts": accounts}
