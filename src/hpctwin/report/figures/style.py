"""How figures look: colours, fonts, sizes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

__all__ = ["ACCENT", "FADED", "INK", "LINES", "PALETTE", "RC", "WIDTH_IN", "color", "styled"]

P = ParamSpec("P")
R = TypeVar("R")

PALETTE = (
    "#0072B2",  # blue
    "#E69F00",  # orange
    "#009E73",  # bluish green
    "#CC79A7",  # reddish purple
    "#56B4E9",  # sky blue
    "#D55E00",  # vermillion
    "#999999",  # grey
    "#F0E442",  # yellow last: too light for lines on white
)
"""Okabe & Ito's palette, which stays distinct for colour-blind readers."""

LINES = ("-", "--", "-.", ":")
"""Line styles for when the palette is used up."""

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
    """The colour of the ``index``-th policy, the same in every figure."""
    return PALETTE[index % len(PALETTE)]


def styled(plot: Callable[P, R]) -> Callable[P, R]:
    """Make a function draw in this style, without changing matplotlib's settings for others."""

    @functools.wraps(plot)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        import matplotlib

        with matplotlib.rc_context(RC):
            return plot(*args, **kwargs)

    return wrapper
