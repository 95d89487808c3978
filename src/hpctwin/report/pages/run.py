"""Data of a run for reports, and its folder."""

from __future__ import annotations

import hashlib
import json
import platform
import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from hpctwin._version import __version__
from hpctwin.energy.accounts.outputs import energy_tables, node_log, power_changes
from hpctwin.errors import ConfigError
from hpctwin.metrics import Summary
from hpctwin.model import Cluster, write_atomically, write_folder
from hpctwin.model.files import other_format
from hpctwin.report.figures.style import NodeTicks, node_ticks
from hpctwin.report.figures.timeline import LinkTables
from hpctwin.simulation.result.counts import core_map, cores_held

if TYPE_CHECKING:
    from hpctwin.energy import Energy
    from hpctwin.simulation import Result

__all__ = ["VERSIONS", "ReportedRun", "is_run", "read_run", "runs_in", "write_run"]


@dataclass(frozen=True, eq=False)
class ReportedRun:
    """One run.

    Args:
        label: Name of its policy.
        jobs: Jobs of the result.
        series: Their `hpctwin.metrics.time_series`.
        summary: Their `hpctwin.metrics.summarize`, and further metrics of the run.
        node_map, placements, lost: Tables as of a result.
        cluster: The cluster; required with ``placements``.
        power: Power over time, a row at each change: ``time_s``, ``total_w``; None if unknown.
        states: Power states of each node: ``node``, ``state``, ``start_s``, ``end_s``.
        cooling: Table for `plot_cooling`.
        costs: Cost and emissions of the power, as of `cost_changes`.
        link_tables: Use of links, if it was recorded.
        manifest: Settings of the run; empty if unknown.
    """

    label: str
    jobs: pl.DataFrame
    series: pl.DataFrame
    summary: Summary
    node_map: pl.DataFrame | None = None
    placements: pl.DataFrame | None = None
    lost: pl.DataFrame | None = None
    cluster: Cluster | None = None
    power: pl.DataFrame | None = None
    states: pl.DataFrame | None = None
    cooling: pl.DataFrame | None = None
    costs: pl.DataFrame | None = None
    link_tables: LinkTables | None = None
    manifest: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of_result(cls, label: str, result: Result) -> ReportedRun:
        """Return the data of a result in memory."""
        energy = result.energy
        return cls(
            label=label,
            jobs=result.jobs,
            series=result.series,
            summary=_figures(result),
            node_map=result.node_map,
            placements=result.placements,
            lost=result.lost,
            cluster=result.cluster,
            power=None if energy is None else power_changes(energy),
            states=None if energy is None or energy.log is None else node_log(energy),
            link_tables=None
            if result.link_use is None
            else LinkTables(*result.link_use.tables.values()),
        )

    @property
    def of(self) -> str:
        """Unit of `lanes`: node, or core (through all nodes) if nodes are shared."""
        return "node" if self.placements is None else "core"

    @property
    def sized(self) -> pl.DataFrame:
        """Jobs; with shared nodes, ``nodes`` is the number of whole cores that a job held."""
        return self.jobs if self.placements is None else cores_held(self.jobs, self.placements)

    @cached_property
    def lanes(self) -> pl.DataFrame | None:
        """Nodes or cores of jobs; None if nodes were only counted. See `plot_gantt`."""
        if self.placements is None or self.cluster is None:
            return self.node_map
        return core_map(self.cluster, self.placements)

    @property
    def ticks(self) -> NodeTicks | None:
        """Names of nodes along `lanes`; None if the cluster is unknown."""
        return None if self.cluster is None else node_ticks(self.cluster, by_core=self.of == "core")

    @property
    def lane_count(self) -> int | None:
        """Number of nodes or cores; None if unknown."""
        if self.cluster is None or self.of == "node":
            return None if self.cluster is None else self.cluster.node_count
        return sum(group.count * max(1, round(group.cores or 0)) for group in self.cluster.nodes)


def _figures(result: Result) -> dict[str, float | int | None]:
    summary = result.summary()
    numbers = {k: v for k, v in summary.items() if v is None or isinstance(v, int | float)}
    return {**numbers, "engine_ms": 1000 * result.engine_s}


MANIFEST, SUMMARY = "manifest.json", "summary.json"
FORMAT = 1
"""Version of the folder's format: its file names and their contents."""
VERSIONS = ("hpctwin", "python", "numpy", "numba", "polars")
"""Packages whose versions are in the manifest."""
_LINKS = tuple(f"link_{name}" for name in LinkTables._fields)
_SHOWN = ("node_map", "placements", "lost", "power", "node_log", "cooling", "costs", *_LINKS)


def write_run(
    result: Result,
    folder: Path,
    options: dict[str, Any],
    summary: dict[str, Any] | None = None,
    *,
    tables: Mapping[str, pl.DataFrame] | None = None,
    inputs: Iterable[Path] = (),
    now_s: float | None = None,
    notes: Iterable[str] = (),
) -> None:
    """Write a run's folder: tables as Parquet; summary and manifest as JSON.

    The tables are jobs, series, the nodes of jobs, and energy.

    Args:
        result: Result of the run.
        folder: Folder, created if it does not exist.
        options: Options for the manifest.
        summary: Summary of the run; default the result's.
        tables: Additional tables by name, such as ``cooling``.
        inputs: Input files of the run, for their hashes in the manifest.
        now_s: Simulated time so far, in seconds, if the simulation continues.
        notes: Further assumptions for the manifest, a sentence each.

    Raises:
        OutputError: The folder cannot be written; then no part of it is kept.
    """
    written = {**_tables(result), **(tables or {})}
    told = summary or result.summary()
    manifest = {
        "format": FORMAT,
        "hpctwin": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in VERSIONS[2:]},
        "command": shlex.join(["hpctwin", *sys.argv[1:]]),
        "inputs": {str(path): _sha256(path) for path in inputs if path.is_file()},
        # Other tables in the folder are from another run.
        "tables": list(written),
        "policy": result.policy,
        "workload": result.workload.name,
        "reading": dict(result.workload.notes.counts),
        "skipped": list(result.workload.notes.skipped),
        "assumptions": [*result.notes, *notes],
        "empty_columns": {name: empty for name, one in written.items() if (empty := _empty(one))},
        "options": options,
        "cluster": result.cluster.model_dump(mode="json"),
        "start_epoch_s": result.workload.start_epoch_s,
        "now_s": now_s,
        "interval_begin_s": told.get("interval_begin_s"),
        "interval_end_s": told.get("interval_end_s"),
        "engine_s": result.engine_s,
        "peak_memory_mb": _peak_memory_mb(),
    }
    with write_folder(folder) as new:
        for name, table in written.items():
            with write_atomically(new / f"{name}.parquet") as file:
                table.write_parquet(file)
        for name, content in ((SUMMARY, told), (MANIFEST, manifest)):
            with write_atomically(new / name) as file:
                file.write(json.dumps(content, indent=2, default=str).encode())


def _empty(table: pl.DataFrame) -> list[str]:
    """Return the columns without any value."""
    return [name for name in table.columns if len(table) and table[name].null_count() == len(table)]


def _tables(result: Result) -> dict[str, pl.DataFrame]:
    energy = result.energy
    there = {
        "jobs": result.jobs if energy is None else _with_energy(result.jobs, energy),
        "series": result.series,
        "node_map": result.node_map,
        "placements": result.placements,
        "gpu_shares": result.gpu_shares,
        "lost": result.lost if len(result.lost) else None,
        "stretches": result.stretches,
        **({} if result.link_use is None else result.link_use.tables),
        **({} if energy is None else energy_tables(energy)),
    }
    return {name: table for name, table in there.items() if table is not None}


def _with_energy(jobs: pl.DataFrame, energy: Energy) -> pl.DataFrame:
    """Return the jobs with ``energy_j``; in a facility, those at the cluster in the end."""
    used = energy.jobs.select("job_id", "energy_j")
    return jobs.join(used, on="job_id", how="left", maintain_order="left")


def read_run(folder: Path) -> ReportedRun:
    """Read a run's folder written by `write_run`.

    Raises:
        ConfigError: A file is missing or invalid, or the folder has another format version.
    """
    manifest = _json(folder, MANIFEST)
    if manifest.get("format") != FORMAT:
        raise ConfigError(
            other_format(folder, manifest.get("format"), FORMAT, manifest.get("hpctwin"))
        )
    summary = _json(folder, SUMMARY)
    cluster = Cluster.model_validate(manifest["cluster"])
    there = {name: _table(folder, name) for name in _SHOWN if name in manifest["tables"]}
    return ReportedRun(
        label=manifest["policy"],
        jobs=_table(folder, "jobs"),
        series=_table(folder, "series"),
        summary=summary,
        node_map=there.get("node_map"),
        placements=there.get("placements"),
        lost=there.get("lost"),
        cluster=cluster,
        power=there.get("power"),
        states=there.get("node_log"),
        cooling=there.get("cooling"),
        costs=there.get("costs"),
        link_tables=LinkTables(*(there[name] for name in _LINKS)) if _LINKS[0] in there else None,
        manifest=manifest,
    )


def is_run(folder: Path) -> bool:
    """Return whether a folder has the files of a run."""
    return (folder / MANIFEST).is_file() and (folder / "jobs.parquet").is_file()


def runs_in(folder: Path) -> list[Path]:
    """Return the folder if it is a run's; else the runs up to two levels below, by name.

    Raises:
        ConfigError: There is no run.
    """
    if is_run(folder):
        return [folder]
    within = [*folder.glob("*"), *folder.glob("*/*")] if folder.is_dir() else []
    found = sorted(filter(is_run, within))
    if not found:
        why = "the folder contains no run" if folder.is_dir() else "the folder does not exist"
        if (folder / "stream.json").exists():
            why = "the folder has the result of a stream, and reports need the whole run"
        raise ConfigError(
            f"{folder}: {why}; a run's folder is written by hpctwin simulate --out FOLDER"
        )
    return found


def _table(folder: Path, name: str) -> pl.DataFrame:
    path = folder / f"{name}.parquet"
    try:
        return pl.read_parquet(path, glob=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise _not_read(path, "not a Parquet file") from error


def _json(folder: Path, name: str) -> dict[str, Any]:
    path = folder / name
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise _not_read(path, "not a JSON file") from error
    if not isinstance(found, dict) or (
        name == MANIFEST and not {"cluster", "tables"} <= found.keys()
    ):
        raise _not_read(path, "not a file of hpctwin")
    return found


def _not_read(path: Path, otherwise: str) -> ConfigError:
    why = otherwise if path.exists() else "there is none"
    return ConfigError(f"{path}: {why}; a run's folder is written by hpctwin simulate --out FOLDER")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _peak_memory_mb() -> float | None:
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
