"""Files of Slurm in a folder, and the kind of each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpctwin.errors import ConfigError, TraceError
from hpctwin.formats.accounting.sacct import MAGIC, is_sacct, is_slurm2sql, sacct_table
from hpctwin.formats.accounting.sacct_json import is_sacct_document
from hpctwin.formats.accounting.sacct_layout import COLUMNS, check_columns, layout_of
from hpctwin.formats.files import read_json
from hpctwin.formats.job_table import JobTable
from hpctwin.formats.record import Machine, Tally
from hpctwin.model.settings import yaml_document
from hpctwin.rms.site import ListedNode, Site
from hpctwin.rms.slurm.listing.conf import (
    Conf,
    Row,
    blocks,
    column_of,
    conf_rows,
    dumped_associations,
    read_conf,
    row_of,
    shown_shares,
    shown_weights,
    table,
)
from hpctwin.rms.slurm.listing.parse import settings
from hpctwin.rms.slurm.listing.reservations import reservation_rows
from hpctwin.rms.slurm.site.json_rows import KINDS, document_rows, version_of_document
from hpctwin.rms.slurm.site.limits import LIMITS
from hpctwin.rms.slurm.site.settings import SlurmSettings, slurm_site
from hpctwin.rms.slurm.site.topology import topologies_of

# Versions since 21.08 refuse the columns of GRES; TRES has the same content.
_COLUMNS = ",".join(name for name in COLUMNS if not name.endswith("GRES"))

LIVE: dict[str, tuple[str, ...]] = {
    "config.txt": ("scontrol", "show", "config"),
    "nodes.txt": ("scontrol", "show", "node"),
    "partitions.txt": ("scontrol", "show", "partition"),
    "topology.txt": ("scontrol", "show", "topology"),
    "reservations.txt": ("scontrol", "show", "reservation", "-o"),
    "associations.txt": (
        "sacctmgr", "-P", "show", "associations",
        "format=Cluster,Account,ParentName,User,Share,GrpJobs,GrpTRES,GrpSubmit,GrpWall,GrpTRESMins,MaxJobs,MaxTRES,"
        "MaxSubmit,MaxWall,MaxTRESMins",
    ),
    "qos.txt": ("sacctmgr", "-P", "show", "qos"),
    "sacct.txt": ("sacct", "-a", "-D", "-P", "-o", _COLUMNS),
}  # fmt: skip
"""Commands for a running Slurm, by the file that would have each answer.

sacct also takes ``-S``.
"""

_MAIN = {"clustername", "slurmctldhost", "controlmachine"}
"""First keys of lines that only a cluster's main slurm.conf has."""
_CONF = _MAIN | {
    "nodename", "partitionname", "nodeset", "downnodes", "frontendname", "schedulertype",
    "schedulerparameters", "selecttype", "selecttypeparameters", "prioritytype",
}  # fmt: skip
"""First keys of lines that identify slurm.conf, or a file that it includes."""
_NODE_SHOWN = {
    "cpualloc",
    "cputot",
    "cpuload",
    "allocmem",
    "freemem",
    "boottime",
    "slurmdstarttime",
}
"""Keys that ``scontrol show node`` prints and no line of slurm.conf may have."""
_PARTITION_SHOWN = {"totalcpus", "totalnodes"}
"""Keys that ``scontrol show partition`` prints and no line of slurm.conf may have."""
_OTHERS = {
    "helper": "helpers.conf", "basepath": "job_container.conf", "autobasepath": "job_container.conf",
}  # fmt: skip
"""Keys of other files with NodeName lines, which do not affect when jobs start."""
_SUFFIX = re.compile(r"(?:^[^.]+|\.conf|\.txt|\.cfg|\.out|^slurm\.conf.*)$")
_RULED = re.compile(rb"[^\n|=]*\n[- ]*---[- ]*\r?\n")


class SlurmFiles:
    """The files of a Slurm site."""

    expected = "expected slurm.conf, the output of scontrol show node or of sacct -P"

    def __init__(
        self, folder: Path = Path(), known: Sequence[Path] = (), columns: str | None = None
    ) -> None:
        self._folder, self._known = folder, known
        self.columns = columns
        """The ``--format`` of the ``sacct`` call, for its output without a header."""
        self._unknown: list[str] = []
        self._settings = SlurmSettings()
        self._confs: list[Path] = []
        self._gres: list[Path] = []
        self._topologies: list[Path] = []
        self._dumps: list[Path] = []

    def take(self, path: Path, head: bytes) -> str:
        """Return a file's kind, by its first bytes; empty if it is not Slurm's."""
        if head.lstrip().startswith(b"{"):
            return self._take_json(path)
        if head.startswith(b"%YAML") or re.search(rb"^\s*-\s+topology\s*:", head, re.MULTILINE):
            return self._take_yaml(path)
        if head.startswith(MAGIC):
            self._dumps += [path] if is_slurm2sql(path, head) else []
            return "slurm2sql" if path in self._dumps else ""
        first = head.lstrip(b"\xef\xbb\xbf\r\n\t ").partition(b"\n")[0].decode("utf-8", "replace")
        columns = {column_of(name) for name in first.split("|")}
        if is_sacct(head):
            return self._take_dump(path, head)
        if re.search(r"\b(account|name)\b", first.lower()) and _RULED.match(head.lstrip()):
            self._settings.notes.append(
                f"{path.name} is ignored: its columns have a fixed width, which truncates values; print it "
                "with -P"
            )
            return ""
        if columns & {"account", "name"} and len(columns) > 1 and not re.search("[#=]", first):
            return self._take_table(path, columns)
        if re.search(rb"^Cluster - '", head, re.MULTILINE):
            self._settings.associations += dumped_associations(_text(path), path.name)
            return "sacctmgr dump"
        if re.match(r"\s*JOBID .*PRIORITY", first):
            weights = shown_weights(_text(path), path.name)
            self._settings.weights += weights
            return "sprio -w" if weights else ""
        if re.match(r"PARTITION\s+AVAIL", first):
            self._settings.notes.append(
                f"{path.name} is ignored: a table of sinfo has no cores or memory of nodes; add the output "
                "of scontrol show node and scontrol show partition"
            )
            return ""
        if re.search(rb"^Configuration data as of", head, re.MULTILINE):
            shown = settings(path.read_bytes()).items()
            rows = [row_of(f"{key}={value}", path.name) for key, value in shown if key != "as_of"]
            self._settings.conf.rows += [row for row in rows if row is not None]
            return "scontrol show config"
        return "" if b"\0" in head else self._take_settings(path, head)

    def _take_settings(self, path: Path, head: bytes) -> str:
        """Import a file of settings, identified by keys that no other kind of file has."""
        rows = conf_rows(head.decode("utf-8-sig", "replace"))
        first, keys = {row.kind for row in rows}, {key for row in rows for key in row.values}
        shown = []
        if first & (_CONF - {"nodename", "partitionname"}):
            keys -= _NODE_SHOWN | _PARTITION_SHOWN
        if "nodename" in first and keys & _NODE_SHOWN:
            self._settings.nodes += blocks(_text(path), "NodeName", path.name)
            shown.append("scontrol show node")
        if "partitionname" in first and keys & _PARTITION_SHOWN:
            self._settings.partitions += blocks(_text(path), "PartitionName", path.name)
            shown.append("scontrol show partition")
        if ("reservationname" in first and "starttime" in keys) or re.search(
            rb"^No reservations in the system", head, re.MULTILINE
        ):
            self._settings.reservations += reservation_rows(_text(path), path.name)
            shown.append("scontrol show reservation")
        if shown:
            return ", ".join(shown)
        if first & {"switchname", "blockname", "ringname"} and not first & _CONF:
            if keys & {"level", "blockindex", "ringsize"}:
                lines = (row_of(line, path.name) for line in _text(path).splitlines())
                self._settings.shown_topology += [row for row in lines if row is not None]
                return "scontrol show topology"
            self._topologies.append(path)
            return "topology.conf"
        if not first & (_CONF - {"nodename"}) and ("autodetect" in first or "name" in keys):
            self._gres.append(path)
            return "gres.conf"
        other = next((_OTHERS[key] for key in sorted(keys & _OTHERS.keys())), "")
        if other:
            return f"{other}, without effect on starts of jobs"
        includes = re.search(rb"^\s*include\s+\S", head, re.IGNORECASE | re.MULTILINE)
        if _SUFFIX.search(path.name) and (first & _CONF or includes):
            self._confs.append(path)
            return "slurm.conf"
        return ""

    def _take_dump(self, path: Path, head: bytes) -> str:
        """Keep a dump for later, or note why it is not read."""
        try:
            layout = layout_of(path, head, self.columns)
        except TraceError as error:
            self._unknown.append(str(error))
            self._settings.notes.append(f"{path.name} is ignored: {error.reason}")
            return ""
        try:
            check_columns(path, layout.names)
        except TraceError as error:
            why = f"{error.field}: {error.reason}" if error.field else error.reason
            self._settings.notes.append(f"{path.name} is ignored: {why}")
            return ""
        self._dumps.append(path)
        return "sacct"

    @property
    def unread(self) -> list[str]:
        """Reasons why no accounting can be read, if there is some with unknown columns."""
        return [] if self._dumps else self._unknown

    def _take_table(self, path: Path, columns: set[str]) -> str:
        notes = self._settings.notes
        if {"account", "rawshares"} <= columns:
            self._settings.associations += shown_shares(_text(path), path.name, notes)
            return "sshare"
        if "account" in columns and columns & {"share", "fairshare", *LIMITS}:
            if "user" not in columns:
                notes.append(
                    f"{path.name} is ignored: column User is missing, which separates users from accounts; "
                    "print it with format=Cluster,Account,ParentName,User,Share and the limits"
                )
                return ""
            self._settings.associations += table(_text(path), path.name, notes)
            return "sacctmgr show assoc"
        if "name" in columns and columns & {"priority", "usagefactor", *LIMITS}:
            self._settings.qos += table(_text(path), path.name, notes)
            return "sacctmgr show qos"
        return ""

    def _take_yaml(self, path: Path) -> str:
        """Import topology.yaml, or the output of a command with ``--yaml``."""
        try:
            _, document = yaml_document(_text(path), path.name)
        except ConfigError as error:
            self._settings.notes.append(f"{error}; the file is ignored")
            return ""
        topologies = topologies_of(document, path.name)
        if topologies:
            self._settings.topologies += topologies
            return "topology.yaml"
        return self._take_document(path, document, "YAML")

    def _take_json(self, path: Path) -> str:
        try:
            document = read_json(path)
        except TraceError as error:
            self._settings.notes.append(f"{error}; the file is ignored")
            return ""
        if is_sacct_document(document):
            self._dumps.append(path)
            return "sacct --json"
        return self._take_document(path, document, "JSON")

    def _take_document(self, path: Path, document: object, form: str) -> str:
        settings = self._settings
        if not isinstance(document, dict):
            return ""
        rows = document_rows(document, path.name, settings.notes)
        for name, made in rows.items():
            settings.documents.setdefault(name, []).extend(made)
        if rows:
            settings.version = settings.version or version_of_document(document)
            return f"{', '.join(KINDS[name] for name in rows)} as {form}"
        if "meta" in document:
            keys = ", ".join(
                sorted(document.keys() - {"meta", "errors", "warnings", "last_update"})
            )
            settings.notes.append(
                f"{path.name} is ignored: {form} of Slurm with {keys}; supported are "
                f"{', '.join(KINDS.values())}, and jobs of sacct --json"
            )
        return ""

    def site(self, *, assumed: Sequence[ListedNode] = ()) -> Site | None:
        """Return cluster and policy; None if no file describes them.

        Args:
            assumed: Nodes to use if none are described; without any, the result is None then.
        """
        self._read_confs()
        if not self._settings and not (assumed and self._settings.tells):
            return None
        return slurm_site(self._settings, assumed=assumed)

    def _read_confs(self) -> None:
        """Read slurm.conf with its includes, and note files that no slurm.conf includes."""
        for paths, conf in (
            (self._gres, self._settings.gres),
            (self._topologies, self._settings.topology),
        ):
            read = {path: read_conf(path, self._folder, self._known) for path in paths}
            included = {one for path, found in read.items() for one in found.files if one != path}
            for path, found in read.items():
                _add(conf, found if path not in included else Conf())
            paths.clear()
        read = {path: read_conf(path, self._folder, self._known) for path in self._confs}
        included = {one for path, conf in read.items() for one in conf.files if one != path}
        roots = [path for path in read if path not in included] or list(read)
        mains = [path for path in roots if any(row.kind in _MAIN for row in read[path].rows)]
        mains.sort(key=lambda path: (path.name != "slurm.conf", len(path.parts), path))
        for path in mains[:1] or roots:
            _add(self._settings.conf, read[path])
        for path in mains[1:]:
            named = next((row.get("clustername") for row in read[path].of("clustername")), "none")
            self._settings.conf.notes.append(
                f"{path.relative_to(self._folder)} is ignored: another slurm.conf (ClusterName {named}); "
                f"{mains[0].relative_to(self._folder)} is used"
            )
        left = [path.name for path in roots if path not in mains]
        if mains and left:
            self._settings.conf.notes.append(
                f"{', '.join(left)}: ignored, as no slurm.conf includes it"
            )
        self._confs = []

    @property
    def included(self) -> Sequence[Path]:
        """Files that were read since another one includes them."""
        settings = self._settings
        return [*settings.conf.files, *settings.gres.files, *settings.topology.files]

    def missing(self) -> list[str]:
        """Return the information that no file has, and the file that would have it."""
        found = self._settings
        columns = LIVE["associations.txt"][-1]
        there = {
            "nodes and partitions: slurm.conf with its included files, or the output of scontrol show node "
            "and scontrol show partition": found,
            "scheduling, and whether limits are enforced: slurm.conf, or the output of scontrol show "
            "config": found.values,
            f"accounts with shares and limits: output of sacctmgr -P show assoc {columns}": found.associations
            or "associations" in found.documents,
            "QOS with priorities and limits: output of sacctmgr -P show qos": found.qos
            or "qos" in found.documents,
            f"jobs: output of sacct -a -D -P -o {_COLUMNS}": self._dumps,
        }
        return [what for what, is_there in there.items() if not is_there]

    @property
    def values(self) -> Mapping[str, Row]:
        """Settings of slurm.conf, or of ``scontrol show config``, by key."""
        return self._settings.values

    @property
    def reservations(self) -> Sequence[Row]:
        """Rows of ``scontrol show reservation``, from text or else from JSON."""
        text = self._settings.reservations
        names = {row.get("reservationname") for row in text}
        documents = self._settings.documents.get("reservations", [])
        return [*text, *(row for row in documents if row.get("reservationname") not in names)]

    @property
    def shared(self) -> tuple[bool, bool]:
        """Whether jobs share nodes, and whether by memory too."""
        return self._settings.shared, self._settings.shares_memory

    def jobs(self, tally: Tally, machine: Machine, timezone: str | None) -> JobTable:
        """Return all jobs of all dumps."""
        return sacct_table(self._dumps, tally, machine, timezone=timezone, columns=self.columns)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _add(conf: Conf, more: Conf) -> None:
    conf.rows += more.rows
    conf.files += more.files
    conf.notes += more.notes
