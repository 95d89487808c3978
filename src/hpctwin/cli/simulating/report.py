"""Commands on finished runs: ``hpctwin report``, ``export`` and ``accounts``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from hpctwin.cli.options import Latex

if TYPE_CHECKING:
    from hpctwin.report import ReportedRun
    from hpctwin.report.pages.decisions import Decided

__all__ = ["accounts_command", "export_command", "report_command"]


def accounts_command(
    *files: Path,
    out: Annotated[Path | None, Parameter(group="Output")] = None,
    json: Annotated[bool, Parameter(group="Output")] = False,
    latex: Latex = False,
) -> int:
    """Show use, cost and wait of each user or account, summed over several runs.

    Args:
        files: Files written by hpctwin simulate --accounts.
        out: Write the summed accounts to this file, .json or .parquet.
        json: Print the accounts as JSON: by, total, accounts.
    """
    from hpctwin.cli.output import check_outputs, plain_table, print_json, screen
    from hpctwin.errors import ConfigError
    from hpctwin.metrics import read_accounts
    from hpctwin.model.text import format_duration

    if not files:
        raise ConfigError("no accounts given; give files written by hpctwin simulate --accounts")
    check_outputs(files=[out])
    first, *others = [read_accounts(file) for file in files]
    accounts = first.merged(*others)
    if out is not None:
        accounts.write(out)
    if json:
        own = accounts.table.to_dicts()
        print_json({"by": accounts.by, "total": accounts.total, "accounts": own})
        return 0
    heads = "jobs", "node hours", "of all", "energy MWh", "W a node", "wait", "points"
    rows = []
    for row in [*accounts.table.iter_rows(named=True), {"name": "all", **accounts.total}]:
        energy, points, wait = row["energy_j"], row["fugaku_points"], row["mean_wait_s"]
        rows.append((
            row["name"],
            f"{row['jobs']:,}",
            f"{row['node_hours']:,.1f}",
            "" if row["utilization"] is None else f"{row['utilization']:.1%}",
            "" if energy is None else f"{energy / 3.6e9:,.3f}",
            "" if row["mean_node_w"] is None else f"{row['mean_node_w']:,.0f}",
            "" if wait is None else format_duration(wait),
            "" if points is None or row["name"] == "all" else f"{points / 3600:,.0f}",
        ))  # fmt: skip
    screen(latex=latex).print(plain_table((accounts.by, *heads), rows, numbers=slice(1, None)))
    if accounts.total["energy_j"] is not None:
        print(
            "points: Fugaku points, in node-hours that the mean account would have used in "
            "addition (docs/how-to/accounts-and-incentives.md)"
        )
    return 0


def export_command(
    run: Path,
    /,
    *,
    perfetto: Path | None = None,
    evalys: Path | None = None,
    batsim: Path | None = None,
    openmetrics: Path | None = None,
) -> int:
    """Write a finished run in the formats of other programs.

    If a file cannot be written, the others are written and the reason is reported.

    Args:
        run: Folder written by `hpctwin simulate --out`.
        perfetto: Write a file for Perfetto's viewer, ui.perfetto.dev: a track per node, a slice per
            job, counters. The run must record nodes (by a placement, failures, power states or
            shared nodes).
        evalys: Write a CSV file for Evalys, in Batsim's form.
        batsim: Write Batsim's files: PREFIX_jobs.csv, PREFIX_schedule.csv, PREFIX_machine_states.csv,
            PREFIX_pstate_changes.csv and, with a power model, PREFIX_consumed_energy.csv.
        openmetrics: Write a text file of queue and cluster over time.
    """
    from hpctwin.cli.output import check_outputs
    from hpctwin.errors import ConfigError
    from hpctwin.model import write_atomically
    from hpctwin.model.text import count_text
    from hpctwin.report.batsim import TABLES, jobs_that_ran
    from hpctwin.report.exports import slices_of, write_openmetrics, write_perfetto
    from hpctwin.report.pages.run import read_run

    if perfetto is evalys is batsim is openmetrics is None:
        raise ConfigError("no output given; add --perfetto, --evalys, --batsim or --openmetrics")
    tables = {Path(f"{batsim}_{name}.csv"): TABLES[name] for name in TABLES if batsim is not None}
    if evalys is not None:
        tables[evalys] = jobs_that_ran
    check_outputs(files=[perfetto, *tables, openmetrics])
    found = read_run(run)
    held = found.node_map if found.placements is None else found.placements
    unplaced = "" if held is not None else ", without nodes, because nodes were only counted"
    for path, table_of in tables.items():
        table = table_of(found)
        if table is None:
            print(f"{path}: not written: the run has no power over time")
            continue
        with write_atomically(path) as file:
            table.write_csv(file)
        of_jobs = "allocated_resources" in table.columns
        told = count_text(len(table), "job" if of_jobs else "row")
        print(f"{path}: {told}{unplaced if of_jobs else ''}")
    if openmetrics is not None:
        with write_atomically(openmetrics) as file:
            count = write_openmetrics(file, found.series)
        print(f"{openmetrics}: {count_text(count, 'sample')}")
    if perfetto is not None:
        if held is None:
            raise ConfigError(
                f"--perfetto: not written; {run}: the nodes of its jobs are unknown, because nodes were only "
                "counted; simulate again with a placement, such as --placement contiguous"
            )
        with write_atomically(perfetto) as file:
            count = write_perfetto(file, slices_of(held), found.series)
        print(f"{perfetto}: {count_text(count, 'slice')}")
    return 0


def report_command(
    *runs: Path,
    html: Annotated[Path | None, Parameter(group="Output")] = None,
    figures: Annotated[Path | None, Parameter(group="Output")] = None,
    figure_format: Annotated[Literal["pdf", "svg", "png"], Parameter(group="Output")] = "pdf",
    title: Annotated[str | None, Parameter(group="Output")] = None,
) -> int:
    """Report on finished runs side by side, as a self-contained HTML file or figures.

    For a twin's journal, the report shows when each policy was chosen, the scores of all policies,
    and the errors of forecasts.

    Args:
        runs: Folders written by `hpctwin simulate --out`, or their parent folders; journals of
            twins.
        html: Write figures, tables, definitions, and the runs' settings to this file.
        figures: Write each figure as a file to this folder.
        figure_format: Format of the figure files.
        title: Heading of the report.
    """
    from hpctwin.cli.output import check_outputs
    from hpctwin.errors import ConfigError
    from hpctwin.model.text import count_text
    from hpctwin.report.pages.all_figures import report_figures, write_figures
    from hpctwin.report.pages.decisions import decided_figures
    from hpctwin.report.pages.html import write_reported

    if not runs:
        raise ConfigError(
            "no runs given; give folders written by hpctwin simulate --out, or journals of twins"
        )
    if html is None and figures is None:
        raise ConfigError("no output given; add --html FILE or --figures FOLDER")
    check_outputs(folders=[figures], files=[html])
    twins = [_decided(path) for path in runs if path.is_file()]
    entries = _read(tuple(path for path in runs if not path.is_file()))
    starts = {entry.manifest.get("start_epoch_s") for entry in entries}
    drawn = decided_figures(twins)
    if entries:
        epoch_s = starts.pop() if len(starts) == 1 else None
        drawn = [*report_figures(entries, start_epoch_s=epoch_s), *drawn]
    if figures is not None:
        write_figures(figures, drawn, f".{figure_format}")
        print(f"{figures}: {count_text(len(drawn), 'figure')}")
    if html is not None:
        names = [*(entry.manifest["workload"] for entry in entries), *(one.label for one in twins)]
        write_reported(
            html,
            title=title or ", ".join(dict.fromkeys(names)),
            entries=entries,
            drawn=drawn,
            tables={f"Policies of {one.label}": one.tables() for one in twins},
        )
        print(f"report: {html}")
    return 0


def _decided(path: Path) -> Decided:
    """Return the decisions in a twin's journal."""
    import shlex
    import sys
    from contextlib import closing

    import polars as pl

    from hpctwin.errors import ConfigError
    from hpctwin.report.pages.decisions import Decided
    from hpctwin.twin.forecast.accuracy import accuracy
    from hpctwin.twin.journal.journal import Journal

    with closing(Journal(path, read_only=True)) as journal:
        numbers = reversed(journal.decision_ids(2**62))
        decisions = [one for one in map(journal.read_decision, numbers) if one is not None]
        if not decisions:
            raise ConfigError(f"{path}: its twin has made no decision yet")
        said = journal.read_latest("status")
        rows = [row for row in accuracy(journal.read_forecasts()) if row.forecasts]
        settings, versions = journal.read_settings(decisions[-1]["settings"])
    status = {} if said is None else said[1]
    last_s = decisions[-1]["time_s"]
    columns = {
        "time_s": pl.Float64,
        "policy": pl.String,
        "waiting": pl.Int64,
        "took_ms": pl.Float64,
    }
    scores = [
        (one["time_s"], candidate.policy, candidate.score)
        for one in decisions
        if len(one["candidates"]) > 1
        for candidate in one["candidates"]
    ]
    return Decided(
        label=str(path),
        decisions=pl.DataFrame(
            [[one[name] for name in columns] for one in decisions], columns, orient="row"
        ),
        scores=pl.DataFrame(
            scores, {"time_s": pl.Float64, "policy": pl.String, "score": pl.Float64}, orient="row"
        ),
        until_s=max(last_s, status.get("time_s") or last_s),
        accuracy=[row.texts() for row in rows],
        made=[
            ("command", shlex.join(["hpctwin", *sys.argv[1:]])),
            ("versions", ", ".join(f"{name} {text}" for name, text in versions.items())),
            ("candidates", ", ".join(map(str, settings.get("core", {}).get("pool", ())))),
        ],
        unix_time=bool(status.get("unix_time", True)),
    )


def _read(runs: tuple[Path, ...]) -> list[ReportedRun]:
    """Return all runs, named by policy; runs of the same policy also by folder."""
    import dataclasses
    import itertools
    from collections import Counter

    from hpctwin.report.pages.run import read_run, runs_in

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
