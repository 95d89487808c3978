"""SPARS's ``simulator_config.yaml``: workload, platform, and scheduler."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from hpctwin.errors import ConfigError, near
from hpctwin.formats import read_workload
from hpctwin.formats.clusters import read_cluster
from hpctwin.formats.json.jobs import JsonRecord, not_read
from hpctwin.model import Cluster, Workload, read_yaml
from hpctwin.model.settings import located

ALGORITHMS = {
    "fcfs_psus": ("none", "psus"),
    "easy_psus": ("easy", "psus"),
    "fcfs": ("none", "psas-auto"),
    "easy": ("easy", "psas-auto"),
    "fcfs_psas": ("none", "psas-ipm"),
    "easy_psas": ("easy", "psas-ipm"),
}
"""Backfill and kind of power policy by SPARS's name of the scheduler."""


PUBLISHED = {"psas-auto": "spars-auto", "psas-ipm": "spars-ipm"}
"""Power policies by SPARS's published rule, for kinds whose own rule differs."""


@dataclass(frozen=True, eq=False)
class SparsRun:
    """A run that a configuration describes.

    Args:
        workload, cluster: Read from the files that it names.
        backfill: ``none`` or ``easy``, with FCFS.
        power: Kind of power policy. The FCFS forms switch nodes by SPARS's published rule. The
            published rules of the EASY forms are not sound; these use hpctwin's.
        timeout_s: Idle time before a node is switched off, in seconds; None for never.
        overrun: Whether walltimes end jobs.
        output: Folder for its CSV files.
        notes: A sentence for each thing that is skipped or done differently.
    """

    workload: Workload
    cluster: Cluster
    backfill: str
    power: str
    timeout_s: float | None
    overrun: Literal["terminate", "continue"]
    output: Path | None
    notes: tuple[str, ...]


def read_spars_config(path: str | Path) -> SparsRun:
    """Read a configuration and its files, relative to it or to the current folder.

    Raises:
        ConfigError: The file is no such configuration; the message names the field.
        TraceError: The workload cannot be read.
    """
    path = Path(path)
    content = read_yaml(path, "paths")
    paths, run = (_section(content, name, path) for name in ("paths", "run"))
    at = partial(located, content, str(path))
    for name in ("workload", "platform"):
        if not isinstance(paths.get(name), str):
            field = at(("paths", name))
            raise ConfigError(f"{field}: it must name a file, not {paths.get(name)!r}")
    algorithm = str(run.get("algorithm", "")).lower()
    if algorithm not in ALGORITHMS:
        wrong = "is unknown"
        if algorithm.endswith("_normal"):
            wrong = "never wakes a node, so jobs may never start"
        raise ConfigError(
            f"{at(('run', 'algorithm'))}: {algorithm!r} {wrong}.{near(algorithm, ALGORITHMS)} "
            f"Known: {', '.join(ALGORITHMS)}"
        )
    backfill, kind = ALGORITHMS[algorithm]
    timeout = run.get("timeout")
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, int | float)):
        raise ConfigError(f"{at(('run', 'timeout'))}: it must be seconds or null, not {timeout!r}")
    overrun = run.get("overrun_policy", "continue")
    if overrun not in ("terminate", "continue"):
        raise ConfigError(
            f"{at(('run', 'overrun_policy'))}: it must be terminate or continue, not {overrun!r}"
        )
    cluster = read_cluster(_file(path, paths["platform"], "paths.platform"))
    workload = read_workload(_file(path, paths["workload"], "paths.workload"), format="spars")
    notes = []
    for what, section, known in (
        ("the file", content, ("paths", "run", "rl", "logging")),
        ("paths", paths, ("workload", "platform", "output")),
        ("run", run, ("algorithm", "timeout", "overrun_policy", "start_time")),
    ):
        notes += [
            f"{one} ({path.name})"
            for one, _ in not_read(what, [JsonRecord(path, what, section)], known)
        ]
    sound = backfill != "none" or len(cluster.nodes) > 1
    if sound:
        notes.append(f"{algorithm}: the exact rule is used, not SPARS's")
    rl = content.get("rl")
    if isinstance(rl, dict) and rl.get("enabled"):
        notes.append("rl.enabled: the agent is ignored; only the algorithm runs")
    if kind == "psus" and timeout == 0:
        timeout = None  # as SPARS takes it
        notes.append("run.timeout 0: SPARS's PSUS treats it as never")
    start = _start_epoch_s(run.get("start_time", 0), at(("run", "start_time")))
    output = paths.get("output")
    return SparsRun(
        workload=workload if start is None else workload.replace(start_epoch_s=start),
        cluster=cluster,
        backfill=backfill,
        power=kind if sound else PUBLISHED.get(kind, kind),
        timeout_s=None if timeout is None else float(timeout),
        overrun="terminate" if overrun == "terminate" else "continue",
        output=path.parent / output if isinstance(output, str) else None,
        notes=tuple(notes),
    )


def _section(content: Any, name: str, path: Path) -> dict[str, Any]:
    section = content.get(name) if isinstance(content, dict) else None
    if not isinstance(section, dict):
        raise ConfigError(f"{path}: no section '{name}:'; is this SPARS's simulator_config.yaml?")
    return section


def _file(config: Path, name: str, field: str) -> Path:
    """Return a file that the configuration names, with or without ``.json``."""
    for folder in (config.parent, Path()):
        for found in (folder / name, folder / f"{name}.json"):
            if found.is_file():
                return found
    raise ConfigError(f"{config}: {field}: no such file {name}")


def _start_epoch_s(value: Any, at: str) -> float | None:
    """Return the Unix time of time zero.

    None for a number, which only shifts SPARS's clock.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return None
    if value == "now":
        return dt.datetime.now(dt.UTC).timestamp()
    try:
        return dt.datetime.fromisoformat(str(value)).replace(tzinfo=dt.UTC).timestamp()
    except ValueError as error:
        raise ConfigError(
            f"{at}: it must be a number, now, or YYYY-MM-DD HH:MM:SS, not {value!r}"
        ) from error
