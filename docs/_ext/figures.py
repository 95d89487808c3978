"""For sphinx-gallery: what an example has drawn are its variables that are figures."""

from __future__ import annotations

from matplotlib import pyplot
from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst

__all__ = ["scraper"]


def scraper(block, block_vars, gallery_conf) -> str:
    """The figures that a block of an example has made, as RST; they are written beside its page."""
    here = block_vars["example_globals"]
    known = here.setdefault("_shown", [])
    new = [one for one in here.values() if isinstance(one, Figure) and one not in known]
    paths = []
    for figure, path in zip(dict.fromkeys(new), block_vars["image_path_iterator"], strict=False):
        figure.savefig(path, dpi=110)
        known.append(figure)
        paths.append(path)
    pyplot.close("all")
    return figure_rst(paths, gallery_conf["src_dir"])
