"""Consumable resources of nodes, and Slurm's generic resources (GRES).

Consumables are other node resources that running jobs use up, such as scratch space and FPGAs.
Cores, memory and GPUs are not among them.

Source:
    Manual pages slurm.conf(5) (Gres of a node), gres.conf(5) and sbatch(1) (``--gres``), 20.11 to
    25.05. Slurm reads the last part of an item as a count if it is digits with an optional suffix,
    else as a type.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, Field

from hpctwin.errors import WorkloadError

FloatArray = npt.NDArray[np.float64]

COLUMN = "consumable_"
"""Prefix of the columns with the jobs' requests."""

NAME = r"[A-Za-z][\w./-]{0,62}"
"""Pattern of names of consumables."""

GPU_TYPE = "gpu/"
"""Prefix of consumables that are GPUs of one type, such as ``gpu/a100``.

These GPUs count in ``gpus``.
"""

MOST = 1e15
"""Largest amount of a consumable in a node: a petabyte, in bytes."""

NOT_CONSUMED = ("gpu", "shard", "mps")
"""Generic resources of Slurm that are GPUs, or parts of them."""

_TAKEN = (
    "cores", "core", "cpus", "cpu", "ncpus", "memory_gb", "memory", "mem", "mem_gb", "gpus", "gpu", "ngpus",
    "nodes", "tasks", "job_id", "node", "start_s", "end_s", "time_s",
)  # fmt: skip
_POWERS = {"": 1, **{unit: 1024 ** (n + 1) for n, unit in enumerate("kmgtp")}}
_SIZES = {unit: 1024.0**n for n, unit in enumerate(("b", "kb", "mb", "gb", "tb", "pb"), -3)}


def amount_of(text: str) -> float:
    """Return an amount as users and sites write it.

    Args:
        text: A number; one with K, M, G, T or P (times 1024, 1024², …), as in Slurm; or a size with
            b, kb, mb, gb, tb or pb as in PBS, which becomes GB.

    Raises:
        ValueError: It is none of these.
    """
    match = re.fullmatch(r"(\d{1,18}(?:\.\d{1,9})?)([A-Za-z]*)", text.strip())
    unit = match[2].lower() if match else "?"
    if match is None or unit not in {**_POWERS, **_SIZES}:
        raise ValueError(f"{text!r} is not an amount, such as 2, 100G or 100gb")
    return float(match[1]) * (_SIZES[unit] if unit in _SIZES else _POWERS[unit])


def check_names(names: Iterable[str]) -> None:
    """Check that consumables may have these names."""
    for name in names:
        if name in _TAKEN or not re.fullmatch(NAME, name):
            why = "the name is reserved" if name in _TAKEN else "the name is not valid"
            raise ValueError(
                f"consumable {name!r}: {why}; write another name, such as fpga or scratch_gb"
            )


def _read(value: Any) -> Any:
    return amount_of(value) if isinstance(value, str) else value


Amount = Annotated[
    float,
    BeforeValidator(_read, json_schema_input_type=float | str),
    Field(ge=0, le=MOST, allow_inf_nan=False),
]
"""Amount of a consumable, as a number or as `amount_of` reads it."""


def checked_consumables(
    given: Mapping[str, npt.ArrayLike] | None, ids: npt.NDArray[Any]
) -> dict[str, FloatArray]:
    """Return the jobs' requests of each consumable [jobs].

    Args:
        given: Columns by the names of consumables; NaN if a job requests none.
    """
    found = {}
    for name, values in (given or {}).items():
        try:
            check_names([name])
        except ValueError as error:
            raise WorkloadError(str(error)) from error
        column = np.array(values, np.float64)
        if column.shape != ids.shape:
            raise WorkloadError(
                f"column {COLUMN}{name} has shape {column.shape}, expected {ids.shape}"
            )
        column = np.where(np.isnan(column), 0.0, column)
        wrong = (column < 0) | (column > MOST)
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise WorkloadError(
                f"job {ids[row]}: {COLUMN}{name} is {column[row]:g}; it must be a number from 0 to {MOST:g}"
            )
        found[name] = column
    return found


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
