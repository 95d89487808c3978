"""Placeholders for commands of ``hpctwin-papers`` if it is not installed."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from hpctwin.errors import ConfigError

__all__ = ["missing_command"]


def missing_command(*words: Annotated[str, Parameter(allow_leading_hyphen=True)]) -> None:
    """Name the package that provides this command: `pip install hpctwin-papers`.

    Args:
        words: Further words of the command; ignored.
    """
    raise ConfigError(
        "experiment and incentives need hpctwin-papers, which is not installed: "
        "pip install hpctwin-papers"
    )
