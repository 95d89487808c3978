"""Style of figures (colors, fonts, sizes), and figures as files."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from hpctwin.errors import ConfigError
from hpctwin.model import check_file, write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "ACCENT",
    "FADED",
    "INK",
    "LINES",
    "PALETTE",
    "RC",
    "WIDTH_IN",
    "check_figure",
    "color",
    "save_figure",
    "styled",
]

_SUFFIXES = (".png", ".svg", ".pdf")


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure atomically; the suffix sets the format.

    Raises:
        ConfigError: The suffix is not one of .png, .svg and .pdf.
        OutputError: The file cannot be written.
    """
    check_figure(path)
    with write_atomically(path) as file:
        figure.savefig(file, format=path.suffix[1:], dpi=150)


def check_figure(path: Path) -> None:
    """Check before the work that a figure can be written afterwards.

    Raises:
        ConfigError: The suffix is not one of .png, .svg and .pdf.
        OutputError: The file could not be written.
    """
    if path.suffix not in _SUFFIXES:
        raise ConfigError(f"{path}: a figure is written as {', '.join(_SUFFIXES)}")
    check_file(path)


P = ParamSpec("P")
R = TypeVar("R")

PALETTE = (
    "#0072B2",  # blue
    "#E69F00",  # orange
    "#009E73",  # bluish green
    "#CC79A7",  # reddish purple
    "#56B4E9",  # sky blue
    "#D55E00",  # vermillion
    "#999999",  # gray
    "#F0E442",  # yellow last: too light for lines on white
)
"""Okabe & Ito's palette, which stays distinct for color-blind readers."""

LINES = ("-", "--", "-.", ":")
"""Line styles that distinguish lines when the palette is exhausted."""

INK = "#222222"
FADED = "#B8C0C8"
ACCENT = PALETTE[0]
WIDTH_IN = 9.0

RC: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.5,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9.5,
    "axes.edgecolor": "#808080",
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "axes.grid": True,
    "grid.color": "#E4E7EA",
    "grid.linewidth": 0.7,
    "xtick.color": "#808080",
    "ytick.color": "#808080",
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.6,
    "figure.titlesize": 12,
    "figure.titleweight": "bold",
    "figure.dpi": 110,
    "savefig.dpi": 110,
}


def color(index: int) -> str:
    """Return the color of the ``index``-th policy, the same in every figure."""
    return PALETTE[index % len(PALETTE)]


def styled(plot: Callable[P, R]) -> Callable[P, R]:
    """Make a function draw in this style; matplotlib's global settings stay."""

    @functools.wraps(plot)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        import matplotlib

        with matplotlib.rc_context(RC):
            return plot(*args, **kwargs)

    return wrapper
