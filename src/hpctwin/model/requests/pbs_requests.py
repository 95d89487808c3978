"""Requests of jobs in the words of PBS and Torque.

Source:
    PBS Professional Reference Guide 2022.1, qsub(1B) and pbs_resources(7B); Torque 6.1
    Administrator Guide, "Requesting resources".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from hpctwin.model.requests.resources import check_names

_UNITS = {"": 1, "b": 1, "kb": 2**10, "mb": 2**20, "gb": 2**30, "tb": 2**40, "pb": 2**50}
_WORD = 8
"""Bytes of a word, in which PBS sizes may be given (``kw``, ``mw`` …)."""

MOST_CHUNKS = 1_000_000

DEFAULT_PROJECT = "_pbs_project_default"
"""Project of a job that has none."""

_OF_NODES = {"ncpus", "mpiprocs", "ompthreads", "mem", "vmem", "ngpus"}
_OF_PBS = {"host", "vnode", "arch", "aoe", "eoe", "nchunk", "pcpus", "hpctwin", "hpctwin_wait"}
"""Resources of PBS itself that jobs do not use up, and those of the twin."""
_GPU_MODES = {"default", "exclusive", "exclusive_process", "exclusive_thread", "reseterr", "shared"}


@dataclass(frozen=True)
class Chunk:
    """Equal parts of a request.

    Args:
        count: Number of parts.
        cores, gpus, memory_gb: Request of each part.
        others: Further requests of each part, as ``name=value``, or as the name of a host or
            property.
        consumables: Resources of the site that each part uses up, and the amounts; sizes in GB.
    """

    count: int
    cores: float
    gpus: float
    memory_gb: float
    others: tuple[str, ...] = ()
    consumables: tuple[tuple[str, float], ...] = ()

    @property
    def properties(self) -> tuple[str, ...]:
        """Names that each node must have, sorted; modes of GPUs are excluded."""
        names = filter(re.compile(r"[\w.-]+").fullmatch, self.others)
        return tuple(sorted(name for name in names if name.lower() not in _GPU_MODES))


def parse_select(text: str) -> tuple[Chunk, ...]:
    """Read a select statement such as ``2:ncpus=8:mem=4gb+1:ncpus=1``.

    Raises:
        ValueError: The text is none.
    """
    chunks = []
    for part in text.strip().strip('"').split("+"):
        first, *others = part.strip().split(":")
        if first.isdecimal():
            count, pairs = int(first), others
        else:
            count, pairs = 1, [first, *others]
        if not 1 <= count <= MOST_CHUNKS:
            raise ValueError(f"select {text[:60]!r} asks for {count} chunks")
        for pair in pairs:
            name, equals, _ = pair.partition("=")
            if not equals or not name:
                raise ValueError(f"select {text[:60]!r}: {pair[:30]!r} is not name=value")
        chunks.append(_chunk(count, pairs))
    return tuple(chunks)


def parse_nodes(text: str) -> tuple[Chunk, ...]:
    """Read Torque's node specification.

    Examples are ``2:ppn=8:gpus=1+host1:ppn=4`` and ``4:bigmem#shared``. Each chunk is one node.
    Names of hosts and properties are in its ``others``.

    Raises:
        ValueError: The text is none.
    """
    chunks = []
    for part in text.partition("#")[0].strip('"').split("+"):
        first, *words = part.strip().split(":")
        if not first:
            raise ValueError(f"nodes={text[:60]} names no nodes; write a number, such as 2:ppn=8")
        if not first.isdecimal():
            first, words = "1", [f"host={first}", *words]
        words = [word for word in words if word != "ppn=all"]
        same = {"ppn": "ncpus", "gpus": "ngpus"}
        pairs = [
            same.get(n, n) + e + v for n, e, v in (word.partition("=") for word in words if word)
        ]
        if not 1 <= int(first) <= MOST_CHUNKS:
            raise ValueError(f"nodes={text[:60]} asks for {first} nodes")
        chunks.append(_chunk(int(first), pairs))
    return tuple(chunks)


def _chunk(count: int, pairs: Iterable[str]) -> Chunk:
    """Return a chunk from pairs ``name=value``; a name without a value is a property."""
    asked = dict(pair.partition("=")[::2] for pair in pairs)
    memory = memory_gb(asked.get("mem", "0"))
    if memory is None:
        raise ValueError(f"mem={asked['mem'][:30]} is not a size, such as 4gb")
    return Chunk(
        count,
        _count(asked.get("ncpus", asked.get("mpiprocs", "1"))),
        _count(asked.get("ngpus", "0")),
        memory,
        tuple(f"{n}={v}" if v else n for n, v in asked.items() if n not in _OF_NODES),
        tuple((n, amount_said(v) or 0.0) for n, v in asked.items() if is_consumable(n, v)),
    )


def resources_in(text: str) -> dict[str, str]:
    """Return a list of resources by name.

    An example is ``select=2:ncpus=4,walltime=1:00:00``.
    """
    found = re.split(r",(?=\s*[A-Za-z][\w.]*(?:=|,|$))", text)
    return {n.strip(): v.strip().strip("\"'") for n, _, v in (one.partition("=") for one in found)}


def parse_duration(value: object) -> float | None:
    """Return the seconds of ``HH:MM:SS``, ``MM:SS`` or a number, else None."""
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
    """Return whether a chunk's ``name=value`` requests an amount of a site's resource."""
    try:
        check_names([name])
    except ValueError:
        return False
    if name in _OF_NODES or name in _OF_PBS:
        return False
    return amount_said(said) is not None


def amount_said(value: object) -> float | None:
    """Return a number, or a size in GB, as PBS writes them; None for other values."""
    said = str(value).strip()
    if re.fullmatch(r"\d{1,15}(\.\d{1,9})?", said):
        return float(said)
    return memory_gb(said)


def memory_gb(value: object) -> float | None:
    """Return the gigabytes (2³⁰ bytes) of a PBS size.

    Examples are ``24684084kb`` and ``2gw``.

    None for other values.
    """
    match = re.fullmatch(r"(\d{1,18})([kmgtp]?)([bw]?)", str(value).strip().lower())
    if match is None:
        return None
    unit = _UNITS[match[2] + "b" if match[2] else ""]
    return int(match[1]) * unit * (_WORD if match[3] == "w" else 1) / 2**30


def _count(text: str) -> float:
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text):
        raise ValueError(f"{text[:30]!r} is not a number of cores or GPUs")
    return float(text)
