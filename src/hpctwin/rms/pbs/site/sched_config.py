"""``sched_config``, read as PBS's scheduler reads it.

Source:
    OpenPBS 23.06: its scheduler's treatment of a line, of a second line with the same name, and of
    a wrong one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from hpctwin.errors import near

__all__ = ["PARAMETERS", "Line", "SchedConfig", "has_sched_config", "read_sched_config"]

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
        text: Content of the file.
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
            fault = "PBS cannot read the line, and passes over it"
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
        fault = f"PBS knows no such parameter, and passes over it.{hint}"
        return Line(name, value, prime, where, fault)
    if name in _OLD:
        return Line(name, value, prime, where, "PBS 23.06 passes over it; earlier versions did not")
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
