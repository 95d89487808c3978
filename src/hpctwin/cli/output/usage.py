"""Usage errors of cyclopts, in the wording of all other messages."""

from __future__ import annotations

import re

__all__ = ["in_our_words"]

_KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false"}


def _kind(found: re.Match[str]) -> str:
    return f"{found[1]} is '{found[2]}', it must be {_KINDS.get(found[3], f'a {found[3]}')}"


def _choice(found: re.Match[str]) -> str:
    names = found[3].replace('"', "")
    return f"{found[2]} is '{found[1]}', it must be one of {names}.{found[4] or ''}"


def _missing(found: re.Match[str]) -> str:
    if found[2].startswith("-"):
        return f"{found[2]} needs a value"
    return f"{found[2]} is missing: see hpctwin {found[1]} --help"


_WORDS = (
    (r'Invalid value for (\S+): unable to convert "(.*)" into (\w+)\.', _kind),
    (r'Invalid value "(.*)" for (\S+)\. Choose from: (.*?)\.( Did you mean .*)?', _choice),
    (r'Invalid value "(.*)" for (\S+)\. Must be >= (\S+)\.', r"\2 is '\1', it must be \3 or more"),
    (r'Command "(.*)" parameter (\S+) requires an argument\.', _missing),
    (r"Parameter (\S+) specified multiple times\.", r"\1 is there twice; give it once"),
    (r"Unused Tokens: \[(.*)\]\.", r"\1: there is no place for it on this line"),
)


def in_our_words(message: str) -> str:
    """Return a message of cyclopts in this wording; unchanged if it is not a known one."""
    for pattern, words in _WORDS:
        found = re.fullmatch(pattern, message, re.DOTALL)
        if found is not None:
            return words(found) if callable(words) else found.expand(words)
    return message
