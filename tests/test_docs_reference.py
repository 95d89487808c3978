"""The reference pages hold all that there is, and the whole documentation is built without a warning."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpctwin.cli.app import app
from hpctwin.cli.manual import command_helps, manual_page
from hpctwin.model.settings import field_help
from hpctwin.rms.records.events import event_schema

DOCS = Path(__file__).parent.parent / "docs"
sys.path.insert(0, str(DOCS / "_ext"))

import settings  # noqa: E402

DOCUMENTED = re.findall(r"automodule:: (\S+)", (DOCS / "reference/python.md").read_text())


def inventory(folder: Path) -> set[str]:
    """What Python has an entry in the documentation, which is built in a folder with warnings as errors."""
    # A copy, as the gallery's pages are written among the others; its examples have a test of their own.
    shutil.copytree(DOCS, folder / "docs", ignore=shutil.ignore_patterns("_build", "_gallery"))
    shutil.copy(DOCS.parent / "CONTRIBUTING.md", folder)
    subprocess.run(
        [
            sys.executable, "-m", "sphinx", "-q", "-W", "-j1", "-D", "plot_gallery=0",
            folder / "docs", folder / "out",
        ],
        check=True,
    )  # fmt: skip
    from sphinx.util.inventory import InventoryFile

    found = InventoryFile.loads((folder / "out/objects.inv").read_bytes(), uri="")
    return {name for kind, of in found.data.items() if kind.startswith("py:") for name in of}


@pytest.mark.slow
def test_every_public_name_is_in_the_reference(tmp_path: Path) -> None:
    # One test of all modules: as many as there are, each process that took some of them would build all.
    public = {
        f"{module}.{name}"
        for module in DOCUMENTED
        for name in importlib.import_module(module).__all__
        if name != "__version__"
    }
    assert public - inventory(tmp_path) == set()


def test_the_public_packages_are_in_the_reference() -> None:
    assert {"hpctwin", "hpctwin.energy", "hpctwin.facility", "hpctwin.learn"} <= set(DOCUMENTED)
    assert {"hpctwin.report", "hpctwin.metrics", "hpctwin.sweep"} <= set(DOCUMENTED)


@pytest.mark.parametrize("file", settings.FILES)
def test_every_key_of_a_file_of_settings_is_explained(file: str) -> None:
    page = "\n".join(settings.page())
    for model in settings.models(settings.FILES[file][0]):
        told = field_help(model)
        for name, field in model.model_fields.items():
            assert told.get(name), f"{model.__name__} says nothing of {name}"
            assert f"\n| `{field.alias or name}` | " in page


def described(schema: Any) -> Iterator[tuple[str, bool]]:
    """Yield each property of a JSON Schema, and whether it has a description."""
    for name, one in [("", schema), *schema.get("$defs", {}).items()]:
        for key, entry in one.get("properties", {}).items():
            yield f"{name}.{key}", bool(entry.get("description"))


@pytest.mark.parametrize(
    "schema",
    [
        *(pytest.param(root.model_json_schema(), id=name) for name, (root, _) in settings.FILES.items()),
        pytest.param(event_schema(), id="events"),
    ],
)  # fmt: skip
def test_every_property_of_a_schema_has_a_description(schema: Any) -> None:
    found = dict(described(schema))
    assert found
    assert [name for name, has in found.items() if not has] == []


def test_the_manual_page_has_every_command_and_option() -> None:
    page = manual_page(app).replace("\\-", "-")
    commands = list(command_helps(app))
    assert len(commands) > 50
    for command in commands[1:]:
        assert f".SS hpctwin {' '.join(command.words)}\n" in page
        for heading, told in command.panels.items():
            if heading != "Commands":
                assert all(f"\n.B {one.names}\n" in page for one in told), command.words


def test_the_manual_page_is_one_for_troff(tmp_path: Path) -> None:
    page = manual_page(app)
    known = (".TH ", ".SH ", ".SS ", ".PP", ".TP", ".B", ".I ", "\\&", "\\-")
    assert all(line.startswith(known) for line in page.splitlines() if line[:1] in (".", "'", "\\"))
    groff = shutil.which("groff")
    if groff is not None:
        said = subprocess.run(
            [groff, "-man", "-ww", "-Tutf8"], input=page, capture_output=True, text=True, check=True
        )
        assert said.stderr == ""
        assert "hpctwin simulate [OPTIONS] TRACE" in re.sub(r"\x1b\[\d*m|.\x08", "", said.stdout)
