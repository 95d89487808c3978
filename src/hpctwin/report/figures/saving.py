"""Figures as files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hpctwin.errors import ConfigError
from hpctwin.model import check_file, write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["check_figure", "save_figure"]

_SUFFIXES = (".png", ".svg", ".pdf")


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure, all or nothing; the format follows the suffix.

    Raises:
        ConfigError: the suffix is not one of .png, .svg and .pdf.
        OutputError: the file cannot be written.
    """
    check_figure(path)
    with write_atomically(path) as file:
        figure.savefig(file, format=path.suffix[1:], dpi=150)


def check_figure(path: Path) -> None:
    """Find out before the work whether a figure could be written after it.

    Raises:
        ConfigError: the suffix is not one of .png, .svg and .pdf.
        OutputError: the file could not be written.
    """
    if path.suffix not in _SUFFIXES:
        raise ConfigError(f"{path}: a figure is written as {', '.join(_SUFFIXES)}")
    check_file(path)
