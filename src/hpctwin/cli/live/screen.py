"""The terminal view of a twin, fitted to the size of a terminal."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from hpctwin.model import format_duration
from hpctwin.model.text import compact
from hpctwin.twin.words import clock_text

if TYPE_CHECKING:
    from hpctwin.rms.records.records import JobRecord, JobSpec
    from hpctwin.twin.core.mirror import Mirror
    from hpctwin.twin.forecast.forecaster import Forecast

__all__ = ["HELP", "Seen", "View", "render"]

COLORS = ("cyan", "green", "yellow", "magenta", "blue", "bright_red", "bright_cyan", "bright_green")
MIN_ROWS = 6
"""Jobs that are shown before the nodes get any line."""
TIGHT = 8
"""Lines besides head and decision below which titles are omitted and sentences are joined."""
MARK_LINES = 3
"""Lines of nodes with a mark for each node; more nodes are shown by rack."""
RACK_LINES = 6
"""Lines of nodes with a line for each rack; more racks get a mark each."""
SHADES = "·░▒▓█"
SORTS = ("start", "wait", "size", "user", "partition")

HELP = """\
q            quit
↑ ↓          scroll by one job
PgUp PgDn    scroll by one page
Home End     first and last job
Tab          pending or running jobs
s, r         sort by the next column; reverse the order
/ or f       filter by user, account, partition or job
Esc          clear the filter
? or Esc     leave this help"""


@dataclass(frozen=True)
class Seen:
    """State of a twin at one time.

    Args:
        status: Status as of `Twin.status`.
        mirror: The cluster.
        forecasts: Forecast starts of pending jobs.
        counted: Numbers of jobs or decisions by policy so far, and the counted item's name.
        lines: Explanation of the last decision.
        trouble: Current problems.
    """

    status: Mapping[str, Any]
    mirror: Mirror
    forecasts: Sequence[Forecast]
    counted: tuple[Counter[str], str]
    lines: Sequence[str]
    trouble: Sequence[str]


@dataclass(frozen=True)
class View:
    """Choices of the user of the terminal.

    Args:
        running: Whether running jobs are listed, instead of pending ones.
        sort: Order of the jobs, one of `SORTS`.
        is_reversed: Whether the order is reversed.
        filter: Text that user, account, partition or id of a listed job contains.
        is_typing: Whether the user writes the filter.
        top: Number of jobs scrolled away.
        is_help: Whether the keys are explained.
        rows: Number of lines for jobs in the last picture, set by `render`.
        jobs: Number of jobs that match the filter, set by `render`.
    """

    running: bool = False
    sort: str = "start"
    is_reversed: bool = False
    filter: str = ""
    is_typing: bool = False
    top: int = 0
    is_help: bool = False
    rows: int = 1
    jobs: int = 0

    def press(self, key: str) -> View:
        """Return the view after a key; unknown keys change nothing."""
        if self.is_typing:
            return self._type(key)
        last = max(0, self.jobs - self.rows)
        steps = {
            "up": -1, "down": 1, "page up": -self.rows, "page down": self.rows, " ": self.rows,
            "k": -1, "j": 1, "home": -self.jobs, "end": self.jobs,
        }  # fmt: skip
        if key in steps:
            return replace(self, top=min(max(0, min(self.top, last) + steps[key]), last))
        changes: dict[str, dict[str, Any]] = {
            "s": {"sort": SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)], "top": 0},
            "r": {"is_reversed": not self.is_reversed, "top": 0},
            "tab": {"running": not self.running, "top": 0},
            "/": {"is_typing": True, "top": 0},
            "f": {"is_typing": True, "top": 0},
            "escape": {"filter": "", "is_help": False, "top": 0},
            "?": {"is_help": not self.is_help},
        }
        return replace(self, **changes.get(key, {}))

    def _type(self, key: str) -> View:
        if key == "enter":
            return replace(self, is_typing=False)
        if key == "escape":
            return replace(self, is_typing=False, filter="")
        if key == "backspace":
            return replace(self, filter=self.filter[:-1])
        return replace(self, filter=self.filter + key) if len(key) == 1 else self


def render(
    seen: Seen, view: View | None = None, width: int = 80, height: int | None = None
) -> tuple[RenderableType, View]:
    """Return the picture of a twin, and the view with the number of jobs that fit.

    The last decision is always shown whole. Jobs get the remaining lines, and nodes some of them.

    Args:
        seen: The state.
        view: What to show; None for all pending jobs, without a line for keys.
        width: Columns of the terminal.
        height: Lines of the terminal; None for as many as needed.
    """
    shown = view or View()
    head = _wrapped([_head(seen, width), *(Text(text, "red") for text in seen.trouble)], width)
    decision = _wrapped([Text(line) for line in seen.lines], width)
    tight = height is not None and len(head) + len(decision) + TIGHT > height
    if tight:
        decision = _wrapped([Text(" ".join(seen.lines))], width)
    if shown.is_help:
        body = [Text(line) for line in HELP.splitlines()]
        return Group(*head, Text(), *body), shown
    jobs = _sorted(seen, shown)
    fixed = len(head) + len(decision) + (2 if tight else 3) + (view is not None)
    left = len(jobs) + 1000 if height is None else max(0, height - fixed)
    nodes = _nodes(seen, width, max(0, left - min(len(jobs), MIN_ROWS)))
    rows = max(0, left - len(nodes))
    shown = replace(shown, rows=max(1, rows), jobs=len(jobs))
    shown = replace(shown, top=min(shown.top, max(0, len(jobs) - shown.rows)))
    listed = jobs[shown.top : shown.top + rows]
    above = [*head, *nodes, *_table(seen, shown, listed, width)[int(tight) :]]
    below = [_rule("last decision", width), *decision]
    if view is not None:
        below.append(_keys(shown, len(listed), width))
    if height is not None:
        above += [Text()] * (rows - len(listed))
        above = above[: max(0, height - len(below))]
    lines = [*above, *below]
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    return Group(*lines), shown


def _wrapped(texts: Sequence[Text], width: int) -> list[Text]:
    """Return lines of at most a width, which end between words."""
    import textwrap

    lines = []
    for text in texts:
        start = 0
        for part in textwrap.wrap(text.plain, max(10, width)) or [""]:
            at = text.plain.find(part, start)
            # A line whose spaces were changed loses its styles.
            lines.append(Text(part) if at < 0 else text[at : at + len(part)])
            start = max(start, at + len(part))
    return lines


def _head(seen: Seen, width: int) -> Text:
    """Return the state of the twin; details are added while there is space in two lines."""
    status = seen.status
    mode = (f" {status['mode']} ", "reverse green" if status["is_active"] else "reverse")
    counted, what = seen.counted
    total = max(1, sum(counted.values()))
    shares = ", ".join(f"{name} {count / total:.0%}" for name, count in counted.most_common(3))
    at = clock_text(status["time_s"], unix_time=seen.mirror.unix_time)
    head = Text.assemble(
        (f"{status['cluster'] or '…'}", "bold"), " ", mode, f" {at}, "
        f"{status['running']} running, {status['waiting']} pending, "
        f"{status['free_nodes']}/{status['nodes']} nodes free",
    )  # fmt: skip
    details = [f"{1000 * status['cycle_s']:.1f} ms per decision", f"{what} by policy: {shares}"]
    for detail in [f"policy {status['policy']}", *(details if shares else details[:1])]:
        if len(head) + 2 + len(detail) <= (2 * width if width >= 80 else width):
            head.append(f", {detail}")
    return head


def _rule(title: str, width: int) -> Text:
    return Text(f"── {title} ".ljust(width, "─")[:width], "dim")


# --- nodes ---------------------------------------------------------------------------------------


def _nodes(seen: Seen, width: int, most: int) -> list[Text]:
    """Return up to ``most`` lines about nodes; the first line names nodes that are not up."""
    mirror = seen.mirror
    away: dict[str, list[str]] = {}
    for node in mirror.nodes.values():
        if node.state != "up":
            away.setdefault(node.state, []).append(node.name)
    says = "; ".join(f"{state}: {compact(names)}" for state, names in away.items())
    title = f"nodes{', ' + says if says else ''}"
    if len(mirror.nodes) <= MARK_LINES * width:
        marks = _marks(mirror)
        lines = [marks[at : at + width] for at in range(0, len(marks), width)]
    else:
        lines = _racks(mirror, width)
    return [_rule(title, width), *lines][: most if most > 1 else 0]


def _marks(mirror: Mirror) -> Text:
    """Return a mark for each node, in the color of its user."""
    user = {name: job.spec.user for job in mirror.jobs.values() for name in job.node_names}
    text = Text()
    for node in mirror.nodes.values():
        if node.state != "up":
            text.append("x", "red")
        elif node.name in user:
            text.append("■", _color(user[node.name]))
        else:
            text.append("·", "dim")
    return text


def _racks(mirror: Mirror, width: int) -> list[Text]:
    """Return the used share of each rack: a line each, or of many racks a mark each."""
    from hpctwin.web.views.cluster_views import places

    used = {name for job in mirror.jobs.values() for name in job.node_names}
    count: Counter[str] = Counter()
    busy: Counter[str] = Counter()
    for place, node in zip(places(mirror.machine), mirror.nodes.values(), strict=True):
        count[place] += 1
        busy[place] += node.name in used
    if len(count) == 1:
        return [_bar(next(iter(count)), busy.total(), count.total(), width)]
    if len(count) <= RACK_LINES:
        return [_bar(place, busy[place], nodes, width) for place, nodes in count.items()]
    marks = "".join(SHADES[-(-4 * busy[place] // nodes)] for place, nodes in count.items())
    first, last = next(iter(count)), next(reversed(count))
    note = f"{len(count)} racks from {first} to {last}, darker with more used nodes"
    return [Text(note), *(Text(marks[at : at + width]) for at in range(0, len(marks), width))]


def _bar(place: str, busy: int, nodes: int, width: int) -> Text:
    says = f" {busy:,} of {nodes:,} used"
    room = max(4, width - len(says) - 13)
    full = round(room * busy / nodes)
    return Text.assemble(f"{place[:12]:12} ", ("█" * full, "cyan"), "░" * (room - full), says)


def _color(name: str) -> str:
    """Return the color of a user, the same in every run."""
    return COLORS[zlib.crc32(name.encode()) % len(COLORS)]


# --- jobs ----------------------------------------------------------------------------------------


def _sorted(seen: Seen, view: View) -> list[JobRecord]:
    """Return the listed jobs in the chosen order."""
    starts = _starts(seen)
    jobs = [job for job in seen.mirror.jobs.values() if (job.start_s is not None) == view.running]
    sought = view.filter.casefold()
    if sought:
        jobs = [job for job in jobs if any(sought in one.casefold() for one in _named(job.spec))]

    def start_s(job: JobRecord) -> float:
        if view.running:
            return (job.start_s or 0.0) + job.spec.walltime_s
        return starts.get(job.spec.id, float("inf"))

    keys: dict[str, Callable[[JobRecord], Any]] = {
        "start": start_s,
        "wait": lambda job: job.spec.submit_s,
        "size": lambda job: (-job.spec.nodes, -job.spec.tasks),
        "user": lambda job: (job.spec.user, start_s(job)),
        "partition": lambda job: (job.spec.partition, start_s(job)),
    }
    return sorted(jobs, key=keys[view.sort], reverse=view.is_reversed)


def _starts(seen: Seen) -> dict[str, float]:
    return {one.job_id: one.start_s for one in seen.forecasts if one.start_s is not None}


def _named(spec: JobSpec) -> tuple[str, ...]:
    return spec.user, spec.account, spec.partition, spec.id


Column = tuple[str, str, Callable[["JobRecord"], str], int]
"""Heading, alignment, text of a job, and rank: columns of the highest rank are omitted first."""


def _columns(seen: Seen, view: View) -> list[Column]:
    now_s = seen.status["time_s"]
    forecasts = {one.job_id: one for one in seen.forecasts}
    default = next((one.name for one in seen.mirror.machine.partitions if one.default), "")

    def start(job: JobRecord) -> str:
        one = forecasts.get(job.spec.id)
        return "?" if one is None or one.start_s is None else _span(one.start_s - now_s)

    def within(job: JobRecord) -> str:
        one = forecasts.get(job.spec.id)
        if one is None or one.low_s is None or one.high_s is None:
            return ""
        return f"{_span(one.low_s - now_s)} … {_span(one.high_s - now_s)}"

    def left(job: JobRecord) -> str:
        return _span((job.start_s or 0.0) + job.spec.walltime_s - now_s)

    columns: list[Column] = [
        ("job", ">", lambda job: job.spec.id[-16:], 0),
        ("user", "<", lambda job: job.spec.user[:12], 1),
        ("partition", "<", lambda job: (job.spec.partition or default)[:12], 4),
        ("size", ">", lambda job: _size(job.spec), 0),
        ("limit", ">", lambda job: _span(job.spec.walltime_s), 5),
    ]
    if view.running:
        return [
            *columns,
            ("runs for", ">", lambda job: _span(now_s - (job.start_s or 0.0)), 3),
            ("ends within", ">", left, 0),
            ("nodes", "<", lambda job: compact(job.node_names), 2),
        ]
    return [
        *columns,
        ("wait", ">", lambda job: _span(now_s - job.spec.submit_s), 3),
        ("starts in", ">", start, 0),
        ("probably within", ">", within, 2),
    ]


def _table(seen: Seen, view: View, jobs: Sequence[JobRecord], width: int) -> list[Text]:
    columns = _columns(seen, view)
    columns = [one for one in columns if one[0] != "partition" or any(map(one[2], jobs))]
    cells = {one[0]: [one[2](job) for job in jobs] for one in columns}
    widths = {name: max(len(name), *map(len, texts), 0) for name, texts in cells.items()}
    while sum(widths[one[0]] + 2 for one in columns) - 2 > width and len(columns) > 1:
        worst = max(columns, key=lambda one: one[3])
        if worst[0] == "nodes" and width - sum(widths[o[0]] + 2 for o in columns[:-1]) > 8:
            break  # the host list is cut at the edge
        columns.remove(worst)
    what = "running jobs" if view.running else "pending jobs"
    order = f"{'reversed ' if view.is_reversed else ''}{view.sort}"
    order = order.replace("start", "end" if view.running else "predicted start")
    title = f"{view.jobs} {what} by {order}{', filter: ' + view.filter if view.filter else ''}"
    head = "  ".join(f"{one[0]:{one[1]}{widths[one[0]]}}" for one in columns)
    lines = [_rule(title, width), Text(head.rstrip(), "bold")]
    for row, job in enumerate(jobs):
        line = Text()
        for one in columns:
            text = f"{cells[one[0]][row]:{one[1]}{widths[one[0]]}}"
            line.append(text, _color(job.spec.user) if one[0] == "user" else "")
            line.append("  ")
        line.rstrip()
        lines.append(line)
    return lines


def _size(spec: JobSpec) -> str:
    if not spec.tasks:
        return f"{spec.nodes:,}"
    cores = sum(kind.tasks * kind.cores for kind in spec.kinds)
    return f"{cores:,.0f} cores" if cores else f"{spec.tasks:,} tasks"


def _span(seconds: float) -> str:
    return format_duration(round(max(0.0, seconds)))


def _keys(view: View, listed: int, width: int) -> Text:
    if view.is_typing:
        return Text(f"filter: {view.filter}▏ Enter keeps it, Esc clears it".ljust(width), "reverse")
    rest = f"{view.top + 1}–{view.top + listed} of {view.jobs}" if listed else "none"
    keys = "q quit  ↑↓ scroll  s sort  / filter  Tab running  ? help"
    if view.running:
        keys = keys.replace("running", "pending")
    room = max(0, width - len(rest) - 1)
    return Text(f"{keys[:room]:{room}} {rest}", "reverse")
