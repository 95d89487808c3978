"""Filter, sort and page the jobs of a cluster or a run; groups of jobs by color."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import polars as pl
from pydantic import Field

from hpctwin.model import format_duration
from hpctwin.rms.records.records import Label
from hpctwin.web.views.views import Asked, JobView

__all__ = [
    "MOST_GROUPS",
    "OTHERS",
    "Groups",
    "JobFilter",
    "LiveJobFilter",
    "Meaning",
    "RunJobFilter",
    "groups_of",
    "job_table",
    "selected",
]

MOST_JOBS = 5000

SortColumn = Literal[
    "id", "user", "account", "partition", "state", "nodes", "walltime_s", "submit_s", "start_s",
    "end_s", "wait_s",
]  # fmt: skip
Names = list[Label]


class JobFilter(Asked):
    """Which jobs to return, and in which order.

    A job matches a list if it has one of its values; it must match all given filters.
    """

    find: str = Field(
        "", max_length=128, description="Whole id, or text in user, account or partition."
    )
    user: Names = Field([], max_length=100, description="Users; default all.")
    account: Names = Field([], max_length=100, description="Accounts; default all.")
    partition: Names = Field([], max_length=100, description="Partitions; default all.")
    min_nodes: int | None = Field(None, ge=0, le=10**9, description="Minimum number of nodes.")
    max_nodes: int | None = Field(None, ge=0, le=10**9, description="Maximum number of nodes.")
    min_wait_s: float | None = Field(
        None, ge=0, le=1e11, allow_inf_nan=False, description="Minimum wait so far, in seconds."
    )
    max_wait_s: float | None = Field(
        None, ge=0, le=1e11, allow_inf_nan=False, description="Maximum wait so far, in seconds."
    )
    sort: Literal["default", SortColumn] = Field(
        "default",
        description="Column to sort by; default pending jobs by forecast start, then others.",
    )
    order: Literal["asc", "desc"] = Field("asc", description="Ascending or descending order.")
    limit: int = Field(500, ge=1, le=MOST_JOBS, description="Maximum number of jobs to return.")
    offset: int = Field(0, ge=0, le=10**9, description="Number of matching jobs to skip.")


class LiveJobFilter(JobFilter):
    """Which jobs of a live cluster to return."""

    state: list[Literal["waiting", "running"]] = Field(
        [], max_length=2, description="States; default all."
    )
    qos: Names = Field([], max_length=100, description="Qualities of service; default all.")


class RunJobFilter(JobFilter):
    """Which jobs of a simulated run to return."""

    state: Names = Field([], max_length=100, description="States; default all.")


def job_table(jobs: Sequence[JobView]) -> pl.DataFrame:
    """Return the columns of jobs to filter and sort by, and each job's position ``at``."""
    return pl.DataFrame(
        {
            "at": range(len(jobs)),
            **{
                name: [getattr(job, name) for job in jobs]
                for name in (*get_args(SortColumn), "qos")
            },
        },
        schema={
            "at": pl.Int64,
            **dict.fromkeys(("id", "user", "account", "partition", "state"), pl.String),
            "nodes": pl.Int64,
            **dict.fromkeys(("walltime_s", "submit_s", "start_s", "end_s", "wait_s"), pl.Float64),
            "qos": pl.String,
        },
    )


_SETS = ("state", "user", "account", "partition", "qos")


def selected(jobs: pl.DataFrame, asked: JobFilter) -> tuple[int, pl.DataFrame]:
    """Return the number of matching jobs, and the rows of the requested page.

    Args:
        jobs: All jobs in their default order, with the columns to filter and sort by.
        asked: Filters, order and page.
    """
    kept = [pl.col(name).is_in(values) for name in _SETS if (values := getattr(asked, name, None))]
    for column in ("nodes", "wait_s"):
        if (least := getattr(asked, f"min_{column}")) is not None:
            kept.append(pl.col(column) >= least)
        if (most := getattr(asked, f"max_{column}")) is not None:
            kept.append(pl.col(column) <= most)
    if asked.find:
        kept.append(
            pl.any_horizontal(
                pl.col("id").cast(pl.String) == asked.find,
                *(
                    pl.col(name).str.to_lowercase().str.contains(asked.find.lower(), literal=True)
                    for name in ("user", "account", "partition")
                ),
            )
        )
    found = jobs.filter(*kept) if kept else jobs
    if asked.sort != "default":
        by = [pl.col(asked.sort)]
        if asked.sort == "id" and jobs["id"].dtype == pl.String:
            # Job 99 is before job 100.
            by.insert(0, pl.col("id").str.extract(r"^(\d{1,18})").cast(pl.Int64))
        # Only rows of the page are copied: a run may have millions of jobs.
        down = asked.order == "desc"
        order = pl.arg_sort_by(by, descending=down, nulls_last=True, maintain_order=True)
        rows = found.select(order).to_series().slice(asked.offset, asked.limit)
        return len(found), found[rows]
    return len(found), found.slice(asked.offset, asked.limit)


Meaning = Literal["user", "account", "partition", "wait", "state", "size"]

MOST_GROUPS = 7
"""Number of colors that people can distinguish; the same in static/colours.js."""
OTHERS = MOST_GROUPS
"""Number of the group of all other jobs."""

_WAITS_S = (60.0, 600.0, 3600.0, 6 * 3600.0, 86400.0, 7 * 86400.0)
_SIZES = (1, 4, 16, 64, 256, 1024)


class Groups(NamedTuple):
    """Groups of N boxes.

    Args:
        names: Names of the groups, in words.
        number: Group of each box: the index of its name, or `OTHERS` [N].
        ordered: Whether the groups are steps of a quantity.
    """

    names: tuple[str, ...]
    number: npt.NDArray[np.uint8]
    ordered: bool


def groups_of(by: Meaning, values: pl.Series) -> Groups:
    """Return the groups of boxes.

    Args:
        by: Meaning of the groups.
        values: Name, wait in seconds, or number of nodes of each box's job; null if unknown.
    """
    if by == "wait":
        texts = [format_duration(one) for one in _WAITS_S]
        names = (*(f"up to {text}" for text in texts), f"above {texts[-1]}")
        return _steps(values, _WAITS_S, names)
    if by == "size":
        begins = [low + 1 for low in _SIZES]
        spans = [f"{low:,} to {high:,}" for low, high in zip(begins[:-1], _SIZES[1:], strict=True)]
        return _steps(values, _SIZES, ("1 node", *spans, f"above {_SIZES[-1]:,}"))
    named = values.cast(pl.String).replace("", None).alias("name")
    counts = named.drop_nulls().value_counts().sort("count", "name", descending=[True, False])
    names = tuple(counts["name"].head(MOST_GROUPS).to_list())
    number = named.replace_strict(
        {name: i for i, name in enumerate(names)}, default=OTHERS, return_dtype=pl.UInt8
    )
    return Groups(names, number.to_numpy(), ordered=False)


def _steps(values: pl.Series, upto: tuple[float, ...], names: tuple[str, ...]) -> Groups:
    numbers = values.cast(pl.Float64).to_numpy()
    number = np.searchsorted(np.array(upto), numbers, side="left")
    number[np.isnan(numbers)] = OTHERS
    return Groups(names, number.astype(np.uint8), ordered=True)
