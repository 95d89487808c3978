"""``hpctwin twin top``: terminal view of queue, nodes, policy and last explanation."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from hpctwin.cli.options import ConfigPath
from hpctwin.model import format_duration
from hpctwin.twin.words import clock_text

if TYPE_CHECKING:
    from hpctwin.twin.core.decision import Decision
    from hpctwin.twin.core.mirror import Mirror
    from hpctwin.twin.forecast.records import Forecast
    from hpctwin.twin.service.runner import Twin
    from hpctwin.web.views.source import Source

__all__ = ["Seen", "live_view", "render", "top_command"]

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
    """Show a running twin, refreshed at each decision, at most five times a second."""
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
                live.update(render(_seen(twin, started)), refresh=True)

        before, twin.watch = twin.watch, watch
        try:
            yield
        finally:
            twin.watch = before


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


def render(seen: Seen) -> RenderableType:
    """Return the view of a twin at one time."""
    return Group(
        _head(seen),
        Columns([_nodes(seen.mirror), _policies(*seen.counted)], padding=(0, 2)),
        _queue(seen, seen.status["time_s"]),
        Panel(Text("\n".join(seen.lines)), title="last decision", title_align="left"),
    )


def _seen(twin: Twin, started: Counter[str]) -> Seen:
    status, decision = twin.status(), twin.decision
    return Seen(
        status=status,
        mirror=twin.core.mirror,
        forecasts=() if decision is None else decision.forecasts,
        counted=(started, "jobs"),
        lines=_explanation(twin),
        trouble=[
            status[key]
            for key in ("fault", "inactive", "stopped", "waits_for_snapshot")
            if status[key]
        ],
    )


def _head(seen: Seen) -> Text:
    status = seen.status
    mode = Text(f" {status['mode']} ", style="reverse green" if status["is_active"] else "reverse")
    at = clock_text(status["time_s"], unix_time=seen.mirror.unix_time)
    head = Text.assemble(
        (f"{status['cluster'] or '…'} ", "bold"), mode, f"  {at}   "
        f"{status['running']} running, {status['waiting']} pending, "
        f"{status['free_nodes']}/{status['nodes']} nodes free   policy ",
        (status["policy"], "bold"), f"   {1000 * status['cycle_s']:.1f} ms per decision",
    )  # fmt: skip
    for text in seen.trouble:
        head.append(f"\n{text}", style="red")
    return head


def _nodes(mirror: Mirror) -> Panel:
    """Return one mark per node, colored by its job."""
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


def _policies(counted: Counter[str], what: str) -> Panel:
    total = max(1, sum(counted.values()))
    lines = [
        f"{policy}  {count} {what}, {count / total:.0%}" for policy, count in counted.most_common()
    ]
    return Panel("\n".join(lines) or "none yet", title=f"{what} by policy", title_align="left")


def _queue(seen: Seen, now_s: float) -> Table:
    table = Table(title="queue by predicted start", title_justify="left", expand=True)
    for column in ("job", "nodes", "walltime", "wait", "starts in", "probably within"):
        table.add_column(column, justify="right")
    jobs = seen.mirror.jobs
    said = [f for f in seen.forecasts if f.start_s is not None]
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
    from hpctwin.twin.service.explain import why_policy

    decision = twin.decision
    if decision is None:
        return ["no decision yet"]
    about = {
        "id": twin.decision_id,
        **{name: getattr(decision, name) for name in decision.__dataclass_fields__},
    }
    return why_policy(
        about,
        twin.core.objective,
        unanswered=decision.unanswered,
        unix_time=twin.core.mirror.unix_time,
    )


def _span(seconds: float) -> str:
    return format_duration(round(max(0.0, seconds)))


_EVERY_S = 0.5


def top_command(
    *,
    config: ConfigPath = Path("hpctwin.yaml"),
    journal: Path | None = None,
    once: bool = False,
) -> int:
    """Watch a twin in the terminal: nodes, queue, policies, last decision. Until Ctrl-C.

    The view reads the twin's journal, as the web page does; the twin never waits for it.

    Args:
        config: The twin's YAML file.
        journal: A journal to use instead of the one in the YAML file.
        once: Show the view once and exit; always so if the output is not a terminal.
    """
    import time
    from contextlib import closing

    from rich.console import Console
    from rich.live import Live

    from hpctwin.twin.settings.config import TwinConfig
    from hpctwin.web.views.source import Source

    source = Source(journal or TwinConfig.from_yaml(config).journal.path)
    console = Console()
    if once or not console.file.isatty():
        console.print(render(seen(source)))
        return 0
    with (
        closing(source.journal()) as reader,
        Live(render(seen(source)), console=console, screen=True, auto_refresh=False) as live,
    ):
        while True:
            time.sleep(_EVERY_S)
            if source.turn(reader):
                live.update(render(seen(source)), refresh=True)


def seen(source: Source) -> Seen:
    """Return a twin's state from its journal."""
    from collections import Counter

    head = source.head()
    lines = (
        ["no decision yet"] if head.decision is None else source.explain_decision(head.decision).why
    )
    with source.looking() as stands:
        return Seen(
            status={
                "cluster": head.cluster, "mode": head.mode, "is_active": head.is_active,
                "time_s": head.time_s, "running": head.running, "waiting": head.waiting,
                "free_nodes": head.free_nodes, "nodes": head.nodes, "policy": head.policy,
                "cycle_s": head.cycle_s or 0.0,
            },
            mirror=stands.core.mirror,
            forecasts=list(stands.forecasts.values()),
            counted=(Counter(source.decisions_by_policy()), "decisions"),
            lines=lines,
            trouble=head.trouble,
        )  # fmt: skip
