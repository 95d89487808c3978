"""Commands that this package adds to ``hpctwin``: ``experiment`` and ``incentives``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App

if TYPE_CHECKING:
    from hpctwin_papers.entry import Entry

EXPERIMENTS = {
    "schedtwin": {
        "schedtwin": "SchedTwin (arXiv 2512.18894): the twin against FCFS, SJF and WFP on four phases "
        "of jobs.",
    },
    "spars": {
        "spars": "SPARS (SoftwareX 2026): node power states, beside its published results.",
        "nasa-agents": "Agents that switch nodes, on held-out windows of the NASA log, beside SPARS's "
        "timeouts.",
    },
    "pas": {
        "pas": "PAS: jobs that depend on each other and share four resources, beside its Table I.",
    },
    "cqsim_plus": {
        "cqsim-plus": "CQSim+ (SIGSIM-PADS 2025): jobs among two clusters, beside its tables 1 to 5.",
    },
    "s_raps": {
        "s-raps": "S-RAPS (SC25-W), figures 4 to 6: replay and reschedule, with power and cooling over time.",
        "s-raps-incentives": "S-RAPS (SC25-W), figure 8: incentives from accounts, collected and redeemed.",
        "s-raps-ml": "S-RAPS (SC25-W), figure 10: scheduling by learned prediction, beside walltime "
        "and truth.",
        "s-raps-schedulers": "S-RAPS (SC25-W), §4.2: schedulers from outside, what they decide and cost.",
    },
    "rlscheduler": {
        "rlscheduler": "RLScheduler (SC20): mean bounded slowdown of heuristics and agents, beside its "
        "table.",
    },
    "surf": {
        "surf": "A week of SURF's Lisa with measured power (as OpenDT ships it): power forecast "
        "an hour ahead.",
    },
    "theta_year": {
        "theta-year": "Simulate a year of Theta (4,360 nodes) under a handful of policies and report.",
    },
}
"""Commands in each folder's ``commands.py``, imported when one of them runs."""

experiment_app = App(
    name=("experiment", "experiments"), help="Repeat the experiments of published papers."
)
for _folder, _commands in EXPERIMENTS.items():
    for _name, _help in _commands.items():
        _function = f"hpctwin_papers.{_folder}.commands:{_name.replace('-', '_')}"
        experiment_app.command(_function, name=_name, help=_help)


def add_commands(app: App) -> None:
    """Add this package's commands to `hpctwin`, which calls it by its entry point."""
    app.command(experiment_app)
    app.command(
        "hpctwin_papers.s_raps.incentives_command:incentives_command",
        name="incentives",
        help="Collect accounts, redeem them, and try to cheat.",
    )


@experiment_app.command(name="list")
def list_entries(
    *,
    json: bool = False,
) -> int:
    """List published tables and figures with results, and whether the data exist here.

    Args:
        json: Print the list as JSON.
    """
    from hpctwin.cli.output import print_json, print_table
    from hpctwin.report.columns import Table
    from hpctwin_papers.catalog import ENTRIES

    if json:
        print_json([one.listed() for one in ENTRIES.values()])
        return 0
    rows = []
    for one in ENTRIES.values():
        rows.append([one.name, one.shows])
        if one.lacks:
            rows.append(["", f"cannot be made: {one.lacks}"])
    print_table(Table(["name", "what it shows"], rows, words=2))
    return 0


@experiment_app.command
def run(
    name: str,
    /,
    *more: str,
    out: Path | None = None,
    json: bool = False,
) -> int:
    """Reproduce published tables and figures, and compare them with the published ones.

    Args:
        name: Name from `hpctwin experiment list`.
        more: Further names.
        out: Write report.md, results.json and figures to this folder.
        json: Print the results as JSON.
    """
    from hpctwin_papers.catalog import find_entry

    return _made([find_entry(one) for one in (name, *more)], out, json=json)


@experiment_app.command(name="all")
def all_entries(
    *,
    out: Path = Path("out/published"),
    json: bool = False,
) -> int:
    """Reproduce every published table and figure for which the data exist, in one report.

    Args:
        out: Write report.md, results.json and figures to this folder.
        json: Print the results as JSON.
    """
    from hpctwin_papers.catalog import ENTRIES

    return _made(list(ENTRIES.values()), out, json=json)


def _made(entries: list[Entry], out: Path | None, *, json: bool) -> int:
    """Reproduce entries and show results; return 1 for an unexplained difference."""
    from hpctwin.cli.output import check_outputs, print_json, print_table, screen
    from hpctwin.model.text import progress_bar
    from hpctwin_papers.entry import reproduce, write_report
    from hpctwin_papers.results import comparison_table

    check_outputs(folders=[out])
    outcomes = []
    with progress_bar(f"{len(entries)} published tables and figures") as progress:
        for entry in entries:
            outcomes.append(reproduce(entry))
            progress(len(outcomes) / len(entries))
    if out is not None:
        write_report(out, outcomes)
    unexplained = any(one.verdict == "differs" and not one.because for one in outcomes)
    if json:
        print_json([one.plain() for one in outcomes])
        return int(unexplained)
    console = screen()
    for one in outcomes:
        why = f": {one.because}" if one.because else ""
        console.print(f"[bold]{one.entry.name}[/] {one.verdict}{why}", highlight=False)
        if one.results.findings:
            print_table(comparison_table(one.results.findings))
    if out is not None:
        console.print(f"report: {out / 'report.md'}")
    return int(unexplained)
