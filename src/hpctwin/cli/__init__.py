"""Commands of hpctwin: parse arguments, call the library and show the result."""

from __future__ import annotations

import gc
import os
import sys

__all__ = ["main"]

GARBAGE_AFTER = 10_000
"""Number of allocations between two searches for unused circular objects.

With Python's 700, a tenth of a short command's time goes into visiting what was imported.
"""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; `hpctwin.cli.app` is imported only here."""
    if arguments is None:
        gc.set_threshold(GARBAGE_AFTER)
    try:
        from hpctwin.cli.app import main as run
    except KeyboardInterrupt:
        print("hpctwin: interrupted", file=sys.stderr, flush=True)
        os._exit(130)
    run(arguments)
