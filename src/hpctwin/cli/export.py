"""``hpctwin export``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

__all__ = ["export_command"]


def export_command(
    run: Path,
    *,
    perfetto: Path | None = None,
    evalys: Path | None = None,
    openmetrics: Path | None = None,
) -> int:
    """Write a finished run for other programs to show.

    Args:
        run: the folder that `hpctwin simulate --out` has written.
        perfetto: file for Perfetto's viewer, ui.perfetto.dev: a track a node, a slice a job, counters; the
            run must know its nodes (by a placement, failures, power states, shared nodes).
        evalys: CSV file for Evalys, as Batsim writes it.
        openmetrics: text file of queue and machine over time.
    """
    from hpctwin.cli.output import check_outputs
    from hpctwin.errors import ConfigError
    from hpctwin.model import write_atomically
    from hpctwin.report.export import write_evalys, write_openmetrics
    from hpctwin.report.perfetto import slices_of, write_perfetto

    if perfetto is None and evalys is None and openmetrics is None:
        raise ConfigError("name a file to write: --perfetto, --evalys or --openmetrics")
    check_outputs(files=[perfetto, evalys, openmetrics])
    jobs, series = _table(run, "jobs"), _table(run, "series")
    held = next(
        (_table(run, name) for name in ("placements", "node_map") if _path(run, name).exists()),
        None,
    )
    if perfetto is not None:
        if held is None:
            raise ConfigError(
                f"{run}: its nodes were only counted, so it is not known on which of them jobs ran; "
                "simulate again with a placement, such as --placement contiguous"
            )
        with write_atomically(perfetto) as file:
            count = write_perfetto(file, slices_of(held), series)
        print(f"{perfetto}: {count:,} slices")
    if evalys is not None:
        with write_atomically(evalys) as file:
            count = write_evalys(file, jobs, held)
        print(f"{evalys}: {count:,} jobs")
    if openmetrics is not None:
        with write_atomically(openmetrics) as file:
            count = write_openmetrics(file, series)
        print(f"{openmetrics}: {count:,} samples")
    return 0


def _path(run: Path, name: str) -> Path:
    return run / f"{name}.parquet"


def _table(run: Path, name: str) -> pl.DataFrame:
    """A table of a run.

    Raises:
        ConfigError: it is not there, or cannot be read.
    """
    import polars as pl

    from hpctwin.errors import ConfigError

    path = _path(run, name)
    try:
        return pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        why = "there is none" if not path.exists() else "it is no Parquet file"
        raise ConfigError(
            f"{path}: {why}; a run's folder is written by hpctwin simulate --out FOLDER"
        ) from error
