"""S-RAPS's score of predictions, as priorities (Maiterth et al., SC25-W, §4.4.2)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from hpctwin.errors import ConfigError, UnknownNameError
from hpctwin.model import Workload

__all__ = ["RANKED", "ranked"]

RANKED = ("nodes", "runtime_s", "node_w", "memory_gb")
"""Features of a score: the nodes asked for, and predictions."""


def ranked(workload: Workload, coefficients: Mapping[str, float]) -> Workload:
    """Return the jobs with their scores as priorities, for the ordering ``priority``.

    A score is S = Σ α exp(1 / √(x + 1)) over some features x of the job. With α above 0, the
    smaller feature comes first.

    Args:
        workload: The jobs, with predictions.
        coefficients: α by the names of `RANKED`. Missing predicted runtimes are replaced by
            walltimes, other missing predictions by their mean.

    Raises:
        UnknownNameError: There is no such feature.
        ConfigError: A feature has no predictions, or there are no coefficients.
    """
    if not coefficients:
        raise ConfigError(f"a score needs coefficients of one or more of {', '.join(RANKED)}")
    score = np.zeros(len(workload))
    for name, alpha in coefficients.items():
        score += alpha * np.exp(1.0 / np.sqrt(_feature(workload, name) + 1.0))
    return workload.replace(priority=score)


def _feature(workload: Workload, name: str) -> npt.NDArray[np.float64]:
    if name not in RANKED:
        raise UnknownNameError("feature of a score", name, RANKED)
    if name == "nodes":
        return workload.nodes.astype(np.float64)
    if name == "runtime_s":
        return workload.predicted_runtime_s
    found = workload.predicted.get(name)
    if found is None or np.isnan(found).all():
        raise ConfigError(
            f"{workload.name} has no predicted_{name}; hpctwin predictor apply writes it where the trace "
            "tells of it"
        )
    return np.where(np.isnan(found), np.nanmean(found), found)
