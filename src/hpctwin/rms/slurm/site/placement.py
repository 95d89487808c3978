"""On which nodes Slurm puts jobs that share nodes: the nearest placement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hpctwin.rms.site.findings import TAKEN, Setting
from hpctwin.rms.slurm.listing.conf import Row, said

__all__ = ["is_least_loaded", "shared_placement", "weights_of"]

_NO_SWITCHES = ("", "topology/none", "topology/default", "topology/flat")
_WHERE = "nodes and partitions"


def weights_of(rows: Mapping[str, Row]) -> dict[str, float]:
    """Weights of nodes by name; empty where all are the same, which then say nothing."""
    weights = {name: _weight(row) for name, row in rows.items()}
    return weights if len(set(weights.values())) > 1 else {}


def shared_placement(
    values: Mapping[str, Row], partitions: Sequence[Row], *, weighted: bool, settings: list[Setting]
) -> str:
    """The nearest placement for jobs that share nodes; empty if none is near.

    Slurm's cons_tres goes through its nodes in one of several ways (22.05, ``_eval_nodes`` and those
    beside it in ``job_test.c``): which one, settings say, and some jobs themselves.

    Args:
        values: settings by key.
        partitions: those of the site.
        weighted: whether nodes have different weights.
        settings: what was told so far; what became of these is appended.
    """
    if said(values, "topologyplugin").lower() not in _NO_SWITCHES:
        return ""  # told with the plugin: the machine's switches are not imported
    if is_least_loaded(values, partitions):
        why = "spread: what has most left first, GPUs before cores; Slurm goes by cores alone"
        settings.append(Setting("LLN", "the least loaded nodes first", _WHERE, TAKEN, why))
        return "spread"
    if weighted:
        why = "weight: the smallest first, of equal ones by number; Slurm takes the tightest run of them"
        settings.append(Setting("Weight", "of nodes", _WHERE, TAKEN, why))
        return "weight"
    return "tightest-run"


def is_least_loaded(values: Mapping[str, Row], partitions: Sequence[Row]) -> bool:
    """Whether the nodes with the fewest CPUs in use come first, in all partitions."""
    everywhere = "CR_LLN" in said(values, "selecttypeparameters").upper()
    alone = [row.get("lln").upper() == "YES" for row in partitions]
    return everywhere or (bool(alone) and all(alone))


def _weight(row: Row) -> float:
    """A node's weight; 1 if nothing is said."""
    text = row.get("weight")
    return float(text) if text.isdigit() else 1.0
