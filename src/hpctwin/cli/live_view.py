"""The twin in the terminal: queue, nodes, policy, last explanation."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from hpctwin.model import format_duration
from hpctwin.twin.explain import why_policy
from hpctwin.twin.words import clock_text

if TYPE_CHECKING:
    from hpctwin.twin.choice import Decision
    from hpctwin.twin.runner import Twin

__all__ = ["live_view"]

COLOURS = (
    "cyan",
    "green",
    "yellow",
    "magenta",
    "blue",
    "bright_red",
    "bright_cyan",
    "bright_green",
)
QUEUE_ROWS, NODES_SHOWN, REFRESH_S = 8, 512, 0.2


@contextmanager
def live_view(twin: Twin, console: Console | None = None) -> Iterator[None]:
    """Show a twin while it runs, refreshed at each decision, five times a second at most."""
    console = console or Console()
    started: Counter[str] = Counter()
    shown = 0.0
    with Live(console=console, auto_refresh=False, transient=True) as live:

        def watch(decision: Decision | None) -> None:
            nonlocal shown
            if decision is not None:
                started[decision.policy] += len(decision.starts)
            if time.monotonic() - shown >= REFRESH_S:
                shown = time.monotonic()
                live.update(render(twin, started), refresh=True)

        before, twin.watch = twin.watch, watch
        try:
            yield
        finally:
            twin.watch = before


def render(twin: Twin, started: Counter[str]) -> RenderableType:
    """The picture of a twin at this moment.

    Args:
        twin: the twin.
        started: jobs started under each policy so far.
    """
    status = twin.status()
    return Group(
        _head(status),
        Columns([_nodes(twin), _policies(status, started)], padding=(0, 2)),
        _queue(twin, status["time_s"]),
        Panel(Text("\n".join(_explanation(twin))), title="last decision", title_align="left"),
    )


def _head(status: dict[str, Any]) -> Text:
    mode = Text(f" {status['mode']} ", style="reverse green" if status["in_charge"] else "reverse")
    head = Text.assemble(
        (f"{status['cluster'] or '…'} ", "bold"), mode, f"  {clock_text(status['time_s'])}   "
        f"{status['running']} running, {status['waiting']} waiting, "
        f"{status['free_nodes']}/{status['nodes']} nodes free   policy ",
        (status["policy"], "bold"), f"   {status['cycle_ms']:.1f} ms a cycle",
    )  # fmt: skip
    for key in ("fault", "stopped", "waits_for_snapshot"):
        if status[key]:
            head.append(f"\n{status[key]}", style="red")
    return head


def _nodes(twin: Twin) -> Panel:
    """One mark per node, coloured by its job."""
    mirror = twin.core.mirror
    holder = {name: job.spec.id for job in mirror.jobs.values() for name in job.node_names}
    text = Text()
    for number, node in enumerate(list(mirror.nodes.values())[:NODES_SHOWN]):
        if number and number % 32 == 0:
            text.append("\n")
        job_id = holder.get(node.name)
        if node.state != "up":
            text.append("x", style="red")
        elif job_id is None:
            text.append("·", style="dim")
        else:
            text.append("■", style=COLOURS[hash(job_id) % len(COLOURS)])
    more = len(mirror.nodes) - NODES_SHOWN
    return Panel(text, title="nodes" + (f" (+{more})" if more > 0 else ""), title_align="left")


def _policies(status: dict[str, Any], started: Counter[str]) -> Panel:
    total = max(1, sum(started.values()))
    lines = [
        f"{policy}  {count} jobs, {count / total:.0%}" for policy, count in started.most_common()
    ]
    return Panel("\n".join(lines) or "none yet", title="started under", title_align="left")


def _queue(twin: Twin, now_s: float) -> Table:
    table = Table(title="queue, by forecast start", title_justify="left", expand=True)
    for column in ("job", "nodes", "walltime", "waits", "starts in", "probably within"):
        table.add_column(column, justify="right")
    decision = twin.decision
    said = [] if decision is None else [f for f in decision.forecasts if f.start_s is not None]
    jobs = twin.core.mirror.jobs
    said = [f for f in said if f.job_id in jobs and jobs[f.job_id].start_s is None]
    for one in sorted(said, key=lambda f: f.start_s or 0.0)[:QUEUE_ROWS]:
        spec = jobs[one.job_id].spec
        table.add_row(
            one.job_id,
            str(spec.nodes),
            _span(spec.walltime_s),
            _span(now_s - spec.submit_s),
            _span((one.start_s or 0.0) - now_s),
            f"{_span((one.low_s or 0.0) - now_s)} … {_span((one.high_s or 0.0) - now_s)}",
        )
    for _ in range(QUEUE_ROWS - len(said)):
        table.add_row(*[""] * 6)
    return table


def _explanation(twin: Twin) -> list[str]:
    decision = twin.decision
    if decision is None:
        return ["no decision yet"]
    about = {
        "id": twin.decision_id,
        **{name: getattr(decision, name) for name in decision.__dataclass_fields__},
    }
    return why_policy(about, twin.core.objective)


def _span(seconds: float) -> str:
    return format_duration(round(max(0.0, seconds)))
