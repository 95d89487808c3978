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

_WIDTH = 98


def is_settings_file(source: Path, options: Mapping[str, object]) -> bool:
    """Return whether a source is a file of settings; else it is a trace.

    Args:
        source: The source.
        options: Options that work only with a trace, by name.

    Raises:
        ConfigError: Such an option is given with a file of settings.
    """
    if source.suffix.lower() not in (".yaml", ".yml"):
        return False
    given = [name for name, value in options.items() if value]
    if given:
        raise ConfigError(
            f"{source}: {', '.join(given)} work only with a trace; change the file instead"
        )
    return True


def write_settings(path: Path, settings: Settings, content: Mapping[str, Any], run: str) -> int:
    """Write a new file of settings with a comment for each key, and print how to use it.

    Args:
        path: The file.
        settings: The settings.
        content: The same as plain values, in the order of the file.
        run: The command that uses the file.

    Returns:
        The exit code, 0.

    Raises:
        ConfigError: The file exists.
    """
    from hpctwin.model import write_atomically

    if path.exists():
        raise ConfigError(f"--init: {path} exists; rename or delete it first")
    summary = (type(settings).__doc__ or "").partition("\n")[0]
    with write_atomically(path) as file:
        lines = [f"# {summary}", f"# Run it: {run}", *_lines(settings, content)]
        file.write(("\n".join(lines) + "\n").encode())
    print(f"{path} is written; edit it, then run: {run}")
    return 0


def _lines(settings: Settings, content: Mapping[str, Any]) -> Iterator[str]:
    """Yield the given keys with their meanings, then the omitted keys as comments."""
    import yaml

    from hpctwin.model.settings import Settings, field_help

    meanings = field_help(type(settings))
    for key, plain in content.items():
        yield from _comment(meanings[key])
        found = getattr(settings, key)
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

    meanings = field_help(type(settings))
    for key in type(settings).model_fields:
        if key not in content:
            yield from _comment(f"{key}: {meanings[key]}")


def _comment(text: str) -> list[str]:
    return wrap(text.replace("`", ""), _WIDTH, initial_indent="# ", subsequent_indent="#   ")
