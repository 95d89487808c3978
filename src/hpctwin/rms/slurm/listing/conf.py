"""Slurm's configuration files, and the same facts as its commands print them.

Source:
    Manual pages slurm.conf(5), gres.conf(5), topology.conf(5), scontrol(1), sacctmgr(1), 20.11 to
    24.05.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import takewhile
from pathlib import Path

from hpctwin.errors import ConfigError
from hpctwin.model.files import cause
from hpctwin.rms.site import IMPORTED, Setting

_PAIR = re.compile(r'([\w/]+)\s*\+?=\s*("[^"]*"|\'[^\']*\'|\S*)')
_DEEPEST = 10
_SHOWN = ("NodeName", "PartitionName", "ReservationName")
"""First keys of the objects that ``scontrol show`` prints."""
_WEIGHTS = {
    "age": "PriorityWeightAge",
    "assoc": "PriorityWeightAssoc",
    "fairshare": "PriorityWeightFairshare",
    "jobsize": "PriorityWeightJobSize",
    "partition": "PriorityWeightPartition",
    "qos": "PriorityWeightQOS",
    "tres": "PriorityWeightTRES",
}
"""Columns of ``sprio``, and the names of their weights in slurm.conf."""


@dataclass(frozen=True)
class Row:
    """A line of settings, with keys in lower case.

    The first setting names its kind, as ``NodeName``.

    Args:
        values: Values by key, without quotes.
        where: File and line.
        names: Keys as they were written.
    """

    values: Mapping[str, str]
    where: str
    names: Mapping[str, str]

    @property
    def kind(self) -> str:
        """Key of the first setting."""
        return next(iter(self.values))

    def get(self, key: str, default: str = "") -> str:
        """Return a value by its key, in any case."""
        return self.values.get(key.lower(), default)

    def setting(
        self, key: str, became: str, why: str = "", *, of: str = "", value: str | None = None
    ) -> Setting:
        """Return the treatment of one of its values.

        Args:
            of: Owner of the setting, such as a partition.
        """
        name = self.names.get(key, key)
        text = self.get(key) if value is None else value
        return Setting(f"{of}: {name}" if of else name, text[:80], self.where, became, why)


def said(values: Mapping[str, Row], key: str) -> str:
    """Return the value of a setting; empty if it is not set."""
    text = values[key].get(key) if key in values else ""
    return "" if text.lower() == "(null)" else text


def take(values: Mapping[str, Row], key: str, what: str, settings: list[Setting]) -> None:
    """Record that a setting was imported, if it is set."""
    if key in values:
        settings.append(values[key].setting(key, IMPORTED, what))


@dataclass
class Conf:
    """Lines of a configuration, in order, with those of included files.

    Args:
        rows: Lines of settings.
        files: Files read.
        notes: Lines that could not be read.
    """

    rows: list[Row] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def of(self, kind: str) -> list[Row]:
        """Return the lines of a kind, in order."""
        return [row for row in self.rows if row.kind == kind.lower()]


def read_conf(path: Path, folder: Path | None = None, known: Sequence[Path] = ()) -> Conf:
    """Read a file with the files that it includes.

    It handles comments, quotes, and lines continued by a backslash.

    Args:
        path: The file. ``%c`` in names of included files is the cluster's name.
        folder: Folder to which the site's files were copied; by default that of the file.
    """
    folder = folder or path.parent
    conf = Conf()
    _read(path, conf, folder, known or [one for one in folder.rglob("*") if one.is_file()], ())
    return conf


def _read(
    path: Path, conf: Conf, folder: Path, known: Sequence[Path], within: tuple[Path, ...]
) -> None:
    try:
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise ConfigError(f"{path}: {cause(error)}") from error
    conf.files.append(path)
    within = (*within, path)
    for number, line in _lines(text):
        where = f"{path.name}:{number}"
        include = re.match(r"\s*include\s+(\S+)\s*$", line, re.IGNORECASE)
        if include:
            cluster = next((row.get("clustername") for row in conf.of("clustername")), "%c")
            name = include[1].strip("\"'").replace("%c", cluster)
            for target in _included(name, conf, folder, known, within, where):
                _read(target, conf, folder, known, within)
            continue
        row = row_of(line, where)
        if row is None:
            conf.notes.append(f"{where}: {line.strip()[:60]!r} is omitted: not a setting")
            continue
        conf.rows.append(row)


def _included(
    name: str,
    conf: Conf,
    folder: Path,
    known: Sequence[Path],
    within: tuple[Path, ...],
    where: str,
) -> list[Path]:
    """Return included files in a copied tree: files whose paths end as the name does.

    The path with the most equal components counts. An absolute path is that of the site, not of
    this computer: ``/etc/slurm/nodes.d/a.conf`` is ``nodes.d/a.conf`` or ``a.conf`` of the folder.
    Of equal ones, the nearest to the including file counts.
    """
    if len(within) > _DEEPEST:
        conf.notes.append(f"{where}: {name} is omitted: too many levels of Include")
        return []
    here = within[-1].parent
    wanted = [part for part in Path(name.rpartition("../")[2]).parts if part != "/"]
    wild = any(letter in name for letter in "*?[")
    near = [
        one
        for one in known
        if one not in within and (len(wanted) > 1 or one.parent == here or not wild)
    ]
    # A wildcard alone would take files of any folder.
    least = min(2, len(wanted)) if wild else 1
    found: dict[tuple[int, int, int], list[Path]] = {}
    for one in near:
        have = one.relative_to(folder).parts
        same = _alike(have[::-1], wanted[::-1])
        if same >= least:
            place = (same, _alike(one.parts, here.parts), -len(have))
            found.setdefault(place, []).append(one)
    if not found:
        conf.notes.append(
            f"{where}: the included file {name} is missing; copy it into {folder.name}/"
        )
        return []
    best = max(found)
    targets = sorted(found[best])[: None if wild else 1]
    for one in targets:
        if best[0] < min(-best[2], len(wanted)) and one.parent != here:
            as_found = one.relative_to(folder)
            conf.notes.append(f"{where}: {as_found} is used as the included file {name}")
    return targets


def _alike(names: Sequence[str], patterns: Sequence[str]) -> int:
    """Return the number of first names that match their patterns."""
    pairs = zip(names, patterns, strict=False)
    return sum(1 for _ in takewhile(lambda pair: fnmatchcase(*pair), pairs))


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with settings and their numbers; continued lines are joined."""
    begun, first = "", 0
    for number, raw in enumerate([*text.splitlines(), ""], start=1):
        line = re.sub(r"(^|[^\\])#.*$", r"\1", raw).rstrip()
        first = first or number
        if line.endswith("\\"):
            begun += line[:-1]
            continue
        whole, at = begun + line, first
        begun, first = "", 0
        if whole.strip():
            yield at, whole


def conf_rows(text: str) -> list[Row]:
    """Return the lines of settings in a text; other lines are ignored."""
    rows = (row_of(line, str(number)) for number, line in _lines(text))
    return [row for row in rows if row is not None]


def row_of(line: str, where: str) -> Row | None:
    """Return a line of ``Key=value Key=value``; None if it has none."""
    pairs = _PAIR.findall(line)
    if not pairs:
        return None
    values = {name.lower(): value.strip("\"'") for name, value in pairs}
    return Row(values, where, {name.lower(): name for name, _ in pairs})


def blocks(text: str, key: str, where: str) -> list[Row]:
    """Return a row for each object in ``scontrol show node`` or ``partition``.

    The output may be with ``-o`` or without.

    Args:
        text: The output; other objects in it are ignored.
        key: First key of each object, as ``NodeName``.
    """
    parts = re.split(rf"^(?=(?:{'|'.join(_SHOWN)})=)", text, flags=re.MULTILINE)
    return [_shown(part, where) for part in parts if part.startswith(f"{key}=")]


def _shown(text: str, where: str) -> Row:
    """Read one object; the first of equal keys counts, as free text is printed last."""
    free = re.compile(r"\s+(?:Reason|Comment|Extra|AdminComment|OS)=")
    lines = [line for line in text.splitlines() if not free.match(line)]
    pairs = _PAIR.findall(" ".join(lines))[::-1]
    values = {name.lower(): value.strip("\"'") for name, value in pairs}
    return Row(dict(reversed(values.items())), where, {name.lower(): name for name, _ in pairs})


def table(text: str, where: str, notes: list[str]) -> list[Row]:
    """Return the output of ``sacctmgr show … -P`` or ``-p`` as rows.

    The first line is the header; each line as long as it makes a row.

    Args:
        notes: List to which truncated lines are added.
    """
    lines = [(n, line) for n, line in enumerate(text.splitlines(), start=1) if line.strip()]
    names = lines[0][1].rstrip("|").split("|") if lines else []
    rows, short = [], []
    for number, line in lines[1:]:
        cells = line.split("|")[: len(names)]
        if len(cells) < len(names):
            short.append(number)
            continue
        values = {column_of(n): cell for n, cell in zip(names, cells, strict=True)}
        rows.append(Row(values, f"{where}:{number}", {column_of(n): n for n in names}))
    if short:
        notes.append(
            f"{where}:{short[0]}: the line has fewer columns than the header ({len(names)}); "
            f"{len(short)} such {'line is' if len(short) == 1 else 'lines are'} omitted"
        )
    return rows


def column_of(written: str) -> str:
    """Return the key of a column in a header: ``Par Name`` and ``ParName`` are one."""
    return written.strip().lower().replace(" ", "")


def shown_weights(text: str, name: str) -> list[Row]:
    """Return the weights of ``sprio -w`` as in slurm.conf; none without that line.

    Its columns are aligned at their ends, and some are empty.
    """
    lines = text.splitlines()
    multifactor = {"prioritytype": "priority/multifactor"}
    heads = {match.end(): match[0].lower() for match in re.finditer(r"\S+", lines[0])}
    found = []
    for number, line in enumerate(lines, 1):
        if line.split()[:1] != ["Weights"]:
            continue
        found.append(Row(multifactor, f"{name}:{number}", {"prioritytype": "PriorityType"}))
        for match in re.finditer(r"\S+", line):
            key = _WEIGHTS.get(heads.get(match.end(), ""))
            if key:
                found.append(Row({key.lower(): match[0]}, f"{name}:{number}", {key.lower(): key}))
    return found


def shown_shares(text: str, where: str, notes: list[str]) -> list[Row]:
    """Return the output of ``sshare -P`` as rows of ``sacctmgr show assoc``.

    Its accounts are indented by their depth.
    """
    rows, above = [], [(-1, "")]
    for row in table(text, where, notes):
        written = row.get("account")
        name, depth = written.strip(), len(written) - len(written.lstrip())
        values = {**row.values, "account": name}
        if not row.get("user").strip():
            while above[-1][0] >= depth:
                above.pop()
            values["parentname"] = above[-1][1]
            above.append((depth, name))
        rows.append(Row(values, row.where, row.names))
    return rows


def dumped_associations(text: str, where: str) -> list[Row]:
    """Return associations of ``sacctmgr dump`` as rows of ``sacctmgr show assoc``."""
    rows, parent, cluster = [], "root", ""
    for number, line in enumerate(text.splitlines(), start=1):
        match = re.match(r"(Cluster|Parent|Account|User) - '([^']*)'(?::(.*))?$", line)
        if not match:
            continue
        kind, name, rest = match[1], match[2], match[3] or ""
        if kind == "Cluster":
            cluster = name
        if kind == "Parent":
            parent = name
            continue
        pairs = re.findall(r"(\w+)=('[^']*'|[^:]*)", rest)
        about = {key.lower(): value.strip("'") for key, value in pairs}
        values = {
            "cluster": cluster,
            "account": {"Cluster": "root", "Account": name}.get(kind, parent),
            "parentname": "" if kind == "Cluster" else parent,
            "user": name if kind == "User" else "",
            "share": about.pop("fairshare", ""),
            **about,
        }
        rows.append(Row(values, f"{where}:{number}", {key.lower(): key for key, _ in pairs}))
    return rows
