"""Make the notebooks of tutorials from their pages, and execute the notebooks of docs/notebooks.

``python contrib/notebooks.py`` writes all notebooks with their outputs; a name executes only that
one: ``python contrib/notebooks.py carbon-study``.

A tutorial's page is the only source of its notebook: prose becomes cells of Markdown, ``sh`` and
``python`` blocks become cells of code, and a ``python`` block that starts with ``# NAME.py`` writes
that file. What the page shows as output is replaced by the notebook's own. A comment
``<!-- notebook: CODE -->`` is a cell of code that only the notebook has.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.manager import start_new_kernel
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, output_from_msg

DOCS = Path(__file__).parent.parent / "docs"
NOTEBOOKS = DOCS / "notebooks"
TUTORIALS = {
    name: DOCS / f"get-started/{name}.md"
    for name in ("first-simulation", "first-policy", "train-an-agent")
}
"""Tutorials in Python and shell. The others need several terminals, or the commands of Slurm."""

PATIENCE_S = 600
_PART = re.compile(
    r"^```(?P<kind>\w+)\n(?P<text>.*?)^```$|<!-- (?P<note>.*?) -->", re.DOTALL | re.MULTILINE
)
_COMPILING = re.compile(r"^hpctwin: compiling the engine.*\n?", re.MULTILINE)


def notebook_of(page: Path) -> Any:
    """Return the notebook of a tutorial's page, without outputs."""
    text = page.read_text()
    source = f"*Made from [the tutorial](../get-started/{page.name}).*"
    title, _, rest = text.partition("\n")
    cells, begin = [new_markdown_cell(f"{title}\n\n{source}")], 0
    for found in [*_PART.finditer(rest), None]:
        prose = rest[begin : found.start() if found else None].strip()
        if prose:
            cells.append(new_markdown_cell(_moved(prose)))
        if found:
            begin = found.end()
            code = _code(found["kind"], found["text"] or "", found["note"] or "")
            cells += [new_code_cell(code)] if code else []
    return _named(new_notebook(cells=cells))


def _code(kind: str | None, text: str, note: str) -> str:
    """Return the code of a block or a comment; empty if it is none."""
    if kind == "sh":
        return f"%%bash\n{text}".rstrip()
    if kind == "python":
        return re.sub(r"\A# (\w+\.py)\n", r"%%writefile \1\n", text).rstrip()
    return note.removeprefix("notebook:").strip() if note.startswith("notebook:") else ""


def _moved(prose: str) -> str:
    """Return prose whose links to pages of the same folder work from the folder of notebooks."""
    return re.sub(r"\]\(([\w-]+\.md)", r"](../get-started/\1", prose)


def _named(notebook: Any) -> Any:
    """Return a notebook with the same cell names and metadata in each run."""
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return notebook


def executed(notebook: Any, folder: Path) -> Any:
    """Return a notebook with the outputs of its cells, which run in a folder in a new kernel.

    Raises:
        RuntimeError: A cell fails; the message has its code and the error.
    """
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1"}
    manager, client = start_new_kernel(startup_timeout=300, cwd=str(folder), env=environment)
    try:
        for number, cell in enumerate(
            (one for one in notebook.cells if one.cell_type == "code"), 1
        ):
            cell.outputs = _outputs(client, cell.source, str(folder))
            cell.execution_count = number
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    return notebook


def _outputs(client: Any, code: str, folder: str) -> list[Any]:
    """Return the outputs of code, with ``…`` for the folder's path."""
    outputs: list[Any] = []
    places: dict[str, Any] = {}

    def keep(message: Any) -> None:
        kind, content = message["msg_type"], message["content"]
        place = content.get("transient", {}).get("display_id")
        if kind == "update_display_data" and place in places:
            places[place].data = content["data"]
        elif kind == "stream" and outputs and outputs[-1].get("name") == content["name"]:
            outputs[-1].text += content["text"]
        elif kind in ("stream", "display_data", "execute_result", "error"):
            outputs.append(output_from_msg(message))
            if place:
                places[place] = outputs[-1]

    client.execute_interactive(code, timeout=PATIENCE_S, output_hook=keep, allow_stdin=False)
    for one in outputs:
        if one.output_type == "error":
            raise RuntimeError(f"{code}\n\n{one.ename}: {one.evalue}\n" + "\n".join(one.traceback))
        if one.output_type == "stream":
            one.text = _COMPILING.sub("", one.text).replace(folder, "…")
    return [one for one in outputs if one.get("text") != ""]


def main(names: list[str]) -> None:
    """Write the notebooks of the given names, or all."""
    known = {**TUTORIALS, **{one.stem: one for one in NOTEBOOKS.glob("*.ipynb")}}
    for name in names or sorted(known):
        path = NOTEBOOKS / f"{name}.ipynb"
        tutorial = TUTORIALS.get(name)
        notebook = notebook_of(tutorial) if tutorial else _named(nbformat.read(path, as_version=4))
        with tempfile.TemporaryDirectory() as folder:
            nbformat.write(executed(notebook, Path(folder)), path)
        print(path)


if __name__ == "__main__":
    main(sys.argv[1:])
