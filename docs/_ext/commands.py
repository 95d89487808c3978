"""Sphinx extension: fills the page on the command line from what ``--help`` says."""

from __future__ import annotations

from collections.abc import Iterator

from hpctwin.cli.app import app as commands
from hpctwin.cli.manual import ENVIRONMENT, EXIT_STATUS, command_helps

__all__ = ["page", "setup"]

PAGE = "reference/command-line"


def page() -> Iterator[str]:
    """Lines of Markdown: a heading for each command."""
    _, *helps = command_helps(commands)
    for one in helps:
        depth = "##" + "#" * (len(one.words) > 1)
        yield from (f"{depth} hpctwin {' '.join(one.words)}", "")
        if not any(other.words[:-1] == one.words for other in helps):
            yield from ("```text", one.usage, "```", "")
        for paragraph in one.description:
            yield from (escaped(paragraph), "")
        for heading, told in one.panels.items():
            if heading != "Commands":
                yield from (f"**{heading}**", "")
                yield from (f"- `{row.names}`: {escaped(row.text)}" for row in told)
                yield ""
    for heading, table in (("Exit status", EXIT_STATUS), ("Environment", ENVIRONMENT)):
        yield from (f"## {heading}", "")
        yield from (f"- `{name}`: {text}" for name, text in table.items())
        yield ""


def escaped(text: str) -> str:
    """Text without anything that Markdown reads."""
    for sign in "\\`*_[]<>|$":
        text = text.replace(sign, f"\\{sign}")
    return text


def _fill(app, name, source) -> None:
    if name == PAGE:
        source[0] += "\n" + "\n".join(page())


def setup(app):
    """Let Sphinx fill the page."""
    app.connect("source-read", _fill)
    return {"parallel_read_safe": True}
