"""Import of a site's files from a folder: cluster, policy and workload.

Files are recognized by their content. A running resource manager can be asked instead; its answers
become the files that a site would copy.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import polars as pl

from hpctwin.errors import CommandError, ConfigError, UnreachableError
from hpctwin.formats import first_bytes
from hpctwin.formats.job_table import JobTable
from hpctwin.formats.record import LABELS, Machine, Running, Tally
from hpctwin.model import Cluster
from hpctwin.model.cluster.limits import ROOT
from hpctwin.model.files import cause
from hpctwin.rms.commands import Commands, passed_on
from hpctwin.rms.deleted_entities import take_gone
from hpctwin.rms.derived_nodes import Derived, derived_cluster, derived_nodes
from hpctwin.rms.pbs.site import recognition as pbs_site
from hpctwin.rms.pbs.site.recognition import PbsFiles
from hpctwin.rms.site import NO_EFFECT, Setting, Site, equal_nodes
from hpctwin.rms.slurm.site import recognition as slurm_site
from hpctwin.rms.slurm.site.accounts import take_resets
from hpctwin.rms.slurm.site.recognition import SlurmFiles
from hpctwin.rms.slurm.site.reservations import take_reservations

_TIMEOUT_S = 600.0
_LONGER_S = {"sacct": 6 * 3600.0}  # years of it, from a database that others use too
_DAYS = 30


def live_command(command: Sequence[str], since: str) -> Sequence[str]:
    """Return a command of ``LIVE``; accounting starts at a date."""
    return (*command, "-S", since) if command[0] == "sacct" else command


def asked(
    manager: str, folder: Path, *, since: str | None, beside: Path | None, commands_in: str = ""
) -> list[str]:
    """Run the commands that describe a site, and write their output into a folder.

    Args:
        manager: ``slurm`` or ``pbs``.
        since: First date of the accounting; by default 30 days ago.
        beside: Folder with further files, such as accounting logs.
        commands_in: Folder of the commands; if empty, the path is searched.

    Returns:
        A sentence for each command that failed.

    Raises:
        ConfigError: ``since`` is no date, or the folder with further files cannot be read.
        UnreachableError: No command answers.
    """
    site = {"slurm": slurm_site, "pbs": pbs_site}[manager]
    first = since or (dt.date.today() - dt.timedelta(days=_DAYS)).isoformat()
    try:
        dt.date.fromisoformat(first)
    except ValueError as error:
        raise ConfigError(
            f"--since: {first!r} is not a date; expected one such as 2026-10-01"
        ) from error
    names = ("SLURM_CONF", "PBS_CONF_FILE", "PBS_EXEC", "PBS_SERVER")
    commands = Commands(
        commands_in, timeout_s=_TIMEOUT_S, environment={"TZ": "UTC", **passed_on(*names)}
    )
    notes = []
    for name in site.LIVE:
        program, *arguments = live_command(site.LIVE[name], first)
        path = folder / name
        try:
            with path.open("wb") as file:
                commands.run_into(
                    file, program, arguments, timeout_s=_LONGER_S.get(program, _TIMEOUT_S)
                )
            if not path.stat().st_size:
                path.unlink()  # a Slurm without switches prints nothing about them
        except (CommandError, UnreachableError) as error:
            path.unlink()  # its output before the failure is not complete
            notes.append(f"{program} {' '.join(arguments)[:60]}: {error}")
    if len(notes) == len(site.LIVE):
        raise UnreachableError("; ".join(notes))
    if beside is not None:
        try:
            shutil.copytree(beside, folder / "beside")
        except OSError as error:
            raise ConfigError(f"{beside}: {cause(error)}") from error
    return notes


MANAGERS: Mapping[str, Callable[[], SlurmFiles | PbsFiles]] = {"slurm": SlurmFiles, "pbs": PbsFiles}
"""Resource managers whose files can be read, and the class that recognizes them."""

_OF_NODES = ("gres.conf", "topology.conf")
_MOST_FILES = 20_000
_MOST_JOBS = 1_000_000
"""Number of last jobs from which nodes are derived; each counts on all its nodes."""


@dataclass
class Imported:
    """Result of importing a site's files.

    Args:
        site: Cluster, policy, and the treatment of each setting.
        table: Jobs in hpctwin's own columns; times in seconds since the epoch.
        tally: Counts of jobs read, changed and skipped in the accounting.
        files: Recognized kind of each file; empty if unknown.
        missing: Information that no file has, and the file that would have it.
    """

    site: Site
    table: JobTable
    tally: Tally
    files: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    @cached_property
    def jobs(self) -> pl.DataFrame:
        """All jobs, in memory."""
        return self.table.frame()


def import_site(
    manager: str,
    folder: Path,
    *,
    timezone: str | None = None,
    columns: str | None = None,
    running: Running = "elapsed",
) -> Imported:
    """Read a site's folder: settings, output of commands, accounting.

    Args:
        manager: One of `MANAGERS`.
        folder: Folder with the files, also in folders within; each is recognized by its content.
        timezone: Time zone of the accounting; by default UTC.
        columns: ``--format`` of the ``sacct`` call, for output without a header.
        running: Treatment of jobs that still ran when accounting was written.

    Raises:
        ConfigError: The folder does not exist, has no file of that manager, or has accounting with
            unknown columns.
        TraceError: Accounting cannot be read at all.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder}: expected a folder with the site's files")
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    if len(paths) > _MOST_FILES:
        raise ConfigError(
            f"{folder}: the folder has {len(paths):,} files, expected at most {_MOST_FILES:,}; "
            "copy only the site's files"
        )
    found = SlurmFiles(folder, paths, columns) if manager == "slurm" else MANAGERS[manager]()
    files = {str(path.relative_to(folder)): found.take(path, first_bytes(path)) for path in paths}
    if isinstance(found, SlurmFiles) and found.unread:
        raise ConfigError("; ".join(found.unread[:3]))
    if not any(files.values()):
        raise ConfigError(
            f"{folder}: none of its {len(paths)} files is recognized; {found.expected}"
        )
    tally = Tally()
    site = found.site()
    if site is not None:
        machine = _machine(site, *found.shared, running)
    else:
        first = Tally()
        past = found.jobs(first, Machine(features=(), running=running), timezone)
        derived = derived_nodes(past.last(_MOST_JOBS).lazy(), manager)
        site = _of_unknown_size(manager, found, derived, first, len(past))
        shares = (derived.shared, derived.memory) if derived else (False, True)
        # No file says which features the nodes have.
        machine = replace(_machine(site, *shares, running), features=())
        site.notes += _of_no_use(files)
    if isinstance(found, SlurmFiles):
        for path in found.included:
            name = str(path.relative_to(folder))
            files[name] = files[name] or "included by slurm.conf"
    jobs = found.jobs(tally, machine, timezone)
    if site.shared_placement and len(jobs) and "tasks" in jobs.columns:
        site.policy = f"{site.policy}@{site.shared_placement}"
    jobs = take_gone(site, jobs)
    if isinstance(found, SlurmFiles):
        take_reservations(site, jobs, found.reservations, timezone)
        take_resets(site, jobs, found.values, timezone)
    site.notes = list(dict.fromkeys(site.notes))
    return Imported(site, jobs, tally, files, found.missing())


def _machine(site: Site, shared: bool, memory: bool, running: Running) -> Machine:
    limits = {one.name: one.max_walltime for one in site.cluster.partitions if one.max_walltime}
    if shared:
        site.notes.append(
            "jobs share nodes: each job requests on each of its nodes its recorded share of cores, "
            f"{'memory ' if memory else ''}and GPUs; the simulated placement may choose other nodes"
        )
    features = {group.all_features for group in site.cluster.nodes}
    consumables = site.cluster.consumables if shared else ()
    licences = tuple(site.cluster.resources)
    return Machine(limits, shared, memory, consumables, licences, features, running)


def _of_unknown_size(
    manager: str, found: SlurmFiles | PbsFiles, derived: Derived | None, tally: Tally, jobs: int
) -> Site:
    """Return the site that settings describe, with nodes derived from accounting.

    It is for settings that do not describe the nodes.
    """
    site = found.site(assumed=derived.nodes if derived else equal_nodes(1, ()))
    if site is None and derived is None:
        out = [f"{count:,} × {why}" for why, count in tally.counts.items() if "skipped" in why]
        raise ConfigError(
            "the size of the cluster is unknown: the folder has neither settings nor jobs with a start; "
            "add either" + (f" ({', '.join(out)})" if out else "")
        )
    notes = [*derived.notes] if derived else []
    if derived and jobs > _MOST_JOBS:
        notes.append(f"the nodes are derived from the last {_MOST_JOBS:,} of {jobs:,} jobs")
    if site is None:
        assert derived is not None
        cluster = derived_cluster(derived, manager)
        note = (
            "no settings found: nodes are derived from accounting, the policy is fcfs+conservative"
        )
        return Site(manager, cluster, "fcfs+conservative", [], [note, *notes])
    site.sized = derived is not None
    site.notes.append(
        "no file describes the nodes: they are derived from accounting"
        if derived
        else "no file describes the nodes, and no job shows their number: cluster.yaml has none; write "
        "them there, or add the missing files and import again"
    )
    site.notes += notes
    return site


def _of_no_use(files: Mapping[str, str]) -> list[str]:
    """Return a note on files about nodes that no other file describes."""
    idle = [f"{name} ({kind})" for name, kind in files.items() if kind in _OF_NODES]
    return [f"ignored, as no file describes the nodes: {', '.join(idle)}"] if idle else []


# --- pseudonyms ------------------------------------------------------------------------------------


def _told_of_features(text: str, new: Mapping[str, str]) -> str:
    return re.sub(r"[^&|()!]+", lambda found: new.get(found[0], found[0]), text)


def pseudonyms(made: Imported, salt: bytes) -> Imported:
    """Return the same with pseudonyms: users, accounts, partitions, QOS and cluster.

    The same name and salt always give the same pseudonym. Names of nodes, file names, the starts of
    lines and settings without a bearing are omitted.

    Args:
        salt: Secret of 16 bytes or more.
    """
    table = made.table
    new: dict[str, str] = {}

    def pseudonym(kind: str, name: str) -> str:
        digest = hashlib.blake2b(
            f"{kind}\0{name}".encode(), key=salt[:64], digest_size=5
        ).hexdigest()
        return new.setdefault(name, f"{kind}-{digest}")

    for kind in LABELS:
        if kind in table.columns:
            label = pl.col(kind).cast(pl.String)
            distinct = table.scan().select(label.unique()).collect(engine="streaming")[kind]
            names = distinct.drop_nulls().sort().to_list()
            table = table.with_columns(
                label.replace_strict(
                    {name: pseudonym(kind, name) for name in names},
                    default=None,
                    return_dtype=pl.String,
                ).alias(kind)
            )
    plain = made.site.cluster.model_dump(exclude_defaults=True)
    plain["name"] = pseudonym("cluster", made.site.cluster.name)
    for group in plain["nodes"]:
        group["name"] = pseudonym("nodes", group["name"])
        if "features" in group:
            group["features"] = [pseudonym("feature", name) for name in group["features"]]
    if "features" in table.columns:
        asked = pl.col("features").cast(pl.String)
        texts = table.scan().select(asked.unique()).collect(engine="streaming")["features"]
        others = {text: _told_of_features(text, new) for text in texts.drop_nulls().to_list()}
        table = table.with_columns(
            asked.replace_strict(others, default=None, return_dtype=pl.String).alias("features")
        )
    for switch in plain.get("switches", ()):
        switch["name"] = pseudonym("switch", switch["name"])
        if "switches" in switch:
            switch["switches"] = [pseudonym("switch", name) for name in switch["switches"]]
    for partition in plain.get("partitions", ()):
        partition["name"] = pseudonym("partition", partition["name"])
        partition["groups"] = [new[name] for name in partition["groups"]]
        if "qos" in partition:
            partition["qos"] = pseudonym("qos", partition["qos"])
    plain["qos"] = {pseudonym("qos", k): v for k, v in plain.get("qos", {}).items()}
    for account in plain.get("accounts", ()):
        account["name"] = pseudonym("account", account["name"])
        if "parent" in account:
            account["parent"] = pseudonym("account", account["parent"])
        users = account.get("users", {})
        account["users"] = {pseudonym("user", name): share for name, share in users.items()}
    for limit in plain.get("limits", ()):
        for kind in ("qos", "account", "user"):
            if limit.get(kind) not in (None, ROOT):
                limit[kind] = pseudonym(kind, limit[kind])
        if isinstance(limit.get("partitions"), tuple | list):
            limit["partitions"] = [pseudonym("partition", name) for name in limit["partitions"]]
    for setting in made.site.settings:
        for kind, name in re.findall(r"^(reservation|node|topology) ([^\s:]+)", setting.name):
            pseudonym(kind, name)
        if setting.name.endswith(": Topology"):
            pseudonym("topology", setting.value)
    for reservation in plain.get("reservations", ()):
        reservation["name"] = pseudonym("reservation", reservation["name"])
    preemption = plain.get("preemption", {})
    for kind, classes in (("partition", "partitions"), ("qos", "qos")):
        if classes in preemption:
            preemption[classes] = {pseudonym(kind, k): v for k, v in preemption[classes].items()}
    for one in preemption.get("qos", {}).values():
        one["preempts"] = [pseudonym("qos", name) for name in one.get("preempts", ())]
    share = plain.get("fairshare", {})
    if share.get("shares"):
        by = share.get("by", "user")
        share["shares"] = {pseudonym(by, k): v for k, v in share["shares"].items()}
    if share.get("factors"):
        share["factors"] = {pseudonym("qos", k): v for k, v in share["factors"].items()}
        share["safe_factors"] = [pseudonym("qos", name) for name in share.get("safe_factors", ())]
    # Users and groups whose limits PBS has and that appear nowhere else.
    for setting in made.site.settings:
        for kind, name in re.findall(r'\[\s*([ugp]):\s*"?((?!PBS_)[^="\]]+)', setting.value):
            pseudonym("user" if kind == "u" else "account", name.strip())
    settings = [
        Setting(_told(s.name, new), _told(s.value, new), "", s.became, _told(s.why, new))
        for s in made.site.settings
        if s.became != NO_EFFECT
        and not s.name.startswith("Association")
        and "CFG[" not in s.name  # of Maui, with names of users and hosts
    ]
    site = Site(
        made.site.manager,
        Cluster.checked(plain, "pseudonyms"),
        made.site.policy,
        settings,
        [_told(note, new) for note in made.site.notes],
        sized=made.site.sized,
    )
    tally = Tally(
        {_told(why, new): count for why, count in made.tally.counts.items()}, [], made.tally.remarks
    )
    frames = (frame.drop("recorded_nodes", strict=False) for frame in table.frames)
    return Imported(site, replace(table, frames=tuple(frames)), tally, {}, made.missing)


def _told(text: str, new: Mapping[str, str]) -> str:
    """Return a text with pseudonyms in place of names; the longest names first."""
    if not new:
        return text
    names = "|".join(re.escape(name) for name in sorted(new, key=len, reverse=True))
    return re.sub(rf"(?<![\w-])(?:{names})(?![\w-])", lambda found: new[found[0]], text)
