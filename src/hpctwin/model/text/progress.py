"""Progress of the work: a bar in a terminal or a notebook."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from importlib import import_module
from itertools import count
from typing import Any

__all__ = ["counted", "progress_bar"]

_EVERY_S = 0.1


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[float], None]]:
    """Show a progress bar with the time left, on standard error or in a notebook.

    The bar disappears at the end.

    Args:
        title: Text before the bar.

    Yields:
        Function that takes the completed share, 0 to 1; it does nothing without a terminal or a
        notebook.
    """
    if _in_notebook():
        with _notebook_bar(title) as told:
            yield told
        return
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda share: None
        return
    from rich.progress import Progress

    with Progress(console=console, transient=True) as bar:
        task = bar.add_task(title, total=1.0)
        yield lambda share: bar.update(task, completed=share)


def counted(told: Callable[[float], None], number: int) -> Callable[[object], None]:
    """Return a function that counts one more of N items per call, in any thread."""
    done = count(1)
    return lambda _: told(next(done) / number)


def _in_notebook() -> bool:
    """Return whether this is the kernel of a notebook; IPython in a terminal is none."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


@contextmanager
def _notebook_bar(title: str) -> Iterator[Callable[[float], None]]:
    """Show the bar as HTML.

    Rich's bar needs ipywidgets, and a front end that has them.
    """
    shown_by: Any = import_module("IPython.display")

    began = shown = time.monotonic()
    place = shown_by.display(_bar(title, 0.0, None), raw=True, display_id=True)

    def told(share: float) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown >= _EVERY_S:
            shown = now
            left = (now - began) * (1 - share) / share if share > 0 else None
            place.update(_bar(title, share, left), raw=True)

    try:
        yield told
    finally:
        place.update({"text/html": ""}, raw=True)


def _bar(title: str, share: float, left_s: float | None) -> dict[str, str]:
    left = "" if left_s is None else f", about {left_s:.0f} s left"
    bar = f"<progress value='{share:.3f}' max='1'></progress>"
    return {"text/html": f"{escape(title)} {bar} {share:.0%}{left}"}
