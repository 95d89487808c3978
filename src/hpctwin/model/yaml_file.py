"""Settings in YAML, read in one way."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from hpctwin.errors import ConfigError
from hpctwin.model.files import cause

__all__ = ["parse_yaml", "read_yaml"]


def read_yaml(path: str | Path, example: str) -> dict[str, Any]:
    """Read a YAML file of fields.

    Args:
        path: the file.
        example: a field that such a file has, for the message where it has none.

    Raises:
        ConfigError: the file cannot be read, is not YAML, has a field twice or no fields; the message
            names the line where there is one.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not a text file ({error.reason})") from error
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL in it
        raise ConfigError(f"{path}: {cause(error)}") from error
    return parse_yaml(text, str(path), example)


def parse_yaml(text: str, where: str, example: str) -> dict[str, Any]:
    """Read YAML of fields that has been read from somewhere; otherwise as `read_yaml`."""
    try:
        # A subclass of the safe loader: it makes plain values only.
        content = yaml.load(text, _Loader)
    except _TwiceError as twice:
        raise ConfigError(f"{where}, {twice}") from twice
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"
        said = ": ".join(part for part in (error.context, error.problem) if part)
        raise ConfigError(f"{where}{line}: not YAML: {said}") from error
    except yaml.YAMLError as error:
        said = " ".join(str(error).split())
        raise ConfigError(f"{where}: not YAML: {said}") from error
    except ValueError as error:  # a date that no calendar has, a number of thousands of digits
        raise ConfigError(f"{where}: not a usable value: {error}") from error
    except RecursionError as error:
        raise ConfigError(f"{where}: nested too deeply for settings") from error
    if not isinstance(content, dict):
        found = "nothing" if content is None else f"{content!r:.60}"
        raise ConfigError(f"{where}: expected fields such as '{example}:', found {found}")
    return content


class _TwiceError(Exception):
    """A key is there twice in one mapping."""


class _Loader(yaml.SafeLoader):
    """Plain values; of two equal keys YAML's own loader would take the last without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                continue
            line = key.start_mark.line + 1
            if (key.tag, key.value) in lines:
                first = lines[key.tag, key.value]
                raise _TwiceError(
                    f"line {line}: {key.value!r} is there twice, first in line {first}"
                )
            lines[key.tag, key.value] = line
        return super().construct_mapping(node, deep)
