"""What jobs asked of shared nodes, where accounting tells it, in place of their share of each node."""

from __future__ import annotations

import re
from collections.abc import Collection

import polars as pl

from hpctwin.errors import WorkloadError
from hpctwin.model.requests.consumables import COLUMN, GPU_TYPE, amount_of
from hpctwin.model.requests.pbs_requests import is_consumable
from hpctwin.model.requests.requests import parse_request

__all__ = ["as_asked", "had_of", "held_of"]


def had_of(frame: pl.DataFrame, names: Collection[str]) -> tuple[list[pl.Expr], dict[str, int]]:
    """What jobs had of the consumables of nodes, as columns of what each of their nodes gave.

    Args:
        frame: with columns ``consumables`` and ``nodes``, as of `RECORD`.
        names: of those that nodes have.

    Returns:
        The columns, and how many jobs had others, by what is to be said of them.
    """
    of_jobs, others = _amounts(frame["consumables"], names)
    found = []
    for name, amount in of_jobs.items():
        each = pl.lit(amount / frame["nodes"])
        if name.startswith(GPU_TYPE):  # whole on each node, as GPUs are
            each = pl.when(each > 1).then(each.ceil()).otherwise(each)
        found.append(each.alias(f"{COLUMN}{name}"))
    # Which of its GPUs a machine of one type only has needs not be said.
    others = {name: jobs for name, jobs in others.items() if not name.startswith(GPU_TYPE)}
    why = "job that had {}, of which no node is said to have any, taken without"
    return found, {why.format(name): jobs for name, jobs in others.items()}


def held_of(frame: pl.DataFrame, names: Collection[str]) -> tuple[list[pl.Expr], dict[str, int]]:
    """What jobs held of the cluster's licences, as columns of its resources.

    Args:
        frame: with column ``licences``, as of `RECORD`.
        names: of those that the cluster has.

    Returns:
        The columns, and how many jobs held others, by what is to be said of them.
    """
    of_jobs, others = _amounts(frame["licences"], names)
    found = [pl.lit(held.cast(pl.Int64)).alias(f"res_{name}") for name, held in of_jobs.items()]
    why = "job that held the licence {}, which the settings do not have, taken without"
    return found, {why.format(name): jobs for name, jobs in others.items()}


def _amounts(
    texts: pl.Series, names: Collection[str]
) -> tuple[dict[str, pl.Series], dict[str, int]]:
    """How much each job had of what is named, where any had; and how many jobs had something else."""
    had = {
        text: dict(pair.split("=", 1) for pair in text.split(",") if "=" in pair)
        for text in texts.unique().drop_nulls().to_list()
    }
    others = {
        name: int(texts.is_in([text for text, one in had.items() if name in one]).sum())
        for name in sorted({name for one in had.values() for name in one} - set(names))
    }
    found = {}
    for name in names:
        of_job = {text: _amount(one[name]) for text, one in had.items() if name in one}
        if of_job:
            found[name] = texts.replace_strict(of_job, default=0.0, return_dtype=pl.Float64)
    return found, others


def _amount(text: str) -> float:
    try:
        return amount_of(text)
    except ValueError:
        return 0.0


def as_asked(
    jobs: pl.DataFrame, request: pl.Series, consumables: Collection[str] = ()
) -> pl.DataFrame:
    """Jobs with a column ``request`` in place of tasks, where one is told that is understood.

    Args:
        jobs: in our own columns, each with its share of each of its nodes as a task.
        request: of each, as `hpctwin.model.requests.requests` reads it; null if nothing is told.
        consumables: names of those that nodes have; what else chunks asked for is not looked at.
    """
    texts = {text: _known_alone(text, consumables) for text in request.unique().drop_nulls()}
    request = request.replace_strict(texts, default=None, return_dtype=pl.String)
    understood = {text: _is_understood(text) for text in set(texts.values())}
    told = request.replace_strict(understood, default=False, return_dtype=pl.Boolean)
    if not told.any():
        return jobs
    shares = [name for name in jobs.columns if name in ("nodes", "tasks") or "_per_task" in name]
    return jobs.with_columns(
        request.zip_with(told, pl.Series([None], dtype=pl.String)).alias("request"),
        *(pl.when(~told).then(pl.col(name)).alias(name) for name in shares),
    )


def _known_alone(text: str, consumables: Collection[str]) -> str:
    """A request without the consumables that no node has."""
    return re.sub(
        r":([\w.-]+)=([^:+\s]*)",
        lambda m: "" if m[1] not in consumables and is_consumable(m[1], m[2]) else m[0],
        text,
    )


def _is_understood(text: str) -> bool:
    try:
        parse_request(text)
    except WorkloadError:
        return False
    return True
