"""``hpctwin twin top``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hpctwin.cli.options.options import ConfigPath

if TYPE_CHECKING:
    from hpctwin.cli.output.live_view import Seen
    from hpctwin.web.views.source import Source

__all__ = ["top_command"]

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

    from hpctwin.cli.output.live_view import render
    from hpctwin.twin.settings.config import TwinConfig
    from hpctwin.web.views.source import Source

    source = Source(journal or TwinConfig.from_yaml(config).journal.path)
    console = Console()
    if once or not console.is_terminal:
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

    from hpctwin.cli.output.live_view import Seen

    head = source.head()
    lines = (
        ["no decision yet"]
        if head.decision is None
        else source.explain_decision(head.decision).lines
    )
    with source.looking() as stands:
        return Seen(
            status={
                "cluster": head.cluster, "mode": head.mode, "in_charge": head.in_charge,
                "time_s": head.time_s, "running": head.running, "waiting": head.waiting,
                "free_nodes": head.free_nodes, "nodes": head.nodes, "policy": head.policy,
                "cycle_ms": head.cycle_ms or 0.0,
            },
            mirror=stands.core.mirror,
            forecasts=list(stands.forecasts.values()),
            counted=(Counter(source.decisions_by_policy()), "decisions"),
            lines=lines,
            trouble=head.trouble,
        )  # fmt: skip
