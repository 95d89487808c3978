"""Every capacity model has the operations that backfills are written with."""

from __future__ import annotations

import inspect

import pytest

from hpctwin.engine.capacity_models import (
    PARTICULAR_NODES,
    PREEMPTING_SHARED,
    PREEMPTING_WHOLE,
    SHARED_NODES,
    WHOLE_NODES,
    Capacity,
    CapacityModel,
)

OPERATIONS = {
    name: list(inspect.signature(value.__func__).parameters)
    for name, value in vars(Capacity).items()
    if isinstance(value, staticmethod)
}
ALL = [WHOLE_NODES, SHARED_NODES, PREEMPTING_WHOLE, PREEMPTING_SHARED, PARTICULAR_NODES]


@pytest.mark.parametrize("model", ALL, ids=lambda model: model.name)
def test_it_has_the_operations_with_their_parameters(model: CapacityModel) -> None:
    has = OPERATIONS.keys() & set(model.operations.__all__)
    if model is not PARTICULAR_NODES:
        assert has >= OPERATIONS.keys()
    for name in has:
        function = getattr(model.operations, name).py_func
        assert list(inspect.signature(function).parameters) == OPERATIONS[name], name
