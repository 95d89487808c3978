"""Figures as part of a page."""

from __future__ import annotations

import base64
import io
from html import escape
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

__all__ = ["image_tag"]

_PNG_DPI = 120
_LARGEST_SVG = 300_000
"""A drawing of so many marks is smaller as an image."""


def image_tag(figure: Figure, text: str) -> str:
    """An ``<img>`` that holds the figure: as SVG, which is sharp in print; as PNG where that would be large.

    Args:
        figure: to draw.
        text: what it shows, for those who cannot see it.
    """
    # A fixed salt and no date: the same figure gives the same bytes.
    with rc_context({"svg.hashsalt": "hpctwin", "svg.fonttype": "path"}):
        kind, content = "svg+xml", _saved(figure, "svg", metadata={"Date": None})
    if len(content) > _LARGEST_SVG:
        kind, content = "png", _saved(figure, "png", dpi=_PNG_DPI)
    data = base64.b64encode(content).decode("ascii")
    width, height = (round(inches * _PNG_DPI) for inches in figure.get_size_inches())
    return (
        f'<img alt="{escape(text)}" width="{width}" height="{height}" '
        f'src="data:image/{kind};base64,{data}">'
    )


def _saved(figure: Figure, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, **options)
    return buffer.getvalue()
