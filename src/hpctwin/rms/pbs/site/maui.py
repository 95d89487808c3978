"""Exact counterparts of ``maui.cfg`` and ``moab.cfg``; all other settings by name.

Source:
    Maui 3.3 Administrator's Guide, appendix F; Moab Workload Manager 9.1 Administrator Guide,
    appendix A.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from hpctwin.rms.site.findings import NO_BEARING, NOT_MODELLED, TAKEN, Setting

__all__ = ["Parameter", "is_maui", "maui_meaning", "read_maui"]

_TELLING = re.compile(
    r"^\s*(?:BACKFILL(?:POLICY|DEPTH|METRIC)|RESERVATION(?:POLICY|DEPTH|RETRYTIME)|NODEALLOCATIONPOLICY|"
    r"NODEACCESSPOLICY|JOBNODEMATCHPOLICY|RMPOLLINTERVAL|RMCFG|SCHEDCFG|QUEUETIMEWEIGHT|XFACTORWEIGHT|"
    r"FS(?:POLICY|DEPTH|INTERVAL|DECAY|WEIGHT)|(?:USER|GROUP|ACCOUNT|CLASS|QOS|SYS|NODE|PARTITION|SR)CFG\[)"
    r"(?:\[[^\]\n]*\])?[\s=]",
    re.IGNORECASE | re.MULTILINE,
)
_PLAIN = re.compile(
    r"SERVER(?:HOST|PORT|MODE|NAME)|ADMIN\d?(?:CFG)?|ADMINHOSTS?|RM(?:CFG|HOST|PORT|NMPORT|TYPE|SERVER|AUTHTYPE)|"
    r"SCHEDCFG|AMCFG|IDCFG|LOG\w*|CHECKPOINT\w*|STAT(?:DIR|\w*FILE)?|STATPROC\w*|TOOLSDIR|SPOOLDIR|NOTIFY\w*|"
    r"MAILPROGRAM|CLIENT(?:CFG|TIMEOUT)|USE\w*LOG\w*|EVENT\w*|MONGO\w*|DATABASE\w*|ENABLE\w*LOG\w*"
)
_WHY = {
    "NODEALLOCATIONPOLICY": "nodes are tried in the order of their numbers; see the placements of policies",
    "RMPOLLINTERVAL": "a scheduling pass happens at each submission and end",
    "RESERVATIONPOLICY": "reservations are made again in each pass (CURRENTHIGHEST)",
    "BACKFILLPOLICY": "jobs that fit are tried in order (FIRSTFIT)",
    "NODEACCESSPOLICY": "jobs share nodes, or have whole nodes (SINGLEJOB)",
    "SRCFG": "give cluster.yaml reservations",
    "NODECFG": "nodes are as pbsnodes lists them",
    "PREEMPTPOLICY": "no job is preempted",
}


class Parameter(NamedTuple):
    """A line of the file.

    Args:
        name: Name in capital letters, as the case has no meaning.
        title: Name as written, with the brackets.
        of: Text in the brackets; empty for ``DEFAULT``, ``0`` and none.
        value: Rest of the line.
        where: File and line.
    """

    name: str
    title: str
    of: str
    value: str
    where: str


def is_maui(text: str) -> bool:
    """Return whether a text sets parameters that only Maui and Moab have."""
    return _TELLING.search(text) is not None


def read_maui(text: str, name: str) -> list[Parameter]:
    """Return all lines except comments.

    Args:
        text: Content of the file.
        name: Name of the file, for `Parameter.where`.
    """
    found = []
    # A continued line leaves an empty one behind, so that the following lines keep their numbers.
    joined = re.sub(
        r"(?:[^\n]*\\\r?\n)+[^\n]*",
        lambda found: re.sub(r"\\\r?\n", " ", found[0]) + "\n" * found[0].count("\n"),
        text,
    )
    for number, line in enumerate(joined.splitlines(), start=1):
        match = re.match(r"\s*(([A-Za-z]\w*)(?:\[([^\]]*)\])?)[\s=]*(.*?)\s*(?:#.*)?$", line)
        if match:
            of = "" if (match[3] or "").upper() in ("", "0", "DEFAULT") else match[3]
            where = f"{name}:{number}"
            found.append(Parameter(match[2].upper(), match[1], of, match[4], where))
    return found


def maui_meaning(lines: Sequence[Parameter]) -> tuple[str, bool, list[Setting]]:
    """Return the policy, whether jobs have whole nodes, and each line's treatment."""
    last = {line.name: line.value.upper() for line in lines if not line.of}
    backfill, taken = _backfill(last)
    order = _order(last, taken)
    whole = last.get("NODEACCESSPOLICY") == "SINGLEJOB"
    if whole:
        taken["NODEACCESSPOLICY"] = "jobs have whole nodes"
    elif last.get("NODEACCESSPOLICY") == "SHARED":
        taken["NODEACCESSPOLICY"] = "jobs share nodes"
    if last.get("NODEALLOCATIONPOLICY") == "FIRSTAVAILABLE":
        taken["NODEALLOCATIONPOLICY"] = "placement first-fit"
    settings = []
    for line in lines:
        if not line.of and line.name in taken:
            became, why = TAKEN, taken[line.name]
        elif _PLAIN.fullmatch(line.name):
            became, why = NO_BEARING, ""
        elif re.fullmatch(r"\w*WEIGHT", line.name) and re.fullmatch(r"0+(?:\.0*)?", line.value):
            became, why = NO_BEARING, "a weight of 0"
        else:
            known = _WHY.get(line.name)
            became, why = NOT_MODELLED, known or "a setting of Maui or Moab without a counterpart"
        settings.append(Setting(line.title[:80], line.value[:80], line.where, became, why))
    return f"{order}+{backfill}", whole, settings


def _backfill(last: dict[str, str]) -> tuple[str, dict[str, str]]:
    """Return the backfill, and the counterparts of its parameters."""
    said = last.get("BACKFILLPOLICY", "FIRSTFIT")
    kept = last.get("RESERVATIONPOLICY", "CURRENTHIGHEST")
    depth = last.get("RESERVATIONDEPTH", "1")
    if said in ("NONE", "OFF"):
        return "none", {"BACKFILLPOLICY": "backfill none", "RESERVATIONDEPTH": "backfill none"}
    taken = {"BACKFILLPOLICY": "a backfill"} if said in ("FIRSTFIT", "ON") else {}
    if kept == "NEVER" or depth == "0":
        return "first-fit", {
            **taken,
            "RESERVATIONPOLICY": "backfill first-fit",
            "RESERVATIONDEPTH": "none",
        }
    if kept == "CURRENTHIGHEST":
        taken["RESERVATIONPOLICY"] = "EASY: the first jobs in order have reservations"
    number = int(depth) if depth.isdigit() else 1
    if depth.isdigit():
        taken["RESERVATIONDEPTH"] = f"EASY: {number} jobs have reservations"
    return f"easy:{number}", taken


def _order(last: dict[str, str], taken: dict[str, str]) -> str:
    """Return the ordering by queue time and expansion factor, in Maui's formulas."""
    # Component weights default to 1 and all others to 0, except queue time, which defaults to 1.
    names = {"SERVICEWEIGHT": "1", "QUEUETIMEWEIGHT": "1", "XFACTORWEIGHT": "0"}
    weights = {
        name: float(said)
        for name, default in names.items()
        if re.fullmatch(r"\d{1,9}(?:\.\d{1,9})?", said := last.get(name, default))
    }
    service, queued, factor = (weights.get(name, 0.0) for name in names)
    if len(weights) < len(names) or not service or not (queued or factor):
        return "fcfs"
    taken |= {name: "the ordering" for name in names if weights[name]}
    if not factor:
        return "fcfs"
    if not queued:
        return "expansion"
    return f"-({queued:g}*wait/60 + {factor:g}*(wait + walltime)/walltime)"
