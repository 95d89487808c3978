"""Slurm's generic resources (GRES) in slurm.conf, scontrol, sacct and requests.

Source:
    Manual pages slurm.conf(5) (Gres of a node), gres.conf(5) and sbatch(1) (``--gres``), 20.11 to
    25.05. Slurm reads the last part of an item as a count if it is digits with an optional suffix,
    else as a type.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Gres", "gres_count", "parse_gres"]

_NOTHING = ("", "n/a", "none", "null")
_PREFIX = re.compile(r"(?:PER_[A-Z]+:)?(gres[:/])?", re.IGNORECASE)
_COUNT = re.compile(r"(\d{1,15})(?:([KMGTP])(i?B)?)?", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z][\w./-]*")


class Gres(NamedTuple):
    """One generic resource of a node or a job.

    Args:
        name: Name: ``gpu``, ``shard``, ``fpga``, …
        kind: Type, such as ``2080ti`` or ``1g.10gb``; empty if it has none.
        amount: Amount; 1 if no count is written.
        consumed: False if it has the flag ``no_consume``: jobs do not use it up.
        detail: Text in parentheses, such as ``S:0-1`` or ``IDX:0,2``.
        tres: Whether it is written as a TRES, with ``gres/`` or ``gres:`` before it.
    """

    name: str
    kind: str
    amount: float
    consumed: bool
    detail: str
    tres: bool


def parse_gres(text: object) -> Iterator[Gres]:
    """Read the generic resources of a text; other parts are ignored.

    Args:
        text: A list with commas of ``name[:type][:no_consume][:count][(…)]``, or a TRES text such
            as ``cpu=4,gres/gpu:a100=2``. Anything but a string has no resources.
    """
    if not isinstance(text, str):
        return
    for part in re.split(r",(?![^(]*\))", text.replace("(null)", "")):
        item, _, detail = part.strip().partition("(")
        prefix = _PREFIX.match(item)
        assert prefix is not None
        said, equals, given = item[prefix.end() :].strip().partition("=")
        name, *words = said.split(":")
        if name.lower() in _NOTHING or not _NAME.fullmatch(name):
            continue
        words = [word for word in words if word]
        consumed = "no_consume" not in words
        words = [word for word in words if word != "no_consume"]
        count = gres_count(given) if equals else None
        if not equals and words and (count := gres_count(words[-1])) is not None:
            words.pop()
        if equals and count is None:
            continue
        held = re.match(r"CNT:(\d+)", detail)
        if held:
            count = float(held[1])
        yield Gres(
            name,
            ":".join(words),
            1.0 if count is None else count,
            consumed,
            detail.rstrip(")"),
            prefix[1] is not None,
        )


def gres_count(text: str) -> float | None:
    """Read a count: digits, optionally with K, M, G, T or P; None for other texts.

    K is 1,024 and KB is 1,000, as Slurm multiplies them.
    """
    match = _COUNT.fullmatch(text.strip())
    if match is None:
        return None
    base = 1000.0 if (match[3] or "").lower() == "b" else 1024.0
    return float(match[1]) * base ** (" KMGTP".index((match[2] or " ").upper()))
