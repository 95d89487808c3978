"""Content of every command's ``--help`` as data, and the manual page."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from cyclopts import App
from rich.console import Console

from hpctwin._version import __version__

__all__ = ["CommandHelp", "Told", "command_helps", "man_command", "manual_page"]

ENVIRONMENT = {
    "HPCTWIN_CONFIG": "Configuration of the twin, used if --config is omitted.",
    "HPCTWIN_TRACES": "Folder of real traces for the experiments.",
    "HPCTWIN_TOKENS": "Tokens of the web page, used instead of a file.",
    "HPCTWIN_ARCHIVE_URL": "URL of the traces to download.",
    "HPCTWIN_REDIS_URL": "Redis URL for forwarded events.",
    "NUMBA_CACHE_DIR": "Folder of the compiled engine (default: ~/.cache/hpctwin).",
}
EXIT_STATUS = {
    "0": "Success.",
    "1": "The command failed.",
    "2": "Invalid command or input.",
    "130": "Interrupted.",
}


@dataclass(frozen=True)
class Told:
    """An argument, option or command in a help text.

    Args:
        names: Its spellings, with the form of its value.
        text: Its meaning, with choices and default at the end.
    """

    names: str
    text: str


@dataclass
class CommandHelp:
    """Content of a command's ``--help``.

    Args:
        words: Words of the command, such as ``("twin", "run")``.
        usage: The usage line.
        description: Paragraphs of the description.
        panels: Arguments and options by heading.
    """

    words: tuple[str, ...]
    usage: str = ""
    description: list[str] = field(default_factory=list)
    panels: dict[str, list[Told]] = field(default_factory=dict)

    # The three methods that cyclopts requires of a help formatter.
    def __call__(self, console: Console, options: Any, panel: Any) -> None:
        """Store a panel of arguments, options or commands."""
        told = [Told(_names(entry), _meaning(entry)) for entry in panel.entries]
        shown = [one for one in told if not one.names.startswith(("--help", "--version"))]
        if shown:
            self.panels.setdefault(str(panel.title), []).extend(shown)

    def render_usage(self, console: Console, options: Any, usage: Any) -> None:
        """Store the usage line."""
        self.usage = " ".join(_plain(usage).split()).removeprefix("Usage: ")

    def render_description(self, console: Console, options: Any, description: Any) -> None:
        """Store the description."""
        self.description = [" ".join(part.split()) for part in _plain(description).split("\n\n")]


def command_helps(app: App, words: tuple[str, ...] = ()) -> Iterator[CommandHelp]:
    """Yield the help of an app and of each command below it, in the order of the code."""
    found = CommandHelp(words)
    before, app.help_formatter = app.help_formatter, found
    try:
        app.help_print(list(words), console=Console(file=io.StringIO()))
    finally:
        app.help_formatter = before
    yield found
    here = app
    for word in words:
        here = here[word]
    seen: list[App] = []
    for name in here:
        below = here[name]
        if name.startswith("-") or not below.show or any(below is one for one in seen):
            continue  # a flag, or another name of the same command
        seen.append(below)
        yield from command_helps(app, (*words, name))


def man_command() -> int:
    """Print the manual page, for man: ``hpctwin man > ~/.local/share/man/man1/hpctwin.1``."""
    from hpctwin.cli.app import app

    print(manual_page(app), end="")
    return 0


def manual_page(app: App) -> str:
    """Return a manual page of all commands, in the troff macros ``man``."""
    whole, *commands = command_helps(app)
    lines = [
        f'.TH HPCTWIN 1 "" "hpctwin {__version__}" "User Commands"',
        ".SH NAME", f"hpctwin \\- {_troff(whole.description[0].rstrip('.'))}",
        ".SH SYNOPSIS", ".B hpctwin", _troff("COMMAND [OPTIONS] [ARGUMENTS]"),
        ".SH DESCRIPTION",
        "Each command lists its options with \\-\\-help; this page lists them all.",
        ".SH COMMANDS",
    ]  # fmt: skip
    for command in commands:
        lines += [f".SS {_troff(' '.join(('hpctwin', *command.words)))}"]
        if not any(other.words[:-1] == command.words for other in commands):
            lines += [".B", _troff(command.usage)]
        for paragraph in command.description:
            lines += [".PP", _troff(paragraph)]
        for heading, told in command.panels.items():
            if heading != "Commands":
                lines += [".PP", f".I {_troff(heading)}", *_list(told)]
    for heading, table in (("EXIT STATUS", EXIT_STATUS), ("ENVIRONMENT", ENVIRONMENT)):
        lines += [f".SH {heading}", *_list([Told(*row) for row in table.items()])]
    return "\n".join(lines) + "\n"


def _list(told: list[Told]) -> Iterator[str]:
    for one in told:
        yield from (".TP", f".B {_troff(one.names)}", _troff(one.text))


def _troff(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...")
    # troff would take a line that begins with a dot or a quote for a request.
    return re.sub(r"^(?=[.'])", r"\\&", escaped)


def _names(entry: Any) -> str:
    labels = ", ".join(entry.display_labels)
    return labels if entry.positional_label or not entry.metavar else f"{labels} {entry.metavar}"


def _meaning(entry: Any) -> str:
    parts = [" ".join(_plain(entry.description).split())]
    if entry.choices:
        parts.append(f"[{', '.join(entry.choices)}]")
    if entry.default not in (None, "False", "()"):
        parts.append(f"[default: {entry.default}]")
    if entry.required:
        parts.append("[required]")
    return " ".join(filter(None, parts))


def _plain(renderable: Any) -> str:
    """Return a renderable's text without wrapping."""
    if renderable is None:
        return ""
    console = Console(file=io.StringIO(), width=100_000, no_color=True)
    with console.capture() as seen:
        console.print(renderable)
    return seen.get().strip()
