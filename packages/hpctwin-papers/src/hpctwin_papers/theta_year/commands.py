"""``hpctwin experiment``: the command of Theta's year."""

from __future__ import annotations

from pathlib import Path

from hpctwin_papers.output import run_with_progress, show


def theta_year(
    *,
    html: Path = Path("out/theta-year.html"),
    json: bool = False,
) -> int:
    """Simulate a year of Theta (4,360 nodes) under several policies and write a report.

    The trace is the real one of 2022 if it is in the folder of HPCTWIN_TRACES, else a generated
    year with its statistics.

    Args:
        html: Write the report to this file.
        json: Print the summaries as JSON.
    """
    from hpctwin.cli.output import check_outputs, screen
    from hpctwin.model import write_folder
    from hpctwin_papers.theta_year.experiment import REPORT, ThetaYear

    check_outputs(folders=[html.parent])
    if html.is_dir():
        check_outputs(files=[html])
    results = run_with_progress(ThetaYear())
    with write_folder(html.parent) as new:
        results.files[REPORT](new / html.name)
    show(results, json=json)
    screen(stderr=json).print(f"report with plots: {html}")
    return 0
