"""Arrays that kernels find by a record of their addresses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["describe"]


def describe(
    record: npt.NDArray[Any], arrays: Mapping[str, npt.NDArray[Any]]
) -> npt.NDArray[np.int64]:
    """Write where arrays are into the fields of a record with their names.

    Args:
        record: One record.
        arrays: Arrays by field; they must outlive the record.

    Returns:
        What the fields refer to; it must outlive the record too.
    """
    descriptors = np.zeros((len(arrays), 3), np.int64)
    for number, (name, array) in enumerate(arrays.items()):
        descriptors[number] = array.ctypes.data, array.size, 1
        record[name] = descriptors[number].ctypes.data
    return descriptors
