"""What a PBS job asks for: select, place and the other resources."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hpctwin.model.consumables import NAME

__all__ = [
    "Chunk", "amount_said", "is_consumable", "memory_gb", "nodes_needed", "parse_duration", "parse_select",
    "vnodes",
]  # fmt: skip

_UNITS = {"": 1, "b": 1, "kb": 2**10, "mb": 2**20, "gb": 2**30, "tb": 2**40, "pb": 2**50}
_WORD = 8
"""Bytes of a word, in which PBS sizes may be given (``kw``, ``mw`` …)."""

MOST_CHUNKS = 1_000_000

_OF_NODES = {"ncpus", "mpiprocs", "ompthreads", "mem", "vmem", "ngpus"}
_OF_PBS = {"host", "vnode", "arch", "aoe", "eoe", "nchunk", "pcpus", "hpctwin", "hpctwin_wait"}
"""Resources that PBS has itself, of which jobs use nothing up, and the twin's."""


@dataclass(frozen=True)
class Chunk:
    """So many equal parts of a request.

    Args:
        count: how many.
        cores, gpus, memory_gb: of each.
        consumables: resources of the site's of which each asks for so much, sizes in GB.
        others: whatever else is asked for, as ``name=value``.
    """

    count: int
    cores: float
    gpus: float
    memory_gb: float
    others: tuple[str, ...] = ()
    consumables: tuple[tuple[str, float], ...] = ()


def parse_select(text: str) -> tuple[Chunk, ...]:
    """The chunks of a select statement such as ``2:ncpus=8:mem=4gb+1:ncpus=1``.

    Raises:
        ValueError: it is not one.
    """
    chunks = []
    for part in text.strip().strip('"').split("+"):
        first, *others = part.strip().split(":")
        if first.isdigit():
            count, pairs = int(first), others
        else:
            count, pairs = 1, [first, *others]
        if not 1 <= count <= MOST_CHUNKS:
            raise ValueError(f"select {text[:60]!r} asks for {count} chunks")
        asked: dict[str, str] = {}
        for pair in pairs:
            name, equals, value = pair.partition("=")
            if not equals or not name:
                raise ValueError(f"select {text[:60]!r}: {pair[:30]!r} is not name=value")
            asked[name] = value
        cores = _count(asked.get("ncpus", asked.get("mpiprocs", "1")))
        memory = memory_gb(asked.get("mem", "0"))
        further = tuple(f"{n}={v}" for n, v in asked.items() if n not in _OF_NODES)
        used_up = tuple((n, amount_said(v) or 0.0) for n, v in asked.items() if is_consumable(n, v))
        gpus = _count(asked.get("ngpus", "0"))
        chunks.append(Chunk(count, cores, gpus, memory or 0.0, further, used_up))
    return tuple(chunks)


def nodes_needed(chunks: tuple[Chunk, ...], place: str, cores: float, gpus: float) -> int:
    """How many whole nodes a request takes.

    Chunks that may share a node are put together as far as cores and GPUs of a node go.

    Args:
        chunks: what is asked for.
        place: the place statement, such as ``vscatter:excl``.
        cores: of a node; 0 where not known.
        gpus: of a node; 0 where not known.
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
    """The nodes named in ``(a:ncpus=1)+(b[1]:ncpus=1+b[2]:ncpus=1)``, each once, in order."""
    parts = re.split(r"[()+]+", exec_vnode)
    names = (part.partition(":")[0].strip() for part in parts)
    return tuple(dict.fromkeys(name for name in names if name))


def parse_duration(value: object) -> float | None:
    """Seconds of ``HH:MM:SS``, ``MM:SS`` or a number of seconds; None if it is none of them."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value) if 0 <= value < 1e12 else None
    if not isinstance(value, str):
        return None
    if not re.fullmatch(r"\d{1,9}(:\d{1,2}){0,2}(\.\d+)?", value):
        return None
    total = 0.0
    for part in value.split(":"):
        total = total * 60 + float(part)
    return total


def is_consumable(name: str, said: str) -> bool:
    """Whether a chunk's ``name=value`` asks for so much of a resource of the site's."""
    if name in _OF_NODES or name in _OF_PBS or not re.fullmatch(NAME, name):
        return False
    return amount_said(said) is not None


def amount_said(value: object) -> float | None:
    """A number, or a size in GB, as PBS writes them; None if it is neither."""
    said = str(value).strip()
    if re.fullmatch(r"\d{1,15}(\.\d{1,9})?", said):
        return float(said)
    return memory_gb(said)


def memory_gb(value: object) -> float | None:
    """Gigabytes (2³⁰ bytes) of a PBS size such as ``24684084kb`` or ``2gw``; None if it is none."""
    match = re.fullmatch(r"(\d{1,18})([kmgtp]?)([bw]?)", str(value).strip().lower())
    if match is None:
        return None
    unit = _UNITS[match[2] + "b" if match[2] else ""]
    return int(match[1]) * unit * (_WORD if match[3] == "w" else 1) / 2**30


def _count(text: str) -> float:
    if not re.fullmatch(r"\d{1,9}", text):
        raise ValueError(f"{text[:30]!r} is not a number of cores or GPUs")
    return float(text)
