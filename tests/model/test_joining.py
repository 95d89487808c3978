"""Workloads one after the other."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from hpctwin import Workload
from hpctwin.errors import WorkloadError
from hpctwin.model import Category
from hpctwin.model.workload.joining import joined, plain


def workload(ids: list[Any], submit_s: list[float], **more: Any) -> Workload:
    return Workload.build(
        job_id=ids, submit_s=submit_s, runtime_s=[5] * len(ids), nodes=[1] * len(ids), **more
    )


def contents(value: Any) -> Any:
    """A field in plain values; labels for codes."""
    if isinstance(value, Category):
        return [None if code < 0 else value.labels[code] for code in value.codes]
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {name: contents(one) for name, one in value.items()}
    return None if dataclasses.is_dataclass(value) else value


def test_the_parts_of_a_workload_are_together_the_workload_in_every_field() -> None:
    labels = [Category.of([*"abcda", None]) for _ in range(5)]
    names = ("user", "account", "partition", "qos", "features")
    whole = plain(
        workload(
            [1, 2, 3, 4, 5, 6],
            [0, 0, 1, 1, 1, 2],
            **dict(zip(names, labels, strict=True)),
            priority=[1, 2, 3, 4, 5, 6],
            per_node={"cores": [1, 2, 3, 4, 5, 6]},
            resources={"licence": [6, 5, 4, 3, 2, 1]},
            chunks={"tasks": [1, 2, 3, 4, 5, 6], "cores_per_task": [2] * 6},
            cancel_s=[-1, 3, -1, 4, -1, -1],
            recorded_start_s=[1, 2, 3, 4, 5, 6],
            fails=[False, True, False, False, True, False],
        )
    )
    # Jobs of one instant come in both.
    first, second = whole.take(np.array([0, 2, 4])), whole.take(np.array([1, 3, 5]))
    found, to, new = joined(first, second)
    assert (to.tolist(), new.tolist()) == ([0, 2, 4], [1, 3, 5])
    for field in dataclasses.fields(Workload):
        one, other = getattr(found, field.name), getattr(whole, field.name)
        assert contents(one) == contents(other), field.name


def test_fields_of_only_one_table_are_unknown_or_zero_in_the_other() -> None:
    first = workload([1], [0], user=Category.of(["ada"]), resources={"licence": [2]})
    second = workload([2], [1], per_node={"gpus": [1]}, fails=[True])
    found, *_ = joined(first, second)
    assert contents(found.user) == ["ada", None]
    assert found.resources["licence"].tolist() == [2, 0]
    assert found.per_node["gpus"].tolist() == [0, 1]
    assert found.fails is not None
    assert found.fails.tolist() == [False, True]


@pytest.mark.parametrize(
    ("ids", "told"),
    [([1], "job id 1 is used more than once"), (["a"], "job ids were whole numbers")],
)
def test_ids_are_of_one_kind_and_distinct(ids: list[Any], told: str) -> None:
    with pytest.raises(WorkloadError, match=told):
        joined(workload([1], [0]), workload(ids, [1]))
