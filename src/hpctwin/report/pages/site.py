"""Page about the import of a site's files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from hpctwin.model import Cluster, NodeGroup, Workload
from hpctwin.model.text import format_duration
from hpctwin.report.figures.workload import plot_workload
from hpctwin.report.pages.html import captioned, rows_table, section, write_page

__all__ = ["write_site_report"]

Rows = Sequence[Sequence[object]]


def write_site_report(
    path: str | Path,
    *,
    cluster: Cluster,
    nodes: Sequence[NodeGroup],
    policy: str,
    jobs: int,
    workload: Workload | None,
    tables: Mapping[str, tuple[Sequence[str], Rows]],
    notes: Sequence[str],
) -> Path:
    """Write a page on the cluster, policy and workload imported from a site's files.

    Args:
        path: File to write.
        cluster: The cluster.
        nodes: Its known node groups.
        policy: Text of the policy.
        jobs: Number of imported jobs.
        workload: The last of them, which are drawn; None without jobs.
        tables: Further sections by heading, each the names of columns and rows.
        notes: Notes, a sentence each.

    Raises:
        OutputError: The file cannot be written.
    """
    title = f"{cluster.name}, as its own files tell"
    parts = len(cluster.partitions)
    about = " · ".join(
        (
            f"{sum(group.count for group in nodes):,} nodes" if nodes else "nodes not known",
            f"{parts} partition{'' if parts == 1 else 's'}",
            f"{jobs:,} jobs" if jobs else "no jobs",
            policy,
        )
    )
    groups = [
        (g.name, g.count, *("" if v is None else f"{v:g}" for v in (g.cores, g.memory_gb, g.gpus)))
        for g in nodes
    ]
    partitions = [
        (
            p.name,
            ", ".join(p.groups or ()) if nodes else "",
            format_duration(p.max_walltime) if p.max_walltime else "no limit",
            p.max_nodes or "",
            f"{p.priority:g}",
            "yes" if p.default else "",
        )
        for p in cluster.partitions
    ]
    sections = [
        f'<h1>{escape(title)}</h1>\n<p class="about">{escape(about)}</p>',
        *(f"<p>{escape(note)}</p>" for note in notes),
        section("Nodes", [rows_table(("group", "nodes", "cores", "memory, GB", "GPUs"), groups)]),
    ]
    if partitions:
        head = ("partition", "groups", "longest", "most nodes", "priority", "default")
        sections.append(section("Partitions", [rows_table(head, partitions)]))
    if workload is not None:
        of = "" if len(workload) == jobs else f" of the last {len(workload):,} jobs"
        figure = captioned(plot_workload(workload), f"Distributions{of}")
        sections.append(section("Workload", [figure]))
    sections += [
        section(heading, [rows_table(head, rows)])
        for heading, (head, rows) in tables.items()
        if rows
    ]
    return write_page(path, title, sections)
