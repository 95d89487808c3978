"""How the rooms hang together; what may import what is `make lint`'s to check."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import hpctwin
from hpctwin import Cluster, errors, simulate
from hpctwin.model import Workload
from hpctwin.report.accessor import Plots

SOURCES = Path(hpctwin.__file__).parent
WRITERS = {
    "model/files.py": "the writer; a lock holds its file open",
    "model/trusted.py": "SQLite writes what is for its owner only",
    "formats/archive.py": "a download that was cut off goes on where it was",
    "rms/site_folder.py": "a command writes into a folder for this alone",
    "rms/gate.py": "a script that lives as long as the submission",
    "rms/pbs/hook.py": "runs within PBS, without us",
    "rms/polling/spool.py": "what came in while a file was put aside goes behind",
    "twin/following/bus.py": "a record grows by lines",
    "cli/app.py": "nowhere: /dev/null",
    "cli/data/import_site.py": "a salt is for its owner only, and never written over",
}
"""What opens files to write them, and why."""


def test_figures_are_attached_to_results_and_imported_when_asked_for() -> None:
    jobs = Workload.build(submit_s=[0.0], runtime_s=[1.0], nodes=[1])
    result = simulate(jobs, Cluster.uniform(1))
    assert isinstance(result.plot, Plots)
    used = "import sys, hpctwin.simulation; print('hpctwin.report' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", used], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_each_error_is_in_the_tree_of_errors_and_drawn_there() -> None:
    elsewhere = []
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if path.name != "errors.py" and isinstance(node, ast.ClassDef):
                bases = {getattr(base, "attr", getattr(base, "id", "")) for base in node.bases}
                if any(base.endswith(("Error", "Exception")) for base in bases):
                    elsewhere.append(f"{path}: {node.name}")
    assert elsewhere == []
    classes = [c for c in vars(errors).values() if getattr(c, "__module__", "") == errors.__name__]
    for one in filter(inspect.isclass, classes):
        assert issubclass(one, errors.HpctwinError)
        assert f" {one.__name__}" in (errors.__doc__ or "")
        assert one.__name__ in errors.__all__


def test_files_are_written_by_the_one_writer() -> None:
    writes = {
        str(path.relative_to(SOURCES))
        for path in SOURCES.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and _writes(node)
    }
    assert writes == set(WRITERS)


def _writes(call: ast.Call) -> bool:
    """Whether a call opens a file to write it, or writes one as a whole."""
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    texts = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    if name == "open":
        if isinstance(call.func, ast.Attribute) and ast.unparse(call.func) == "os.open":
            return "O_PATH" not in ast.unparse(call)
        modes = [text for text in texts[-1:] if set(text) <= set("rwaxbt+")]
        unknown = any(isinstance(a, ast.IfExp) for a in call.args)
        return unknown or any(set(mode) & set("wax+") for mode in modes)
    ours = isinstance(
        call.func, ast.Name
    )  # formats/ has a write_bytes that goes through the writer
    return name in ("write_text", "write_bytes", "NamedTemporaryFile", "mkstemp") and not ours
