"""``hpctwin twin``: the live twin of a cluster."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cyclopts import App

from hpctwin.cli.logs import LogOptions, set_when_asked_to_end
from hpctwin.cli.options import ConfigPath, Init, write_settings

if TYPE_CHECKING:
    from contextlib import closing

    from hpctwin.twin.journal.journal import Journal
    from hpctwin.twin.settings.config import Mode, TwinConfig

__all__ = ["twin_app"]

twin_app = App(name="twin", help="Run the live twin next to a cluster; explain its decisions.")

twin_app.command(
    "hpctwin.cli.live.top:top_command", name="top", help="Watch a twin in the terminal."
)

DEFAULT = Path("hpctwin.yaml")


@twin_app.command
def run(
    *,
    config: ConfigPath = DEFAULT,
    manager: str | None = None,
    mode: str | None = None,
    init: Init = False,
    view: bool = False,
    record: Path | None = None,
    resume: bool = False,
    log: LogOptions = LogOptions(),  # noqa: B008
) -> int:
    """Run the twin until it is interrupted.

    With --manager, the twin needs no file: it observes, and its journal is in the current folder.

    Args:
        manager: Resource manager to follow without a file: slurm, pbs or emulated:SOCKET.
        mode: Mode to use instead of the configured one: observe, advise, approve or act.
        init: Write --manager and --mode to the new file --config and stop; the file offers more
            settings.
        view: Show queue, nodes, policy and the last explanation in the terminal.
        record: Write all events to this file as they arrive, one JSON object per line.
        resume: Return to the configured mode after the twin has stopped itself.
    """
    import logging

    from hpctwin.errors import ConfigError
    from hpctwin.twin.service.service import open_twin
    from hpctwin.twin.settings.config import TwinConfig

    log.begin()
    if manager is None:
        settings, content = _config(config, mode), {}
    elif init or (config == DEFAULT and not config.exists()):
        content = _content(manager, mode)
        settings = TwinConfig.of(content, "options")
    else:
        raise ConfigError(
            f"--manager does not work with a configuration file ({config}); remove --manager, "
            "or add --init to write a new file"
        )
    if init:
        return write_settings(config, settings, content, f"hpctwin twin run -c {config}")
    if content:
        print("hpctwin when, twin status, … need a file; --init writes it", file=sys.stderr)
    stop = set_when_asked_to_end()
    with open_twin(settings, record=record, hung=_end_at_once) as twin:
        if resume:
            with twin.journal.writing():
                twin.journal.latest("stopped", "", 0.0)
        if view:
            from hpctwin.cli.live.top import live_view

            logging.getLogger().setLevel("ERROR")
            with live_view(twin):
                twin.run(stop)
        else:
            twin.run(stop)
    return 0


def _end_at_once(fault: str) -> None:
    """End the process: compiled code that loops cannot be stopped; leases expire by themselves."""
    print(f"hpctwin: {fault}", file=sys.stderr, flush=True)
    os._exit(1)


@twin_app.command
def check(config: ConfigPath = DEFAULT, *, json: bool = False) -> int:
    """Validate a configuration, and test its connections.

    Args:
        json: Print the findings as JSON.
    """
    from hpctwin.cli.output import print_json, print_lines
    from hpctwin.twin.service.service import check_connections

    findings = check_connections(_config(config))
    if json:
        print_json([{"what": what, "fine": fine, "says": says} for what, fine, says in findings])
    else:
        lines = (f"{'fine ' if fine else 'FAULT'} {what}: {says}" for what, fine, says in findings)
        print_lines([f"{config}: valid", *lines])
    return 0 if all(fine for _, fine, _ in findings) else 1


@twin_app.command
def status(*, config: ConfigPath = DEFAULT, json: bool = False) -> int:
    """Show the twin's state, and the difference of its mirror from the last snapshot.

    Exit code 1 if the twin is not running or reports an error.

    Args:
        json: Print the state as JSON.
    """
    import time

    from hpctwin.cli.output import print_json, print_lines
    from hpctwin.twin.journal.journal import tells_of_life
    from hpctwin.twin.service.explain import status_lines

    with _journal(config) as journal:
        found = journal.read_latest("status")
        counts = journal.counts()
    if found is None:
        print("the twin has not run yet")
        return 1
    age_s = time.time() - found[0]
    body = {**found[1], "age_s": age_s, "running_now": tells_of_life(found), "journal": counts}
    if json:
        print_json(body)
    else:
        print_lines(status_lines(body))
    return 0 if body["running_now"] and not body["fault"] else 1


@twin_app.command
def explain(
    subject: Literal["decision", "job"] = "decision",
    name: str | None = None,
    /,
    *,
    config: ConfigPath = DEFAULT,
    json: bool = False,
) -> int:
    """Explain why a policy was chosen, or why a job has not started and when it will.

    Args:
        subject: Kind of explanation.
        name: Number of the decision (default the last one), or id of the job.
        json: Print the lines as JSON.
    """
    from hpctwin.cli.output import print_json, print_lines
    from hpctwin.errors import ConfigError
    from hpctwin.twin.service.explain import explain_decision, explain_job

    if subject == "job" and name is None:
        raise ConfigError("explain job: job id is missing; give it, for example: explain job 4711")
    if subject == "decision" and name is not None and not name.isdecimal():
        raise ConfigError(f"explain decision: {name!r} is not a number; give a decision's number")
    with _journal(config) as journal:
        if subject == "job":
            lines = explain_job(journal, str(name))
        else:
            lines = explain_decision(journal, int(name) if name else None)
    page = _page(config, subject, name)
    if json:
        print_json({"subject": subject, "name": name, "lines": lines, "page": page})
    else:
        print_lines(lines if page is None else [*lines, page])
    return 0


@twin_app.command
def verify(
    decision: int | None = None, /, *, config: ConfigPath = DEFAULT, json: bool = False
) -> int:
    """Repeat a decision from the journal, and compare the results bit for bit.

    Exit code 1 if they differ.

    Args:
        decision: Number of the decision; default the last one.
        json: Print both results as JSON.
    """
    from dataclasses import asdict

    from hpctwin.cli.output import print_json
    from hpctwin.twin.journal.restore import decide_again

    with _journal(config) as journal:
        again = decide_again(journal, decision)
    if json:
        print_json(
            {
                "decision": again.recorded["id"],
                "same": not again.differences,
                "differences": again.differences,
                "notes": again.notes,
                "again": asdict(again.decision),
            }
        )
    else:
        found = again.recorded
        print(f"decision {found['id']}, state {found['state']}, seed {found['seed']}")
        for candidate in again.decision.candidates:
            print(f"  {candidate.policy}: {candidate.score!r}, starts {len(candidate.starts)}")
        for note in again.notes:
            print(f"note: {note}")
        if again.differences:
            for field, before, after in again.differences:
                print(f"differs in {field}: {before} before, {after} now")
        else:
            print(f"identical bit for bit: {again.decision.policy}")
    return 1 if again.differences else 0


@twin_app.command
def accuracy(
    *,
    by: Literal["wait", "size", "week"] = "wait",
    config: ConfigPath = DEFAULT,
    json: bool = False,
) -> int:
    """Show the errors of start-time forecasts, and the coverage of their intervals.

    Args:
        by: Classes of forecasts: by forecast wait, by requested nodes, or by week.
        json: Print the accuracy as JSON.
    """
    from dataclasses import asdict

    from rich.box import SIMPLE_HEAD

    from hpctwin.cli.output import print_json, screen
    from hpctwin.report.verbatim import VerbatimTable
    from hpctwin.twin.forecast.accuracy import accuracy as measured

    with _journal(config) as journal:
        rows = measured(journal.read_forecasts(), by)
    if json:
        print_json([asdict(row) for row in rows])
        return 0

    what = "the wait forecast" if by == "wait" else by
    title = f"Accuracy of start-time forecasts, by {what}"
    table = VerbatimTable(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(by, no_wrap=True)
    for column in ("forecasts", "median error", "p90 error", "bias", "in interval"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*row.texts())
    screen().print(table)
    return 0


@twin_app.command
def approve(
    decision: int,
    /,
    *,
    config: ConfigPath = DEFAULT,
    reject: bool = False,
) -> int:
    """Approve a decision that waits for a person (mode approve).

    Args:
        decision: Number of the decision, from `hpctwin twin status`.
        reject: Reject the decision instead.
    """
    with _journal(config, read_only=False) as journal:
        with journal.writing():
            changed = journal.approve(decision, "rejected" if reject else "approved")
        if not changed:
            waits = ", ".join(str(row) for row, _ in journal.approvals("pending")) or "none"
            print(f"decision {decision} is not awaiting approval; awaiting: {waits}")
            return 1
    print(f"decision {decision} {'rejected' if reject else 'approved'}")
    return 0


@twin_app.command
def schema(of: Literal["config", "events"] = "config", /) -> int:
    """Print the JSON Schema of the configuration, or of events.

    Args:
        of: Schema to print.
    """
    from hpctwin.cli.output import print_json
    from hpctwin.rms.records.events import event_schema
    from hpctwin.twin.settings.config import config_schema

    print_json(config_schema() if of == "config" else event_schema())
    return 0


def _content(manager: str, mode: str | None) -> dict[str, Any]:
    """Return the plain settings that options stand for.

    Raises:
        ConfigError: The socket of an emulated cluster is missing, or another kind has one.
    """
    from hpctwin.errors import ConfigError
    from hpctwin.twin.settings.config import CoreSettings

    kind, _, socket = manager.partition(":")
    if (kind == "emulated") != bool(socket):
        raise ConfigError(
            f"--manager is {manager}; it must be slurm, pbs or emulated:SOCKET, such as "
            "emulated:cluster.sock"
        )
    reached = {"kind": kind, "address": socket} if socket else {"kind": kind}
    pool = [*CoreSettings().pool]
    return {"manager": reached, "core": {"pool": pool}, "act": {"mode": mode or "observe"}}


def _config(path: Path, mode: str | None = None) -> TwinConfig:
    from typing import get_args

    from hpctwin.errors import UnknownNameError
    from hpctwin.twin.settings.config import Mode, TwinConfig

    settings = TwinConfig.from_yaml(path)
    if mode is None:
        return settings
    if mode not in get_args(Mode):
        raise UnknownNameError("mode", mode, get_args(Mode))
    chosen: Mode = mode  # type: ignore[assignment]
    return settings.model_copy(update={"act": settings.act.model_copy(update={"mode": chosen})})


def _page(config: Path, subject: str, name: str | None) -> str | None:
    """Return the address of the page about a job or decision; None if no page is configured."""
    from urllib.parse import quote

    address = _config(config).web_address
    if address is None:
        return None
    with _journal(config) as journal:
        found = name or next(iter(journal.decision_ids(1)), "")
    return f"{address.rstrip('/')}/{subject}/{quote(str(found), safe='')}"


def _journal(config: Path, *, read_only: bool = True) -> closing[Journal]:
    from contextlib import closing

    from hpctwin.twin.journal.journal import Journal

    return closing(Journal(_config(config).journal.path, read_only=read_only))
