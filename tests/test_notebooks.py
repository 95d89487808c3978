"""The notebooks of the documentation run, and those of tutorials have the cells of their pages."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import nbformat
import pytest

ROOT = Path(__file__).parent.parent
MADE = runpy.run_path(str(ROOT / "contrib/notebooks.py"))
NOTEBOOKS = sorted(MADE["NOTEBOOKS"].glob("*.ipynb"))
# Pages of tutorials are run by test_docs.py, and their notebooks have the same cells: one stands for all.
RUN = [path for path in NOTEBOOKS if path.stem not in set(MADE["TUTORIALS"]) - {"first-policy"}]


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]


def cells(notebook: Any) -> list[tuple[str, str]]:
    return [(cell.cell_type, cell.source) for cell in notebook.cells]


def kinds(notebook: Any) -> list[set[str]]:
    """What each cell shows: an image, a table, a text, or something on standard error."""
    return [
        {kind for one in cell.outputs for kind in one.get("data", [one.get("name")])}
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


@pytest.mark.parametrize("name", MADE["TUTORIALS"])
def test_the_notebook_of_a_tutorial_has_the_cells_of_its_page(name: str) -> None:
    made = MADE["notebook_of"](MADE["TUTORIALS"][name])
    stored = read(MADE["NOTEBOOKS"] / f"{name}.ipynb")
    assert cells(stored) == cells(made), "python contrib/notebooks.py"


def test_each_tutorial_that_runs_in_one_shell_is_a_notebook() -> None:
    """The others start background processes, or need the commands of Slurm."""
    pages = {page.stem for page in (ROOT / "docs/get-started").glob("*.md")}
    assert pages - set(MADE["TUTORIALS"]) == {"install", "first-hour-with-the-twin", "your-site"}


@pytest.mark.slow
@pytest.mark.parametrize("path", RUN, ids=lambda path: path.stem)
def test_the_notebook_runs_and_shows_what_it_showed(path: Path, tmp_path: Path) -> None:
    stored, again = read(path), read(path)
    MADE["executed"](again, tmp_path)
    assert kinds(again) == kinds(stored), "python contrib/notebooks.py"


def test_a_failing_cell_is_an_error_with_its_code(tmp_path: Path) -> None:
    broken = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("%%bash\nhpctwin nope")])  # type: ignore[no-untyped-call]
    with pytest.raises(RuntimeError, match="hpctwin nope"):
        MADE["executed"](broken, tmp_path)
