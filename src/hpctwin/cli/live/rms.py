"""``hpctwin rms``: the twin's connection to the resource manager."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from hpctwin.cli.logs import LogOptions, set_when_asked_to_end

__all__ = ["rms_app"]

rms_app = App(name="rms", help="Check the resource manager; print what a site installs into it.")
rms_app.command(
    "hpctwin.cli.live.emulate:emulate_command",
    name="emulate",
    help="Run an emulated cluster for a twin, without Slurm or PBS.",
)


@rms_app.command
def probe(*, commands: str = "", manager_conf: Path | None = None, json: bool = False) -> int:
    """Detect the resource manager, its version, your rights, and possible functions.

    Only read-only commands are run. Exit code 1 if no resource manager is found or none answers.

    Args:
        commands: Folder of the resource manager's commands; by default found on the PATH.
        manager_conf: Value of SLURM_CONF, if it is not the default.
        json: Print the findings as JSON.
    """
    from dataclasses import asdict

    from rich.box import SIMPLE_HEAD

    from hpctwin.cli.output import print_json, screen
    from hpctwin.report.verbatim import VerbatimTable
    from hpctwin.rms.managers import probe as look_around

    found = look_around(commands, manager_conf)
    if json:
        print_json([asdict(one) for one in found])
    elif not found:
        print(
            "No resource manager found: neither squeue (Slurm) nor qstat and pbsnodes "
            f"(PBS) are {'in ' + commands if commands else 'on the path'}."
        )
    else:
        for one in found:
            title = f"{one.manager} {one.version}".strip()
            table = VerbatimTable(
                title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False
            )
            for column in ("what", "works", "why"):
                table.add_column(column, overflow="fold")
            for finding in one.findings:
                works = {True: "yes", False: "no", None: "?"}[finding.works]
                table.add_row(finding.what, works, finding.says)
            screen().print(table)
    return 0 if any(one.version for one in found) else 1


@rms_app.command
def forward(
    spool: Path,
    /,
    *,
    url: str | None = None,
    url_file: Path | None = None,
    stream_name: str = "hpctwin:hooks",
    password_env: str | None = None,
    place: Path | None = None,
    log: LogOptions = LogOptions(),  # noqa: B008
) -> int:
    """Send the events that hooks write to a file to Redis, for a twin on another host.

    Runs until interrupted. If Redis is unreachable, the lines wait in the file.

    Args:
        spool: File that the hooks write.
        url: Redis URL, rediss:// for TLS; default HPCTWIN_REDIS_URL, else redis://localhost:6379/0.
            A URL with a password is refused, because all users can see the command line.
        url_file: File with the URL, readable only by its owner.
        stream_name: Name of the stream, as under manager.events in the twin's configuration.
        password_env: Environment variable with the password.
        place: File for the position up to which the spool was sent, suffix .place; default next to
            the spool.
    """
    from hpctwin.model.text import count_text
    from hpctwin.rms.polling.redis_stream import redis_url
    from hpctwin.rms.polling.redis_stream import ship as send
    from hpctwin.rms.polling.spool import Spool

    address = redis_url(url, url_file)
    log.begin()
    stop = set_when_asked_to_end()
    sent = send(Spool(spool, place), address, stream_name, stop, password_env=password_env)
    print(f"{count_text(sent, 'line')} sent")
    return 0


pbs_app = App(name="pbs", help="Print the hook for a PBS server.")
rms_app.command(pbs_app)


@pbs_app.command
def install(
    *,
    spool: Path = Path("/var/spool/hpctwin/pbs-events.jsonl"),
    heartbeat: Path = Path("/run/hpctwin/alive"),
    queue: tuple[str, ...] = (),
    lease: str = "20s",
    owner: str = "",
    commands: str = "",
    dry_run: bool = False,
) -> int:
    """Install the hook in the PBS server on this host; needs a manager's rights (root).

    While the twin is in control, the hook prevents PBS's scheduler from starting the jobs that the
    twin has leased. It appends a line to a local file for each event. It refuses no submission and
    opens no connection.

    Args:
        spool: File that the hook writes; its folder is created.
        heartbeat: The twin's heartbeat file, manager.heartbeat in its configuration; its folder is
            created.
        queue: Only jobs of this queue are leased; default all. Repeatable.
        lease: Maximum time that a new job waits for the twin's decision.
        owner: User that runs the twin; its group can read and write the created folders.
        commands: Folder of qmgr; by default found on the PATH.
        dry_run: Print the hook and the qmgr commands without running them.
    """
    import tempfile
    from dataclasses import replace

    from hpctwin.errors import CommandError, UnreachableError
    from hpctwin.model import parse_duration_s
    from hpctwin.rms.commands import Commands
    from hpctwin.rms.pbs.install import (
        HookSettings,
        hook_text,
        install_commands,
        preempting_priority,
    )
    from hpctwin.rms.pbs.install import install as put_in

    settings = HookSettings(spool, heartbeat, queue, round(parse_duration_s(lease)))
    if dry_run:
        text = hook_text(settings)
        print(f"mkdir -p -m 750 {spool.parent} {heartbeat.parent}")
        print("cat > hpctwin-hook.py <<'HOOK'")
        print(text + "HOOK")
        for command in install_commands(Path("hpctwin-hook.py")):
            print(f"qmgr -c '{command[-1]}'")
        return 0
    with tempfile.TemporaryDirectory(prefix="hpctwin-") as scratch:
        try:
            hook_file = Path(scratch) / "hook.py"
            qmgr = Commands(commands, timeout_s=60.0)
            settings = replace(settings, express=preempting_priority(qmgr))
            put_in(qmgr, settings, hook_file, print, user=owner)
        except (CommandError, UnreachableError) as error:
            print(f"qmgr: {error}")
            return 1
    print(f"hook installed; it writes {spool} and releases leases if {heartbeat} is stale")
    return 0


@pbs_app.command
def uninstall(*, commands: str = "", dry_run: bool = False) -> int:
    """Remove the hook from the PBS server on this host.

    Args:
        commands: Folder of qmgr; by default found on the PATH.
        dry_run: Print the qmgr command without running it.
    """
    from hpctwin.errors import CommandError, UnreachableError
    from hpctwin.rms.commands import Commands
    from hpctwin.rms.pbs.install import uninstall as take_out
    from hpctwin.rms.pbs.install import uninstall_commands

    if dry_run:
        for command in uninstall_commands():
            print(f"qmgr -c '{command[-1]}'")
        return 0
    try:
        take_out(Commands(commands, timeout_s=60.0), print)
    except (CommandError, UnreachableError) as error:
        print(f"qmgr: {error}")
        return 1
    return 0


slurm_app = App(
    name="slurm", help="Print the script and the submit rule for Slurm's configuration."
)
rms_app.command(slurm_app)


@slurm_app.command
def events(
    *,
    spool: Path = Path("/var/spool/hpctwin/slurm-events.jsonl"),
    out: Path | None = None,
    owner: str = "slurm",
) -> int:
    """Print or install the script (PrologSlurmctld, JobCompLoc) that records jobs.

    Args:
        spool: File that the script writes.
        out: Install the script here, executable, and create the spool's folder with mode 2750;
            needs root.
        owner: Owner of the folder, USER or USER:GROUP: the SlurmUser and the twin's group.
    """
    from hpctwin.rms.slurm.install import events_script, install_events

    if out is None:
        print(events_script(spool), end="")
        return 0
    install_events(out, spool, owner)
    print(f"{out} is installed; it writes {spool}")
    return 0


@slurm_app.command
def rule(
    *,
    config: Annotated[Path | None, Parameter(name=["--config", "-c"])] = None,
    partition: tuple[str, ...] = (),
    free_user: tuple[str, ...] = (),
    heartbeat: Path | None = None,
    spool: Path | None = None,
    lease: str | None = None,
) -> int:
    """Print the job_submit.lua of first leases; put it next to slurm.conf.

    Args:
        config: The twin's YAML file with heartbeat, spool and lease.
        partition: Only jobs of this partition are leased; default all. Repeatable.
        free_user: Name or number of a user, such as the twin's, that may end leases of its own
            jobs; root always may.
        heartbeat: File of manager.heartbeat, as a path on the controller's host.
        spool: File of manager.events; each submission is appended to it.
        lease: Duration of a first lease, as manager.first_lease (20s); the twin takes a longer one
            for the user's own request.
    """
    from hpctwin.errors import ConfigError
    from hpctwin.model import parse_duration_s
    from hpctwin.rms.slurm.install import Rule, rule_text
    from hpctwin.rms.slurm.settings import SlurmSettings
    from hpctwin.twin.settings.config import TwinConfig

    settings = SlurmSettings(kind="slurm")
    if config is not None:
        found = TwinConfig.from_yaml(config).manager
        if not isinstance(found, SlurmSettings):
            raise ConfigError(f"{config}: manager: kind is {found.kind}; it must be slurm")
        settings = found
    noted = settings.events.spool if settings.events is not None else None
    given = Rule(
        partitions=partition,
        users=free_user,
        heartbeat=heartbeat or settings.heartbeat or Rule.heartbeat,
        spool=spool or noted or Rule.spool,
        lease_s=settings.first_lease if lease is None else parse_duration_s(lease),
    )
    print(rule_text(given), end="")
    return 0
