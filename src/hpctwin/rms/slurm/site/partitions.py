"""Partitions of a Slurm site as those of a cluster, and the nearest placement.

The placement is for jobs that share nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from hpctwin.rms.site.cluster import IMPORTED, NOT_MODELED, Setting
from hpctwin.rms.slurm.listing.conf import Row, said
from hpctwin.rms.slurm.listing.values import limit_s

_NO_SWITCHES = ("", "topology/none", "topology/default", "topology/flat")
_WHERE = "nodes and partitions"


def weights_of(rows: Mapping[str, Row]) -> dict[str, float]:
    """Return weights of nodes by name; empty if all are the same."""
    weights = {name: _weight(row) for name, row in rows.items()}
    return weights if len(set(weights.values())) > 1 else {}


def shared_placement(
    values: Mapping[str, Row], partitions: Sequence[Row], *, weighted: bool, settings: list[Setting]
) -> str:
    """Return the nearest placement for jobs that share nodes; empty if none is near.

    Slurm's cons_tres goes through its nodes in one of several ways (22.05, ``_eval_nodes`` and the
    functions next to it in ``job_test.c``). Settings select the way, and so do some jobs.

    Args:
        values: Settings by key.
        partitions: Partitions of the site.
        weighted: Whether nodes have different weights.
        settings: List to which the treatment of these settings is added.
    """
    if said(values, "topologyplugin").lower() not in _NO_SWITCHES:
        return ""  # reported with the plugin: the cluster's switches are not imported
    if is_least_loaded(values, partitions):
        why = "spread: the most free GPUs, then cores first; Slurm considers only cores"
        settings.append(Setting("LLN", "the least loaded nodes first", _WHERE, IMPORTED, why))
        return "spread"
    if weighted:
        why = "weight: the smallest first, then by number; Slurm chooses the best-fitting run of equal ones"
        settings.append(Setting("Weight", "of nodes", _WHERE, IMPORTED, why))
        return "weight"
    return "tightest-run"


def is_least_loaded(values: Mapping[str, Row], partitions: Sequence[Row]) -> bool:
    """Return whether nodes with the fewest CPUs in use come first, in all partitions."""
    everywhere = "CR_LLN" in said(values, "selecttypeparameters").upper()
    alone = [row.get("lln").upper() == "YES" for row in partitions]
    return everywhere or (bool(alone) and all(alone))


def _weight(row: Row) -> float:
    """Return a node's weight; by default 1."""
    text = row.get("weight")
    return float(text) if text.isdigit() else 1.0


_UP_TO = {"maxnodes": "max_nodes", "minnodes": "min_nodes"}
_OF_PARTITION = {
    "nodes", "default", "maxtime", "maxnodes", "minnodes", "prioritytier", "priorityjobfactor", "priority",
    "partitionname", "qos",
}  # fmt: skip
_PARTITION_PLAIN = {
    "state": "UP", "oversubscribe": "NO", "shared": "NO", "allowgroups": "ALL", "allowaccounts": "ALL",
    "allowqos": "ALL", "denyaccounts": "", "denyqos": "", "maxcpuspernode": "UNLIMITED",
    "overtimelimit": "NONE", "gracetime": "0", "exclusiveuser": "NO", "reqresv": "NO", "lln": "NO",
    "maxmempernode": "UNLIMITED", "rootonly": "NO", "alternate": "", "exclusivetopo": "NO",
    "exclusive": "NO", "maxcpuspersocket": "UNLIMITED", "topology": "",
}  # fmt: skip
_OF_NO_EFFECT = {
    "allocnodes", "cpubind", "defaulttime", "defcpupergpu", "defmempercpu", "defmempergpu", "defmempernode",
    "disablerootjobs", "hidden", "jobdefaults", "maxmempercpu", "nodesets", "powerdownonidle", "preemptmode",
    "resumetimeout", "suspendtime", "suspendtimeout", "totalcpus", "totalnodes", "tres",
}  # fmt: skip
"""Settings already reflected in past jobs; preemption and power are the cluster's."""
_NOT_SET = ("(NULL)", "NONE", "", "UNLIMITED", "INFINITE", "N/A")
_PARTITION_WHY = {
    "state": "all partitions are up",
    "oversubscribe": "each core has one job; either jobs of all partitions share nodes, or none do",
    **dict.fromkeys(
        ("exclusive", "exclusiveuser", "exclusivetopo"),
        "either jobs of all partitions share nodes, or none do; jobs of other users or in the same part of "
        "the topology are not excluded",
    ),
    "shared": "each core has one job; either jobs of all partitions share nodes, or none do",
    "overtimelimit": "jobs end exactly at their walltime",
    "gracetime": "no job is preempted",
    "selecttypeparameters": "all partitions use the cluster's value",
    "topology": "all partitions use the cluster's default topology",
    "tresbillingweights": "fair share counts node-seconds",
    "lln": "least loaded nodes are chosen only if all partitions set it",
}


_WHOLE = {("oversubscribe", "EXCLUSIVE"), ("shared", "EXCLUSIVE"), ("exclusive", "NODE")}
"""Settings by which jobs have whole nodes; the last is that of 26.05."""


def gives_whole_nodes(row: Row) -> bool:
    """Return whether a partition gives each job whole nodes."""
    return any(row.get(key).upper() == value for key, value in _WHOLE)


def described_partitions(
    named: Mapping[str, Row],
    settings: list[Setting],
    told_apart: Collection[str],
    *,
    whole: bool,
    topology: str = "",
) -> dict[str, Row]:
    """Return the rows by name; ``settings`` gets the settings that are not modeled.

    Args:
        named: The rows.
        settings: Settings reported so far.
        told_apart: Keys that are reported elsewhere.
        whole: Whether all jobs have whole nodes.
        topology: Name of the cluster's default topology.
    """
    described = {}
    for name, row in named.items():
        described[name] = row
        for key, value in row.values.items():
            if key in told_apart or key in _OF_PARTITION or key in _OF_NO_EFFECT:
                continue
            if whole and (key, value.upper()) in _WHOLE:
                settings.append(row.setting(key, IMPORTED, "jobs have exclusive nodes", of=name))
                continue
            # FORCE:1 and YES:1: one job for each core, as with NO.
            plain = ("FORCE:1", "YES:1") if key in ("oversubscribe", "shared") else ()
            if value.upper() in (_PARTITION_PLAIN.get(key, ""), *_NOT_SET, *plain):
                continue
            if key == "topology" and value == topology:
                continue
            why = "not checked: recorded jobs are in partitions that accepted them"
            if key not in _PARTITION_PLAIN:
                why = "unknown setting"
            why = _PARTITION_WHY.get(key, why)
            settings.append(row.setting(key, NOT_MODELED, why, of=name))
    return described


def partition_fields(
    name: str, row: Row, groups: list[str], priority: Mapping[str, float], *, held: bool
) -> dict[str, Any]:
    """Return a partition as fields of `Cluster`.

    Args:
        name: Name of the partition.
        row: Its row.
        groups: Names of its groups of nodes.
        priority: Priorities of partitions by name.
        held: Whether limits are enforced.
    """
    made: dict[str, Any] = {"name": name, "groups": groups}
    longest = limit_s(row.get("maxtime"))
    if longest:
        made["max_walltime"] = longest
    for key, ours in _UP_TO.items():
        if row.get(key).isdigit() and int(row.get(key)) > (1 if key == "minnodes" else 0):
            made[ours] = int(row.get(key))
    if priority.get(name):
        made["priority"] = priority[name]
    if row.get("default").upper() == "YES":
        made["default"] = True
    if held and row.get("qos").upper() not in ("", "N/A", "(NULL)"):
        made["qos"] = row.get("qos")
    return made
