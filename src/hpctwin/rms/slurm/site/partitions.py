"""Partitions, placement and preemption of a Slurm site as those of a cluster.

The placement is for jobs that share nodes.

Source:
    Slurm's documentation, "Preemption", slurm.conf(5) and sacctmgr(1), 20.11 to 24.05.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpctwin.rms.site import IMPORTED, NO_EFFECT, NOT_MODELED, Setting
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
    return float(text) if text.isdecimal() else 1.0


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
        held: Whether limits are enforced.
    """
    made: dict[str, Any] = {"name": name, "groups": groups}
    longest = limit_s(row.get("maxtime"))
    if longest:
        made["max_walltime"] = longest
    for key, ours in _UP_TO.items():
        if row.get(key).isdecimal() and int(row.get(key)) > (1 if key == "minnodes" else 0):
            made[ours] = int(row.get(key))
    if priority.get(name):
        made["priority"] = priority[name]
    if row.get("default").upper() == "YES":
        made["default"] = True
    if held and row.get("qos").upper() not in ("", "N/A", "(NULL)"):
        made["qos"] = row.get("qos")
    return made


PREEMPTION_KEYS = frozenset(
    {"preempttype", "preemptmode", "preemptexempttime", "preemptparameters", "jobrequeue"}
)
"""Keys of slurm.conf that are reported here."""

_KEEPS_MEMORY = "suspended jobs keep their memory in Slurm, but not in the simulation"
_SLICES = (
    "; suspended jobs do not run; Slurm gives time slices to both jobs of one partition, and runs both jobs "
    "of two partitions with equal tiers"
)
_NOTHING = ("", "(null)", "none", "n/a", "cluster", "-1", "00:00:00", "0")
CREDENTIAL_S = 120.0
"""Lifetime of a job's credential; a requeued job waits for its end.

It is set by ``AuthInfo=cred_expire=``.
"""


@dataclass
class Found:
    """Treatment of the settings.

    Args:
        by: ``partition`` or ``qos``.
        mode: Default mode of partitions or QOS.
        fields: ``preemption`` of the cluster; None if no job preempts another.
        settings: Each setting with its treatment.
    """

    by: str
    mode: str = "off"
    fields: dict[str, Any] | None = None
    settings: list[Setting] = field(default_factory=list)


def preemption_of(
    values: Mapping[str, Row], partitions: Mapping[str, Row], qos: Sequence[Row], *, shared: bool
) -> Found | None:
    """Return the simulated part of a site's preemption; None if it has no preemption."""
    kind = said(values, "preempttype").lower().removeprefix("preempt/")
    if kind not in ("partition_prio", "qos"):
        return None
    found = Found(by="qos" if kind == "qos" else "partition")
    _told(found, values, "preempttype", IMPORTED, "preemption")
    mode, became, why = _mode(found, said(values, "preemptmode"))
    found.mode = mode
    counts_memory = "memory" in said(values, "selecttypeparameters").lower()
    _told(found, values, "preemptmode", became, why)
    if said(values, "jobrequeue") == "0":
        _told(found, values, "jobrequeue", IMPORTED, "jobs are canceled instead of requeued")
    if kind == "partition_prio":
        classes = _of_partitions(found, partitions, values)
    else:
        classes = _of_qos(found, qos, values)
    if not _any_preempts(kind, classes):
        why = "all partitions have the same tier" if kind != "qos" else "no QOS preempts another"
        _told(found, values, "preempttype", NO_EFFECT, why)
        return found
    fields: dict[str, Any] = {"mode": _requeued(mode, values)}
    exempt = limit_s(said(values, "preemptexempttime"))
    if exempt:
        fields["exempt"] = exempt
        _told(found, values, "preemptexempttime", IMPORTED, "preemption: exempt")
    modes = fields["mode"], *(one.get("mode") for one in classes.values())
    if "requeue" in modes:
        fields["requeue_after"] = _credential_s(values)
    if "suspend" in modes and not shared and counts_memory:
        _told(found, values, "selecttypeparameters", NOT_MODELED, _KEEPS_MEMORY)
    _parameters(found, fields, values)
    found.fields = fields | {"qos" if kind == "qos" else "partitions": classes}
    return found


def _any_preempts(kind: str, classes: Mapping[str, Mapping[str, Any]]) -> bool:
    if kind == "qos":
        return any(one.get("preempts") for one in classes.values())
    return len({one["tier"] for one in classes.values()}) > 1


def _of_partitions(
    found: Found, partitions: Mapping[str, Row], values: Mapping[str, Row]
) -> dict[str, dict[str, Any]]:
    classes: dict[str, dict[str, Any]] = {}
    for name, row in partitions.items():
        tier = row.get("prioritytier") or row.get("priority") or "1"
        one: dict[str, Any] = {
            "tier": int(float(tier)) if re.fullmatch(r"[\d.]{1,12}", tier) else 1
        }
        _own(found, one, name, row, values)
        classes[name] = one
    return classes


def _of_qos(
    found: Found, rows: Sequence[Row], values: Mapping[str, Row]
) -> dict[str, dict[str, Any]]:
    classes: dict[str, dict[str, Any]] = {}
    names = {row.get("name") for row in rows}
    for row in rows:
        name = row.get("name")
        if not name:
            continue
        one: dict[str, Any] = {}
        preempts = [other for other in row.get("preempt").split(",") if other]
        known = [other for other in preempts if other in names and other != name]
        if known:
            one["preempts"] = known
            found.settings.append(
                Setting(
                    f"QOS {name}: Preempt",
                    row.get("preempt")[:80],
                    row.where,
                    IMPORTED,
                    "preemption",
                )
            )
        for other in preempts:
            if other not in known:
                why = (
                    "jobs of the same QOS do not preempt each other"
                    if other == name
                    else "the QOS does not exist"
                )
                found.settings.append(
                    Setting(f"QOS {name}: Preempt", other, row.where, NOT_MODELED, why)
                )
        _own(found, one, f"QOS {name}", row, values)
        exempt = limit_s(row.get("preemptexempttime"))
        if exempt:
            one["exempt"] = exempt
            found.settings.append(
                Setting(f"QOS {name}: PreemptExemptTime", row.get("preemptexempttime"), row.where, IMPORTED,
                        "preemption: exempt")
            )  # fmt: skip
        classes[name] = one
    return classes


def _own(found: Found, one: dict[str, Any], what: str, row: Row, values: Mapping[str, Row]) -> None:
    """Set the mode and grace that a partition or QOS has itself."""
    own = row.get("preemptmode")
    if own.lower() not in _NOTHING:
        mode, became, why = _mode(found, own)
        own_mode = _requeued(mode, values)
        if own_mode != mode:
            why = f"preemption: mode {own_mode}"
        if own_mode != _requeued(found.mode, values):
            one["mode"] = own_mode
        if "WITHIN" in own.upper():
            became, why = (NOT_MODELED, "jobs of the same QOS do not preempt each other")
        found.settings.append(Setting(f"{what}: PreemptMode", own[:80], row.where, became, why))
    grace = row.get("gracetime")
    seconds = float(grace) if grace.isdecimal() else limit_s(grace)
    if seconds and one.get("mode", found.mode) == "suspend":
        why = "suspended jobs have no grace time"
        found.settings.append(Setting(f"{what}: GraceTime", grace, row.where, NO_EFFECT, why))
    elif seconds:
        one["grace"] = seconds
        found.settings.append(
            Setting(f"{what}: GraceTime", grace, row.where, IMPORTED, "preemption: grace")
        )


def _mode(found: Found, text: str) -> tuple[str, str, str]:
    """Return hpctwin's mode, the treatment of the setting, and why."""
    words = {word.strip().lower() for word in text.split(",")} - {"gang", "within"}
    mode = next((word for word in ("suspend", "requeue", "cancel") if word in words), "off")
    slices = _SLICES if mode == "suspend" and found.by == "qos" else ""
    return mode, IMPORTED, f"preemption: mode {mode}{slices}"


def _requeued(mode: str, values: Mapping[str, Row]) -> str:
    """Return a mode under the rule that jobs may be requeued only on request."""
    return "cancel" if mode == "requeue" and said(values, "jobrequeue") == "0" else mode


def _credential_s(values: Mapping[str, Row]) -> float:
    match = re.search(r"cred_expire=(\d{1,9})", said(values, "authinfo"))
    return float(match[1]) if match else CREDENTIAL_S


def _parameters(found: Found, fields: dict[str, Any], values: Mapping[str, Row]) -> None:
    """Import PreemptParameters; those in SchedulerParameters are reported there."""
    scheduler = said(values, "schedulerparameters").lower()
    if "preempt_youngest_first" in scheduler:
        fields["youngest_first"] = True
    row = values.get("preemptparameters")
    for part in filter(None, said(values, "preemptparameters").split(",")):
        assert row is not None
        name = part.partition("=")[0].strip().lower()
        became, why = (NOT_MODELED, "jobs to preempt are chosen as by default")
        if name == "youngest_first":
            fields["youngest_first"] = True
            became, why = (IMPORTED, "preemption: youngest_first")
        elif name == "send_user_signal" or part.replace(" ", "").lower() == "reorder_count=1":
            became, why = (NO_EFFECT, "")
        elif name == "reclaim_licenses":
            why = "jobs are not preempted for licenses"
        found.settings.append(Setting(f"PreemptParameters: {name}", part, row.where, became, why))


def _told(found: Found, values: Mapping[str, Row], key: str, became: str, why: str) -> None:
    if key in values:
        new = values[key].setting(key, became, why)
        found.settings = [*(one for one in found.settings if one.name != new.name), new]
