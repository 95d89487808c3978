"""Texts that people read and write: units, node lists, notes, tables, progress.

Quantities are parsed once into the units the code uses. Libraries for durations (pytimeparse,
Polars's own strings) do not know Slurm's ``1-12:00:00``.

Node lists have Slurm's form, ``n[1-4,7],login2``. Reading them is one function without a
dependency. python-hostlist and ClusterShell give the same names (a repeated name only once), and
take 1.7 and 6 times as long for 9,408 nodes.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
import re
import sys
import time
import zoneinfo
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from html import escape
from importlib import import_module
from itertools import count
from typing import Any

from hpctwin.errors import ConfigError, FormatError, in_brief
from hpctwin.guesses import Guessed


def parse_nodes(text: str, count: int) -> list[int]:
    """Return the node numbers of text such as ``"0-3,7"``, sorted.

    Raises:
        ValueError: The text cannot be read, or a number is not below ``count``.
    """
    numbers: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:\s*-\s*(\d+))?\s*", part)
        if not match:
            raise ValueError(f"nodes {text!r}: {part!r} is not a number or a range such as 0-127")
        first = int(match[1])
        last = int(match[2] or match[1])
        if last < first or last >= count:
            raise ValueError(f"nodes {text!r}: {part.strip()} is not in 0 to {count - 1}")
        numbers.update(range(first, last + 1))
    return sorted(numbers)


def number_ranges(numbers: Iterable[int]) -> str:
    """Return sorted numbers as text that `parse_nodes` reads, such as ``0-3,7``."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(f"{a}-{b}" if a < b else str(a) for a, b in spans)


MOST = 1_000_000
"""Largest number of nodes that a list names."""


def expand(text: str) -> list[str]:
    """Return all names, in the order written; ``n[01-03]`` gives n01, n02, n03.

    Raises:
        FormatError: The text cannot be read, or names more than a million nodes.
    """
    names: list[str] = []
    for part in split_list(text):
        names += _expand_part(part, text)
        if len(names) > MOST:
            raise FormatError(f"node list {text[:50]!r}… names more than {MOST:,} nodes")
    return names


def split_list(text: str) -> list[str]:
    """Return the parts of a list, split at commas outside brackets."""
    parts, depth, begin = [], 0, 0
    for i, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if depth not in (0, 1):
            raise FormatError(f"node list {text[:50]!r}: brackets do not match")
        if letter == "," and depth == 0:
            parts.append(text[begin:i])
            begin = i + 1
    if depth:
        raise FormatError(f"node list {text[:50]!r}: a bracket is not closed")
    return [part for part in [*parts, text[begin:]] if part]


def _expand_part(part: str, text: str) -> list[str]:
    opening = part.find("[")
    if opening < 0:
        if not re.fullmatch(r"[\w.\-]+", part):
            raise FormatError(f"node list {text[:50]!r}: {part[:50]!r} is not a name")
        return [part]
    closing = part.index("]")
    head, inside, tail = part[:opening], part[opening + 1 : closing], part[closing + 1 :]
    middles: list[str] = []
    for piece in inside.split(","):
        match = re.fullmatch(r"(\d{1,12})(?:-(\d{1,12}))?", piece)
        if not match:
            raise FormatError(f"node list {text[:50]!r}: {piece!r} is not a range of numbers")
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first) or int(last) - int(first) >= MOST:
            raise FormatError(f"node list {text[:50]!r}: range {piece!r} is too long or backward")
        middles += [str(n).zfill(len(first)) for n in range(int(first), int(last) + 1)]
    tails = _expand_part(tail, text) if tail else [""]
    if len(middles) * len(tails) > MOST:
        raise FormatError(f"node list {text[:50]!r} names more than {MOST:,} nodes")
    return [f"{head}{middle}{end}" for middle in middles for end in tails]


_NUMBERED = re.compile(r"([^\[\]]*[^\[\]\d]|)(\d{1,12})([^\[\]\d]*)")


def compact(names: Iterable[str]) -> str:
    """Return names as a short list that `expand` reads; n1, n2 and n4 give ``n[1-2,4]``."""
    plain: list[str] = []
    numbered: dict[tuple[str, str], list[str]] = {}
    for name in sorted(set(names)):
        match = _NUMBERED.fullmatch(name)
        if match is None:
            plain.append(name)
        else:
            numbered.setdefault((match[1], match[3]), []).append(match[2])
    parts = []
    for (head, tail), digits in numbered.items():
        ranges: list[list[str]] = []
        for text in sorted(digits, key=int):
            if ranges and text == str(int(ranges[-1][-1]) + 1).zfill(len(ranges[-1][0])):
                ranges[-1][1:] = [text]
            else:
                ranges.append([text])
        inside = ",".join("-".join(one) for one in ranges)
        brackets = f"[{inside}]" if len(digits) > 1 else inside
        parts.append(f"{head}{brackets}{tail}")
    return ",".join(parts + plain)


@dataclass(frozen=True)
class ReadNotes:
    """Notes of a reader: it changes or drops nothing silently.

    Args:
        counts: Number of jobs that each fallback rule changed, by a sentence on what was done.
        skipped: One message for each skipped record.
        remarks: Remarks on the whole file, a sentence each.
        size_from: Part of the file that gives the number of nodes (`Workload.nodes_hint`).
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    size_from: str = "the trace"

    def sentences(self) -> list[str]:
        """Return all notes, a sentence each, with counts."""
        counted = (f"{count:,} × {what}" for what, count in self.counts.items())
        return [*self.remarks, *counted, *(f"skipped: {one}" for one in self.skipped)]

    def joined(self, later: ReadNotes) -> ReadNotes:
        """Return these notes and those on a later part of the same file."""
        counts = Counter(self.counts) + Counter(later.counts)
        remarks = tuple(dict.fromkeys((*self.remarks, *later.remarks)))
        skipped = (*self.skipped, *later.skipped)
        return ReadNotes(dict(counts), skipped, remarks, self.size_from)

    def merged(self, **counts: int) -> ReadNotes:
        """Return these notes with further counts (those above zero)."""
        new = {name.replace("_", " "): n for name, n in counts.items() if n}
        return dataclasses.replace(self, counts={**self.counts, **new})


_EVERY_S = 0.1


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[float], None]]:
    """Show a progress bar with the time left, on standard error or in a notebook.

    The bar disappears at the end.

    Yields:
        Function that takes the completed share, 0 to 1; it does nothing without a terminal or a
        notebook.
    """
    if _in_notebook():
        with _notebook_bar(title) as told:
            yield told
        return
    from rich.console import Console

    console = Console(stderr=True)
    # Rich takes FORCE_COLOR, which Jupyter sets for commands, for a terminal.
    if not console.file.isatty():
        yield lambda share: None
        return
    from rich.progress import Progress

    with Progress(console=console, transient=True) as bar:
        task = bar.add_task(title, total=1.0)
        yield lambda share: bar.update(task, completed=share)


def count_text(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun, such as ``1 node`` or ``2 nodes``."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def counted(told: Callable[[float], None], number: int) -> Callable[[object], None]:
    """Return a function that counts one more of N items per call, in any thread."""
    done = count(1)
    return lambda _: told(next(done) / number)


def _in_notebook() -> bool:
    """Return whether this is the kernel of a notebook; IPython in a terminal is none."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


@contextmanager
def _notebook_bar(title: str) -> Iterator[Callable[[float], None]]:
    """Show the bar as HTML.

    Rich's bar needs ipywidgets, and a front end that has them.
    """
    shown_by: Any = import_module("IPython.display")

    began = shown = time.monotonic()
    place = shown_by.display(_bar(title, 0.0, None), raw=True, display_id=True)

    def told(share: float) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown >= _EVERY_S:
            shown = now
            left = (now - began) * (1 - share) / share if share > 0 else None
            place.update(_bar(title, share, left), raw=True)

    try:
        yield told
    finally:
        place.update({"text/html": ""}, raw=True)


def _bar(title: str, share: float, left_s: float | None) -> dict[str, str]:
    left = "" if left_s is None else f", about {left_s:.0f} s left"
    bar = f"<progress value='{share:.3f}' max='1'></progress>"
    return {"text/html": f"{escape(title)} {bar} {share:.0%}{left}"}


class Shown(Guessed):
    """Base of objects with a short ``repr``, and a table in notebooks, from `shown`."""

    def shown(self) -> tuple[str, dict[str, str]]:
        """Return a title, and facts by name, the most important first.

        All must be fast to find.
        """
        raise NotImplementedError

    def shown_more(self) -> dict[str, str]:
        """Return further facts, for notebooks only; they may take a second."""
        return {}

    def __repr__(self) -> str:
        title, facts = self.shown()
        told = ", ".join(f"{value} {name}".rstrip() for name, value in facts.items())
        return f"<{type(self).__name__} {title}: {told}>"

    def _repr_html_(self) -> str:
        title, facts = self.shown()
        rows = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th>"
            f"<td style='text-align:left'>{escape(value)}</td></tr>"
            for name, value in {**facts, **self.shown_more()}.items()
        )
        head = f"{type(self).__name__} {title}"
        return f"<table><caption>{escape(head)}</caption><tbody>{rows}</tbody></table>"


Moment = float | dt.datetime
"""A time as a user gives it: seconds from time zero, or a date."""

FIRST_UNIX_S = 1e9
"""Smallest number of seconds that is Unix time (2001 and later).

This applies only if dates are known.
"""

MS_PER_S = 1000
NEVER_MS = 2**62
"""A time that never comes; far enough from the end of int64 that sums stay exact."""

_LONGEST_S = 1e12  # 30,000 years; keeps sums of milliseconds far inside int64
_UNIT_S = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|min|[smhdw])", re.IGNORECASE)
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):(\d{2})(?::(\d{2}(?:\.\d+)?))?")


def parse_duration_s(value: float | str | dt.timedelta) -> float:
    """Parse a duration.

    Args:
        value: Seconds; or text such as ``90``, ``"15m"``, ``"1d 12h"``, ``"2:30:00"`` or
            ``"1-12:00:00"`` (days-hours, as Slurm writes it); or a timedelta.

    Returns:
        Seconds.

    Raises:
        ConfigError: The value is not a duration, not finite, or above 1e12 s.
    """
    try:
        seconds = _seconds(value)
    except OverflowError:  # an integer of hundreds of digits
        seconds = float("inf")
    if not abs(seconds) <= _LONGEST_S:  # NaN too
        raise ConfigError(
            f"{in_brief(value)} is not a duration: it must be {_LONGEST_S:g} s at most"
        )
    return seconds


def _seconds(value: float | str | dt.timedelta) -> float:
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    text = str(value).strip()
    try:
        return float(text)
    except ValueError:
        pass
    if clock := _CLOCK.fullmatch(text):
        days, first, second, third = clock.groups()
        if third is None and days is None:
            return int(first) * 60 + int(second)
        return int(days or 0) * 86400 + int(first) * 3600 + int(second) * 60 + float(third or 0)
    if text and not _PART.sub("", text).strip():
        return sum(float(number) * _UNIT_S[unit.lower()] for number, unit in _PART.findall(text))
    raise ConfigError(
        f"{in_brief(value)} is not a duration; write seconds, '15m', '1d 12h', '2:30:00' or '1-12:00:00'"
    )


_ZONE = re.compile(
    r"\s*(Z|UTC|GMT|[+-]\d\d:?\d\d|[A-Z][A-Za-z_]+(?:/[A-Za-z_+-]+)+)$", re.IGNORECASE
)
_DATE = re.compile(
    r"(\d{1,4})([-/.])(\d{1,2})\2(\d{1,4})(?:[T, ]\s*(\d{1,2}):(\d\d)(?::(\d\d)(\.\d+)?)?\s*([AP]M)?)?",
    re.IGNORECASE,
)


def epoch_s_of(date: object, *, day_first: bool | None = None) -> float:
    """Return the Unix time of a date, which is in UTC if it names no zone.

    Args:
        date: A date or datetime, or text: ISO 8601 with ``T`` or a space, with or without a zone
            (``Z``, ``+02:00``, ``Europe/Berlin``); ``@1711859400``; or as in spreadsheets,
            ``31.03.2024 05:30`` or ``3/31/2024 5:30 PM``.
        day_first: Whether ``3/4/2024`` is in April; None if unknown.

    Raises:
        ValueError: It is no date, or day and month are ambiguous.
    """
    if isinstance(date, dt.datetime):
        return (date if date.tzinfo else date.replace(tzinfo=dt.UTC)).timestamp()
    text = str(date).strip()
    if text.startswith("@"):
        return float(text[1:])
    zone: dt.tzinfo = dt.UTC
    if (named := _ZONE.search(text)) and named.start() >= len("1/1/2024"):
        text, zone = text[: named.start()], _zone_of(named[1])
    if written := _DATE.fullmatch(text):
        found = _written(written, day_first)
    else:
        found = dt.datetime.fromisoformat(text)
    return (found if found.tzinfo else found.replace(tzinfo=zone)).timestamp()


def _zone_of(name: str) -> dt.tzinfo:
    if name.upper() in ("Z", "UTC", "GMT"):
        return dt.UTC
    if name[0] in "+-":
        return dt.datetime.strptime(name, "%z").tzinfo or dt.UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, OSError) as error:
        raise ValueError(f"unknown time zone {name!r}") from error


def _written(match: re.Match[str], day_first: bool | None) -> dt.datetime:
    first, mark, middle, last, hour, minute, second, fraction, half = match.groups()
    if len(first) == 4:
        year, month, day = int(first), int(middle), int(last)
    elif len(last) != 4:
        raise ValueError("a date has a year of four digits")
    else:
        year, day, month = int(last), int(first), int(middle)
        if mark != "." and day <= 12 and month <= 12 and day != month and day_first is None:
            raise ValueError("day and month are ambiguous")
        if mark != "." and (month > 12 or (day <= 12 and day_first is False)):
            day, month = month, day
    hours = int(hour or 0)
    if half:
        if not 1 <= hours <= 12:
            raise ValueError(f"{hours} {half} is not a time")
        hours = hours % 12 + (12 if half.upper() == "PM" else 0)
    micro = round(float(fraction or 0) * 1e6)
    made = dt.datetime(year, month, day, hours, int(minute or 0), int(second or 0))
    return made + dt.timedelta(microseconds=micro)


def parse_moment(value: object) -> Moment:
    """Parse a time that a user gives.

    Args:
        value: Seconds or a duration from time zero, as `parse_duration_s` reads them; or a date, as
            `epoch_s_of` reads it.

    Returns:
        Seconds from time zero, or a date in UTC.

    Raises:
        ConfigError: It is neither.
    """
    why = ""
    if isinstance(value, (str, dt.date)):
        try:
            return dt.datetime.fromtimestamp(epoch_s_of(value), dt.UTC)
        except (ValueError, OverflowError, OSError) as error:
            why = str(error) if "ambiguous" in str(error) else ""
    try:
        return parse_duration_s(value)  # type: ignore[arg-type]
    except ConfigError as error:
        raise ConfigError(
            f"{in_brief(value)} is not a duration or a date{f' ({why})' if why else ''}; write "
            "seconds, 30d, 1-12:00:00, or 2024-01-31T13:00 (UTC unless it names a zone)"
        ) from error


def since(moment: Moment, start_epoch_s: float | None, name: str) -> float:
    """Return the seconds from a workload's time zero to a time.

    They are negative if the time is earlier.

    Args:
        moment: Seconds from time zero, Unix seconds for a workload that has a date, or a date.
        start_epoch_s: Unix time of time zero; None if unknown.
        name: Name of the workload, for the message.

    Raises:
        ConfigError: It is a date, and the workload has none.
    """
    if isinstance(moment, dt.datetime):
        if start_epoch_s is None:
            raise ConfigError(
                f"{moment_text(moment)}: {name} has no start date; give a time since its start, "
                "such as 30d or seconds"
            )
        return moment.timestamp() - start_epoch_s
    if start_epoch_s is not None and moment >= max(FIRST_UNIX_S, start_epoch_s):
        return moment - start_epoch_s
    return moment


def to_ms(seconds: Moment) -> int:
    """Round seconds to whole milliseconds, halves to even.

    Raises:
        ConfigError: It is a date, which only has meaning together with a workload (`since`).
    """
    if isinstance(seconds, dt.datetime):
        seconds = since(seconds, None, "the workload")
    return round(seconds * MS_PER_S)


def moment_text(moment: Moment) -> str:
    """Return a time as text: ``1200 s`` or ``2024-01-31T13:00:00Z``."""
    if isinstance(moment, dt.datetime):
        return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
    return f"{moment:g} s"


_THREE_DIGITS = Context(prec=3, rounding=ROUND_HALF_UP)
_LEAST_S = 0.0005
_UNITS = (("d", 86400.0), ("h", 3600.0), ("min", 60.0))


def format_duration(seconds: float) -> str:
    """Write a duration as people read it: ``0.5 s``, ``12 min``, ``3.4 h``, ``2.1 d``.

    The unit is the largest that gives at least 1, with three significant digits.
    `span` in web/static/words.js is the same rule.
    """
    if abs(seconds) < _LEAST_S:
        return "0 s"
    unit, size = next(
        (
            one
            for one in _UNITS
            if _THREE_DIGITS.create_decimal_from_float(abs(seconds) / one[1]) >= 1
        ),
        ("s", 1.0),
    )
    value = Decimal(seconds / size)
    rounded = _THREE_DIGITS.create_decimal(value)
    if abs(rounded) >= 1000:
        rounded = value.quantize(Decimal(1), ROUND_HALF_UP)
    return f"{rounded.normalize():,f} {unit}"


def exact(speed: float) -> Fraction:
    """Return a node's speed by its decimals, not the nearest binary number.

    0.7 is seven tenths. There are nine decimal places; above 9 there are fewer, so that whole
    numbers suffice.
    """
    speed = min(max(float(speed), 1e-9), 1e9)
    return Fraction(speed).limit_denominator(min(10**9, int(3e9 / math.sqrt(speed))))
