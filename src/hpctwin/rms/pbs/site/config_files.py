"""``sched_config``, ``maui.cfg`` and ``moab.cfg``, read as the schedulers read them.

Maui's and Moab's settings without an exact counterpart are reported by name.

Source:
    OpenPBS 23.06: its scheduler's treatment of a line, of a second line with the same name, and of
    a wrong one. Maui 3.3 Administrator's Guide, appendix F; Moab Workload Manager 9.1 Administrator
    Guide, appendix A.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hpctwin.errors import near
from hpctwin.model.text import count_text
from hpctwin.rms.site import IMPORTED, NO_EFFECT, NOT_MODELED, Setting

PARAMETERS = (
    "allow_aoe_calendar", "backfill", "backfill_prime", "by_queue", "dedicated_prefix", "fair_share",
    "fairshare_decay_factor", "fairshare_decay_time", "fairshare_enforce_no_shares", "fairshare_entity",
    "fairshare_usage_res", "half_life", "help_starving_jobs", "job_sort_key", "log_filter",
    "max_job_check", "max_starve", "mom_resources", "node_group_key", "node_sort_key",
    "nonprimetime_prefix", "peer_queue", "peer_translation", "preempt_attempts", "preempt_checkpoint",
    "preempt_order", "preempt_prio", "preempt_queue_prio", "preempt_requeue", "preempt_sort",
    "preempt_suspend", "preemptive_sched", "prime_exempt_anytime_queues", "prime_spill",
    "primetime_prefix", "provision_policy", "resource_unset_infinite", "resources",
    "resv_confirm_ignore", "round_robin", "server_dyn_res", "smp_cluster_dist", "sort_nodes",
    "sort_queues", "strict_fifo", "strict_ordering", "susp_threshold", "unknown_shares",
    "update_comments", "load_balancing",
)  # fmt: skip
"""All parameters that PBS knows."""

_MORE_THAN_ONE = (
    "job_sort_key", "node_sort_key", "mom_resources", "peer_queue", "resource_unset_infinite",
    "server_dyn_res",
)  # fmt: skip
_OLD = ("help_starving_jobs", "max_starve", "sort_queues")
_PRIME, _NON_PRIME, _NO_TIME = "prime", "non_prime", "none"


class Line(NamedTuple):
    """A line of the file.

    Args:
        name, value: Parameter and value; for an unreadable line, the name is all of it.
        prime: ``all``, or the part of the day in which it applies: ``prime``, ``non_prime``,
            ``none``.
        where: File and line.
        fault: Reason why PBS ignores it; empty if it does not.
    """

    name: str
    value: str
    prime: str
    where: str
    fault: str = ""


def read_sched_config(text: str, name: str) -> list[Line]:
    """Return all lines except comments.

    Args:
        name: Name of the file, for `Line.where`.
    """
    lines = []
    for number, written in enumerate(text.splitlines(), start=1):
        if not written.strip() or written.lstrip().startswith("#"):
            continue
        match = re.match(
            r"""[\s:]*(?P<name>[^\s:]+)[\s:]+(?:"(?P<double>[^"]*)"?|'(?P<single>[^']*)'?|(?P<word>\S+))"""
            r"""\s*(?P<rest>.*)$""",
            written,
        )
        where = f"{name}:{number}"
        if match is None:
            fault = "PBS ignores the line: it is not a valid setting"
            lines.append(Line(written.strip(), "", "all", where, fault))
            continue
        found = next(v for v in (match["double"], match["single"], match["word"]) if v is not None)
        lines.append(_line(match["name"], " ".join(found.split()), match["rest"], where))
    return lines


def _line(name: str, value: str, rest: str, where: str) -> Line:
    word = rest.partition("#")[0].split()
    prime = word[0].lower() if word else "all"
    if name not in PARAMETERS:
        hint = near(name, PARAMETERS)
        fault = f"PBS ignores the line: unknown parameter.{hint}"
        return Line(name, value, prime, where, fault)
    if name in _OLD:
        return Line(name, value, prime, where, "PBS 23.06 ignores it; earlier versions used it")
    if prime not in ("all", _PRIME, _NON_PRIME, _NO_TIME):
        prime = "all"  # PBS reads it so, apart from an error message
    return Line(name, value, prime, where)


@dataclass(frozen=True)
class SchedConfig:
    """Settings for prime time, all day unless a file of holidays says otherwise."""

    lines: tuple[Line, ...] = ()

    def all(self, name: str, prime: str = _PRIME) -> list[Line]:
        """Return the lines of a parameter that apply; for most parameters the last alone."""
        held = [
            line
            for line in self.lines
            if line.name == name and not line.fault and line.prime in ("all", prime)
        ]
        return held if name in _MORE_THAN_ONE else held[-1:]

    def value(self, name: str, default: str = "") -> str:
        """Return the value of a parameter."""
        held = self.all(name)
        return held[-1].value if held else default

    def is_on(self, name: str, *, default: bool = False) -> bool:
        """Return whether a parameter is on: PBS takes any value but false and 0 as yes."""
        return self.value(name, str(default)).lower() not in ("false", "0")

    def is_held(self, line: Line) -> bool:
        """Return whether a line applies."""
        return line in self.all(line.name)

    def is_other(self, line: Line) -> bool:
        """Return whether a line sets another value outside prime time than in it."""
        if line.prime != _NON_PRIME or line not in self.all(line.name, _NON_PRIME):
            return False
        prime = [_plain(one.value) for one in self.all(line.name)]
        return _plain(line.value) not in prime


def _plain(value: str) -> str:
    return value.strip().lower()


def has_sched_config(text: str) -> bool:
    """Return whether a text sets a parameter that only this file has."""
    names: Iterable[str] = (
        "strict_ordering", "strict_fifo", "job_sort_key", "smp_cluster_dist", "fair_share", "round_robin",
        "by_queue", "backfill_prime", "node_sort_key", "preemptive_sched",
    )  # fmt: skip
    return re.search(rf"^\s*(?:{'|'.join(names)})\s*:", text, re.MULTILINE) is not None


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
    "NODEALLOCATIONPOLICY": "nodes are tried in the order of their numbers, unless the policy says otherwise",
    "RMPOLLINTERVAL": "a scheduling pass happens at each submission and end",
    "RESERVATIONPOLICY": "reservations are recomputed in each scheduling pass (CURRENTHIGHEST)",
    "BACKFILLPOLICY": "jobs that fit are tried in order (FIRSTFIT)",
    "NODEACCESSPOLICY": "jobs share nodes, or have exclusive nodes (SINGLEJOB)",
    "SRCFG": "add reservations to cluster.yaml",
    "NODECFG": "nodes are imported from pbsnodes",
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
        taken["NODEACCESSPOLICY"] = "jobs have exclusive nodes"
    elif last.get("NODEACCESSPOLICY") == "SHARED":
        taken["NODEACCESSPOLICY"] = "jobs share nodes"
    if last.get("NODEALLOCATIONPOLICY") == "FIRSTAVAILABLE":
        taken["NODEALLOCATIONPOLICY"] = "placement first-fit"
    settings = []
    for line in lines:
        if not line.of and line.name in taken:
            became, why = IMPORTED, taken[line.name]
        elif _PLAIN.fullmatch(line.name):
            became, why = NO_EFFECT, ""
        elif re.fullmatch(r"\w*WEIGHT", line.name) and re.fullmatch(r"0+(?:\.0*)?", line.value):
            became, why = NO_EFFECT, "the weight is 0"
        else:
            known = _WHY.get(line.name)
            became, why = NOT_MODELED, known or "this setting of Maui or Moab has no counterpart"
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
    number = int(depth) if depth.isdecimal() else 1
    if depth.isdecimal():
        taken["RESERVATIONDEPTH"] = f"EASY: reservations for {count_text(number, 'job')}"
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
