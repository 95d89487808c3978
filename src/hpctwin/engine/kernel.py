"""The compiled entry to the engine, and the compiled types of its arguments."""

from __future__ import annotations

import numba
import numpy as np
from numba import float64, int64, types

from hpctwin.engine import loop
from hpctwin.engine.abi import JobView
from hpctwin.engine.jit import jit
from hpctwin.engine.layout import Jobs, Machine, Rules, Sim, Work

__all__ = ["ADVANCE_SIGNATURE", "ORDER_SIGNATURE", "advance", "reorder"]

_VIEW = types.NamedUniTuple(float64, len(JobView._fields), JobView)
ORDER_SIGNATURE = float64(float64, _VIEW)
"""Signature of a compiled ordering: ``(now in seconds, JobView) -> score``."""

ORDER = types.FunctionType(ORDER_SIGNATURE)
_ELEMENTS = {"I64": np.int64, "I8": np.int8, "F64": np.float64}


def bundle(cls: type) -> types.NamedTuple:
    """The compiled type of a bundle of arrays, from its annotations in `layout`."""
    arrays = []
    for annotation in cls.__annotations__.values():
        element, _, dimensions = annotation.__forward_arg__.partition("x")
        dtype = numba.from_dtype(np.dtype(_ELEMENTS[element]))
        arrays.append(types.Array(dtype, int(dimensions or 1), "C"))
    return types.NamedTuple(arrays, cls)


JOBS, MACHINE, SIM, WORK = (bundle(cls) for cls in (Jobs, Machine, Sim, Work))
RULES = types.NamedTuple([int64] * (len(Rules._fields) - 1) + [float64], Rules)

ADVANCE_SIGNATURE = int64(ORDER, ORDER, JOBS, MACHINE, SIM, RULES, WORK, int64, int64)
advance = jit(ADVANCE_SIGNATURE)(loop.advance)
reorder = jit(types.void(ORDER, JOBS, SIM, RULES, WORK))(loop.reorder)
