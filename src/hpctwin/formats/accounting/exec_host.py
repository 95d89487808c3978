"""Cores, GPUs and memory on each host, from ``exec_host`` and ``nodes=``.

Torque and old versions of PBS Pro record no ``exec_vnode``. Their records get one here, so that the
later steps read one form.

Source:
    Torque 6.1, "Accounting records" and "Requesting resources"; PBS Pro Reference Guide,
    "exec_host".
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from hpctwin.model.requests.pbs_requests import Chunk, parse_nodes

_INDEX = r"^(?<first>\d{1,9})(?:-(?<last>\d{1,9})|\*(?<cores>\d{1,9}))?$"


def with_exec_vnode(frame: pl.DataFrame) -> pl.DataFrame:
    """Fill ``exec_vnode`` from ``exec_host``, and read what ``nodes=`` requested.

    Args:
        frame: Texts ``exec_vnode``, ``exec_host``, ``nodes``, ``place`` and numbers ``procs``,
            ``gpus``, ``memory_gb``, ``memory_each_gb`` (of each process); null if the record has
            none.

    Returns:
        The frame with further columns:

        - ``by_host``: whether ``exec_vnode`` comes from ``exec_host``.
        - ``loose``: the chunks of ``procs=``.
        - ``asked_nodes``, ``asked_cores``, ``asked_gpus``: sums over ``nodes``.
        - ``features``: the properties in ``nodes``.
        - ``mixed``: whether the parts of ``nodes`` differ in properties.
    """
    frame = frame.with_columns(
        by_host=pl.col("exec_vnode").is_null() & pl.col("exec_host").is_not_null()
    )
    frame = frame.join(_asked(frame["nodes"]), on="nodes", how="left", maintain_order="left")
    frame = frame.with_row_index("row")
    hosts = _hosts(frame.filter("by_host").select("row", "exec_host"))
    about = frame.select("row", "nodes", "asked_gpus", "gpus", "memory_gb", "memory_each_gb")
    hosts = hosts.join(about, on="row", maintain_order="left")
    even = (pl.col("gpus") / pl.len().over("row")).ceil().cast(pl.Int64)
    hosts = hosts.with_columns(
        gpus=pl.when(pl.col("asked_gpus") > 0).then(_gpus(hosts)).otherwise(even)
    )
    whole = pl.coalesce("memory_gb", pl.col("memory_each_gb") * pl.col("cores").sum().over("row"))
    memory = whole * pl.col("cores") / pl.col("cores").sum().over("row")
    # Float shares of whole kB are rounded, so that equal shares are equal text.
    parts = hosts.with_columns(
        kb=pl.when(memory > 0).then((memory * 2**20).ceil().cast(pl.Int64)),
        more=pl.when(pl.col("gpus") > 0).then(pl.format(":ngpus={}", "gpus")).otherwise(pl.lit("")),
    ).with_columns(
        size=pl.when(pl.col("kb") > 0).then(pl.format(":mem={}kb", "kb")).otherwise(pl.lit(""))
    )
    # Sorted, so that jobs with the same shares have the same text.
    parts = parts.sort("row", "cores", "gpus", descending=[False, True, True], maintain_order=True)
    text = parts.select("row", text=pl.format("({}:ncpus={}{}{})", "host", "cores", "more", "size"))
    made = text.group_by("row", maintain_order=True).agg(found=pl.col("text").str.join("+"))
    processes = pl.max_horizontal("asked_cores", "procs")
    memory = pl.coalesce("memory_gb", pl.col("memory_each_gb") * processes)
    size = pl.format(":mem={}kb", (memory / pl.col("procs") * 2**20).ceil().cast(pl.Int64))
    # procs= requests cores on any nodes.
    loose = pl.col("by_host") & (pl.col("procs") > 0) & (pl.col("asked_cores").fill_null(1) == 1)
    select = pl.format("{}:ncpus=1{}", pl.col("procs").cast(pl.Int64), size.fill_null(""))
    lie = pl.when(loose).then(pl.lit("free")).when("by_host").then(pl.lit("scatter"))
    return (
        frame.join(made, on="row", how="left", maintain_order="left")
        .with_columns(
            exec_vnode=pl.coalesce("exec_vnode", "found"),
            place=pl.coalesce("place", lie),
            memory_gb=memory,
            loose=pl.when(loose).then(select),
        )
        .drop("row", "found")
    )


def _asked(nodes: pl.Series) -> pl.DataFrame:
    """Return sums and properties of each distinct ``nodes=``.

    A text that cannot be read has no row.
    """
    rows = []
    for text in nodes.drop_nulls().unique().to_list():
        chunks = _chunks(text)
        if not chunks:
            continue
        alike = {chunk.properties for chunk in chunks}
        features = "&".join(chunks[0].properties) if len(alike) == 1 else ""
        cores, gpus = (
            sum(chunk.count * getattr(chunk, name) for chunk in chunks)
            for name in ("cores", "gpus")
        )
        count = float(sum(chunk.count for chunk in chunks))
        rows.append((text, count, cores, gpus, features or None, len(alike) > 1))
    number = dict.fromkeys(("asked_nodes", "asked_cores", "asked_gpus"), pl.Float64)
    schema = {"nodes": pl.String, **number, "features": pl.String, "mixed": pl.Boolean}
    return pl.DataFrame(rows, schema, orient="row")


def _chunks(nodes: str) -> tuple[Chunk, ...]:
    try:
        return parse_nodes(nodes)
    except ValueError:
        return ()


def _hosts(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the cores per row and host.

    Forms are ``a/0+a/1``, ``a/0-27``, ``a/0,2,4-6`` and ``a/0*8``.
    """
    part = pl.col("exec_host")
    pieces = (
        frame.with_columns(part.str.split("+")).explode("exec_host")
        .select("row", host=part.str.extract(r"^([^/:]+)"),
                index=part.str.extract(r"/(.*)$").str.split(","))
        .drop_nulls("host").explode("index")
        .with_columns(pl.col("index").str.extract_groups(_INDEX).alias("said"))
        .unnest("said").cast(dict.fromkeys(("first", "last", "cores"), pl.Int64))
    )  # fmt: skip
    span = (pl.col("last") - pl.col("first") + 1).clip(1)
    cores = pl.coalesce("cores", span, pl.lit(1))
    return pieces.group_by("row", "host", maintain_order=True).agg(cores.sum().alias("cores"))


def _gpus(hosts: pl.DataFrame) -> pl.Series:
    """Return the GPUs on each host: the requested nodes fill the hosts in order."""
    with_gpus = hosts.filter(pl.col("asked_gpus") > 0)
    on: dict[tuple[int, str], float] = {}
    for (row, nodes), some in with_gpus.group_by("row", "nodes", maintain_order=True):
        gpus = _spread(some["cores"].to_list(), _chunks(str(nodes)))
        on |= {(row, host): n for host, n in zip(some["host"], gpus, strict=True)}
    if not on:
        return pl.zeros(hosts.height, pl.Int64, eager=True).alias("gpus")
    found = [on.get(key, 0) for key in hosts.select("row", "host").iter_rows()]
    return pl.Series("gpus", found, pl.Float64).cast(pl.Int64)


def _spread(cores: Sequence[int], chunks: Sequence[Chunk]) -> list[float]:
    left = [chunk for chunk in chunks for _ in range(chunk.count)][::-1]
    found = []
    for has in cores:
        free, gpus = float(has), 0.0
        while left and free >= left[-1].cores:
            free, gpus = free - left[-1].cores, gpus + left.pop().gpus
        found.append(gpus)
    found[-1] += sum(chunk.gpus for chunk in left)
    return found
