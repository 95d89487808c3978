"""``hpctwin twin top``: terminal view of queue, nodes, policy and last explanation."""

from __future__ import annotations

import codecs
import os
import re
import select
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.live import Live

from hpctwin.cli.live.screen import Seen, View, render
from hpctwin.cli.options import ConfigPath

if TYPE_CHECKING:
    from hpctwin.twin.core.decision import Decision
    from hpctwin.twin.service.runner import Twin
    from hpctwin.web.views.source import Source

__all__ = ["live_view", "parse_keys", "read_keys", "seen", "top_command"]

_NAMES = {
    "\x1b[A": "up", "\x1bOA": "up", "\x1b[B": "down", "\x1bOB": "down",
    "\x1b[5~": "page up", "\x1b[6~": "page down",
    "\x1b[H": "home", "\x1bOH": "home", "\x1b[1~": "home",
    "\x1b[F": "end", "\x1bOF": "end", "\x1b[4~": "end",
    "\x1b": "escape", "\r": "enter", "\n": "enter", "\x7f": "backspace", "\x08": "backspace",
    "\t": "tab",
}  # fmt: skip
_KEY = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O[@-~])?|.", re.DOTALL)
_REST_S = 0.05
"""Time within which the rest of a key's characters arrives."""


@contextmanager
def read_keys() -> Iterator[Callable[[float], list[str]]]:
    """Yield a function that waits up to a number of seconds and returns the pressed keys.

    Keys are characters, or names such as ``page up``. The terminal is as before at the end, also
    after an exception or a signal that asks the process to end. If standard input is no terminal,
    there are no keys, and the function only waits.
    """
    # A stopped process would leave the shell with the terminal's special settings.
    handlers = {
        number: signal.signal(number, handler)
        for number, handler in (
            (signal.SIGTERM, signal.default_int_handler),
            (signal.SIGHUP, signal.default_int_handler),
            (signal.SIGTSTP, signal.SIG_IGN),
        )
    }
    try:
        if sys.stdin.isatty():
            with _raw(sys.stdin.fileno()) as read:
                yield read
        else:
            yield _wait
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextmanager
def _raw(descriptor: int) -> Iterator[Callable[[float], list[str]]]:
    import termios
    import tty

    decoder = codecs.getincrementaldecoder("utf-8")("ignore")

    def read(timeout_s: float) -> list[str]:
        text = ""
        while select.select([descriptor], [], [], _REST_S if text else timeout_s)[0]:
            received = os.read(descriptor, 1024)
            if not received:  # the terminal is gone
                raise KeyboardInterrupt
            text += decoder.decode(received)
            if not text.endswith("\x1b"):
                break
        return parse_keys(text)

    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield read
    finally:
        termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)


def parse_keys(text: str) -> list[str]:
    """Return the keys of what a terminal sent; unknown special keys are omitted."""
    found = (_NAMES.get(one, one) for one in _KEY.findall(text))
    return [key for key in found if key.isprintable()]


def _wait(timeout_s: float) -> list[str]:
    select.select([], [], [], timeout_s)
    return []


REFRESH_S = 0.2
POLL_S = 0.5
"""Time between two looks into the journal."""


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
                size = console.size
                picture, _ = render(_seen(twin, started), None, size.width, size.height - 1)
                live.update(picture, refresh=True)

        before, twin.watch = twin.watch, watch
        try:
            yield
        finally:
            twin.watch = before


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
        acts=twin.config.act.mode == "act",
    )


def top_command(
    *,
    config: ConfigPath = Path("hpctwin.yaml"),
    journal: Path | None = None,
    once: bool = False,
) -> int:
    """Watch a twin in the terminal: queue, nodes, last decision. Press q to quit, ? for all keys.

    The view uses the whole terminal. Keys scroll, sort and filter the jobs, or list running ones.
    It reads the twin's journal, as the web page does; the twin never waits for it.

    Args:
        journal: A journal to use instead of the one in the YAML file.
        once: Show the view once and exit; always so if the output is not a terminal.
    """
    from hpctwin.twin.settings.config import TwinConfig
    from hpctwin.web.views.source import Source

    source = Source(journal or TwinConfig.from_yaml(config).journal.path)
    console = Console()
    if once or not console.file.isatty():
        height = console.height if console.file.isatty() else None
        console.print(render(seen(source), None, console.width, height)[0])
    else:
        _watch(source, console)
    return 0


def _watch(source: Source, console: Console) -> None:
    """Show the twin until the user quits."""
    from hpctwin.cli.live.top import read_keys

    view, state, looked = View(), seen(source), time.monotonic()

    def picture() -> RenderableType:
        nonlocal view
        drawn, view = render(state, view, *console.size)
        return drawn

    with closing(source.journal()) as reader, read_keys() as read:
        live = Live(picture(), console=console, screen=True, auto_refresh=False)
        size = console.size
        try:
            # A signal may come while the first picture is drawn, so `stop` must run in any case.
            live.start(refresh=True)
            while True:
                keys = read(POLL_S / 2)
                for key in keys:
                    if key == "q" and not view.is_typing:
                        return
                    view = view.press(key)
                changed = bool(keys) or console.size != size
                size = console.size
                if time.monotonic() - looked >= POLL_S:
                    looked = time.monotonic()
                    if source.turn(reader):
                        state, changed = seen(source), True
                if changed:
                    live.update(picture(), refresh=True)
        finally:
            live.stop()


def seen(source: Source) -> Seen:
    """Return a twin's state from its journal."""
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
