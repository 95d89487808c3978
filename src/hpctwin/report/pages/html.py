"""The report as one self-contained HTML file, and the page about a site's import."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from hpctwin.metrics import METRICS, Summary
from hpctwin.model import Cluster, NodeGroup, Workload, write_atomically
from hpctwin.model.text import count_text, format_duration
from hpctwin.report.columns import (
    best_labels,
    format_metric,
    metric_name,
    shown_columns,
    tau_note,
    tau_of,
)
from hpctwin.report.figures.workload import plot_workload
from hpctwin.report.pages.all_figures import Drawn, report_figures
from hpctwin.report.pages.run import VERSIONS, ReportedRun

__all__ = [
    "captioned",
    "comparison_table",
    "image_tag",
    "rows_table",
    "section",
    "write_page",
    "write_report",
    "write_reported",
    "write_site_report",
]

_PNG_DPI = 120
_LARGEST_SVG = 300_000
"""Size in bytes of the largest SVG; a larger figure is smaller as PNG."""


def image_tag(figure: Figure, text: str) -> str:
    """Return an ``<img>`` with the figure: SVG, sharp in print; PNG if that is large.

    Args:
        figure: The figure.
        text: Description of the figure for screen readers.
    """
    # With a fixed salt and no date, the same figure gives the same bytes.
    with rc_context({"svg.hashsalt": "hpctwin", "svg.fonttype": "path"}):
        kind, content = "svg+xml", _saved(figure, "svg", metadata={"Date": None})
    if len(content) > _LARGEST_SVG:
        kind, content = "png", _saved(figure, "png", dpi=_PNG_DPI)
    data = base64.b64encode(content).decode("ascii")
    width, height = (round(inches * _PNG_DPI) for inches in figure.get_size_inches())
    return (
        f'<img alt="{escape(text)}" width="{width}" height="{height}" '
        f'src="data:image/{kind};base64,{data}">'
    )


def _saved(figure: Figure, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, **options)
    return buffer.getvalue()


_CSS = """
:root { color-scheme: light dark; --ink: #1d2329; --paper: #ffffff; --line: #d9dee3;
  --soft: #f4f6f8; --faded: #5b6670; --best: #00734f; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e3e8ec; --paper: #14181c; --line: #343c44; --soft: #1d2329;
    --faded: #9aa6b1; --best: #3ecf9b; }
  img { filter: invert(0.92) hue-rotate(180deg); }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 64rem; padding: 1.5rem 1rem 4rem; background: var(--paper);
  color: var(--ink); font: 16px/1.55 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .6rem; }
p { max-width: 44rem; }
.about, figcaption, .note { color: var(--faded); font-size: .9rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .6rem; text-align: right; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
thead th { border-bottom: 2px solid var(--line); font-weight: 600; white-space: normal; }
tbody th { font-weight: 600; }
tbody tr:hover { background: var(--soft); }
.text { text-align: left; white-space: normal; }
.best { color: var(--best); font-weight: 700; }
figure { margin: 0 0 1.6rem; overflow-x: auto; }
img { display: block; max-width: 100%; height: auto; background: #ffffff; }
@media screen and (max-width: 40rem) {
  body { padding: 1rem .8rem 3rem; }
  h1 { font-size: 1.4rem; }
  th, td { padding: .35rem .5rem; }
  table th:first-child { position: sticky; left: 0; background: var(--paper); min-width: 8rem;
    max-width: 12rem; white-space: normal; overflow-wrap: break-word; }
  figure:focus img { max-width: none; width: 44rem; }
  figcaption::after { content: " · tap the chart to enlarge it"; }
}
details { margin: .5rem 0; border: 1px solid var(--line); border-radius: .4rem;
  padding: .5rem .8rem; }
summary { cursor: pointer; font-weight: 600; }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; }
@page { margin: 1.5cm; }
@media print {
  :root { --ink: #000000; --paper: #ffffff; --line: #999999; --soft: #ffffff; --faded: #333333; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  img { filter: none; max-height: 22cm; width: auto; }
  figure, tr { break-inside: avoid; }
  figure, .scroll { overflow: visible; }
  figcaption { break-before: avoid; }
  h1, h2, h3, summary { break-after: avoid; }
  thead { display: table-header-group; }
  p { orphans: 3; widows: 3; max-width: none; }
  table { font-size: 8pt; }
  th, td { padding: .2rem .35rem; }
  th, td.text { white-space: normal; }
  td.text { overflow-wrap: anywhere; }
  details::details-content { content-visibility: visible; height: auto; columns: 2; }
}
"""


def write_report(
    path: str | Path,
    *,
    title: str,
    entries: Sequence[ReportedRun],
    intro: str = "",
    workload_name: str = "",
    workload: Workload | None = None,
    nodes: int | None = None,
    start_epoch_s: float | None = None,
) -> Path:
    """Write a report that compares runs, or describes one.

    The file contains its style and figures, runs no script and fetches nothing. It is written next
    to its path and then moved there, so that there is never half a report.

    Args:
        path: File to write; replaced if it exists.
        title: Heading.
        entries: The runs in display order, one or more; labels are distinct.
        intro: Plain text under the heading; an empty line begins a new paragraph.
        workload_name: Name of the simulated workload.
        workload: Workload whose distributions are also shown.
        nodes: Number of nodes of the cluster.
        start_epoch_s: Unix time of time zero, to show dates.

    Returns:
        The file's path.

    Raises:
        OutputError: The file cannot be written.
    """
    drawn = report_figures(entries, workload=workload, start_epoch_s=start_epoch_s)
    return write_page(path, title, _sections(title, entries, drawn, intro, workload_name, nodes))


def write_reported(
    path: str | Path,
    *,
    title: str,
    entries: Sequence[ReportedRun],
    drawn: Sequence[Drawn],
    tables: Mapping[str, Sequence[str]] | None = None,
) -> Path:
    """Write a report of figures that are already drawn.

    Args:
        path: File to write; replaced if it exists.
        title: Heading.
        entries: The runs, if any; labels are distinct.
        drawn: Their `report_figures`, and others.
        tables: Additional HTML of a section, by its heading.

    Raises:
        OutputError: The file cannot be written.
    """
    sizes = {entry.cluster.node_count for entry in entries if entry.cluster is not None}
    nodes = sizes.pop() if len(sizes) == 1 else None
    names = dict.fromkeys(str(entry.manifest.get("workload", "")) for entry in entries)
    sections = _sections(title, entries, drawn, "", ", ".join(names), nodes, tables)
    return write_page(path, title, sections)


def _sections(
    title: str,
    entries: Sequence[ReportedRun],
    drawn: Sequence[Drawn],
    intro: str,
    workload_name: str,
    nodes: int | None,
    tables: Mapping[str, Sequence[str]] | None = None,
) -> list[str]:
    summaries = {entry.label: entry.summary for entry in entries}
    figures: dict[str, list[str]] = {"Results": [comparison_table(summaries)]} if entries else {}
    for one in drawn:
        figures.setdefault(one.section, []).append(captioned(one.figure, one.caption))
    for heading, content in (tables or {}).items():
        figures.setdefault(heading, []).extend(content)
    if not entries:
        return [f"<h1>{escape(title)}</h1>", *(section(*one) for one in figures.items())]
    sections = [
        _heading(title, intro, workload_name, nodes, entries),
        *(section(heading, content) for heading, content in figures.items()),
        section("All metrics", [_details(e.label, e.summary) for e in entries]),
        section("Meaning of the metrics", [_definitions(summaries)]),
    ]
    made = [_made(entry) for entry in entries if entry.manifest]
    return [*sections, section("How it was made", made)] if made else sections


def _definitions(summaries: Mapping[str, Summary]) -> str:
    known = {key for summary in summaries.values() for key in summary}
    rows = [
        (metric_name(key), one.help) for key, one in METRICS.items() if key in known and one.help
    ]
    return rows_table(("metric", "definition"), rows)


def _made(entry: ReportedRun) -> str:
    about = entry.manifest
    versions = ", ".join(f"{name} {about[name]}" for name in VERSIONS if name in about)
    rows = [("command", about.get("command", "")), ("versions", versions)]
    rows += [(f"SHA-256 of {name}", text) for name, text in about.get("inputs", {}).items()]
    return f"<h3>{escape(entry.label)}</h3>\n{rows_table(('', ''), rows)}"


def write_page(path: str | Path, title: str, sections: Sequence[str]) -> Path:
    """Write a page of sections of HTML, with the style of all reports.

    Raises:
        OutputError: The file cannot be written.
    """
    page = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_CSS}</style>\n</head>\n<body>\n"
        + "\n".join(sections)
        + "\n</body>\n</html>\n"
    )
    with write_atomically(path) as file:
        file.write(page.encode())
    return Path(path)


def rows_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return an HTML table of texts and numbers; long texts are wrapped."""
    top = "".join(f'<th scope="col" class="text">{escape(name)}</th>' for name in head)
    body = "".join(
        "<tr>" + "".join(f'<td class="text">{escape(_cell(one))}</td>' for one in row) + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _heading(
    title: str, intro: str, workload_name: str, nodes: int | None, entries: Sequence[ReportedRun]
) -> str:
    jobs = max((len(entry.jobs) for entry in entries), default=0)
    machine = count_text(nodes, "node") if nodes is not None else ""
    about = " · ".join(part for part in (workload_name, count_text(jobs, "job"), machine) if part)
    paragraphs = [text.strip() for text in re.split(r"\n\s*\n", intro) if text.strip()]
    return "\n".join(
        [
            f"<h1>{escape(title)}</h1>",
            f'<p class="about">{escape(about)}</p>',
            *(f"<p>{escape(text)}</p>" for text in paragraphs),
        ]
    )


def section(heading: str, *parts: Sequence[str]) -> str:
    """Return an HTML section with a heading."""
    content = "\n".join(text for part in parts for text in part)
    return f"<section>\n<h2>{escape(heading)}</h2>\n{content}\n</section>"


def comparison_table(summaries: Mapping[str, Summary]) -> str:
    """Return an HTML table with a policy per row; the best value of each column is marked."""
    columns = shown_columns(summaries.values())
    best = {column.key: best_labels(column, summaries) for column in columns}
    head = "".join(f'<th scope="col">{escape(column.header)}</th>' for column in columns)
    rows = []
    for label, summary in summaries.items():
        cells = []
        for column in columns:
            text = escape(format_metric(column.key, summary.get(column.key)))
            marked = label in best[column.key]
            cells.append(f'<td class="best">★ {text}</td>' if marked else f"<td>{text}</td>")
        rows.append(f'<tr><th scope="row">{escape(label)}</th>{"".join(cells)}</tr>')
    table = (
        f'<div class="scroll"><table><thead><tr><th scope="col">policy</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )
    notes = ["★ best of its column"] if any(best.values()) else []
    notes += tau_note([one.key for one in columns], tau_of(summaries.values()))
    return "\n".join([table, *(f'<p class="note">{escape(note)}</p>' for note in notes)])


def _details(label: str, summary: Summary) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(metric_name(key))}</th>'
        f"<td>{escape(format_metric(key, value))}</td></tr>"
        for key, value in summary.items()
    )
    return (
        f"<details><summary>{escape(label)}</summary>"
        f'<div class="scroll"><table><tbody>{rows}</tbody></table></div></details>'
    )


def captioned(drawn: Figure, caption: str) -> str:
    """Return a figure with its caption, as HTML."""
    # With a tab index, a figure has the focus after a tap, and its style enlarges it on phones.
    image, words = image_tag(drawn, caption), escape(caption)
    return f'<figure tabindex="0">{image}<figcaption>{words}</figcaption></figure>'


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
    title = f"{cluster.name}, from its own files"
    parts = len(cluster.partitions)
    about = " · ".join(
        (
            count_text(sum(group.count for group in nodes), "node") if nodes else "nodes not known",
            count_text(parts, "partition"),
            count_text(jobs, "job") if jobs else "no jobs",
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
