"""The commands. Thin: each reads its arguments, calls the library and shows what came back."""

from __future__ import annotations

import gc
import os
import sys

__all__ = ["main"]

GARBAGE_AFTER = 10_000
"""So many objects are made before circular ones that nobody needs are looked for: with Python's 700, a tenth
of a short command's time goes into looking at what was imported."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line: `hpctwin.cli.app.main`, which is loaded now."""
    if arguments is None:
        gc.set_threshold(GARBAGE_AFTER)
    try:
        from hpctwin.cli.app import main as run
    except KeyboardInterrupt:
        print("hpctwin: interrupted", file=sys.stderr, flush=True)
        os._exit(130)
    run(arguments)
