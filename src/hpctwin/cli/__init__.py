"""The commands. Thin: each reads its arguments, calls the library and shows what came back."""

from __future__ import annotations

import os
import sys

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Run the command line: `hpctwin.cli.app.main`, which is loaded now."""
    try:
        from hpctwin.cli.app import main as run
    except KeyboardInterrupt:
        print("hpctwin: interrupted", file=sys.stderr, flush=True)
        os._exit(130)
    run(arguments)
