"""The policy nearest to Slurm's settings, and settings without counterpart."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import partial
from typing import NamedTuple

from hpctwin.rms.site import IMPORTED, NO_EFFECT, NOT_MODELED, Setting
from hpctwin.rms.slurm.listing.conf import Row, said, take
from hpctwin.rms.slurm.listing.values import limit_s

_WEIGHTS = {
    "priorityweightage": "age",
    "priorityweightfairshare": "fairshare",
    "priorityweightjobsize": "size",
    "priorityweightpartition": "partition",
    "priorityweightqos": "qos",
}
_UNIT = {
    "default_queue_depth": "", "partition_job_depth": "", "sched_interval": "s", "sched_min_interval": "us",
    "batch_sched_delay": "s", "bf_interval": "s", "bf_window": "min", "bf_resolution": "s",
    "bf_max_job_test": "",
    "bf_max_job_user": "", "bf_max_job_start": "", "bf_job_part_count_reserve": "", "bf_min_age_reserve": "s",
}  # fmt: skip
"""Settings of both SchedulerParameters and ``slurm`` backfill, with Slurm's units."""
_SECONDS = {"s": 1.0, "min": 60.0, "us": 1e-6}
_AS_IT_IS = (
    "bf_continue",
    "bf_max_time",
    "bf_yield_interval",
    "bf_yield_sleep",
    "bf_yield_rpc_cnt",
    "max_rpc_cnt",
)
_OF_NO_START = (
    "allow_zero_lic", "bb_array_stage_cnt", "build_queue_timeout", "correspond_after_task_cnt",
    "delay_boot", "disable_hetjob_steps", "disable_job_shrink", "disable_remote_singleton",
    "disable_send_gids", "disable_user_top", "extra_constraints", "ignore_constraint_validation",
    "ignore_numa", "inventory_interval", "kill_invalid_depend", "max_array_tasks", "max_depend_depth",
    "max_script_size", "max_submit_line_size", "max_switch_wait", "no_backup_scheduling",
    "no_env_cache", "node_reboot_weight", "sbatch_wait_nodes", "spec_cores_first", "step_retry_count",
    "step_retry_time", "use_interactive_step", "whole_hetjob",
)  # fmt: skip
"""Other SchedulerParameters, with no effect on when accepted jobs start."""
_TAKEN_ELSEWHERE = {
    "accountingstorageenforce", "clustername", "licenses", "prioritycalcperiod", "prioritydecayhalflife",
    "prioritytype", "prioritymaxage", "priorityfavorsmall", "priorityusageresetperiod", "priorityweighttres",
    "schedulertype", "schedulerparameters", *_WEIGHTS,
}  # fmt: skip
_WHY = {
    "burstbuffertype": "accounting does not record which jobs used burst buffers",
    "completewait": "nodes are free when a job ends; scheduling does not wait for completing jobs",
    "enforcepartlimits": "recorded jobs were admitted",
    "epilog": "nodes are free when a job ends; add its duration as cleanup to cluster.yaml",
    "epilogslurmctld": "nodes are free when a job ends; add its duration as cleanup to cluster.yaml",
    "fairsharedampeningfactor": "classic fair share has dampening factor 1",
    "federationparameters": "one cluster is simulated; `hpctwin facility` simulates several",
    "jobsubmitplugins": "recorded jobs already contain its changes",
    "killwait": "jobs end exactly at their walltime",
    "maxjobcount": "every job is admitted",
    "maxarraysize": "every job is admitted",
    "overtimelimit": "jobs end exactly at their walltime",
    "preemptexempttime": "no job is preempted",
    "preemptmode": "no job is preempted",
    "preemptparameters": "no job is preempted",
    "preempttype": "no job is preempted",
    "priorityflags": "factors are those of multifactor: age, nodes, fair share, partition, QOS",
    "priorityparameters": "multifactor has no parameters",
    "prioritysitefactorplugin": "accounting does not record site factors; sprio shows those of pending jobs",
    "priorityweightassoc": "associations have no priority",
    "prolog": "jobs run immediately, as its duration is not modeled",
    "prologslurmctld": "jobs run immediately, as its duration is not modeled",
    "requeueexit": "exit codes do not requeue jobs",
    "suspendtime": "nodes are always on; add sleep states to cluster.yaml and use simulate --power",
    "suspendprogram": "nodes are always on; add sleep states to cluster.yaml and use simulate --power",
    "schedulertimeslice": "jobs are not time-sliced",
    "topologyparam": "the policy's placement ignores switches",
    "topologyplugin": "the policy's placement ignores switches; others use those of topology.conf",
}
"""Reasons why settings have no counterpart."""

_PLAIN = {
    "burstbuffertype": "",
    "completewait": "0",
    "enforcepartlimits": "no",
    "fairsharedampeningfactor": "1",
    "killwait": "30",
    "maxarraysize": "1001",
    "maxjobcount": "10000",
    "overtimelimit": "0|none",
    "preemptexempttime": "00:00:00",
    "preemptmode": "off",
    "preempttype": "preempt/none",
    "priorityweightassoc": "0",
    "schedulertimeslice": "30",
    "suspendtime": "none|infinite|-1",
    "topologyplugin": "topology/none|topology/default|topology/flat",
}
"""Values that request nothing, or are Slurm's defaults."""

_FLAGS = {"SMALL_RELATIVE_TO_TIME": "relative_to_time", "ACCRUE_ALWAYS": "accrue_always"}
"""PriorityFlags, with their names in `multifactor`."""
_TRES = {"node": "per_node", "cpu": "per_core", "mem": "per_gb", "gres/gpu": "per_gpu"}
"""TRES of PriorityWeightTRES, with `multifactor`'s name of weight over amount."""
_OF_TREE = ("FAIR_TREE", "NO_FAIR_TREE", "DEPTH_OBLIVIOUS")
_OF_PASSES = (
    "assoc_limit", "batch_sched", "bf_", "default_queue", "defer", "enable_", "ignore_prefer", "max_sched",
    "nohold", "pack_serial", "partition_job", "permit_", "preempt", "reduce_completing", "requeue", "salloc",
    "sched_", "time_min",
)  # fmt: skip
"""Prefixes of SchedulerParameters that select which jobs are tried, and when."""

_MAX_AGE_S = 7 * 86400.0
"""Default of PriorityMaxAge in Slurm and in `multifactor`."""
_EMPTY = ("", "(null)", "n/a", "none")


class Meaning(NamedTuple):
    """A policy.

    Args:
        text: Ordering and backfill.
        partition_priority: Extra priority of each partition's jobs, in units of the partition
            weight.
    """

    text: str
    partition_priority: dict[str, float]


def order_and_backfill(
    values: Mapping[str, Row],
    partitions: Mapping[str, Row],
    settings: list[Setting],
    *,
    totals: Mapping[str, float],
    preempts: bool = False,
    whole: bool = False,
) -> Meaning:
    """Return the nearest policy.

    Args:
        settings: List to which the treatment of each setting is added.
        totals: Total amounts of all nodes, by TRES; memory in GB.
        preempts: Whether jobs of a higher tier preempt jobs of a lower one.
        whole: Whether jobs have nodes for themselves; reservations are then of particular nodes.
    """
    told = partial(said, values)
    tiers = {name: _number(row, "prioritytier") for name, row in partitions.items()}
    factors = {name: _number(row, "priorityjobfactor") for name, row in partitions.items()}
    by_tier = len(set(tiers.values())) > 1
    if told("prioritytype").endswith("multifactor") or _is_multifactor_by_default(values):
        text, priority = _multifactor(values, tiers, factors, settings, by_tier=by_tier)
        text += _of_tres(values, totals, settings, one=len(partitions) == 1)
        if not whole and _is_weight(told("priorityweightjobsize")):
            text += f",machine_cores={totals['cpu']:.12g}"
    else:
        text, priority = ("fcfs", {})
        if by_tier:
            # Far more than any job has waited: a higher tier always goes first.
            text, priority = "submit - 1000000000000 * partition_priority", dict(tiers)
        take(values, "prioritytype", text, settings)
        _unused_priorities(values, settings)
    if by_tier:
        listed = ", ".join(f"{name}={tier:g}" for name, tier in tiers.items())
        where = next(iter(partitions.values())).where
        whom = "preempts jobs of lower tiers" if preempts else "preempts no jobs"
        why = f"a job of a higher tier comes first, is backfilled with all others, and {whom}"
        settings.append(Setting("PriorityTier", listed[:80], where, IMPORTED, why))
    backfill = _backfill(values, settings)
    placement = "@contiguous" if whole and backfill != "none" else ""
    return Meaning(f"{text}+{backfill}{placement}", priority)


def _is_multifactor_by_default(values: Mapping[str, Row]) -> bool:
    """Return whether a missing PriorityType means priority/multifactor."""
    version = version_of(values)
    unsaid = not said(values, "prioritytype") and values.keys() > {"slurm_version"}
    return unsaid and version is not None and version >= (23, 11)


def _unused_priorities(values: Mapping[str, Row], settings: list[Setting]) -> None:
    """Report the settings of priority/multifactor if it is not the PriorityType."""
    became, why = NO_EFFECT, "PriorityType is not priority/multifactor"
    if not said(values, "prioritytype"):
        became = NOT_MODELED
        why = "PriorityType is missing, so priority/basic is assumed, as before Slurm 23.11"
    keys = (
        "prioritydecayhalflife", "priorityfavorsmall", "prioritymaxage", "priorityweighttres", *_WEIGHTS,
    )  # fmt: skip
    settings += [values[key].setting(key, became, why) for key in keys if key in values]


def _multifactor(
    values: Mapping[str, Row],
    tiers: Mapping[str, float],
    factors: Mapping[str, float],
    settings: list[Setting],
    *,
    by_tier: bool,
) -> tuple[str, dict[str, float]]:
    told = partial(said, values)
    weights = {
        ours: float(told(key)) if _is_number(told(key)) else 0.0 for key, ours in _WEIGHTS.items()
    }
    most = max(factors.values(), default=0.0) or 1.0
    # Extra priority of a partition's jobs: its share of the weight, for a tier more than all
    # factors.
    step = sum(weights.values()) + 1 if by_tier else 0.0
    lowest = min(tiers.values(), default=0.0)
    priority = {
        name: weights.get("partition", 0.0) * factors[name] / most + step * (tiers[name] - lowest)
        for name in tiers
    }
    weights["partition"] = max(priority.values(), default=0.0)
    given = {
        name: weights.get(name, 0.0) for name in ("age", "size", "fairshare", "partition", "qos")
    }
    parts = [f"{name}={value:.12g}" for name, value in given.items()]
    oldest = limit_s(told("prioritymaxage"))
    if oldest and oldest != _MAX_AGE_S:
        parts.append(f"max_age={oldest:.0f}")
    if told("priorityfavorsmall").lower() in ("yes", "true", "1"):
        parts.append("favor_small=yes")
    for flag in _flags(values):
        if flag in _FLAGS:
            parts.append(f"{_FLAGS[flag]}=yes")
            where = values["priorityflags"].where
            settings.append(Setting("PriorityFlags", flag, where, IMPORTED, "multifactor"))
    for key in ("prioritytype", "prioritymaxage", "priorityfavorsmall", *_WEIGHTS):
        take(values, key, "multifactor", settings)
    take(values, "prioritydecayhalflife", "fairshare.half_life", settings)
    return f"multifactor:{','.join(parts)}", priority


def _of_tres(
    values: Mapping[str, Row], totals: Mapping[str, float], settings: list[Setting], *, one: bool
) -> str:
    """Return multifactor's part of PriorityWeightTRES.

    The treatment of each weight is added to ``settings``.
    """
    text = ""
    for part in filter(None, said(values, "priorityweighttres").split(",")):
        name, _, weight = part.partition("=")
        known = _TRES.get(name.strip().lower())
        became, why = NOT_MODELED, "only cpu, mem, node and gres/gpu have weights"
        if not _is_weight(weight):
            became, why = NO_EFFECT, ""
        elif known and totals[name.strip().lower()] > 0:
            text += f",{known}={float(weight) / totals[name.strip().lower()]:.12g}"
            became, why = IMPORTED, "multifactor"
            if not one:
                why += ": relative to the cluster; in Slurm, relative to the job's partition"
        where = values["priorityweighttres"].where
        settings.append(Setting(f"PriorityWeightTRES: {name}", weight[:80], where, became, why))
    return text


def _flags(values: Mapping[str, Row]) -> list[str]:
    return [flag.strip().upper() for flag in said(values, "priorityflags").split(",")]


def _is_weight(text: str) -> bool:
    return _is_number(text) and float(text) > 0


def _backfill(values: Mapping[str, Row], settings: list[Setting]) -> str:
    """Return the backfill; ``settings`` gets the SchedulerParameters' treatment."""
    told = partial(said, values)
    pairs = [part.partition("=") for part in told("schedulerparameters").split(",")]
    parameters = {name.strip().lower(): value.strip() for name, _, value in pairs if name.strip()}
    if "builtin" in told("schedulertype") or parameters.get("bf_interval") == "-1":  # switched off
        take(values, "schedulertype", "backfill none: jobs start in order", settings)
        given: dict[str, str] = {}
        text = "none"
    else:
        take(values, "schedulertype", "slurm", settings)
        given = {
            key: read
            for key, value in parameters.items()
            if (read := _number_of_pass(key, value)) is not None
        }
        if "bf_licenses" in parameters:
            given["bf_licenses"] = "yes"
        if "defer" in parameters:  # a submission then waits for the next pass as an end does
            given["sched_min_interval"] = given.get("batch_sched_delay", "3s")
        version = version_of(values)
        if version is not None and version < (25, 5):
            given["bf_round_up"] = "no"
        if version is None and values:
            why = (
                "slurm: rounds reservations up as since 25.05; scontrol show config has the version"
            )
            settings.append(Setting("SLURM_VERSION", "missing", "", IMPORTED, why))
        text = ":".join(["slurm", *filter(None, [",".join(f"{k}={v}" for k, v in given.items())])])
    for key, value in parameters.items():
        became, reason = NO_EFFECT, ""
        if key in given or (key == "defer" and given):
            became, reason = IMPORTED, text.partition(":")[0]
        elif key in _AS_IT_IS:
            reason = "a cycle takes no time and always visits all jobs"
        elif key == "sched_interval" and value == "-1":
            became, reason = (
                NOT_MODELED,
                "switched off in Slurm; the simulation has a full cycle each minute",
            )
        elif key in _UNIT:
            became, reason = NOT_MODELED, "not a valid number; Slurm's default is used"
            if text == "none":
                reason = "used only by sched/backfill"
        elif key.startswith(_OF_PASSES):
            became, reason = NOT_MODELED, "backfill slurm does not support this parameter"
        elif key not in _OF_NO_START:
            became, reason = NOT_MODELED, "unknown parameter"
        where = values["schedulerparameters"].where
        settings.append(Setting(f"SchedulerParameters: {key}", value[:80], where, became, reason))
    return text


def version_of(values: Mapping[str, Row]) -> tuple[int, int] | None:
    """Return Slurm's year and month from ``scontrol show config``; None without them."""
    parts = said(values, "slurm_version").split(".")[:2]
    if len(parts) < 2 or not all(part.isdecimal() for part in parts):
        return None
    return int(parts[0]), int(parts[1])


def _number_of_pass(key: str, value: str) -> str | None:
    """Return a setting of the ``slurm`` backfill as policy text.

    The result is None if it is no such setting, or not a number.
    """
    unit = _UNIT.get(key)
    if unit is None or not _is_number(value):
        return None
    number = float(value)
    if unit == "":
        # 0 is no limit; but Slurm accepts no such bf_max_job_test, and then tries one job in order.
        nothing = {"bf_max_job_test": None, "default_queue_depth": "1"}
        return f"{number:.0f}" if number >= 1 else nothing.get(key, "any")
    seconds = number * _SECONDS[unit]
    if seconds < 0.001 and key in ("bf_interval", "bf_resolution", "sched_interval"):
        return None
    return f"{seconds:.12g}s"


def explained(
    values: Mapping[str, Row], told: Collection[str] = (), *, shared: bool
) -> list[Setting]:
    """Return the treatment of all other settings.

    Args:
        told: Keys that are reported already.
    """
    made: list[Setting] = []
    for key, row in values.items():
        if key in _TAKEN_ELSEWHERE or key in told:
            continue
        value = row.get(key)
        if key == "priorityflags":
            # Flags of the fair-share tree are reported with it, flags of multifactor with that.
            taken = [*_OF_TREE, *_FLAGS]
            value = ",".join(flag for flag in value.split(",") if flag.strip().upper() not in taken)
        if key in ("selecttype", "selecttypeparameters"):
            take(values, key, "jobs share nodes" if shared else "jobs have exclusive nodes", made)
            continue
        plain = value.lower() in (*_EMPTY, *_PLAIN.get(key, "").split("|"))
        why = _WHY.get(key)
        if why is None and re.match(r"priority|preempt|sched|select|topology|federation", key):
            why = "unknown setting"
        if why is None or plain:
            why = "" if plain else "not known to affect when or where jobs start"
            made.append(row.setting(key, NO_EFFECT, why, value=value))
        else:
            made.append(row.setting(key, NOT_MODELED, why, value=value))
    return made


def _number(row: Row, key: str) -> float:
    """Return a partition's priority, by this key or the older one."""
    text = row.get(key) or row.get("priority") or "1"
    return float(text) if _is_number(text) else 1.0


def _is_number(text: str) -> bool:
    return re.fullmatch(r"\d{1,12}(\.\d+)?", text) is not None
