"""JSON of Slurm's commands as rows of their text output.

Source:
    Slurm's data parsers v0.0.38 (22.05) to v0.0.45 (26.05), and outputs of Slurm 22.05, 24.11 and
    26.05.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from hpctwin.errors import FormatError
from hpctwin.formats.accounting.slurm_values import number
from hpctwin.model.text import expand
from hpctwin.rms.slurm.listing.conf import Row
from hpctwin.rms.slurm.listing.values import words

KINDS = {
    "nodes": "nodes", "partitions": "partitions", "reservations": "reservations", "sinfo": "sinfo",
    "associations": "associations", "qos": "QOS",
}  # fmt: skip
"""Lists of documents that are read, with their names in messages."""
_NONE = "(null)"
_FORCED = 0x8000
"""Bit of ``maximums.shares`` that is set if jobs share whatever they request."""
_PARENT = 0x7FFFFFFF
"""Value of a user's share that stands for the account's."""
_QOS_FLAGS = {
    "DENY_LIMIT": "DenyOnLimit", "ENFORCE_USAGE_THRESHOLD": "EnforceUsageThreshold", "NO_DECAY": "NoDecay",
    "NO_RESERVE": "NoReserve", "OVERRIDE_PARTITION_QOS": "OverPartQOS",
    "PARTITION_MAXIMUM_NODE": "PartitionMaxNodes", "PARTITION_MINIMUM_NODE": "PartitionMinNodes",
    "PARTITION_QOS": "PartitionQOS", "PARTITION_TIME_LIMIT": "PartitionTimeLimit",
    "RELATIVE": "Relative", "REQUIRED_RESERVATION": "RequiresReservation",
    "USAGE_FACTOR_SAFE": "UsageFactorSafe",
}  # fmt: skip
"""Flags of QOS, and their names in sacctmgr."""
_ASSOCIATION = {
    "GrpJobs": "max/jobs/per/count", "GrpTRES": "max/tres/total", "GrpSubmit": "max/jobs/per/submitted",
    "GrpWall": "max/per/account/wall_clock", "GrpTRESMins": "max/tres/group/minutes",
    "GrpTRESRunMins": "max/tres/group/active", "MaxJobs": "max/jobs/active", "MaxTRES": "max/tres/per/job",
    "MaxTRESPerNode": "max/tres/per/node", "MaxSubmit": "max/jobs/total",
    "MaxWall": "max/jobs/per/wall_clock", "MaxTRESMins": "max/tres/minutes/per/job",
}  # fmt: skip
_QOS = {
    "Priority": "priority", "UsageThres": "usage_threshold", "UsageFactor": "usage_factor",
    "GrpTRES": "limits/max/tres/total", "GrpTRESMins": "limits/max/tres/minutes/per/qos",
    "GrpTRESRunMins": "limits/max/tres/minutes/total", "GrpJobs": "limits/max/active_jobs/count",
    "GrpSubmit": "limits/max/jobs/count", "GrpWall": "limits/max/wall_clock/per/qos",
    "MaxTRES": "limits/max/tres/per/job", "MaxTRESPerNode": "limits/max/tres/per/node",
    "MaxTRESMins": "limits/max/tres/minutes/per/job", "MaxWall": "limits/max/wall_clock/per/job",
    "MaxTRESPU": "limits/max/tres/per/user", "MaxJobsPU": "limits/max/jobs/active_jobs/per/user",
    "MaxSubmitPU": "limits/max/jobs/per/user", "MaxTRESPA": "limits/max/tres/per/account",
    "MaxTRESRunMinsPA": "limits/max/tres/minutes/per/account",
    "MaxTRESRunMinsPU": "limits/max/tres/minutes/per/user",
    "MaxJobsPA": "limits/max/jobs/active_jobs/per/account",
    "MaxSubmitPA": "limits/max/jobs/per/account", "MinTRES": "limits/min/tres/per/job",
}  # fmt: skip
"""Columns of sacctmgr, and the path of the same value in a document."""


def document_rows(
    document: Mapping[str, Any], where: str, notes: list[str]
) -> dict[str, list[Row]]:
    """Return a document as rows of text, by the names of `KINDS`; none without lists.

    Nodes and partitions of ``sinfo --json`` are under ``sinfo``.

    Args:
        notes: List to which unreadable parts are added.
    """
    lists = {key.lower(): one for key, one in document.items() if isinstance(one, list)}
    found: dict[str, list[Row]] = {}
    for key in [key for key in KINDS if key in lists]:
        objects = [one for one in lists[key] if isinstance(one, dict)]
        if key == "sinfo":
            found[key] = _of_sinfo(objects, where, notes)
            continue
        made = []
        for one in objects:
            if not isinstance(one.get("account" if key == "associations" else "name"), str):
                continue
            made.append(_row(_READ[key](one), where))
        if len(made) < len(lists[key]):
            notes.append(
                f"{where}: {len(lists[key]) - len(made)} of its {KINDS[key]} are omitted: without a name"
            )
        found[key] = made
    return found


def version_of_document(document: Mapping[str, Any]) -> str:
    """Return the Slurm version of a document, as ``24.11.5``; empty without one."""
    release = _at(document, "meta/slurm/release") or _at(document, "meta/Slurm/release")
    return release if isinstance(release, str) and re.match(r"\d+\.\d+", release) else ""


def _row(values: Mapping[str, str], where: str) -> Row:
    """Return a row of non-empty values; its names are those of the text."""
    told = {key: value for key, value in values.items() if value}
    return Row({key.lower(): told[key] for key in told}, where, {key.lower(): key for key in told})


def _at(one: Any, path: str) -> Any:
    """Return a value by the keys that lead to it; None if it does not exist."""
    for key in path.split("/"):
        one = one.get(key) if isinstance(one, dict) else None
    return one


def _whole(value: Any) -> str:
    found = number(value)
    return f"{found:.0f}" if found is not None and math.isfinite(found) else ""


def _limit(value: Any) -> str:
    """Return a limit: ``UNLIMITED`` if it is not set, empty without the field."""
    return "" if value is None else _whole(value) or "UNLIMITED"


def _listed(value: Any) -> str:
    """Return a text, or a list of texts; empty without the field."""
    if isinstance(value, list):
        value = ",".join(map(str, value))
    return "" if value is None else str(value) or _NONE


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value in (None, "") else [value]


def _node(one: Mapping[str, Any]) -> dict[str, str]:
    states = [*_list(one.get("state")), *_list(one.get("state_flags"))]
    return {
        "NodeName": one["name"],
        "CPUTot": _whole(one.get("cpus")),
        "RealMemory": _whole(one.get("real_memory")),
        "Gres": _listed(one.get("gres")),
        "AvailableFeatures": _listed(one.get("features")),
        "ActiveFeatures": _listed(one.get("active_features")),
        "State": "+".join(map(str, states)).upper(),
        "Partitions": _listed(one.get("partitions")),
        "Weight": _whole(one.get("weight")),
        "CPUEfctv": _whole(one.get("effective_cpus")),
        "CoreSpecCount": _whole(one.get("specialized_cores")),
        "CPUSpecList": str(one.get("specialized_cpus") or ""),
        "MemSpecLimit": _whole(one.get("specialized_memory")),
        "Sockets": _whole(one.get("sockets")),
        "CoresPerSocket": _whole(one.get("cores")),
        "ThreadsPerCore": _whole(one.get("threads")),
        "Version": str(one.get("version") or one.get("slurmd_version") or ""),
    }


def _partition(one: Mapping[str, Any]) -> dict[str, str]:
    """Return a partition of 23.02 or later; values that its version lacks have no key."""
    at, flags = _at, words(one.get("flags"))

    def flag(name: str) -> str:
        return ("YES" if name in flags else "NO") if "flags" in one else ""

    modes = {"OFF" if mode == "DISABLED" else mode for mode in words(one.get("preempt_mode"))}
    modes -= {"CLUSTER_GLOBAL"}
    over = at(one, "maximums/over_time_limit")
    return {
        "PartitionName": one["name"],
        "Nodes": _listed(at(one, "nodes/configured")),
        "AllowGroups": _listed(at(one, "groups/allowed")),
        "AllowAccounts": _listed(at(one, "accounts/allowed")),
        "DenyAccounts": _listed(at(one, "accounts/deny")),
        "AllowQos": _listed(at(one, "qos/allowed")),
        "DenyQos": _listed(at(one, "qos/deny")),
        "QoS": _listed(at(one, "qos/assigned")),
        "Alternate": _listed(one.get("alternate")),
        "MaxTime": _limit(at(one, "maximums/time")),
        "MaxNodes": _limit(at(one, "maximums/nodes")),
        "MinNodes": _whole(at(one, "minimums/nodes")),
        "MaxCPUsPerNode": _limit(at(one, "maximums/cpus_per_node")),
        "MaxCPUsPerSocket": _limit(at(one, "maximums/cpus_per_socket")),
        "MaxMemPerNode": _whole(number(at(one, "maximums/partition_memory_per_node")) or None),
        "OverTimeLimit": "" if over is None else _whole(over) or "NONE",
        "GraceTime": _whole(one.get("grace_time")),
        "TRESBillingWeights": _listed(at(one, "tres/billing_weights")),
        "Topology": _listed(one.get("topology")),
        "PriorityTier": _whole(at(one, "priority/tier")),
        "PriorityJobFactor": _whole(at(one, "priority/job_factor")),
        "PreemptMode": ",".join(sorted(modes)) or (_NONE if "preempt_mode" in one else ""),
        "Default": flag("DEFAULT"),
        "RootOnly": flag("ROOT_ONLY"),
        "ReqResv": flag("REQ_RESV"),
        "LLN": flag("LLN"),
        **_exclusive(one),
        "State": "+".join(sorted(words(at(one, "partition/state")))),
    }


def _exclusive(one: Mapping[str, Any]) -> dict[str, str]:
    """Return whether jobs have whole nodes.

    Since 26.05 that is in words; earlier, in the number of jobs that share a core.
    """
    exclusive = _at(one, "partition/exclusive")
    if exclusive is not None:
        shared = _listed(_at(one, "partition/oversubscribe"))
        return {"Exclusive": _listed(exclusive), "OverSubscribe": shared}
    jobs = _whole(_at(one, "maximums/oversubscribe/jobs"))
    forced = "FORCE" in words(_at(one, "maximums/oversubscribe/flags"))
    if not jobs and (shares := _whole(_at(one, "maximums/shares"))):
        jobs, forced = str(int(shares) & ~_FORCED), bool(int(shares) & _FORCED)
    plain = {"": "", "0": "EXCLUSIVE", "1": "FORCE:1" if forced else "NO"}
    return {"OverSubscribe": plain.get(jobs, f"{'FORCE' if forced else 'YES'}:{jobs}")}


def _of_sinfo(groups: Iterable[Mapping[str, Any]], where: str, notes: list[str]) -> list[Row]:
    """Return rows of ``sinfo --json`` of 23.11 or later, which groups equal nodes.

    A group has nodes of one partition. Slurm's order of the nodes is lost: they are in the order of
    their names.
    """
    partitions: dict[str, Row] = {}
    nodes: dict[str, dict[str, str]] = {}
    unequal = 0
    for group in groups:
        partition = str(_at(group, "partition/name") or "")
        if partition and partition not in partitions:
            partitions[partition] = _row(
                _partition({**group["partition"], "name": partition}), where
            )
        try:
            names = [
                name for text in _list(_at(group, "nodes/nodes")) for name in expand(str(text))
            ]
        except FormatError as error:
            notes.append(f"{where}: a group of nodes is omitted: {error}")
            continue
        unequal += len(names) * any(
            _at(group, f"{key}/minimum") != _at(group, f"{key}/maximum")
            for key in ("cpus", "memory", "sockets", "cores", "threads", "weight")
        )
        least = {
            key: _at(group, f"{key}/minimum")
            for key in ("cpus", "sockets", "cores", "threads", "weight")
        }
        each, left = divmod(int(_whole(_at(group, "cpus/total")) or 0), max(len(names), 1))
        about = {
            **least,
            "real_memory": _at(group, "memory/minimum"),
            "gres": _at(group, "gres/total"),
            "features": _at(group, "features/total"),
            "active_features": _at(group, "features/active"),
            "state": _at(group, "node/state"),
            "effective_cpus": each if each and not left else None,
            "specialized_cpus": _at(group, "resource_spec/cpus"),
            "specialized_memory": _at(group, "resource_spec/memory"),
        }
        for name in names:
            made = nodes.setdefault(name, _node({"name": name, **about}))
            before = made["Partitions"].split(",") if made["Partitions"] else []
            made["Partitions"] = ",".join([*before, partition] if partition else before)
    if unequal:
        notes.append(
            f"{where}: sinfo groups {unequal} nodes that differ, so each gets the smallest values of its "
            "group; add the output of scontrol show node"
        )
    return [
        *(_row(nodes[name], where) for name in sorted(nodes, key=_by_number)),
        *partitions.values(),
    ]


def _by_number(name: str) -> list[Any]:
    """Return a key that sorts ``n10`` after ``n9``."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]


def _reservation(one: Mapping[str, Any]) -> dict[str, str]:
    """Return a reservation of 23.02 or later; times are seconds since the epoch."""
    flags = one.get("flags")
    purged = one.get("purge_completed")
    idle_s = int(_whole(purged.get("time")) or 0) if isinstance(purged, dict) else 0
    named = [str(flag) for flag in flags] if isinstance(flags, list) else []
    if idle_s and "PURGE_COMP" in named:
        named[named.index("PURGE_COMP")] = f"PURGE_COMP={_clock(idle_s)}"
    end = number(one.get("end_time"))
    return {
        "ReservationName": one["name"],
        "StartTime": _whole(one.get("start_time")) or _NONE,
        "EndTime": _whole(one.get("end_time")) or _NONE,
        "Duration": "UNLIMITED" if end == math.inf else "",
        "Flags": ",".join(named) or _NONE,
        **{
            text: str(one.get(key) or _NONE)
            for text, key in (
                ("Nodes", "node_list"), ("Users", "users"), ("Groups", "groups"), ("Accounts", "accounts"),
                ("Licenses", "licenses"), ("BurstBuffer", "burst_buffer"), ("TRES", "tres"),
            )
        },
    }  # fmt: skip


def _association(one: Mapping[str, Any]) -> dict[str, str]:
    """Return an account's or a user's row."""
    share = number(one.get("shares_raw"))
    return {
        "Cluster": str(one.get("cluster") or ""),
        "Account": one["account"],
        "ParentName": str(one.get("parent_account") or ""),
        "User": str(one.get("user") or ""),
        "Partition": str(one.get("partition") or ""),
        "Share": "parent" if share == _PARENT else _whole(share),
        **{key: _amount(_at(one, path)) for key, path in _ASSOCIATION.items()},
    }


def _qos(one: Mapping[str, Any]) -> dict[str, str]:
    modes = words(_at(one, "preempt/mode")) - {"DISABLED"}
    exempt = number(_at(one, "preempt/exempt_time"))
    return {
        "Name": one["name"],
        "Flags": ",".join(_QOS_FLAGS.get(flag, flag) for flag in sorted(words(one.get("flags")))),
        "GraceTime": _whole(_at(one, "limits/grace_time")),
        "Preempt": ",".join(map(str, _list(_at(one, "preempt/list")))),
        "PreemptMode": ",".join(sorted(mode.lower() for mode in modes)) or "cluster",
        "PreemptExemptTime": _clock(exempt) if exempt and math.isfinite(exempt) else "",
        **{key: _amount(_at(one, path)) for key, path in _QOS.items()},
    }


def _amount(value: Any) -> str:
    """Return a number, or resources in sacctmgr's form.

    Such as ``cpu=8,mem=1000M,gres/gpu=2``.
    """
    if not isinstance(value, list):
        found = number(value)
        return f"{found:.15g}" if found is not None and math.isfinite(found) else ""
    parts = []
    for one in value:
        kind, name = (str(_at(one, key) or "") for key in ("type", "name"))
        if kind and (count := _whole(_at(one, "count"))):
            unit = "M" if kind == "mem" else ""
            parts.append(f"{kind}{f'/{name}' if name else ''}={count}{unit}")
    return ",".join(parts)


def _clock(seconds: float) -> str:
    return f"{seconds // 3600:02.0f}:{seconds // 60 % 60:02.0f}:{seconds % 60:02.0f}"


_READ = {
    "nodes": _node, "partitions": _partition, "reservations": _reservation, "associations": _association,
    "qos": _qos,
}  # fmt: skip
