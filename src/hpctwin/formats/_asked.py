"""What jobs asked of shared nodes, where accounting tells it, in place of their share of each node."""

from __future__ import annotations

import polars as pl

from hpctwin.errors import WorkloadError
from hpctwin.model.requests import parse_request

__all__ = ["as_asked"]


def as_asked(jobs: pl.DataFrame, request: pl.Series) -> pl.DataFrame:
    """Jobs with a column ``request`` in place of tasks, where one is told that is understood.

    Args:
        jobs: in our own columns, each with its share of each of its nodes as a task.
        request: of each, as `hpctwin.model.requests` reads it; null if nothing is told.
    """
    understood = {text: _is_understood(text) for text in request.unique().drop_nulls()}
    told = request.replace_strict(understood, default=False, return_dtype=pl.Boolean)
    if not told.any():
        return jobs
    shares = [name for name in jobs.columns if name in ("nodes", "tasks") or "_per_task" in name]
    return jobs.with_columns(
        request.zip_with(told, pl.Series([None], dtype=pl.String)).alias("request"),
        *(pl.when(~told).then(pl.col(name)).alias(name) for name in shares),
    )


def _is_understood(text: str) -> bool:
    try:
        parse_request(text)
    except WorkloadError:
        return False
    return True
