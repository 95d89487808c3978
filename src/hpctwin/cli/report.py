"""``hpctwin report``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

if TYPE_CHECKING:
    from hpctwin.report import ReportedRun

__all__ = ["report_command"]


def report_command(
    *runs: Path,
    html: Annotated[Path | None, Parameter(group="Output")] = None,
    figures: Annotated[Path | None, Parameter(group="Output")] = None,
    format: Annotated[Literal["pdf", "svg", "png"], Parameter(group="Output")] = "pdf",
    title: Annotated[str | None, Parameter(group="Output")] = None,
) -> int:
    """Report on finished runs beside each other: one HTML file that needs nothing else, figures as files.

    Args:
        runs: folders that `hpctwin simulate --out` has written, or folders of such folders.
        html: file for figures, tables, definitions, and how the runs were made.
        figures: folder for each figure as a file.
        format: of these.
        title: heading.
    """
    from hpctwin.cli.output import check_outputs
    from hpctwin.errors import ConfigError
    from hpctwin.report.figures import report_figures, write_figures
    from hpctwin.report.html import write_reported

    if not runs:
        raise ConfigError("name the folders of runs, as hpctwin simulate --out has written them")
    if html is None and figures is None:
        raise ConfigError("name what to write: --html FILE or --figures FOLDER")
    check_outputs(folders=[figures], files=[html])
    entries = _read(runs)
    starts = {entry.manifest.get("start_epoch_s") for entry in entries}
    drawn = report_figures(entries, start_epoch_s=starts.pop() if len(starts) == 1 else None)
    if figures is not None:
        write_figures(figures, drawn, f".{format}")
        print(f"{figures}: {len(drawn)} figures")
    if html is not None:
        named = title or ", ".join(dict.fromkeys(entry.manifest["workload"] for entry in entries))
        write_reported(html, title=named, entries=entries, drawn=drawn)
        print(f"report: {html}")
    return 0


def _read(runs: tuple[Path, ...]) -> list[ReportedRun]:
    """All runs, by their policies; and by their folders too where policies are the same."""
    import dataclasses
    import itertools
    from collections import Counter

    from hpctwin.report.folder import read_run, runs_in

    folders = list(dict.fromkeys(itertools.chain.from_iterable(map(runs_in, runs))))
    entries = [read_run(folder) for folder in folders]
    counts = Counter(entry.label for entry in entries)
    names = [
        entry.label if counts[entry.label] == 1 else f"{entry.label} ({folder.absolute().name})"
        for folder, entry in zip(folders, entries, strict=True)
    ]
    if len(set(names)) < len(names):
        names = [f"{number} {name}" for number, name in enumerate(names, 1)]
    return [
        dataclasses.replace(entry, label=name) for name, entry in zip(names, entries, strict=True)
    ]
