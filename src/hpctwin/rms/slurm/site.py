"""A Slurm site's settings as a machine and a policy.

Nodes and partitions come from what ``scontrol`` prints if that is there, else from ``slurm.conf``; shares and
QOS from ``sacctmgr``. What each scheduling setting became is told, one by one (`hpctwin.rms.slurm.meaning`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hpctwin.errors import ConfigError
from hpctwin.model.limits import ROOT
from hpctwin.rms.derived import in_partitions
from hpctwin.rms.machine import ListedNode, group_nodes
from hpctwin.rms.site import NO_BEARING, TAKEN, Setting, Site, named_cluster
from hpctwin.rms.slurm.accounts import of_cluster, shares_of
from hpctwin.rms.slurm.conf import Conf, Row, said, take
from hpctwin.rms.slurm.limits import (
    enforced,
    factors_of_qos,
    limits_of_associations,
    limits_of_qos,
)
from hpctwin.rms.slurm.meaning import explained, order_and_backfill
from hpctwin.rms.slurm.partitions import described_partitions, partition_fields
from hpctwin.rms.slurm.placing import is_least_loaded, shared_placement
from hpctwin.rms.slurm.preempted import PREEMPTION_KEYS, Found, preemption_of
from hpctwin.rms.slurm.site_nodes import (
    listed_nodes,
    named_by_nodes,
    node_settings,
    with_defaults,
)
from hpctwin.rms.slurm.topology import connections

__all__ = ["SlurmSettings", "slurm_site"]

MOST_GROUPS = 128
"""Of more groups of nodes than this a simulation takes long."""


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


def slurm_site(found: SlurmSettings, *, assumed: Sequence[ListedNode] = ()) -> Site:
    """The machine and the policy of a Slurm site.

    Args:
        found: its settings.
        assumed: the nodes, if the settings have none.

    Raises:
        ConfigError: the settings have no nodes, or associations are of several clusters and nothing says of
            which this is.
    """
    notes = [*found.conf.notes, *found.gres.notes, *found.topology.notes, *found.notes]
    settings: list[Setting] = []
    kept = found.partitions or with_defaults(found.conf.of("partitionname"), "partitionname")
    named = {row.get("partitionname"): row for row in kept}
    named |= named_by_nodes(found.nodes, named, notes)
    preemption = preemption_of(found.values, named, found.qos, shared=found.shared)
    preempts = preemption is not None and preemption.fields is not None
    spreads = found.shared and is_least_loaded(found.values, list(named.values()))
    told_apart = {key for key, told in (("gracetime", preempts), ("lln", spreads)) if told}
    described = described_partitions(named, settings, told_apart, whole=not found.shared)
    listed = (
        listed_nodes(found.nodes, found.conf, found.gres, described, notes, shared=found.shared)
        if found
        else in_partitions(assumed, described)
    )
    settings += node_settings(found.conf, shared=found.shared)
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
    for one in (defaults := [one for one in partitions if one.get("default")])[:-1]:
        del one["default"]
        notes.append(
            f"partitions {one['name']} and {defaults[-1]['name']} both are the default: the latter counts"
        )
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
