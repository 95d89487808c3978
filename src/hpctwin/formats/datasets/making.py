"""Small files with a data set's exact schema, from synthetic jobs."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.errors import ConfigError
from hpctwin.formats.datasets.declared import MADE, Column, DataSet, File
from hpctwin.formats.files import write_bytes
from hpctwin.formats.systems import read_system
from hpctwin.model import NodeGroup, write_atomically

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_FIRST = 1_693_526_400.0
"""2023-09-01, UTC."""
_DAY, _WIDEST = 86_400, 64
_MOST_NODES, _LOAD = 1024, 0.5
"""Jobs use at most the first N nodes of a cluster, and at most this share of them."""
_DATE = "%Y-%m-%d %H:%M:%S"
_NODE = NodeGroup.model_validate(
    {
        "name": "node",
        "count": 1000,
        "components": {
            "cpu": {"idle_w": 100, "max_w": 300},
            "gpu": {"idle_w": 100, "max_w": 400},
            "memory": {"idle_w": 50},
        },
    }
)
"""Node group for a data set whose nodes are unknown."""


def node_of(dataset: DataSet) -> NodeGroup:
    """Return the node group on which synthetic jobs of a data set run."""
    return read_system(dataset.system).nodes[-1] if dataset.system else _NODE


def made_jobs(node: NodeGroup, jobs: int, seed: int) -> pl.DataFrame:
    """Return jobs of a day or more, in the columns of `MADE`, times in whole seconds.

    No two jobs use a node at the same time.

    Args:
        node: Node group on which they run, for their power.
        jobs: Number of jobs, 1 or more.
    """
    rng = np.random.default_rng(seed)
    submit = np.sort(rng.integers(0, max(_DAY, 60 * jobs), jobs)).astype(np.float64)
    submit[0] = 0
    runtime = np.clip(np.rint(rng.lognormal(7, 1, jobs)), 60, _DAY / 2)
    wait = np.where(rng.random(jobs) < 0.5, 0, rng.integers(0, 3600, jobs))
    nodes = np.minimum(2 ** rng.integers(0, 7, jobs), min(_WIDEST, node.count))
    there = min(node.count, _MOST_NODES)
    # If the load is too high, jobs arrive more slowly.
    load = float(runtime @ nodes) / (there * max(_DAY, 60 * jobs))
    submit = np.floor(submit * max(1.0, load / _LOAD))
    ready = submit + wait
    start, first = _placed(ready, runtime, nodes, there)
    cpu, gpu = rng.uniform(0.05, 1, jobs).round(3), rng.uniform(0.05, 1, jobs).round(3)
    each = {name: np.zeros(jobs) for name in ("cpu", "gpu", "memory")}
    for name, part in node.components.items():
        used = {"cpu": cpu, "gpu": gpu}.get(name, np.zeros(jobs))
        each[name] = part.watts(used)
    made = pl.DataFrame(
        {
            "number": np.arange(1, jobs + 1),
            "submit": _FIRST + submit,
            "start": _FIRST + start,
            "end": _FIRST + start + runtime,
            "runtime": runtime,
            "walltime": np.ceil(runtime * rng.uniform(1, 3, jobs) / 3600) * 3600,
            "nodes": nodes,
            "first_node": first,
            "user": rng.integers(1, 20, jobs),
            "failed": rng.random(jobs) < 0.1,
            "cpu": cpu,
            "gpu": gpu,
            "node_w": sum(each.values()),
            **{f"{name}_w": each[name] for name in ("cpu", "gpu", "memory")},
        }
    )
    assert set(MADE) <= set(made.columns)
    return made


def _placed(
    ready: FloatArray, runtime: FloatArray, nodes: IntArray, there: int
) -> tuple[FloatArray, IntArray]:
    """Return each job's start and its first node; its nodes are consecutive.

    A node has one job at a time.

    Args:
        ready: Earliest start, in seconds [jobs].
        runtime: Run time, in seconds [jobs].
        nodes: Number of nodes [jobs].
        there: Nodes of the cluster, at least as many as the widest job has.
    """
    free_at = np.zeros(there)
    start, first = np.empty(len(ready)), np.empty(len(ready), np.int64)
    for job, wide in enumerate(nodes.tolist()):
        free = np.lib.stride_tricks.sliding_window_view(free_at, wide).max(axis=1)
        start[job] = max(ready[job], free.min())
        first[job] = np.argmax(free <= start[job])
        free_at[first[job] : first[job] + wide] = start[job] + runtime[job]
    return start, first


def write_sample(
    dataset: DataSet, folder: str | Path, *, jobs: int = 100, seed: int = 0
) -> list[Path]:
    """Write files as in the data set, with synthetic jobs only.

    Args:
        folder: Target folder; created if missing.

    Returns:
        The files, the main one first.

    Raises:
        ConfigError: ``jobs`` is less than one.
        OutputError: A file cannot be written.
    """
    if jobs < 1:
        raise ConfigError(f"a sample has {jobs} jobs; it must have at least one")
    made = made_jobs(node_of(dataset), jobs, seed)
    return [_write(file, file.rows(made), Path(folder)) for file in dataset.files]


def _write(file: File, rows: pl.DataFrame, folder: Path) -> Path:
    path = folder / _name(file)
    frame = rows.select(_value(column) for column in file.columns)
    path.parent.mkdir(parents=True, exist_ok=True)
    if file.write is not None:
        write_bytes(path, file.write(frame))
    elif file.form == "swf":
        lines = frame.select(pl.concat_str(pl.all().cast(pl.String), separator=" ")).to_series()
        write_bytes(path, ("; UnixStartTime: 1693526400\n" + "\n".join(lines) + "\n").encode())
    elif path.suffix == ".parquet":
        with write_atomically(path) as target:
            frame.write_parquet(target)
    else:
        out = io.BytesIO()
        frame.write_csv(out, include_header=file.form != "headless")
        write_bytes(path, out.getvalue())
    return path


def _name(file: File) -> str:
    """Return the file name of the sample: the published pattern, filled in."""
    names = {
        "YY_MM.parquet": "23_09.parquet",
        "ANL-ALCF-DJC.csv": "ANL-ALCF-DJC-POLARIS_20230901_20230930.csv",
        "frontier-YYYY.swf": "frontier-2023.swf",
        "joblive": "joblive/20230901.parquet",
        "jobprofile": "jobprofile/20230901.parquet",
        "YYYYMMDD": "20230901",
        "cpu/*.csv": "cpu/0/1-timeseries.csv",
        "gpu/*.csv": "gpu/0/1-r0.csv",
        "task_events": "task_events/part-00000-of-00500.csv",
        "task_usage": "task_usage/part-00000-of-00500.csv",
        "machine_events": "machine_events/part-00000-of-00001.csv",
        "data_MACHINE.csv": "data_theta.csv",
    }
    return names.get(file.name, file.name)


def _value(column: Column) -> pl.Expr:
    dtype = column.dtype
    if column.made is None:
        return pl.lit(None, dtype or pl.String).alias(column.name)
    value = column.made
    if isinstance(dtype, pl.Datetime):
        value = pl.from_epoch((1000 * value).round().cast(pl.Int64), "ms").cast(
            pl.Datetime(dtype.time_unit)
        )
        value = value.dt.replace_time_zone(dtype.time_zone)
    elif column.kind == "time" and isinstance(dtype, pl.String):
        value = pl.from_epoch(value.cast(pl.Int64)).dt.strftime(_DATE)
    elif dtype is not None:
        value = value.cast(dtype)
    return value.alias(column.name)
