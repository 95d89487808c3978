from __future__ import annotations

import datetime as dt
import math
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin.errors import HpctwinError, WorkloadError
from hpctwin.formats import read_workload
from hpctwin.model import Category, Workload


@given(numbers=st.lists(st.integers(-3, 12) | st.integers(-(2**40), 2**40)))
def test_whole_numbers_near_each_other_or_far_apart_become_the_same_labels(
    numbers: list[int],
) -> None:
    found = Category.of(np.array(numbers, np.int64))
    assert found.labels == tuple(map(str, sorted({*numbers} - {-1})))
    assert found.codes.dtype == np.int32
    assert [None if c < 0 else found.labels[c] for c in found.codes] == [
        None if n == -1 else str(n) for n in numbers
    ]


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([1.0, 2.0, None], ["1", "2", None]),
        ([1.0, math.nan, -1.0], ["1", None, None]),
        ([1.25, 1.75, math.nan], ["1.25", "1.75", None]),
        (["a", "", None], ["a", None, None]),
        (pl.Series([2**64 - 1, 1], dtype=pl.UInt64), [str(2**64 - 1), "1"]),
    ],
)
def test_labels_are_the_same_in_a_frame_and_in_a_file(
    values: object, labels: list[str | None], tmp_path: Path
) -> None:
    size = len(labels)
    frame = pl.DataFrame(
        {"submit_s": range(size), "runtime_s": [1] * size, "nodes": [1] * size, "user": values}
    )
    frame.write_parquet(tmp_path / "w.parquet")
    for workload in (Workload.from_frame(frame), read_workload(tmp_path / "w.parquet")):
        assert workload.user.to_series("user").to_list() == labels


COLUMNS = [
    "job_id", "submit_s", "runtime_s", "nodes", "walltime_s", "user", "tasks", "cancel_s", "depends",
    "recorded_nodes", "features", "flops", "res_x", "gpus_per_node", "use_cpu", "predicted_node_w",
]  # fmt: skip
TYPES = {
    "list": pl.Series([[1]] * 3),
    "struct": pl.Series([{"a": 1}] * 3),
    "bytes": pl.Series([b"\xff"] * 3),
    "date": pl.Series([dt.date(2024, 1, 1)] * 3),
    "time": pl.Series([dt.datetime(2024, 1, 1)] * 3),
    "duration": pl.Series([dt.timedelta(seconds=5)] * 3),
    "decimal": pl.Series([Decimal("1.5")] * 3),
    "huge": pl.Series([2**64] * 3, dtype=pl.Int128),
    "large": pl.Series([1e300] * 3),
    "category": pl.Series(["a"] * 3, dtype=pl.Categorical),
    "nan": pl.Series([math.nan] * 3),
}


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", COLUMNS)
def test_whatever_type_a_column_has_the_answer_is_a_workload_or_an_error_of_hpctwin(
    name: str, kind: str, tmp_path: Path
) -> None:
    whole = {"submit_s": [0, 1, 2], "runtime_s": [1, 1, 1], "nodes": [1, 1, 1]}
    frame = pl.DataFrame({**whole, name: TYPES[kind]})
    frame.write_parquet(tmp_path / "w.parquet")
    for read in (
        lambda: Workload.from_frame(frame),
        lambda: read_workload(tmp_path / "w.parquet"),
    ):
        with suppress(HpctwinError):
            assert len(read()) == 3


def test_durations_in_a_frame_are_seconds_and_dates_are_rejected() -> None:
    whole = {"submit_s": [0, 1], "runtime_s": [dt.timedelta(seconds=90)] * 2, "nodes": [1, 1]}
    assert Workload.from_frame(pl.DataFrame(whole)).runtime_ms.tolist() == [90_000, 90_000]
    dated = pl.DataFrame({**whole, "submit_s": [dt.datetime(2024, 1, 1)] * 2})
    with pytest.raises(WorkloadError, match="column submit_s holds Datetime"):
        Workload.from_frame(dated)


@pytest.mark.parametrize("name", ["submit_s", "runtime_s", "walltime_s", "nodes", "cancel_s"])
def test_numbers_that_milliseconds_cannot_hold_are_rejected(name: str) -> None:
    columns = {"submit_s": [0.0], "runtime_s": [1.0], "nodes": [1.0], name: [1e16]}
    with pytest.raises(WorkloadError, match=f"{name} is 1e\\+16; .* up to 1e\\+12"):
        Workload.build(**columns)  # type: ignore[arg-type]


def test_a_missing_id_is_an_error_and_whole_floats_are_numbers() -> None:
    whole = {"submit_s": [0, 1], "runtime_s": [1, 1], "nodes": [1, 1]}
    assert Workload.from_frame(pl.DataFrame({**whole, "job_id": [3.0, 4.0]})).job_id.tolist() == [
        3,
        4,
    ]
    with pytest.raises(WorkloadError, match="row 1: job_id is empty"):
        Workload.from_frame(pl.DataFrame({**whole, "job_id": [3, None]}))
