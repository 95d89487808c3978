"""Files of settings that options stand for: ``--init`` writes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from hpctwin.errors import ConfigError

if TYPE_CHECKING:
    from hpctwin.model.settings import Settings

__all__ = ["Init", "is_settings_file", "write_settings"]

Init = Annotated[bool, Parameter(group="Output")]
"""Whether to write the settings to a new file instead of running."""


def is_settings_file(source: Path, **options: object) -> bool:
    """Return whether a source is a file of settings, and not a trace.

    Raises:
        ConfigError: It is a file, and options that need a trace are given.
    """
    if source.suffix.lower() not in (".yaml", ".yml"):
        return False
    given = [f"--{name}" for name, value in options.items() if value]
    if given:
        raise ConfigError(
            f"{source}: a file takes no {', '.join(given)}; change the file, or give a trace"
        )
    return True


def write_settings(path: Path, settings: Settings, content: Mapping[str, Any], run: str) -> int:
    """Write a new file of settings with a comment for each key; return the exit code.

    Args:
        path: The file.
        settings: The settings.
        content: Their plain values without defaults, in the order of the file.
        run: The command that uses the file.

    Raises:
        ConfigError: The file exists, or there are no values.
    """
    from hpctwin.model import write_atomically

    if not any(content.values()):
        raise ConfigError("--init: no options to write to the file are given; see --help")
    if path.exists():
        raise ConfigError(f"--init: {path} exists; rename or delete it first")
    summary = (type(settings).__doc__ or "").partition("\n")[0]
    lines = [f"# {summary}", f"# Run it: {run}", *_lines(settings, content)]
    with write_atomically(path) as file:
        file.write(("\n".join(lines) + "\n").encode())
    print(f"{path} is written; edit it, then run: {run}")
    return 0


def _lines(settings: Settings, content: Mapping[str, Any]) -> Iterator[str]:
    """Yield the given keys with their meanings, then the omitted keys as comments."""
    import yaml

    from hpctwin.model.settings import Settings, field_help

    for key, plain in content.items():
        found = getattr(settings, key)
        yield from _comment(field_help(type(settings))[key])
        if isinstance(found, Settings):
            yield f"{key}:"
            yield from (f"  {line}" for line in _lines(found, plain))
            continue
        yield from yaml.safe_dump({key: plain}, sort_keys=False, allow_unicode=True).splitlines()
        if isinstance(plain, list) and isinstance(plain[-1], dict):
            yield from (f"  {line}" for line in _omitted(found[-1], plain[-1]))
    yield from _omitted(settings, content)


def _omitted(settings: Settings, content: Mapping[str, Any]) -> Iterator[str]:
    from hpctwin.model.settings import field_help

    for key, meaning in field_help(type(settings)).items():
        if key not in content:
            yield from _comment(f"{key}: {meaning}")


def _comment(text: str) -> list[str]:
    return wrap(text.replace("`", ""), 98, initial_indent="# ", subsequent_indent="#   ")
