"""Consumables: other node resources that running jobs use up.

Cores, memory and GPUs are not among them.

Examples are scratch space and FPGAs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, Field

from hpctwin.errors import WorkloadError

__all__ = [
    "COLUMN",
    "GPU_TYPE",
    "MOST",
    "NAME",
    "NOT_CONSUMED",
    "Amount",
    "amount_of",
    "check_names",
    "checked_consumables",
]

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
        raise ValueError(f"{text!r} is no amount, such as 2, 100G or 100gb")
    return float(match[1]) * (_SIZES[unit] if unit in _SIZES else _POWERS[unit])


def check_names(names: Iterable[str]) -> None:
    """Check that consumables may have these names.

    Raises:
        ValueError: One may not.
    """
    for name in names:
        if name in _TAKEN or not re.fullmatch(NAME, name):
            why = "that is something else" if name in _TAKEN else "that is no name"
            raise ValueError(
                f"consumable {name!r}: {why}; write a name of its own, such as fpga or scratch_gb"
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
        ids: Ids of the jobs, for messages.

    Raises:
        WorkloadError: A name or an amount is invalid.
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
                f"job {ids[row]}: {COLUMN}{name} is {column[row]:g}, it must be a number from 0 to {MOST:g}"
            )
        found[name] = column
    return found
