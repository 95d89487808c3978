"""The commands. Thin: each reads its arguments, calls the library and shows what came back."""

from hpctwin.cli.app import main

__all__ = ["main"]
