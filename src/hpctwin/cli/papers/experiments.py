"""``hpctwin experiment``: each paper's experiment, beside its published figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App

if TYPE_CHECKING:
    from hpctwin.experiments.entries import Entry

__all__ = ["experiments_app"]

OF_PAPERS = {
    "schedtwin": "SchedTwin (arXiv 2512.18894): the twin against FCFS, SJF and WFP on four phases of jobs.",
    "spars": "SPARS (SoftwareX 2026): node power states, beside its published results.",
    "pas": "PAS: jobs that depend on each other and share four resources, beside its Table I.",
    "cqsim-plus": "CQSim+ (SIGSIM-PADS 2025): jobs among two clusters, beside its tables 1 to 5.",
    "s-raps": "S-RAPS (SC25-W), figures 4 to 6: replay and reschedule, with power and cooling over time.",
    "s-raps-incentives": "S-RAPS (SC25-W), figure 8: incentives from accounts, collected and redeemed.",
    "s-raps-ml": "S-RAPS (SC25-W), figure 10: scheduling by learned prediction, beside walltime and truth.",
    "s-raps-schedulers": "S-RAPS (SC25-W), §4.2: schedulers from outside, what they decide and cost.",
    "rlscheduler": "RLScheduler (SC20): mean bounded slowdown of heuristics and agents, beside its table.",
    "nasa-agents": "Agents that switch nodes, on held-out windows of the NASA log, beside SPARS's timeouts.",
    "surf": "A week of SURF's Lisa with measured power (as OpenDT ships it): power forecast an hour ahead.",
    "theta-year": "Simulate a year of Theta (4,360 nodes) under a handful of policies and report.",
}
"""Commands of `hpctwin.cli.papers.papers`, which is imported when one of them is run."""

experiments_app = App(name="experiment", help="Repeat the experiments of published papers.")
for _name, _help in OF_PAPERS.items():
    experiments_app.command(
        f"hpctwin.cli.papers.papers:{_name.replace('-', '_')}", name=_name, help=_help
    )


@experiments_app.command(name="list")
def list_entries(
    *,
    json: bool = False,
) -> int:
    """List every published table and figure that has results, and whether it can be made here.

    Args:
        json: print them as JSON.
    """
    from hpctwin.cli.output.experiment_output import print_table
    from hpctwin.cli.output.output import print_json
    from hpctwin.experiments.made import Table
    from hpctwin.experiments.papers import ENTRIES

    if json:
        print_json([one.listed() for one in ENTRIES.values()])
        return 0
    rows = []
    for one in ENTRIES.values():
        rows.append([one.name, one.shows])
        if one.lacks:
            rows.append(["", f"[dim]cannot be made: {one.lacks}[/]"])
    print_table(Table(["name", "what it shows"], rows, words=2))
    return 0


@experiments_app.command
def run(
    name: str,
    /,
    *more: str,
    out: Path | None = None,
    json: bool = False,
) -> int:
    """Make published tables and figures again, beside what was published.

    Args:
        name: of `hpctwin experiment list`.
        more: further ones.
        out: folder for report.md, results.json and figures.
        json: print what came out as JSON.
    """
    from hpctwin.experiments.papers import find_entry

    return _made([find_entry(one) for one in (name, *more)], out, json=json)


@experiments_app.command(name="all")
def all_entries(
    *,
    out: Path = Path("out/published"),
    json: bool = False,
) -> int:
    """Make every published table and figure again that can be made, with one report of all.

    Args:
        out: folder for report.md, results.json and figures.
        json: print what came out as JSON.
    """
    from hpctwin.experiments.papers import ENTRIES

    return _made(list(ENTRIES.values()), out, json=json)


def _made(entries: list[Entry], out: Path | None, *, json: bool) -> int:
    """Make them, and say what came out; 1 if something differs and nobody knows why."""
    from hpctwin.cli.output.experiment_output import print_table
    from hpctwin.cli.output.output import check_outputs, print_json, screen
    from hpctwin.experiments.entries import make, write_report
    from hpctwin.experiments.made import beside
    from hpctwin.model.text.progress import progress_bar

    check_outputs(folders=[out])
    outcomes = []
    with progress_bar(f"{len(entries)} published tables and figures") as progress:
        for entry in entries:
            outcomes.append(make(entry))
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
        if one.made.findings:
            print_table(beside(one.made.findings))
    if out is not None:
        console.print(f"report: {out / 'report.md'}")
    return int(unexplained)
