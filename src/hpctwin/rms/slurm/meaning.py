"""What Slurm's scheduling settings are here: the nearest policy, and why others have no counterpart."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from hpctwin.rms.site import NO_BEARING, NOT_MODELLED, TAKEN, Setting
from hpctwin.rms.slurm.conf import Row
from hpctwin.rms.slurm.values import limit_s

__all__ = ["Meaning", "explained", "order_and_backfill"]

_WEIGHTS = {
    "priorityweightage": "age",
    "priorityweightfairshare": "fairshare",
    "priorityweightjobsize": "size",
    "priorityweightpartition": "partition",
    "priorityweightqos": "qos",
}
_RESERVE_FEW = ("bf_min_age_reserve", "bf_min_prio_reserve")
_TAKEN_ELSEWHERE = {
    "clustername", "licenses", "prioritydecayhalflife", "prioritytype", "prioritymaxage",
    "priorityfavorsmall", "schedulertype", "schedulerparameters", *_WEIGHTS,
}  # fmt: skip
_WHY = {
    "accountingstorageenforce": "limits of QOS and association do not hold",
    "burstbuffertype": "burst buffers: accounting does not say which jobs used them",
    "defmempercpu": "accounting says what each job asked for",
    "defmempernode": "accounting says what each job asked for",
    "enforcepartlimits": "jobs of the past were let in",
    "epilog": "the time that it takes; nodes are free when a job ends",
    "epilogslurmctld": "the time that it takes; nodes are free when a job ends",
    "fairsharedampeningfactor": "fair share is classic, with factor 1",
    "federationparameters": "one cluster at a time; hpctwin facility has several",
    "jobsubmitplugins": "jobs of the past are as it left them",
    "killwait": "a walltime ends a job at once",
    "maxjobcount": "every job is let in",
    "maxarraysize": "every job is let in",
    "overtimelimit": "a walltime ends a job at once",
    "preemptexempttime": "no job is preempted",
    "preemptmode": "no job is preempted",
    "preemptparameters": "no job is preempted",
    "preempttype": "no job is preempted",
    "prioritycalcperiod": "priorities are always up to date",
    "priorityflags": "factors are as in multifactor: age, nodes, fair share by account, partition, QOS",
    "priorityparameters": "multifactor knows none",
    "prioritysitefactorplugin": "the site's own factor is not known",
    "priorityusageresetperiod": "use decays, and is never reset",
    "priorityweightassoc": "associations have no priority of their own",
    "priorityweighttres": "size is counted in nodes",
    "prolog": "the time that it takes; jobs run at once",
    "prologslurmctld": "the time that it takes; jobs run at once",
    "requeueexit": "how a job ends does not send it back",
    "suspendtime": "nodes are always on: give cluster.yaml their sleep states, and simulate --power",
    "suspendprogram": "nodes are always on: give cluster.yaml their sleep states, and simulate --power",
    "schedulertimeslice": "jobs are not switched by time slices",
    "topologyparam": "placement does not look at switches",
    "topologyplugin": "placement does not look at switches; contiguous is the nearest",
}
"""Why a setting has no counterpart."""

_PLAIN = {
    "accountingstorageenforce": "none",
    "burstbuffertype": "",
    "defmempernode": "unlimited",
    "enforcepartlimits": "no",
    "fairsharedampeningfactor": "1",
    "killwait": "30",
    "maxarraysize": "1001",
    "maxjobcount": "10000",
    "overtimelimit": "0|none",
    "preemptexempttime": "00:00:00",
    "preemptmode": "off",
    "preempttype": "preempt/none",
    "prioritycalcperiod": "5|00:05:00",
    "priorityusageresetperiod": "none",
    "priorityweightassoc": "0",
    "schedulertimeslice": "30",
    "suspendtime": "none|infinite|-1",
    "topologyplugin": "topology/none|topology/default|topology/flat",
}
"""Values that ask for nothing, or are as Slurm has them if nothing is said."""

_OF_PASSES = (
    "assoc_limit", "batch_sched", "bf_", "default_queue", "defer", "enable_", "ignore_prefer", "max_sched",
    "nohold", "pack_serial", "partition_job", "permit_", "preempt", "reduce_completing", "requeue", "salloc",
    "sched_", "time_min",
)  # fmt: skip
"""What SchedulerParameters begin with that say which jobs are looked at, and when."""

_EMPTY = ("", "(null)", "n/a", "none")


class Meaning(NamedTuple):
    """A policy.

    Args:
        text: ordering and backfill.
        partition_priority: what each partition's jobs have more; in units of the weight of partitions.
    """

    text: str
    partition_priority: dict[str, float]


def order_and_backfill(
    values: Mapping[str, Row], partitions: Mapping[str, Row], settings: list[Setting]
) -> Meaning:
    """The nearest policy; what each setting became is appended to ``settings``."""
    said = _said(values)
    tiers = {name: _tier(row) for name, row in partitions.items()}
    factors = {name: _job_factor(row) for name, row in partitions.items()}
    by_tier = len(set(tiers.values())) > 1
    if said("prioritytype").endswith("multifactor"):
        text, priority = _multifactor(values, tiers, factors, settings, by_tier=by_tier)
    else:
        text, priority = ("fcfs", {})
        if by_tier:
            # Far more than any job has waited: a tier goes first whatever the time.
            text, priority = "submit - 1000000000000 * partition_priority", dict(tiers)
        _became(values, "prioritytype", text, settings)
    if by_tier:
        told = ", ".join(f"{name}={tier:g}" for name, tier in tiers.items())
        where = next(iter(partitions.values())).where
        why = (
            "a job of a higher tier goes first; it is backfilled with all others, and preempts none"
        )
        settings.append(Setting("PriorityTier", told[:80], where, TAKEN, why))
    return Meaning(f"{text}+{_backfill(values, settings)}", priority)


def _multifactor(
    values: Mapping[str, Row],
    tiers: Mapping[str, float],
    factors: Mapping[str, float],
    settings: list[Setting],
    *,
    by_tier: bool,
) -> tuple[str, dict[str, float]]:
    said = _said(values)
    weights = {
        ours: float(said(key)) if _is_number(said(key)) else 0.0 for key, ours in _WEIGHTS.items()
    }
    most = max(factors.values(), default=0.0) or 1.0
    # What a partition's jobs have more: its share of the weight, for a tier more than all factors.
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
    oldest = limit_s(said("prioritymaxage"))
    if oldest:
        parts.append(f"max_age={oldest:.0f}")
    if said("priorityfavorsmall").lower() in ("yes", "true", "1"):
        parts.append("favor_small=yes")
    for key in ("prioritytype", "prioritymaxage", "priorityfavorsmall", *_WEIGHTS):
        _became(values, key, "multifactor", settings)
    if "prioritydecayhalflife" in values:
        _became(values, "prioritydecayhalflife", "fairshare.half_life", settings)
    return f"multifactor:{','.join(parts)}", priority


def _backfill(values: Mapping[str, Row], settings: list[Setting]) -> str:
    said = _said(values)
    pairs = [part.partition("=") for part in said("schedulerparameters").split(",")]
    parameters = {name.strip().lower(): value for name, _, value in pairs if name.strip()}
    name = "conservative"
    per_partition = parameters.get("bf_job_part_count_reserve", "0")
    if "builtin" in said("schedulertype"):
        name = "none"
    elif per_partition.isdigit() and int(per_partition) > 0:
        name = f"easy:{per_partition}"
    elif any(parameters.get(key, "0") not in ("", "0") for key in _RESERVE_FEW):
        name = "easy"
    why = {
        "none": "jobs start in order",
        "conservative": "every waiting job has a reservation, made at each event",
    }.get(name, "few waiting jobs have a reservation")
    _became(values, "schedulertype", f"{name}: {why}", settings)
    for key, value in parameters.items():
        became, reason = NO_BEARING, ""
        if key in ("bf_job_part_count_reserve", *_RESERVE_FEW) and name.startswith("easy"):
            became, reason = TAKEN, f"{name}: {why}"
        elif key.startswith(_OF_PASSES):
            became = NOT_MODELLED
            reason = "all waiting jobs are looked at, at each event, at once and without bounds"
        where = values["schedulerparameters"].where
        settings.append(Setting(f"SchedulerParameters: {key}", value[:80], where, became, reason))
    return name


def explained(values: Mapping[str, Row], *, shared: bool) -> list[Setting]:
    """What became of all other settings.

    Args:
        values: by key.
        shared: whether jobs share nodes.
    """
    made: list[Setting] = []
    for key, row in values.items():
        if key in _TAKEN_ELSEWHERE:
            continue
        value, name = row.get(key), row.names.get(key, key)
        if key in ("selecttype", "selecttypeparameters"):
            _became(values, key, "jobs share nodes" if shared else "jobs have whole nodes", made)
            continue
        plain = value.lower() in (*_EMPTY, *_PLAIN.get(key, "").split("|"))
        why = _WHY.get(key)
        if why is None and re.match(r"priority|preempt|sched|select|topology|federation", key):
            why = "not known here"
        if why is None or plain:
            made.append(Setting(name, value[:80], row.where, NO_BEARING))
        else:
            made.append(Setting(name, value[:80], row.where, NOT_MODELLED, why))
    return made


def _said(values: Mapping[str, Row]) -> Callable[[str], str]:
    def said(key: str) -> str:
        text = values[key].get(key) if key in values else ""
        return "" if text.lower() == "(null)" else text

    return said


def _became(values: Mapping[str, Row], key: str, what: str, settings: list[Setting]) -> None:
    if key in values:
        row = values[key]
        settings.append(Setting(row.names.get(key, key), row.get(key)[:80], row.where, TAKEN, what))


def _tier(row: Row) -> float:
    said = row.get("prioritytier") or row.get("priority") or "1"
    return float(said) if _is_number(said) else 1.0


def _job_factor(row: Row) -> float:
    said = row.get("priorityjobfactor") or row.get("priority") or "1"
    return float(said) if _is_number(said) else 1.0


def _is_number(text: str) -> bool:
    return re.fullmatch(r"\d{1,12}(\.\d+)?", text) is not None
