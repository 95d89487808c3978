"""Requests of Slurm jobs that are no amounts: features, and the layout of cores.

Source:
    Manual page sbatch(1), 22.05: ``--constraint``, ``--sockets-per-node``, ``--cores-per-socket``
    and ``--threads-per-core``, each of which requests a minimum; ``squeue --json`` and ``sinfo
    --json`` of a Slurm 22.05.8.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from hpctwin.model.cluster.node_group import LYING
from hpctwin.model.requests.features import alternatives, read_constraint
from hpctwin.rms.slurm.listing.values import whole

__all__ = ["features_asked", "features_of", "lying_of", "names_asked"]

_ASKED = dict(zip(LYING, ("sockets_per_node", "cores_per_socket", "threads_per_core"), strict=True))
"""Fields of a job, by the matching field of nodes."""


def features_asked(
    rows: Sequence[Mapping[str, Any]], lying: Mapping[str, Collection[int]]
) -> str | None:
    """Return a job's request as text of features; None if that is impossible.

    `hpctwin.model.requests.features` reads the text.

    Args:
        rows: Rows of ``squeue --json``, one for each part of a heterogeneous job.
        lying: Numbers of sockets, of cores per socket and of threads per core that nodes have.
    """
    texts = {_understood(row) for row in rows}
    if len(texts) > 1 or None in texts:
        return None
    asked = [text for text in texts if text]
    for field, key in _ASKED.items():
        least = max(whole(row.get(key)) for row in rows)
        there = sorted(lying.get(field, ()))
        if least > 0 and any(number < least for number in there):
            enough = [number for number in there if number >= least] or [least]
            asked.append("|".join(f"{field}={number}" for number in enough))
    if len(asked) == 1:
        return asked[0]
    return "&".join(f"({one})" if "|" in one and "&" not in one else one for one in asked)


def _understood(row: Mapping[str, Any]) -> str | None:
    """Return a row's features; None if its constraint says more than they do."""
    # A preference (--prefer) keeps no job waiting.
    text = "" if row.get("prefer") else str(row.get("features") or "")
    features, lost = read_constraint(text, whole(row.get("node_count")) or None)
    return None if lost else features


def names_asked(rows: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return all features that jobs request by name."""
    texts = {text for row in rows if (text := _understood(row))}
    return {name.lstrip("!") for text in texts for some in alternatives(text) for name in some}


def features_of(row: Mapping[str, Any], asked: Collection[str]) -> tuple[str, ...]:
    """Return the features of a node, a row of ``sinfo --json``, that any job requests."""
    said = row.get("active_features") or row.get("features") or ()
    names = said.split(",") if isinstance(said, str) else said
    return tuple(sorted({str(name).strip() for name in names} & set(asked)))


def lying_of(row: Mapping[str, Any], cores: float | None) -> tuple[int | None, ...]:
    """Return a node's core layout as in `LYING`; None if it is impossible.

    See `model.cluster.node_group.LYING`.
    """
    told = tuple(whole(row.get(key)) or None for key in ("sockets", "cores", "threads"))
    if None in told or (cores or 0.0) > math.prod(number or 0 for number in told):
        return (None,) * len(LYING)
    return told
