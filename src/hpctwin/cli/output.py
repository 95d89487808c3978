"""What commands print and write."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpctwin.model import Workload
    from hpctwin.simulation import Result, Simulation

__all__ = ["note_doomed", "note_reading", "print_json", "progress_bar", "write_result"]


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    print(json.dumps(value, indent=2, default=str))


def note_reading(workload: Workload) -> None:
    """Say on standard error what the reader changed or left out."""
    for what, count in workload.notes.counts.items():
        print(f"{workload.name}: {count:,} × {what}", file=sys.stderr)
    for message in workload.notes.skipped[:10]:
        print(f"skipped: {message}", file=sys.stderr)
    if len(workload.notes.skipped) > 10:
        print(f"… and {len(workload.notes.skipped) - 10:,} more skipped", file=sys.stderr)


def note_doomed(simulation: Simulation) -> None:
    """Say on standard error which jobs can never start, and for what other job."""
    for sentence in simulation.why_doomed():
        print(f"{simulation.workload.name}: {sentence}", file=sys.stderr)


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[float], None]]:
    """A bar on standard error, gone when done; nothing where that is no terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=1.0)
        yield lambda share: bar.update(task, completed=share)


def write_result(
    result: Result, folder: Path, options: dict[str, Any], summary: dict[str, Any] | None = None
) -> None:
    """Write a run's folder: jobs and series as Parquet, summary and manifest as JSON.

    Args:
        result: of the run.
        folder: made if it is not there.
        options: for the manifest.
        summary: the result's if left out.
    """
    import platform

    import numba
    import numpy
    import polars

    from hpctwin._version import __version__
    from hpctwin.formats import write_atomically

    folder.mkdir(parents=True, exist_ok=True)
    tables = {"jobs": result.jobs, "series": result.series}
    if result.node_map is not None:
        tables["node_map"] = result.node_map
    for name, table in tables.items():
        with write_atomically(folder / f"{name}.parquet") as file:
            table.write_parquet(file)
    manifest = {
        "hpctwin": __version__,
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "numba": numba.__version__,
        "polars": polars.__version__,
        "policy": result.policy,
        "workload": result.workload.name,
        "reading": dict(result.workload.notes.counts),
        "skipped": list(result.workload.notes.skipped),
        "options": options,
        "cluster": result.cluster.model_dump(mode="json"),
        "engine_s": result.engine_s,
        "peak_memory_mb": _peak_memory_mb(),
    }
    for name, content in {"summary": summary or result.summary(), "manifest": manifest}.items():
        with write_atomically(folder / f"{name}.json") as file:
            file.write(json.dumps(content, indent=2, default=str).encode())


def _peak_memory_mb() -> float | None:
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
