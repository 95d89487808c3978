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
