"""A digital twin for HPC batch scheduling.

Everything a user needs is here; nothing heavy is imported before it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from hpctwin._version import __version__
from hpctwin.attached import attach

if TYPE_CHECKING:
    from hpctwin.errors import HpctwinError
    from hpctwin.formats import read_workload, write_workload
    from hpctwin.formats.clusters.files import read_cluster
    from hpctwin.generate import generate
    from hpctwin.model import Cluster, Workload
    from hpctwin.policies import Policy, formula, make_policy, multifactor, ordering, parse_policy
    from hpctwin.simulation import Result, Simulation, replay, simulate, simulate_stream
    from hpctwin.sweep.compare import compare
    from hpctwin.sweep.running import sweep

__all__ = [
    "Cluster",
    "HpctwinError",
    "Policy",
    "Result",
    "Simulation",
    "Workload",
    "__version__",
    "compare",
    "formula",
    "generate",
    "make_policy",
    "multifactor",
    "ordering",
    "parse_policy",
    "read_cluster",
    "read_workload",
    "replay",
    "simulate",
    "simulate_stream",
    "sweep",
    "write_workload",
]

_HOME = {
    "Cluster": "model",
    "HpctwinError": "errors",
    "Policy": "policies",
    "Result": "simulation",
    "Simulation": "simulation",
    "Workload": "model",
    "compare": "sweep",
    "formula": "policies",
    "generate": "generate",
    "make_policy": "policies",
    "multifactor": "policies",
    "ordering": "policies",
    "parse_policy": "policies",
    "read_cluster": "formats.clusters.files",
    "read_workload": "formats",
    "replay": "simulation",
    "simulate": "simulation",
    "simulate_stream": "simulation",
    "sweep": "sweep",
    "write_workload": "formats",
}

attach("Result.plot", "hpctwin.report.accessor:Plots")


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'hpctwin' has no attribute {name!r}")
    # A room and a function in it may share a name (generate, sweep); the function is what is meant here.
    value = getattr(importlib.import_module(f"hpctwin.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
