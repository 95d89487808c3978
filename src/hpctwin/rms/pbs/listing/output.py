"""Output of PBS commands: JSON, single values, requests, and reasons of failures.

The JSON may be broken by what users put into their jobs. Single values are as PBS's commands and
hooks write them. `hpctwin.model.requests` reads the texts of requests and allocations.
"""

from __future__ import annotations

import calendar
import json
import re
import time
from collections.abc import Mapping
from typing import Any

from hpctwin.errors import CommandError, FormatError
from hpctwin.model.requests.pbs_requests import (
    Chunk,
)


def nodes_needed(chunks: tuple[Chunk, ...], place: str, cores: float, gpus: float) -> int:
    """Return the number of whole nodes that a request takes.

    Chunks that may share a node are combined within the cores and GPUs of a node.

    Args:
        place: Place statement, such as ``vscatter:excl``.
        cores: Cores of a node; 0 if unknown.
        gpus: GPUs of a node; 0 if unknown.
    """
    arrangement = {word for word in re.split(r"[:\s]+", place) if word}
    if arrangement & {"scatter", "vscatter"}:
        return sum(chunk.count for chunk in chunks)
    nodes = 0
    for chunk in chunks:
        fits = [
            int(has // asks)
            for has, asks in ((cores, chunk.cores), (gpus, chunk.gpus))
            if asks > 0 and has > 0
        ]
        nodes += -(-chunk.count // max(1, min(fits, default=1)))
    return nodes


def vnodes(exec_vnode: str) -> tuple[str, ...]:
    """Return nodes of ``(a:ncpus=1)+(b[1]:ncpus=1+b[2]:ncpus=1)``, once, in order."""
    parts = re.split(r"[()+]+", exec_vnode)
    names = (part.partition(":")[0].strip() for part in parts)
    return tuple(dict.fromkeys(name for name in names if name))


def objects(content: Mapping[str, Any], key: str) -> dict[str, dict[str, Any]]:
    """Return the objects under a key; without that key, none."""
    found = content.get(key)
    if not isinstance(found, dict):
        return {}
    return {name: about for name, about in found.items() if isinstance(about, dict)}


def resources(value: Any) -> dict[str, Any]:
    """Return resources from an object, or from text: ``ncpus=2,select=2:ncpus=1``."""
    if isinstance(value, dict):
        return value
    parts = re.split(r",(?=[\w.]+=)", value) if isinstance(value, str) and value else []
    return dict(part.split("=", 1) for part in parts if "=" in part)


def time_s(value: Any) -> float | None:
    """Return seconds since the epoch, from a number or from text of PBS's commands.

    The text must be written with TZ set to UTC.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if 0 < value < 1e11 else None
    if not isinstance(value, str):
        return None
    if re.fullmatch(r"\d{1,11}", value):
        return float(value) or None
    try:
        return float(calendar.timegm(time.strptime(value, "%a %b %d %H:%M:%S %Y")))
    except (ValueError, OverflowError):
        return None


def begin_time(seconds: float) -> str:
    """Return a time as ``qalter -a`` reads it if TZ is UTC."""
    return time.strftime("%Y%m%d%H%M.%S", time.gmtime(seconds))


def integer(value: Any) -> int:
    """Return a whole number, also of 4.0; 0 if it is not one."""
    match = re.fullmatch(r"(\d{1,9})(?:\.0+)?", str(value))
    return int(match[1]) if match else 0


def is_false(value: Any) -> bool:
    """Return whether PBS says no."""
    return str(value).lower() in ("false", "0", "f", "n", "no")


def is_true(value: Any) -> bool:
    """Return whether PBS says yes."""
    return str(value).lower() in ("true", "1", "t", "y", "yes")


_KEY = re.compile(r'^\s*"((?:[^"\\]|\\.)*)"\s*:\s*(.*)$', re.DOTALL)
_NUMBER_ONLY = re.compile(r"qmgr: Error \(\d+\) returned from server")
_CLOSE = re.compile(r"^\s*([}\]])\s*,?\s*$")


def read_output(text: bytes, what: str, notes: list[str]) -> dict[str, Any]:
    """Return the object that a command with ``-F json`` wrote, all values as text.

    Each version writes some texts as JSON numbers, ``true`` or ``null``: a user named 1e5 is a
    number. They become text again. An unset value (``null`` or an empty text) is omitted. Some
    versions do not escape quotes, backslashes or line ends in values that users choose, and omit
    values or write them as they are. Such output is read line by line, one key to a line as PBS
    writes it, and a note says so.

    Args:
        what: Command, for messages.
        notes: List to which a sentence is added if the output had to be repaired.

    Raises:
        FormatError: It is not an object, or it was cut off: a list of jobs without its end would
            make the other jobs look deleted.
    """
    content = text.decode("utf-8", errors="replace")
    try:
        found = _DECODER.decode(content)
    except (ValueError, RecursionError):
        found = _mended(content, what)
        notes.append(f"{what}: invalid JSON, read line by line")
    if not isinstance(found, dict):
        raise FormatError(f"{what}: expected an object, found {str(found)[:40]!r}")
    return found


def _put(inside: dict[str, Any], key: str, value: Any) -> None:
    """Set a key; limits such as ``[u:alice=3]`` repeat one key, and are joined."""
    if isinstance(value, bool):
        value = str(value).lower()
    before = inside.get(key, "")
    if value in (None, ""):
        return
    if str(before).startswith("[") and isinstance(value, str) and value != before:
        value = f"{before},{value}"
    inside[key] = value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        _put(found, key, value)
    return found


_DECODER = json.JSONDecoder(
    strict=False, parse_int=str, parse_float=str, parse_constant=str, object_pairs_hook=_object
)


def _mended(content: str, what: str) -> dict[str, Any]:
    lines = content.splitlines()
    while lines and not lines[0].strip():
        lines.pop(0)
    if not lines or lines[0].strip() != "{":
        raise FormatError(f"{what}: expected JSON, found {content[:40]!r}")
    root: dict[str, Any] = {}
    open_things: list[dict[str, Any] | list[Any]] = [root]
    i = 1
    while i < len(lines) and open_things:
        line = lines[i]
        i += 1
        if not line.strip():
            continue
        if _CLOSE.match(line):
            open_things.pop()
            continue
        # A line without a key continues the line before.
        while i < len(lines) and not _KEY.match(lines[i]) and not _CLOSE.match(lines[i]):
            if isinstance(open_things[-1], list) or line.rstrip().endswith(("{", "[")):
                break
            line += "\n" + lines[i]
            i += 1
        _take(line, open_things)
    if open_things or any(line.strip() for line in lines[i:]):
        raise FormatError(
            f"{what}: expected JSON; the end of the output is missing or comes too early"
        )
    return root


def _take(line: str, open_things: list[dict[str, Any] | list[Any]]) -> None:
    """Put the content of a line into the innermost open object or list."""
    inside = open_things[-1]
    if isinstance(inside, list):
        inside.append(_value(line))
        return
    match = _KEY.match(line)
    if match is None:
        return
    key, rest = match[1], match[2].strip()
    if rest in ("{", "["):
        opened: dict[str, Any] | list[Any] = {} if rest == "{" else []
        inside[key] = opened
        open_things.append(opened)
    else:
        _put(inside, key, _value(rest))


def _value(text: str) -> Any:
    text = text.strip().removesuffix(",").rstrip()
    if len(text) >= 2 and text[0] == text[-1] == '"':
        try:
            return _DECODER.decode(text)
        except ValueError:
            return text[1:-1]
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        return text


def words_of(error: CommandError) -> str:
    """Return the reason in PBS's words: the last line of qmgr has only a number."""
    lines = filter(str.strip, error.said.splitlines())
    told = [line.strip() for line in lines if not _NUMBER_ONLY.match(line)]
    return told[-1] if told else str(error)


def too_old(error: CommandError) -> str:
    """Return a message about a PBS whose commands write no JSON; empty otherwise."""
    if not re.search(r"^usage:|invalid option|illegal option", error.said, re.I | re.M):
        return ""
    return (
        "qstat -f -F json is not supported by this PBS; the twin needs OpenPBS, or PBS Professional with "
        f"JSON output: {error}"
    )
