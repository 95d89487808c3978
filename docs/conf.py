"""Sphinx configuration: `make docs`."""

import re
import sys
from pathlib import Path

import hpctwin

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

# The function is meant that has its room's name, also where the room was loaded first.
hpctwin.__getattr__("generate")

project = "hpctwin"
extensions = [
    "myst_parser",
    "sphinx_gallery.gen_gallery",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "commands",
    "metric_tables",
    "settings",
]
html_theme = "furo"
html_title = "hpctwin"
html_show_copyright = False
exclude_patterns = ["_build", "_ext", "gallery"]
default_role = "py:obj"
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_default_options = {"exclude-members": "model_config, shown, shown_more"}
autodoc_typehints = "description"
autodoc_typehints_format = "short"

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "_gallery",
    "filename_pattern": "plot_",
    "image_scrapers": ("figures.scraper",),
    "download_all_examples": False,
    "show_memory": False,
    "min_reported_time": 10,
    "abort_on_example_error": True,
    "capture_repr": (),  # what is printed, not what a last line happens to give back
    "within_subsection_order": "FileNameSortKey",
}


def _without_checks(app, domain, kind, content) -> None:
    """Types as a reader knows them: ``Annotated[int, …]`` is int, whatever checks it."""
    for types in app.env.current_document.autodoc_annotations.values():
        for name, text in types.items():
            while found := re.search(r"Annotated\[", text):
                comma = depth = 0
                for end in range(found.end(), len(text)):
                    if text[end] in "[(":
                        depth += 1
                    elif text[end] in ")]" and depth == 0:
                        break
                    elif text[end] in ")]":
                        depth -= 1
                    elif text[end] == "," and depth == 0 and not comma:
                        comma = end
                text = text[: found.start()] + text[found.end() : comma] + text[end + 1 :]
            types[name] = text


def setup(app):
    """Clean the types before they are written into the pages."""
    app.connect("object-description-transform", _without_checks, priority=400)
