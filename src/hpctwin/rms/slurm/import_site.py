"""Which files of a folder are of Slurm, and what each of them is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpctwin.errors import TraceError
from hpctwin.formats._job_table import JobTable
from hpctwin.formats._record import Machine, Tally
from hpctwin.formats.sacct import COLUMNS, is_sacct, sacct_table
from hpctwin.formats.sacct_layout import check_columns, layout_of
from hpctwin.formats.slurm2sql import MAGIC, is_slurm2sql
from hpctwin.rms.machine import ListedNode
from hpctwin.rms.site import Site
from hpctwin.rms.slurm.conf import (
    Conf,
    Row,
    blocks,
    column_of,
    dumped_associations,
    read_conf,
    row_of,
    shown_shares,
    shown_weights,
    table,
)
from hpctwin.rms.slurm.limits import LIMITS
from hpctwin.rms.slurm.reservations import reservation_rows
from hpctwin.rms.slurm.site import SlurmSettings, slurm_site

__all__ = ["LIVE", "SlurmFiles", "live_command"]

# Versions since 21.08 refuse the columns of GRES; what they told is in TRES.
_COLUMNS = ",".join(name for name in COLUMNS if not name.endswith("GRES"))

LIVE: dict[str, tuple[str, ...]] = {
    "config.txt": ("scontrol", "show", "config"),
    "nodes.txt": ("scontrol", "show", "node"),
    "partitions.txt": ("scontrol", "show", "partition"),
    "reservations.txt": ("scontrol", "show", "reservation", "-o"),
    "associations.txt": (
        "sacctmgr", "-P", "show", "associations",
        "format=Cluster,Account,ParentName,User,Share,GrpJobs,GrpTRES,GrpSubmit,GrpWall,GrpTRESMins,MaxJobs,MaxTRES,"
        "MaxSubmit,MaxWall,MaxTRESMins",
    ),
    "qos.txt": ("sacctmgr", "-P", "show", "qos"),
    "sacct.txt": ("sacct", "-a", "-D", "-P", "-o", _COLUMNS),
}  # fmt: skip
"""What a running Slurm is asked, by the file that an answer would be in; sacct takes ``-S`` besides."""

_CONF_LINE = re.compile(
    rb"^\s*(?:ClusterName|SlurmctldHost|ControlMachine|NodeName|PartitionName|SchedulerType)\s*=",
    re.IGNORECASE | re.MULTILINE,
)
_RULED = re.compile(rb"[^\n|=]*\n[- ]*---[- ]*\r?\n")
_MAIN = re.compile(
    rb"^\s*(?:ClusterName|SlurmctldHost|ControlMachine)\s*=", re.IGNORECASE | re.MULTILINE
)


class SlurmFiles:
    """The files of a Slurm site."""

    expected = "slurm.conf, the output of scontrol show node or sacct -P are such"

    columns: str | None = None
    """The ``--format`` that ``sacct`` was called with, for its output without a header."""

    def __init__(self) -> None:
        self._unknown: list[str] = []
        self._settings = SlurmSettings()
        self._confs: list[tuple[bool, Path]] = []
        self._dumps: list[Path] = []

    def take(self, path: Path, head: bytes) -> str:
        """What a file is, by what it begins with; empty if it is nothing of Slurm's."""
        if head.lstrip().startswith(b"{"):
            return self._take_json(path, head)
        if head.startswith(MAGIC):
            self._dumps += [path] if is_slurm2sql(path, head) else []
            return "slurm2sql" if path in self._dumps else ""
        first = head.lstrip().partition(b"\n")[0].decode("utf-8", "replace")
        columns = {column_of(name) for name in first.split("|")}
        if is_sacct(head):
            return self._take_dump(path, head)
        if re.search(r"\b(account|name)\b", first.lower()) and _RULED.match(head.lstrip()):
            self._settings.notes.append(
                f"{path.name} is printed in columns of one width, which cut what is longer: not read; "
                "print it with -P"
            )
            return ""
        if columns & {"account", "name"} and len(columns) > 1:
            return self._take_table(path, columns)
        if re.search(rb"^Cluster - '", head, re.MULTILINE):
            self._settings.associations += dumped_associations(_text(path), path.name)
            return "sacctmgr dump"
        if re.match(r"\s*JOBID .*PRIORITY", first):
            weights = shown_weights(_text(path), path.name)
            self._settings.weights += weights
            return "sprio -w" if weights else ""
        if head.startswith(b"Configuration data as of"):
            rows = [row_of(line, path.name) for line in _text(path).splitlines()]
            self._settings.conf.rows += [row for row in rows if row is not None]
            return "scontrol show config"
        if re.search(rb"^NodeName=\S+ .*(?:\n\s+)?.*CPUAlloc=", head, re.MULTILINE):
            self._settings.nodes += blocks(_text(path), "NodeName", path.name)
            return "scontrol show node"
        if re.search(rb"^PartitionName=[^\n]*(?:\n\s+)?[^\n]*AllowGroups=", head, re.MULTILINE):
            self._settings.partitions += blocks(_text(path), "PartitionName", path.name)
            return "scontrol show partition"
        if re.search(
            rb"^(?:ReservationName=\S+ |No reservations in the system)", head, re.MULTILINE
        ):
            self._settings.reservations += reservation_rows(_text(path), path.name)
            return "scontrol show reservation"
        return self._take_conf(path, head)

    def _take_dump(self, path: Path, head: bytes) -> str:
        """Keep a dump for later, or say why it is not read."""
        try:
            layout = layout_of(path, head, self.columns)
        except TraceError as error:
            self._unknown.append(str(error))
            self._settings.notes.append(f"{path.name}: not read: {error.reason}")
            return ""
        try:
            check_columns(path, layout.names)
        except TraceError as error:
            self._settings.notes.append(f"{path.name}: not read: {error.field}: {error.reason}")
            return ""
        self._dumps.append(path)
        return "sacct"

    @property
    def unread(self) -> list[str]:
        """Why no accounting can be read, if some is there and its columns are not known."""
        return [] if self._dumps else self._unknown

    def _take_table(self, path: Path, columns: set[str]) -> str:
        notes = self._settings.notes
        if {"account", "rawshares"} <= columns:
            self._settings.associations += shown_shares(_text(path), path.name, notes)
            return "sshare"
        if "account" in columns and columns & {"share", "fairshare", *LIMITS}:
            if "user" not in columns:
                notes.append(
                    f"{path.name} has no column User, without which users are not told from accounts: not "
                    "read; have sacctmgr print format=Cluster,Account,ParentName,User,Share besides limits"
                )
                return ""
            self._settings.associations += table(_text(path), path.name, notes)
            return "sacctmgr show assoc"
        if "name" in columns and columns & {"priority", "usagefactor", *LIMITS}:
            self._settings.qos += table(_text(path), path.name, notes)
            return "sacctmgr show qos"
        return ""

    def _take_conf(self, path: Path, head: bytes) -> str:
        if b"\0" in head:
            return ""
        if re.search(rb"^\s*(?:Switch|Block)Name\s*=", head, re.IGNORECASE | re.MULTILINE):
            _add(self._settings.topology, read_conf(path))
            return "topology.conf"
        if path.name == "gres.conf" or re.search(
            rb"^\s*(?:NodeName=\S+\s+)?Name=gpu\b", head, re.I | re.M
        ):
            _add(self._settings.gres, read_conf(path))
            return "gres.conf"
        if path.suffix in (".conf", ".txt", "") and _CONF_LINE.search(head):
            self._confs.append((bool(_MAIN.search(head)), path))
            return "slurm.conf"
        return ""

    def _take_json(self, path: Path, head: bytes) -> str:
        from hpctwin.formats._files import read_json
        from hpctwin.formats.sacct_json import is_sacct_document
        from hpctwin.rms.slurm.conf import json_rows

        try:
            document = read_json(path)
        except TraceError:
            return ""
        if is_sacct_document(document):
            self._dumps.append(path)
            return "sacct --json"
        for key, kind, rows in (
            ("nodes", "NodeName", self._settings.nodes),
            ("partitions", "PartitionName", self._settings.partitions),
            ("reservations", "ReservationName", self._settings.reservations),
        ):
            if isinstance(document, dict) and isinstance(document.get(key), list):
                made = json_rows(document[key], kind, path.name)
                unnamed = len(document[key]) - len(made)
                if unnamed:
                    self._settings.notes.append(
                        f"{path.name}: {unnamed} of its {key} without a name, left out"
                    )
                rows += made
                return f"{key} as JSON"
        return ""

    def site(self, *, assumed: Sequence[ListedNode] = ()) -> Site | None:
        """Cluster and policy; None if nothing tells of them.

        Args:
            assumed: the nodes, if none are described; without any: None then.
        """
        self._read_confs()
        if not self._settings and not (assumed and self._settings.tells):
            return None
        return slurm_site(self._settings, assumed=assumed)

    def _read_confs(self) -> None:
        mains = [path for main, path in self._confs if main]
        read: set[Path] = set()
        for path in mains or [path for _, path in self._confs]:
            conf = read_conf(path)
            read |= set(conf.files)
            _add(self._settings.conf, conf)
        left = [path for main, path in self._confs if not main and path not in read]
        if mains and left:
            names = ", ".join(path.name for path in left)
            self._settings.conf.notes.append(f"no slurm.conf includes {names}, not read")
        self._confs = []

    def missing(self) -> list[str]:
        """What no file tells, and what would."""
        found = self._settings
        columns = LIVE["associations.txt"][-1]
        there = {
            "nodes and partitions: slurm.conf with the files that it includes, or what scontrol show node "
            "and scontrol show partition print": found,
            "how jobs are scheduled, and whether limits are held: slurm.conf, or what scontrol show config "
            "prints": found.values,
            f"accounts with shares and limits: what sacctmgr -P show assoc {columns} "
            "prints": found.associations,
            "QOS with priorities and limits: what sacctmgr -P show qos prints": found.qos,
            f"jobs: what sacct -a -D -P -o {_COLUMNS} prints": self._dumps,
        }
        return [what for what, is_there in there.items() if not is_there]

    @property
    def values(self) -> Mapping[str, Row]:
        """Settings of slurm.conf, or of ``scontrol show config``, by key."""
        return self._settings.values

    @property
    def reservations(self) -> Sequence[Row]:
        """Of ``scontrol show reservation``."""
        return self._settings.reservations

    @property
    def shared(self) -> tuple[bool, bool]:
        """Whether jobs share nodes, and whether by memory too."""
        return self._settings.shared, self._settings.shares_memory

    def jobs(self, tally: Tally, machine: Machine, timezone: str | None) -> JobTable:
        """All jobs of all dumps."""
        return sacct_table(self._dumps, tally, machine, timezone=timezone, columns=self.columns)


def live_command(name: str, since: str) -> Sequence[str]:
    """A command of `LIVE`; accounting since a date."""
    command = LIVE[name]
    return (*command, "-S", since) if command[0] == "sacct" else command


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _add(conf: Conf, more: Conf) -> None:
    conf.rows += more.rows
    conf.files += more.files
    conf.notes += more.notes
