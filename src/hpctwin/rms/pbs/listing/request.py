"""Requests and allocations of PBS jobs: whole nodes and vnodes.

`hpctwin.model.requests` reads the texts.
"""

from __future__ import annotations

import re

from hpctwin.model.requests.pbs_requests import (
    Chunk,
    amount_said,
    is_consumable,
    memory_gb,
    parse_duration,
    parse_select,
)

__all__ = [
    "Chunk", "amount_said", "is_consumable", "memory_gb", "nodes_needed", "parse_duration", "parse_select",
    "vnodes",
]  # fmt: skip


def nodes_needed(chunks: tuple[Chunk, ...], place: str, cores: float, gpus: float) -> int:
    """Return the number of whole nodes that a request takes.

    Chunks that may share a node are combined within the cores and GPUs of a node.

    Args:
        chunks: Requested chunks.
        place: Place statement, such as ``vscatter:excl``.
        cores: Cores of a node; 0 if unknown.
        gpus: GPUs of a node; 0 if unknown.
    """
    arrangement = {word for word in re.split(r"[:\s]+", place) if word}
    if arrangement & {"scatter", "vscatter"}:
        return sum(chunk.count for chunk in chunks)
    nodes = 0
    for chunk in chunks:
        fits = [
            int(has // asks)
            for has, asks in ((cores, chunk.cores), (gpus, chunk.gpus))
            if asks > 0 and has > 0
        ]
        nodes += -(-chunk.count // max(1, min(fits, default=1)))
    return nodes


def vnodes(exec_vnode: str) -> tuple[str, ...]:
    """Return nodes of ``(a:ncpus=1)+(b[1]:ncpus=1+b[2]:ncpus=1)``, once, in order."""
    parts = re.split(r"[()+]+", exec_vnode)
    names = (part.partition(":")[0].strip() for part in parts)
    return tuple(dict.fromkeys(name for name in names if name))
