"""``hpctwin experiment``: the command of SURF's week."""

from __future__ import annotations

from pathlib import Path

from hpctwin_papers.output import run_and_show


def surf(
    *,
    data: Path | None = None,
    json: bool = False,
) -> int:
    """SURF's Lisa for a week with measured power: power forecast an hour ahead.

    OpenDT ships the data.

    Args:
        data: Folder with surf_tasks, surf_fragments and surf_consumption.parquet; default telemetry
            in the folder of HPCTWIN_TRACES.
        json: Print one row per method as JSON.
    """
    from hpctwin_papers.surf.experiment import Surf

    return run_and_show(Surf(data), json=json)
