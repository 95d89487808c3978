"""What PBS's scheduling settings are here: the nearest policy, and why others have no counterpart."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from hpctwin.model import Partition
from hpctwin.rms.site import NO_BEARING, NOT_MODELLED, TAKEN, Setting

__all__ = ["explained", "policy_of"]

Lines = Sequence[tuple[str, str, str]]
"""Of sched_config: name, value, where."""

_SORTED_BY = {
    "ncpus": "ncpus", "ngpus": "ngpus", "mem": "mem", "nodect": "nodect", "walltime": "walltime",
    "job_priority": "job_priority", "sort_priority": "job_priority", "fairshare_factor": "fairshare_factor",
    "fair_share_perc": "fairshare_factor",
}  # fmt: skip
_TAKEN = (
    "strict_ordering", "job_sort_key", "fair_share", "help_starving_jobs", "by_queue", "backfill_depth",
    "job_sort_formula", "default_queue",
)  # fmt: skip
_WHY = {
    "round_robin": "queues are not gone through in turn",
    "backfill_prime": "there is no prime time",
    "prime_exempt_anytime_queues": "there is no prime time",
    "max_starve": "starving jobs are as others",
    "fairshare_usage_res": "use is counted in node-seconds",
    "fairshare_entity": "use is of users",
    "fairshare_decay_time": "the half-life is cluster.yaml's fairshare.half_life",
    "fairshare_decay_factor": "the half-life is cluster.yaml's fairshare.half_life",
    "fairshare_enforce_no_shares": "users without shares run",
    "preemptive_sched": "no job is preempted",
    "preempt_order": "no job is preempted",
    "preempt_prio": "no job is preempted",
    "preempt_queue_prio": "no job is preempted",
    "preempt_sort": "no job is preempted",
    "dedicated_prefix": "give cluster.yaml reservations for dedicated time",
    "node_sort_key": "nodes are tried in the order of their numbers: @best-fit and @spread are others",
    "smp_cluster_dist": "nodes are tried in the order of their numbers: @best-fit and @spread are others",
    "provision_policy": "nodes are as they are",
    "load_balancing": "the load of nodes is not known",
    "strict_fifo": "as strict_ordering",
    "node_group_key": "placement sets are not looked at",
    "node_group_enable": "placement sets are not looked at",
    "eligible_time_enable": "a job's eligible time begins when nothing but nodes keeps it",
    "job_requeue_timeout": "no job is requeued by the policy",
    "node_fail_requeue": "give cluster.yaml failures",
    "scheduler_iteration": "the policy looks at each event, at once",
}
_PLAIN = {
    "round_robin": "false",
    "preemptive_sched": "false",
    "backfill_prime": "false",
    "load_balancing": "false",
}
_LIMITS = re.compile(
    r"max_run|max_queued|max_user_run|max_group_run|max_user_res|max_group_res|resources_max|resources_min"
)
_OF_QUEUE = re.compile(
    r"queue_type|enabled|started|Priority|resources_(?:max|min)\.(?:walltime|nodect)"
)


def policy_of(
    sched: Lines, server: Mapping[str, str], where: Mapping[str, str], queues: Sequence[Partition]
) -> tuple[str, dict[str, float], list[Setting]]:
    """The nearest policy, the priority of each queue, and what became of the settings that tell them."""
    settings: list[Setting] = []

    def said(name: str, default: str = "") -> str:
        """The value for prime time or for all times."""
        found = [value for key, value, _ in sched if key == name]
        return found[0].strip('"').split()[0].strip('"') if found and found[0] else default

    def became(name: str, what: str) -> None:
        settings.extend(Setting(n, v, at, TAKEN, what) for n, v, at in sched if n == name)
        if name in server:
            settings.append(Setting(name, server[name][:80], where.get(name, ""), TAKEN, what))

    order = "submit"
    if server.get("job_sort_formula"):
        order = _formula(server["job_sort_formula"])
        became("job_sort_formula", order)
    elif said("fair_share", "false").lower() == "true":
        order = "-fairshare"
        became("fair_share", "ordering fairshare, by use and equal shares")
    else:
        key = [value.replace('"', "").split() for name, value, _ in sched if name == "job_sort_key"]
        if key and len(key[0]) >= 2 and key[0][0] in _SORTED_BY:
            sign = "-" if key[0][1].upper().startswith("HIGH") else ""
            order = f"{sign}{_SORTED_BY[key[0][0]]}"
            became("job_sort_key", f"formula {order}")
    priorities = {queue.name: queue.priority for queue in queues}
    by_queue = said("by_queue", "true").lower() == "true" and len(set(priorities.values())) > 1
    if by_queue:
        # Far more than any score: queues go by their priority first.
        order = f"{order} - 1000000000000 * queue_priority"
    became("by_queue", "queues by their priority" if by_queue else "queues are of one priority")
    text = {"submit": "fcfs", "-fairshare": "fairshare"}.get(order, order)
    depth = server.get("backfill_depth", "1")
    if said("strict_ordering", "false").lower() == "true":
        backfill = "none" if depth == "0" else ("easy" if depth == "1" else f"easy:{depth}")
        why = f"{backfill}: jobs start in order, and those behind may go first if they delay no reservation"
    elif said("help_starving_jobs", "false").lower() == "true":
        backfill, why = (
            "first-fit",
            "first-fit: jobs that fit start; those that starve have no reservation here",
        )
    else:
        backfill, why = (
            "first-fit",
            "first-fit: jobs that fit start, in order; none has a reservation",
        )
    for name in ("strict_ordering", "backfill_depth", "help_starving_jobs"):
        became(name, why)
    return f"{text}+{backfill}", priorities, settings


def _formula(text: str) -> str:
    """As ours: the largest goes first."""
    return f"pbs:{text}"


def explained(
    sched: Lines,
    server: Mapping[str, str],
    queues: Mapping[str, Mapping[str, Any]],
    where: Mapping[str, str],
) -> list[Setting]:
    """What became of all other settings."""
    made = [_explained(*line) for line in sched if line[0] not in _TAKEN]
    made += [
        _explained(name, value, where.get(name, ""))
        for name, value in server.items()
        if name not in _TAKEN
    ]
    for queue, about in queues.items():
        for name, value in about.items():
            if not _OF_QUEUE.match(name):
                made.append(
                    _explained(
                        name, str(value), where.get(f"{queue}: {name}", ""), f"queue {queue}: "
                    )
                )
            elif name in ("enabled", "started") and str(value).lower() != "true":
                made.append(
                    Setting(
                        f"queue {queue}: {name}",
                        str(value),
                        "",
                        NOT_MODELLED,
                        "jobs of the past ran from it",
                    )
                )
    return made


def _explained(name: str, value: str, where: str, prefix: str = "") -> Setting:
    plain = value.strip('"').split() or [""]
    if name in _WHY and plain[0].lower() != _PLAIN.get(name):
        return Setting(prefix + name, value[:80], where, NOT_MODELLED, _WHY[name])
    if _LIMITS.match(name):
        return Setting(
            prefix + name, value[:80], where, NOT_MODELLED, "limits on what runs do not hold"
        )
    return Setting(prefix + name, value[:80], where, NO_BEARING)
