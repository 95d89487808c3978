"""``hpctwin import``, with its check of simulations against a site's past."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

if TYPE_CHECKING:
    from hpctwin.metrics import By
    from hpctwin.rms.site_folder import Imported
    from hpctwin.sweep.assumptions import Checked

__all__ = ["fidelity_figures", "fidelity_tables", "import_app", "print_fidelity"]

From = Annotated[Path | None, Parameter(name="--from")]
Live = Annotated[Literal["live"] | None, Parameter(show_choices=False)]

import_app = App(
    name="import", help="Import a site's files: its cluster, its policy and its past jobs."
)


@Parameter(name="*")
@dataclass(frozen=True)
class ImportOptions:
    """Settings of an import, for every resource manager."""

    out: Path
    """Write the results to this folder."""
    commands: str = ""
    """With live: folder of the resource manager's commands; by default found on the PATH."""
    anonymize: bool = False
    """Replace names of users, accounts, partitions (queues), QOS, node groups and the cluster."""
    salt: Path | None = None
    """With --anonymize: file of at least 16 bytes that keeps pseudonyms stable; created if missing.
    Default a random salt that is not stored."""
    check: bool = False
    """Simulate the imported past, and compare starts with the recorded ones; also reports
    which assumption costs most. Adds fidelity.json, and tables to report.html."""
    still_running: Literal["elapsed", "limit", "drop"] = "elapsed"
    """End of jobs that ran when accounting was written: then, at their limit, or excluded."""
    json: bool = False
    """Print imported and excluded items as JSON."""


@import_app.command
def slurm(
    live: Live = None,
    /,
    *,
    folder: From = None,
    since: str | None = None,
    timezone: str | None = None,
    columns: str | None = None,
    format: str | None = None,
    options: ImportOptions,
) -> int:
    """Import a Slurm site from slurm.conf and the output of scontrol, sacctmgr and sacct.

    Writes cluster.yaml, policy.yaml, workload.parquet and report.html; the report lists what could
    not be imported, and why. Then run hpctwin simulate OUT, or hpctwin compare OUT for what-if
    studies.

    Args:
        live: The word live queries the running Slurm instead of reading a folder.
        folder: Folder of the files; their names do not matter.
        since: With live: import accounting from this date on, such as 2026-10-01; default 30 days.
        timezone: Time zone of sacct's times, such as Europe/Berlin; default UTC.
        columns: Value of sacct's --format, if its output has no header.
        format: Columns to print, the same as --columns.
    """
    return _import("slurm", folder, live == "live", options, since, timezone, columns or format)


@import_app.command
def pbs(
    live: Live = None,
    /,
    *,
    folder: From = None,
    options: ImportOptions,
) -> int:
    """Import a PBS or Torque site from its configuration and accounting logs.

    Reads the output of pbsnodes and qmgr -c 'print server', sched_config or maui.cfg, and
    accounting logs.

    Writes cluster.yaml, policy.yaml, workload.parquet and report.html; the report lists what could
    not be imported, and why. Then run hpctwin simulate OUT, or hpctwin compare OUT for what-if
    studies.

    Args:
        live: The word live queries the running PBS instead of reading a folder.
        folder: Folder of the files, whatever their names; with live, folder of the accounting logs.
    """
    return _import("pbs", folder, live == "live", options)


def _import(
    manager: str,
    source: Path | None,
    live: bool,
    options: ImportOptions,
    since: str | None = None,
    timezone: str | None = None,
    columns: str | None = None,
) -> int:
    import tempfile

    from hpctwin.cli.output import check_outputs, print_json
    from hpctwin.errors import ConfigError
    from hpctwin.rms.site_folder import asked, import_site, pseudonyms

    if not live and source is None:
        raise ConfigError(f"give --from FOLDER, or `live` to query the running {manager}")
    if options.salt is not None and not options.anonymize:
        raise ConfigError("--salt has no effect without --anonymize; add it")
    check_outputs(folders=[options.out])
    key = _salt(options.salt) if options.anonymize else None
    if not live:
        assert source is not None
        made = import_site(
            manager, source, timezone=timezone, columns=columns, running=options.still_running
        )
    else:
        with tempfile.TemporaryDirectory(prefix="hpctwin-") as scratch:
            notes = asked(
                manager, Path(scratch), since=since, beside=source, commands_in=options.commands
            )
            made = import_site(
                manager, Path(scratch), timezone=timezone, running=options.still_running
            )
            made.site.notes += notes
    if key is not None:
        made = pseudonyms(made, key)
    _check_policy(made)
    checked = _checked(made) if options.check else None
    _write(made, checked, options.out)
    told = _told(made, checked, options.out)
    if options.json:
        print_json(told)
    else:
        _print(told, checked)
    if not told["nodes"]:
        raise ConfigError(
            f"{source or manager}: no file describes the nodes, and no job states their "
            "number; add the missing files and import again, or write the nodes into "
            f"{options.out}/cluster.yaml"
        )
    return 0


def _salt(path: Path | None) -> bytes:
    """Return the secret of the pseudonyms; create and store it if the file is missing.

    Raises:
        ConfigError: The file cannot be read or written, or is too short.
    """
    import os
    import secrets

    from hpctwin.errors import ConfigError
    from hpctwin.model.files import cause

    if path is None:
        return secrets.token_bytes(32)
    try:
        if not path.exists():
            with os.fdopen(
                os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb"
            ) as file:
                file.write(secrets.token_hex(32).encode())
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: {cause(error)}") from error
    if len(content) < 16:
        raise ConfigError(f"{path}: salt has {len(content)} bytes; it must have 16 or more")
    return content


def _check_policy(made: Imported) -> None:
    """Replace an ordering that hpctwin does not support by fcfs, and note it."""
    from hpctwin.errors import ConfigError, PolicyError, UnknownNameError
    from hpctwin.policies import parse_policy

    try:
        made.site.policy = parse_policy(made.site.policy).name
    except (ConfigError, PolicyError, UnknownNameError) as error:
        backfill = made.site.policy.rpartition("+")[2]
        made.site.notes.append(
            f"the site's ordering is not supported, fcfs is used instead: {error}"
        )
        made.site.policy = f"fcfs+{backfill}"


def _checked(made: Imported) -> Checked:
    """Simulate the past, and compare it with the recorded starts.

    Raises:
        ConfigError: There are no jobs.
        WorkloadError: No job has a recorded start.
    """
    import sys

    from hpctwin.errors import ConfigError
    from hpctwin.formats.accounting.workload import workload_of
    from hpctwin.model.demand import unused
    from hpctwin.sweep.assumptions import check_past

    if not len(made.table):
        raise ConfigError(
            "--check: the files contain no accounting with recorded starts; add it to the files"
        )

    def told(what: str) -> None:
        print(f"hpctwin: trying {what}", file=sys.stderr, flush=True)

    workload = workload_of(made.jobs, made.site.cluster.name, made.tally)
    made.site.notes += unused(workload, made.site.cluster)
    return check_past(workload, made.site.cluster, made.site.policy, progress=told)


def _write(made: Imported, checked: Checked | None, out: Path) -> None:
    """Write the files: the workload if there are jobs, fidelity if the past was simulated."""
    import yaml

    from hpctwin.cli.output import as_json
    from hpctwin.formats.accounting.workload import workloads_of
    from hpctwin.formats.own_columns import write_parquet_parts
    from hpctwin.model import write_atomically, write_folder

    site = made.site
    head = f"# Made by hpctwin import {site.manager}; report.html lists the imported settings.\n"
    with write_folder(out) as new:
        content = site.cluster.model_dump(mode="json", exclude_defaults=True)
        if not site.sized:
            content = _without_nodes(content)
        for name, plain in (("cluster", content), ("policy", {"policy": site.policy})):
            text = (
                head
                + ("" if name == "policy" or site.sized else _NODES)
                + yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=110)
            )
            with write_atomically(new / f"{name}.yaml") as file:
                file.write(text.encode())
        if len(made.table):
            parts = workloads_of(made.table, site.cluster.name, made.tally)
            write_parquet_parts(parts, new / "workload.parquet")
        if checked is not None:
            with write_atomically(new / "fidelity.json") as file:
                file.write(as_json(fidelity_figures(checked)).encode())
        _write_report(made, checked, new / "report.html")


_DRAWN = 500_000
"""Maximum number of past jobs in the report's charts; the last jobs are shown."""
_NODES = (
    "# No file describes the nodes. Add them here before use, such as\n# nodes: [{name: "
    "node, count: 64, cores: 48, memory_gb: 192}]\n"
)


def _without_nodes(content: dict[str, Any]) -> dict[str, Any]:
    """Return a cluster's fields without the placeholders of unknown nodes."""
    partitions = [
        {name: value for name, value in one.items() if name != "groups"}
        for one in content.pop("partitions", ())
    ]
    del content["nodes"]
    return {**content, "partitions": partitions} if partitions else content


def _write_report(made: Imported, checked: Checked | None, path: Path) -> None:
    from hpctwin.formats.accounting.workload import workload_of
    from hpctwin.report.pages.html import write_site_report
    from hpctwin.rms.site import IMPORTED, NO_EFFECT, NOT_MODELED

    def rows(became: str) -> list[tuple[str, str, str, str]]:
        return [(s.name, s.value, s.why, s.where) for s in made.site.settings if s.became == became]

    head = ("setting", "value", "why", "where")
    out, other = _counts(made)
    write_site_report(
        path,
        cluster=made.site.cluster,
        nodes=made.site.nodes,
        policy=made.site.policy,
        jobs=len(made.table),
        workload=workload_of(made.table.last(_DRAWN), made.site.cluster.name, made.tally)
        if len(made.table)
        else None,
        notes=[
            *made.site.notes,
            *made.tally.remarks,
            *(f"Missing: {what}" for what in made.missing),
        ],
        tables={
            **({} if checked is None else fidelity_tables(checked)),
            "Not taken over": (head, rows(NOT_MODELED)),
            "Taken over": (("setting", "value", "became", "where"), rows(IMPORTED)),
            "Accounting: omitted": (("what", "how often"), list(out.items())),
            "Accounting: records read and changed": (("what", "how often"), list(other.items())),
            "Lines that could not be read": (("line",), [(line,) for line in made.tally.skipped[:100]]),
            "Settings without effect on when and where jobs start": (head, rows(NO_EFFECT)),
            "Files": (
                ("file", "taken for"),
                [(k, v or "not read: unknown kind of file") for k, v in made.files.items()],
            ),
        },
    )  # fmt: skip


def _counts(made: Imported) -> tuple[dict[str, int], dict[str, int]]:
    """Return the counts of excluded items, and all other counts."""
    counts = made.tally.counts
    out = {why: n for why, n in counts.items() if "skipped" in why}
    return out, {why: n for why, n in counts.items() if why not in out}


def _told(made: Imported, checked: Checked | None, out: Path) -> dict[str, Any]:
    from dataclasses import asdict

    from hpctwin.rms.site import IMPORTED, NO_EFFECT, NOT_MODELED

    omitted, other = _counts(made)
    settings = made.site.settings
    return {
        "manager": made.site.manager,
        "out": str(out),
        "cluster": made.site.cluster.name,
        "nodes": sum(group.count for group in made.site.nodes),
        "node_groups": len(made.site.nodes),
        "partitions": len(made.site.cluster.partitions),
        "policy": made.site.policy,
        "jobs": len(made.table),
        "read": {"files": {k: v for k, v in made.files.items() if v}, **other},
        "omitted": {"files": [k for k, v in made.files.items() if not v], **omitted},
        "settings": {
            "imported": sum(s.became == IMPORTED for s in settings),
            "not_modeled": [asdict(s) for s in settings if s.became == NOT_MODELED],
            "without_effect": sum(s.became == NO_EFFECT for s in settings),
        },
        "notes": list(dict.fromkeys([*made.site.notes, *made.tally.remarks])),
        "missing": made.missing,
        **({} if checked is None else {"fidelity": fidelity_figures(checked)}),
    }


def _print(told: dict[str, Any], checked: Checked | None) -> None:
    from hpctwin.cli.output import print_lines
    from hpctwin.model.text import count_text

    counts = {name: told[name] for name in ("nodes", "node_groups", "partitions", "jobs")}
    shown = [count_text(count, name[:-1].replace("_", " ")) for name, count in counts.items()]
    print(f"{told['cluster']}: {', '.join(shown)}")
    print(f"policy: {told['policy']}")
    print(f"read: {count_text(len(told['read']['files']), 'file')}" + _listed(told["read"]))
    if told["omitted"]["files"]:
        print(f"not read: {', '.join(told['omitted']['files'])}")
    if len(told["omitted"]) > 1:
        print("omitted:" + _listed(told["omitted"]))
    settings = told["settings"]
    print(
        f"settings: {settings['imported']} imported, {len(settings['not_modeled'])} not "
        f"modeled, {settings['without_effect']} without effect"
    )
    print_lines(f"  {one['name']}={one['value']}: {one['why']}" for one in settings["not_modeled"])
    print_lines(told["notes"])
    print_lines(f"missing: {what}" for what in told["missing"])
    if checked is not None:
        print_fidelity(checked)
    jobs = "workload.parquet, " if told["jobs"] else ""
    jobs += "fidelity.json, " if checked is not None else ""
    print(f"{told['out']}: cluster.yaml, policy.yaml, {jobs}report.html")
    if not told["nodes"]:
        print(f"write the nodes into {told['out']}/cluster.yaml before you run hpctwin simulate")
    elif not told["jobs"]:
        print(f"run other jobs on it: hpctwin simulate TRACE --cluster {told['out']}/cluster.yaml")
    else:
        print(f"run it: hpctwin simulate {told['out']}; vary it: hpctwin compare {told['out']}")


def _listed(counts: dict[str, Any]) -> str:
    pairs: Iterable[tuple[str, Any]] = ((k, v) for k, v in counts.items() if k != "files")
    return "".join(f"\n  {count:,} × {what}" for what, count in pairs)


_CLASSES: tuple[By, ...] = ("size", "partition", "user")
_HEAD = ("", "jobs", "wait, recorded", "simulated", "median error", "p95", "within 1 min", "1 h")


def fidelity_figures(checked: Checked) -> dict[str, Any]:
    """Return the comparison as it is written to JSON."""
    taken = checked.taken
    return {
        **taken.figures(),
        "not_compared": taken.without,
        **{f"by_{by}": taken.by(by).to_dicts() for by in _CLASSES},
        "assumptions": checked.instead.to_dicts(),
        "fitted": checked.rolling.to_dicts(),
        "not_tried": list(checked.refused),
    }


def fidelity_tables(checked: Checked) -> dict[str, Any]:
    """Return the comparison as tables of texts: a header and rows, by title."""
    taken = checked.taken
    tables: dict[str, Any] = {
        "Simulated and recorded starts": (_HEAD, [_row("all", taken.figures())])
    }
    for by in _CLASSES:
        rows = (
            taken.by(by)
            .sort("jobs", descending=True, maintain_order=True)
            .head(12)
            .iter_rows(named=True)
        )
        found = [_row(one["bin"], one) for one in rows]
        if len(found) > 1:
            tables[f"By {by}" if by != "user" else "By user, most jobs first"] = (_HEAD, found)
    tables["Other assumptions, largest improvement first"] = (
        ("assumption", "taken", "instead", *_HEAD[3:]),
        [
            (one["assumption"], one["taken"], one["instead"], *_row("", one)[3:])
            for one in checked.instead.iter_rows(named=True)
        ],
    )
    if len(checked.rolling):
        tables["Fitted on earlier jobs, with the error on later jobs"] = (
            ("from", "until", "jobs", "fitted", "delay", "median error", "as asked for"),
            [_rolled(one) for one in checked.rolling.iter_rows(named=True)],
        )
    return tables


def _rolled(one: Mapping[str, Any]) -> tuple[str, ...]:
    from hpctwin.model import format_duration

    times = (format_duration(round(one[name])) for name in ("from_s", "until_s"))
    fitted = f"{one['assumption']}: {one['instead']}" if one["instead"] else one["assumption"]
    seconds = (format_duration(one[name]) for name in ("delay_s", "error_s", "taken_error_s"))
    return (*times, f"{one['jobs']:,}", fitted, *seconds)


def _row(name: str, figures: Mapping[str, Any]) -> tuple[str, ...]:
    from hpctwin.model import format_duration

    waits = ("recorded_wait_s", "simulated_wait_s", "median_error_s", "p95_error_s")
    return (
        name,
        f"{figures['jobs']:,}",
        *(format_duration(figures[one]) for one in waits),
        *(f"{figures[one]:.0%}" for one in ("within_1min", "within_1h")),
    )


def print_fidelity(checked: Checked) -> None:
    """Print the tables on standard output."""
    from hpctwin.cli.output import screen
    from hpctwin.report.verbatim import VerbatimTable

    console = screen()
    for title, (head, rows) in fidelity_tables(checked).items():
        table = VerbatimTable(title=title, title_justify="left", box=None, pad_edge=False)
        for number, name in enumerate(head):
            is_number = rows and rows[0][number][:1].isdecimal()
            table.add_column(name, justify="right" if is_number else "left", overflow="fold")
        for row in rows:
            table.add_row(*row)
        console.print(table)
    for refused in checked.refused:
        console.print(f"not tried: {refused}")
