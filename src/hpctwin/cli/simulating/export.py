"""``hpctwin export``."""

from __future__ import annotations

from pathlib import Path

__all__ = ["export_command"]


def export_command(
    run: Path,
    /,
    *,
    perfetto: Path | None = None,
    evalys: Path | None = None,
    openmetrics: Path | None = None,
) -> int:
    """Write a finished run in the formats of other programs.

    Args:
        run: Folder written by `hpctwin simulate --out`.
        perfetto: Write a file for Perfetto's viewer, ui.perfetto.dev: a track per node, a slice per
            job, counters. The run must record nodes (by a placement, failures, power states or
            shared nodes).
        evalys: Write a CSV file for Evalys, in Batsim's form.
        openmetrics: Write a text file of queue and cluster over time.
    """
    from hpctwin.cli.output.output import check_outputs
    from hpctwin.errors import ConfigError
    from hpctwin.model import write_atomically
    from hpctwin.report.exports import slices_of, write_evalys, write_openmetrics, write_perfetto
    from hpctwin.report.pages.run import read_run

    if perfetto is None and evalys is None and openmetrics is None:
        raise ConfigError("name a file to write: --perfetto, --evalys or --openmetrics")
    check_outputs(files=[perfetto, evalys, openmetrics])
    found = read_run(run)
    held = found.node_map if found.placements is None else found.placements
    if perfetto is not None:
        if held is None:
            raise ConfigError(
                f"{run}: its nodes were only counted, so it is not known on which of them jobs ran; "
                "simulate again with a placement, such as --placement contiguous"
            )
        with write_atomically(perfetto) as file:
            count = write_perfetto(file, slices_of(held), found.series)
        print(f"{perfetto}: {count:,} slices")
    if evalys is not None:
        with write_atomically(evalys) as file:
            count = write_evalys(file, found.jobs, held)
        print(f"{evalys}: {count:,} jobs")
    if openmetrics is not None:
        with write_atomically(openmetrics) as file:
            count = write_openmetrics(file, found.series)
        print(f"{openmetrics}: {count:,} samples")
    return 0
