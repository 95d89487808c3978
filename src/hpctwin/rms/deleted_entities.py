"""Partitions, accounts and QOS that accounting names and that were deleted since."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

import polars as pl

from hpctwin.formats.job_table import JobTable
from hpctwin.model import Cluster
from hpctwin.model.text import count_text
from hpctwin.rms.derived_nodes import names_in
from hpctwin.rms.site import IMPORTED, Setting, Site

RESERVED, UNNAMED = "reservations", "unnamed"
"""Partitions of jobs from queues of PBS's reservations, and of unassigned jobs.

Unassigned jobs name no partition, and no partition is the default.
"""

_OF_RESERVATION = r"[RSM]\d+"
_SHOWN = 10


def take_gone(site: Site, jobs: JobTable) -> JobTable:
    """Add partitions that exist only in accounting to a cluster, and note them.

    So all jobs can be simulated. Such a partition has no limits and the lowest priority there is.
    It has the groups on whose nodes its jobs ran, or all groups if these nodes are not recorded or
    no longer exist.

    Args:
        site: Site that gets the partitions, and notes on them, on accounts and on QOS.

    Returns:
        The jobs; those in queues of PBS's reservations are in one partition.
    """
    if site.cluster.partitions and len(jobs):
        jobs = _take_partitions(site, jobs)
    _tell(site, jobs, "account", [one.name for one in site.cluster.accounts],
          "each gets one share below the root and no limits")  # fmt: skip
    _tell(site, jobs, "qos", site.cluster.qos, "each gets priority 0 and no limits")
    return jobs


def _take_partitions(site: Site, jobs: JobTable) -> JobTable:
    known = {one.name for one in site.cluster.partitions}
    word = "queue" if site.manager == "pbs" else "partition"
    counts: dict[str | None, int] = {None: len(jobs)}
    if "partition" in jobs.columns:
        counts = _counts(jobs, "partition")
    default = next((one.name for one in site.cluster.partitions if one.default), None)
    new: dict[str, str] = {}
    unnamed = default or UNNAMED
    if None in counts:
        of = (
            f"the default {word}"
            if default
            else f"a {word} without limits, as the settings have no default {word}"
        )
        site.notes.append(
            f"{_jobs(counts[None], 'name', 'names')} no {word}: assigned to {unnamed}, {of}"
        )
    reserved = [
        name for name in counts if name and name not in known and _is_reservation(site, name)
    ]
    if reserved:
        new = dict.fromkeys(reserved, RESERVED)
        ran = _jobs(sum(counts[name] for name in reserved), "ran", "ran")
        site.notes.append(
            f"{ran} in queues of reservations: assigned to queue {RESERVED}, as past reservations are not "
            "modeled"
        )
    if new or None in counts:
        named = pl.lit(unnamed)
        if "partition" in jobs.columns:
            named = pl.col("partition").cast(pl.String).replace(new).fill_null(unnamed)
        jobs = jobs.with_columns(named.alias("partition"))
    gone: dict[str, int] = {}
    for name, count in counts.items():
        called = unnamed if name is None else new.get(name, name)
        if called not in known:
            gone[called] = gone.get(called, 0) + count
    if gone:
        _add_partitions(site, jobs, gone, word)
    others = {name: count for name, count in gone.items() if name not in (RESERVED, UNNAMED)}
    if others:
        site.notes.append(
            f"{_jobs(sum(others.values()), 'belong', 'belongs')} to {len(others)} {word}{_s(others)} "
            f"missing from the settings (deleted, for example): {_listed(others)}; cluster.yaml has each as "
            f"a {word} without limits, with the node groups on which its jobs ran"
        )
    return jobs


def _is_reservation(site: Site, name: str) -> bool:
    return site.manager == "pbs" and re.fullmatch(_OF_RESERVATION, name) is not None


def _add_partitions(site: Site, jobs: JobTable, gone: Mapping[str, int], word: str) -> None:
    """Add partitions to the cluster and to the imported settings."""
    least = min(one.priority for one in site.cluster.partitions)
    made = []
    for name, count in gone.items():
        groups = _groups(site, jobs, name)
        partition = {"name": name, "groups": groups, "priority": least}
        made.append(partition | ({"default": True} if name == UNNAMED else {}))
        why = f"without limits, on {', '.join(groups)}: this {word} is missing from the settings"
        site.settings.append(
            Setting(f"{word} {name}", count_text(count, "job"), "accounting", IMPORTED, why)
        )
    fields = site.cluster.model_dump(exclude_defaults=True)
    fields["partitions"] = [*fields["partitions"], *made]
    site.cluster = Cluster.checked(fields, site.manager)


def _groups(site: Site, jobs: JobTable, partition: str) -> list[str]:
    """Return groups on whose nodes a partition's jobs ran; all if a node is unknown."""
    every = [group.name for group in site.cluster.nodes]
    if "recorded_nodes" not in jobs.columns or len(every) == 1:
        return every
    group_of = {node: group for group, nodes in site.members.items() for node in nodes}
    found: set[str] = set()
    nodes = jobs.scan().filter(pl.col("partition").cast(pl.String) == partition)
    texts = nodes.select(pl.col("recorded_nodes").unique()).collect(engine="streaming")
    for text in texts["recorded_nodes"]:
        groups = {group_of.get(node) for node in names_in(site.manager, text)} or {None}
        if None in groups:
            return every
        found |= {str(group) for group in groups}
        if len(found) == len(every):
            break
    return [name for name in every if name in found]


def _tell(site: Site, jobs: JobTable, kind: str, known: Collection[str], what_of_them: str) -> None:
    """Note which accounts or QOS the settings lack, if they have any."""
    if not known or kind not in jobs.columns:
        return
    counts = _counts(jobs, kind)
    gone = {name: count for name, count in counts.items() if name is not None and name not in known}
    if gone:
        word = "QOS" if kind == "qos" else f"account{_s(gone)}"
        site.notes.append(
            f"{_jobs(sum(gone.values()), 'belong', 'belongs')} to {len(gone)} {word} missing from "
            f"the settings: {_listed(gone)}; {what_of_them}"
        )


def _counts(jobs: JobTable, kind: str) -> dict[str | None, int]:
    """Return the number of jobs of each label, the most frequent first."""
    counted = jobs.scan().group_by(pl.col(kind).cast(pl.String)).len().collect(engine="streaming")
    return dict(counted.sort("len", kind, descending=[True, False]).iter_rows())


def _listed(counts: Mapping[str, int]) -> str:
    first = [f"{name} ({count:,})" for name, count in list(counts.items())[:_SHOWN]]
    more = len(counts) - len(first)
    return ", ".join(first) + (f" and {more} more" if more else "")


def _jobs(count: int, several: str = "are", one: str = "is") -> str:
    return f"1 job {one}" if count == 1 else f"{count:,} jobs {several}"


def _s(several: Iterable[str]) -> str:
    return "" if len(list(several)) == 1 else "s"
