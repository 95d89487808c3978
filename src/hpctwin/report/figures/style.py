"""Style of figures, readable axes, and figures as files.

Axes name nodes by their group, with their number.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, NullFormatter, NullLocator

from hpctwin.errors import ConfigError
from hpctwin.model import Cluster, check_file, write_atomically
from hpctwin.model.arguments import check_arguments

__all__ = [
    "ACCENT",
    "FADED",
    "INK",
    "LINES",
    "PALETTE",
    "RC",
    "WIDTH_IN",
    "Chart",
    "NodeTicks",
    "TimeScale",
    "check_figure",
    "color",
    "count_axis",
    "empty_note",
    "line_style",
    "log_durations",
    "new_figure",
    "node_ticks",
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
        raise ConfigError(f"{path}: suffix is not supported; use {', '.join(_SUFFIXES)}")
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


def line_style(index: int) -> dict[str, Any]:
    """Return color and dashes of the ``index``-th line; dashes leave a line below it visible."""
    return {"color": color(index), "linestyle": LINES[index % len(LINES)]}


def styled(plot: Callable[P, R]) -> Callable[P, R]:
    """Check a function's arguments, and make it draw in this style.

    Matplotlib's global settings stay.
    """
    checked = check_arguments()(plot)

    @functools.wraps(plot)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        import matplotlib

        with matplotlib.rc_context(RC):
            return checked(*args, **kwargs)

    return wrapper


MOST = 16
"""Maximum number of named nodes; of more nodes, evenly spaced ones are named."""


class NodeTicks(NamedTuple):
    """Positions and names of some nodes on an axis."""

    at: list[float]
    names: list[str]


def node_ticks(cluster: Cluster, *, by_core: bool = False) -> NodeTicks:
    """Return ticks at the middles of nodes: ``node 96``, or ``gpu, node 96`` of several groups.

    Args:
        cluster: The cluster.
        by_core: Whether a node's height is its number of cores, for shared nodes; else it is 1.
    """
    counts = [group.count for group in cluster.nodes]
    heights = [max(1, round(group.cores or 0)) if by_core else 1 for group in cluster.nodes]
    edges = np.concatenate([[0], np.cumsum(np.repeat(heights, counts))])
    group = np.repeat(np.arange(len(counts)), counts)
    along = np.arange(0, edges[-1], -(-edges[-1] // MOST))
    chosen = np.unique(np.searchsorted(edges, along, side="right") - 1)
    several = len(counts) > 1
    names = [
        f"{cluster.nodes[group[number]].name}{', node' if several else ''} {number}"
        for number in chosen.tolist()
    ]
    return NodeTicks(((edges[chosen] + edges[chosen + 1]) / 2).tolist(), names)


FloatArray = npt.NDArray[np.float64]

_UNITS = (("days", 86400.0, 4 * 86400.0), ("hours", 3600.0, 4 * 3600.0), ("minutes", 60.0, 300.0))
_DURATIONS = (
    (1, "1 s"),
    (10, "10 s"),
    (60, "1 min"),
    (600, "10 min"),
    (3600, "1 h"),
    (6 * 3600, "6 h"),
    (86400, "1 d"),
    (7 * 86400, "7 d"),
    (30 * 86400, "30 d"),
    (365 * 86400, "1 y"),
)


class Chart(Figure):
    """A figure that a notebook shows as an image, also before ``%matplotlib inline``.

    Afterwards the inline backend draws it in the formats that the user chose, and only once.
    """

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()


def new_figure(height_in: float, width_in: float = WIDTH_IN, *, title: str | None = None) -> Chart:
    """Return a figure outside matplotlib's global state; its layout keeps labels apart."""
    figure = Chart(figsize=(width_in, height_in), layout="constrained", facecolor="white")
    if title is not None:
        figure.suptitle(title, x=0.01, ha="left")
    return figure


@dataclass(frozen=True)
class TimeScale:
    """Conversion of simulated seconds to positions on a time axis.

    Args:
        unit: Seconds per unit of the axis.
        label: Label of the axis.
        start_epoch_s: Unix time of time zero, if the axis shows dates.
    """

    unit: float
    label: str
    start_epoch_s: float | None = None

    @classmethod
    def of(cls, span_s: float, start_epoch_s: float | None = None) -> TimeScale:
        """Return a scale of dates if time zero has a date, else of a suitable unit."""
        if start_epoch_s is not None:
            return cls(86400.0, "date (UTC)", start_epoch_s)
        for name, unit, least in _UNITS:
            if span_s >= least:
                return cls(unit, f"time ({name})")
        return cls(1.0, "time (s)")

    def at(self, seconds: npt.ArrayLike) -> FloatArray:
        """Return positions on the axis; dates are matplotlib's days since 1970."""
        return (np.asarray(seconds, np.float64) + (self.start_epoch_s or 0.0)) / self.unit

    def apply(self, ax: Axes, start_s: float, end_s: float, note: str = "") -> None:
        """Set the limits, the ticks and the label of the x axis."""
        left, right = self.at([start_s, end_s])
        ax.set_xlim(left, right if right > left else left + 1)
        ax.set_xlabel(f"{self.label}{note}")
        if self.start_epoch_s is not None:
            locator = AutoDateLocator(minticks=4, maxticks=9)  # type: ignore[no-untyped-call]
            ax.xaxis.set_major_locator(locator)
            formatter = ConciseDateFormatter(locator)  # type: ignore[no-untyped-call]
            ax.xaxis.set_major_formatter(formatter)


def log_durations(ax: Axes, which: Literal["x", "y"], low_s: float, high_s: float) -> None:
    """Make an axis in seconds logarithmic, with ticks such as 1 min, 1 h, 1 d."""
    if which == "x":
        ax.set_xscale("log")
    else:
        ax.set_yscale("log")
    axis = ax.xaxis if which == "x" else ax.yaxis
    high_s = max(high_s, low_s * 10)
    ticks = [(at, text) for at, text in _DURATIONS if low_s <= at <= high_s * 1.001]
    axis.set_major_locator(FixedLocator([at for at, _ in ticks]))
    axis.set_major_formatter(FixedFormatter([text for _, text in ticks]))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def count_axis(ax: Axes, most: float = 0.0, **locator: Any) -> None:
    """Make the y axis one of counts: whole numbers from 0 to at least 1.

    Args:
        ax: Axes with all that is drawn on them.
        most: Upper end; by default that of what is drawn.
        **locator: More parameters of the axis's locator, such as ``nbins``.
    """
    ax.set_ylim(0, max(1.0, most or ax.get_ylim()[1]))
    ax.locator_params(axis="y", integer=True, **locator)


def empty_note(ax: Axes, text: str = "no data") -> None:
    """Write a note in the middle of empty axes."""
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", color="#808080")
