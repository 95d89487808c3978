"""A digital twin for HPC batch scheduling.

This package offers all public names; it imports a heavy module only when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpctwin._version import __version__
from hpctwin.attributes import attach
from hpctwin.lazy import lazy_names

if TYPE_CHECKING:
    from hpctwin.errors import HpctwinError
    from hpctwin.formats import read_workload, write_workload
    from hpctwin.formats.clusters import read_cluster
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

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "errors": ("HpctwinError",),
        "formats": ("read_workload", "write_workload"),
        "formats.clusters": ("read_cluster",),
        "generate": ("generate",),
        "model": ("Cluster", "Workload"),
        "policies": ("Policy", "formula", "make_policy", "multifactor", "ordering", "parse_policy"),
        "simulation": ("Result", "Simulation", "replay", "simulate", "simulate_stream"),
        "sweep.compare": ("compare",),
        "sweep.running": ("sweep",),
    },
)

attach("Result.plot", "hpctwin.report.accessor:Plots")
attach("Comparison.plot", "hpctwin.report.accessor:ComparisonPlots")
attach("Comparison._tables", "hpctwin.report.accessor:ComparisonTables")
