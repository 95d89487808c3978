"""PBS's scheduling settings as policy ``pbs``, fair share, and settings without counterpart.

Source:
    OpenPBS 23.06: ``sched_config`` and ``resource_group``. Users (``fairshare_entity``) are the
    leaves of a tree of shares. Two users are compared at the point where their branches part: the
    branch that has used less for its share goes first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hpctwin.model import Partition
from hpctwin.model.requests.pbs_requests import parse_duration
from hpctwin.rms.pbs.site.config_files import Line, SchedConfig
from hpctwin.rms.pbs.site.ordering import Meaning, NodeOrder, ordering_of
from hpctwin.rms.site import IMPORTED, NO_EFFECT, NOT_MODELED, Setting

_LINE = re.compile(r"^\s*(\S+)\s+\d+\s+(\S+)\s+(\d{1,9})\s*$")
_ROOT = "root"
_BY = {"euser": "user", "egroup": "account", "account_name": "account"}


class Shares(NamedTuple):
    """A file of shares.

    Args:
        parents: Group of each entity.
        shares: Share of each entity among its siblings.
        where: Name of the file.
    """

    parents: dict[str, str]
    shares: dict[str, int]
    where: str


def is_resource_group(text: str) -> bool:
    """Return whether a text is a file of shares.

    Each line has a name, a number, the group, and shares.
    """
    lines = [
        line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")
    ]
    return bool(lines) and all(map(_LINE.match, lines))


def read_resource_group(text: str, name: str) -> Shares:
    """Return the shares in a file.

    PBS skips a line whose group does not exist yet, or whose name already does.
    """
    parents: dict[str, str] = {}
    shares: dict[str, int] = {}
    for line in text.splitlines():
        match = _LINE.match(line)
        if line.lstrip().startswith("#") or match is None or match[1] in parents:
            continue
        if match[2] == _ROOT or match[2] in parents:
            parents[match[1]] = match[2]
            shares[match[1]] = int(match[3])
    return Shares(parents, shares, name)


def fair_share(
    sched: SchedConfig, shares: Sequence[Shares], taken: dict[str, str], left: dict[str, str]
) -> dict[str, Any]:
    """Return the cluster's fair share if jobs are ordered by it.

    Args:
        shares: Shares of a file ``resource_group``, if there is one.
        taken: Counterparts of settings, by name; entries are added.
        left: Reasons why other settings have no counterpart, by name; entries are added.
    """
    names = ("fairshare_decay_time", "fairshare_decay_factor", "half_life")
    every = sched.value("fairshare_decay_time") or sched.value("half_life", "24:00:00")
    try:
        factor = float(sched.value("fairshare_decay_factor", "0.5"))
    except ValueError:
        factor = 0.0
    # PBS ignores a value that is no such factor.
    factor = factor if 0 < factor < 1 else 0.5
    seconds = (parse_duration(every) or 86_400.0) * math.log(0.5) / math.log(factor)
    taken |= dict.fromkeys(names, "fairshare.half_life: usage decays continuously, not in steps")
    made: dict[str, Any] = {"half_life": round(seconds, 3)}
    entity = sched.value("fairshare_entity", "euser")
    by = _BY.get(entity.lower())
    if by is None:
        left["fairshare_entity"] = "usage is counted per user"
    else:
        taken["fairshare_entity"] = f"fairshare.by: {by}"
        made["by"] = by
    if shares and by is not None:
        made["shares"] = _of_leaves(shares[-1])
        left["unknown_shares"] = (
            "users without shares get the smallest number of shares in the file"
        )
    return made


def _of_leaves(found: Shares) -> dict[str, float]:
    """Return the part of the whole that each leaf of the tree has; the least is 1."""
    together: dict[str, int] = {}
    for name, parent in found.parents.items():
        together[parent] = together.get(parent, 0) + found.shares[name]
    parts: dict[str, float] = {_ROOT: 1.0}
    for name, parent in found.parents.items():  # a group comes before its members
        parts[name] = parts[parent] * found.shares[name] / max(together[parent], 1)
    leaves = {
        name: parts[name] for name in found.parents if name not in together and parts[name] > 0
    }
    least = min(leaves.values(), default=1.0)
    return {name: round(part / least, 9) for name, part in leaves.items()}


def told_of(found: Shares, fairshare: Mapping[str, Any]) -> Setting:
    """Return the treatment of a file of shares."""
    without = sum(not share for share in found.shares.values())
    if not fairshare:
        told = NO_EFFECT, "jobs are not ordered by fair share"
    elif "shares" not in fairshare:
        told = NOT_MODELED, "usage is counted per user"
    elif without:
        told = (
            NOT_MODELED,
            f"{without} have no shares, so PBS never runs their jobs; simulated, they get the smallest share",
        )
    elif any(parent != _ROOT for parent in found.parents.values()):
        told = (
            NOT_MODELED,
            "each leaf gets its part of the whole tree; the usage of its group is ignored",
        )
    else:
        told = IMPORTED, "fairshare.shares"
    return Setting("resource_group", f"{len(found.shares)} shares", found.where, *told)


_WHY = {
    "backfill_prime": "prime time is not modeled",
    "prime_exempt_anytime_queues": "prime time is not modeled",
    "prime_spill": "prime time is not modeled",
    "fairshare_usage_res": "usage is counted in node-seconds",
    "fairshare_enforce_no_shares": "jobs of users without shares run",
    "unknown_shares": "all users have equal shares",
    "max_job_check": "each cycle tries all jobs",
    "preemptive_sched": "no job is preempted",
    "preempt_order": "no job is preempted",
    "preempt_prio": "no job is preempted",
    "preempt_queue_prio": "no job is preempted",
    "preempt_sort": "no job is preempted",
    "sched_preempt_enforce_resumption": "no job is preempted",
    "preempt_targets_enable": "no job is preempted",
    "dedicated_prefix": "add reservations for dedicated time to cluster.yaml",
    "node_sort_key": "jobs have exclusive nodes, the lowest numbers first",
    "smp_cluster_dist": "nodes are tried in the order of their numbers; @best-fit and @spread differ",
    "sort_nodes": "nodes are tried in the order of their numbers; @best-fit and @spread differ",
    "provision_policy": "nodes are not provisioned",
    "load_balancing": "the load of nodes is unknown",
    "strict_fifo": "a job that does not fit blocks all queues (strict_ordering) or none",
    "peer_queue": "one cluster is simulated; `hpctwin facility` simulates several",
    "server_dyn_res": "amounts that a program reports are unknown",
    "mom_resources": "amounts that a program reports are unknown",
    "eligible_time_enable": "a job's eligible time starts when it waits only for nodes",
    "job_requeue_timeout": "the policy requeues no jobs",
    "node_fail_requeue": "add failures to cluster.yaml",
    "job_sort_formula_threshold": "no formula is imported",
    "sched_cycle_length": "a cycle takes no time and always visits all jobs",
    "opt_backfill_fuzzy": "a reservation starts at the exact time at which the job fits",
    "job_run_wait": "a started job runs immediately",
    "throughput_mode": "a started job runs immediately",
    "partition": "one scheduler uses all nodes",
}
_WHY |= {
    "node_pack": "nodes are tried in the order of their numbers",
    "max_slot_limit": "subjobs of an array run like other jobs",
    "idle_slot_limit": "subjobs of an array run like other jobs",
    "max_job_array_size": "recorded jobs were admitted",
    "required_login_property": "login nodes are not modeled",
    "resources_available": "totals per queue or server are not modeled",
}
_PLAIN = {
    "preemptive_sched": ("false", "0"),
    "backfill_prime": ("false", "0"),
    "prime_exempt_anytime_queues": ("false", "0"),
    "load_balancing": ("false", "0"),
    "strict_fifo": ("false", "0"),
    "job_run_wait": ("runjob_hook", "none"),
    "throughput_mode": ("true",),
    "sched_cycle_length": ("00:20:00", "1200"),
    "max_job_check": ("all_jobs",),
    "smp_cluster_dist": ("pack",),
}
_OF_FAIR_SHARE = (
    "fairshare_usage_res", "fairshare_entity", "fairshare_enforce_no_shares", "unknown_shares",
    "fairshare_decay_time", "fairshare_decay_factor", "half_life",
)  # fmt: skip
_LIMITS = re.compile(
    r"max_run|max_(?:user_)?queuable|max_queued|queued_jobs_threshold|max_user_run|max_group_run|max_user_res|max_group_res|max_group|resources_max|resources_min"
)
_SOFT = re.compile(r"max_(?:run|user_run|group_run|run_res|user_res|group_res)_soft")
_OF_QUEUE = re.compile(
    r"queue_type|enabled|started|Priority|resources_(?:max|min)\.(?:walltime|nodect)"
)


def meaning_of(
    sched: SchedConfig,
    server: Mapping[str, str],
    queues: Sequence[Partition],
    shares: Sequence[Shares] = (),
    nodes: NodeOrder | None = None,
) -> Meaning:
    """Return the policy that the settings describe.

    Args:
        nodes: Order in which nodes are tried, if jobs share them.
    """
    made = ordering_of(sched, server, queues)
    taken, left = made.taken, made.left
    text = f"{made.text}+{_backfill(sched, server, taken, left)}"
    if nodes is not None:
        text += _placement(sched, nodes, made)
    for name in ("strict_ordering", "by_queue", "round_robin", "fair_share"):
        said = sched.value(name, "false")
        if name in taken and said.lower() not in ("true", "false", "0", "1"):
            taken[name] += f"; PBS reads {said[:20]!r} as true"
    by_use = "fair_share" in taken
    fairshare = fair_share(sched, shares, taken, left) if by_use else {}
    return made._replace(text=text, fairshare=fairshare)


def _backfill(
    sched: SchedConfig, server: Mapping[str, str], taken: dict[str, str], left: dict[str, str]
) -> str:
    """Return the backfill with its settings."""
    given = {}
    strict = sched.is_on("strict_ordering")
    if strict:
        given["strict_ordering"] = "yes"
    taken["strict_ordering"] = (
        "pbs: the first jobs that do not fit have reservations"
        if strict
        else "pbs: jobs that fit start; no job has a reservation"
    )
    depth = server.get("backfill_depth", "1")
    if not sched.is_on("backfill", default=True):
        depth = "0"
        taken["backfill"] = "pbs: backfill_depth=0"
    if not depth.isdecimal():
        left["backfill_depth"] = "not a whole number; the default 1 is used"
    elif strict:
        given["backfill_depth"] = depth
        taken["backfill_depth"] = "pbs: number of jobs with reservations"
    else:
        left["backfill_depth"] = "used only if strict_ordering is on"
    seconds = server.get("scheduler_iteration", "600")
    if parse_duration(seconds):
        given["scheduler_iteration"] = f"{parse_duration(seconds):g}s"
        taken["scheduler_iteration"] = "pbs: interval between cycles without events"
    else:
        left["scheduler_iteration"] = "not a time above 0; the default 600 s is used"
    # Without any sched_config it is as shipped, which has by_queue.
    for name, default in (("by_queue", not sched.lines), ("round_robin", False)):
        on = sched.is_on(name, default=default)
        given[name] = "yes" if on else "no"
        taken[name] = f"pbs: {name}={given[name]}"
    return f"pbs:{','.join(f'{name}={value}' for name, value in given.items())}"


def _placement(sched: SchedConfig, order: NodeOrder, made: Meaning) -> str:
    """Return the placement if jobs share nodes."""
    made.keys.update(order.left)
    if order.placement == "@round-robin":
        made.taken["smp_cluster_dist"] = "@round-robin, the nearest placement"
    elif sched.value("smp_cluster_dist") not in ("", "pack"):
        made.left["smp_cluster_dist"] = "nodes are tried in one order, as for pack"
    if order.taken:
        made.taken["node_sort_key"] = order.taken
    return order.placement


def explained(
    meaning: Meaning,
    sched: SchedConfig,
    server: Mapping[str, str],
    queues: Mapping[str, Mapping[str, Any]],
    where: Mapping[str, str],
    told: Mapping[str, Setting],
) -> list[Setting]:
    """Return the treatment of each setting.

    Args:
        where: File of each attribute; a queue's under ``queue: attribute``.
        told: Known treatments, by the same keys.
    """
    made = [_of_line(line, meaning, sched) for line in sched.lines]
    soft = _of_soft_limits(sched, server)
    made += [
        told.get(name)
        or Setting(
            name,
            value[:80],
            where.get(name, ""),
            *(soft if _SOFT.match(name) else _became(name, value, meaning)),
        )
        for name, value in server.items()
    ]
    for queue, about in queues.items():
        for name, value in about.items():
            key = f"{queue}: {name}"
            if key in told:
                made.append(told[key])
            elif not _OF_QUEUE.match(name):
                text = str(value)
                at = where.get(key, "")
                became = soft if _SOFT.match(name) else _of_queue(name, text)
                made.append(Setting(f"queue {key}", text[:80], at, *became))
            elif name in ("enabled", "started") and str(value).lower() != "true":
                why = "recorded jobs ran from it, so it is imported as open"
                made.append(Setting(f"queue {key}", str(value), "", NOT_MODELED, why))
    return made


def _of_line(line: Line, meaning: Meaning, sched: SchedConfig) -> Setting:
    """Return the treatment of a line of sched_config."""
    value = line.value if line.prime == "all" else f"{line.value} {line.prime}"
    if line.fault:
        asked = line.name in ("help_starving_jobs", "max_starve") and line.value.lower() != "false"
        # PBS has no such parameters any more; pbs_sched of Torque uses them.
        asked = asked or (line.name in ("sort_by", "multi_sort") and line.value != "no_sort")
        became, why = NOT_MODELED if asked else NO_EFFECT, line.fault
    elif sched.is_other(line):
        became, why = NOT_MODELED, "the policy of prime time is used all day"
    elif line.prime == "none":
        became, why = NO_EFFECT, "it never applies"
    elif line.prime != "non_prime" and not sched.is_held(line):
        became, why = NO_EFFECT, "a later line overrides it"
    elif line in meaning.keys:
        became, why = NOT_MODELED, meaning.keys[line]
    else:
        became, why = _became(line.name, line.value, meaning)
    return Setting(line.name[:80], value[:80], line.where, became, why)


def _of_queue(name: str, value: str) -> tuple[str, str]:
    """Return the treatment of a queue's attribute, and why."""
    if name == "backfill_depth" and value.isdecimal():
        return IMPORTED, "the partition's backfill_depth"
    if name == "backfill_depth":
        return NOT_MODELED, "not a whole number; the server's value is used"
    if _LIMITS.match(name):
        return NOT_MODELED, _why_no_limit(name)
    why = _WHY.get(name.partition(".")[0])
    if (
        name == "features_required"
        or name.endswith(".neednodes")
        or name.startswith("default_chunk.")
    ):
        return IMPORTED, "partition of the nodes that have it, or a default request of jobs"
    return (NOT_MODELED, why) if why else (NO_EFFECT, "")


def _of_soft_limits(sched: SchedConfig, server: Mapping[str, str]) -> tuple[str, str]:
    """Return the treatment of soft limits, and why.

    PBS's scheduler treats a job above a soft limit like any other, unless ``preempt_prio`` names
    soft limits (see ``set_preempt_prio`` of its sources).
    """
    if not sched.is_on("preemptive_sched", default=not sched.lines):
        return NO_EFFECT, "soft limits are used only if preemptive_sched is on"
    order = (
        server.get("preempt_prio") or sched.value("preempt_prio") or "express_queue, normal_jobs"
    )
    if "softlimits" not in order:
        return NO_EFFECT, "preempt_prio does not list softlimits, so soft limits change nothing"
    return (
        NOT_MODELED,
        "PBS orders jobs above a soft limit later and preempts them first; the simulation does neither",
    )


def _why_no_limit(name: str) -> str:
    """Return why a limit has no counterpart."""
    if name.startswith(("max_queued_res", "queued_jobs_threshold")):
        return "limits on queued jobs are modeled only as a number of pending and running jobs (max_queued)"
    return "the limit has no counterpart"


def _became(name: str, value: str, meaning: Meaning) -> tuple[str, str]:
    """Return the treatment of a setting, and why."""
    if name in meaning.left:
        return NOT_MODELED, meaning.left[name]
    if name in meaning.taken:
        return IMPORTED, meaning.taken[name]
    if name in _OF_FAIR_SHARE and "fair_share" not in meaning.taken:
        return NO_EFFECT, "jobs are not ordered by fair share"
    if name == "default_queue":
        return IMPORTED, "the default partition"
    if name == "fair_share":
        return NO_EFFECT, ""
    if name.startswith("resources_available"):
        return NOT_MODELED, _WHY["resources_available"]
    if name == "job_exclusive_on_use" and value.lower() == "true":
        return IMPORTED, "jobs have exclusive nodes"
    if name in _WHY and value.strip('"').lower() not in _PLAIN.get(name, ()):
        return NOT_MODELED, _WHY[name]
    if _LIMITS.match(name):
        return NOT_MODELED, _why_no_limit(name)
    if re.match(r"\w+ (?:job_sort|preempt|sched_|backfill|only_|do_not|opt_)", name):
        return NOT_MODELED, "setting of a scheduler other than the default one"
    return NO_EFFECT, ""
