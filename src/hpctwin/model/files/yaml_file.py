"""Settings in YAML, read in one way."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from hpctwin.errors import ConfigError
from hpctwin.model.files.files import cause

__all__ = ["Fields", "located", "parse_yaml", "read_yaml", "yaml_document"]


class Fields(dict[str, Any]):
    """Plain values of a file, and their lines.

    Args:
        values: Fields.
        root: YAML's node of the file.
    """

    def __init__(self, values: dict[str, Any], root: yaml.Node) -> None:
        super().__init__(values)
        self._root = root

    def line_of(self, place: Iterable[int | str]) -> int | None:
        """Return the line, from 1, of a value or of its parent; None for the whole file."""
        node, line = self._root, None
        for part in place:
            if isinstance(node, yaml.MappingNode):
                pairs = [(k, v) for k, v in node.value if k.value == str(part)]
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
                pairs = [(v, v) for v in node.value[part : part + 1]]
            else:
                break
            if not pairs:
                break
            key, node = pairs[0]
            line = key.start_mark.line + 1
        return line


def located(content: Mapping[str, Any], where: str, place: Iterable[int | str]) -> str:
    """Return the name of a field in messages: ``twin.yaml, line 3, act.mode``.

    Args:
        content: Fields; the line is included if they are `Fields`.
        where: File.
        place: Keys and indices from the outside in.
    """
    place = tuple(place)
    line = content.line_of(place) if isinstance(content, Fields) else None
    return ", ".join(
        part for part in (where, f"line {line}" if line else "", ".".join(map(str, place))) if part
    )


def read_yaml(path: str | Path, example: str) -> Fields:
    """Read a YAML file of fields.

    Args:
        path: File.
        example: A field of such a file, for the message if it has none.

    Raises:
        ConfigError: The file cannot be read, is not YAML, has a field twice or no fields; the
            message names the line if there is one.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not a text file") from error
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL in it
        raise ConfigError(f"{path}: {cause(error)}") from error
    return parse_yaml(text, str(path), example)


def parse_yaml(text: str, where: str, example: str) -> Fields:
    """Read fields from a YAML text; otherwise like `read_yaml`.

    Args:
        text: YAML.
        where: Name of the text in messages.
        example: See `read_yaml`.

    Raises:
        ConfigError: See `read_yaml`.
    """
    root, content = yaml_document(text, where)
    if root is None or not isinstance(content, dict):
        found = "nothing" if content is None else f"{content!r:.60}"
        raise ConfigError(f"{where}: expected fields such as '{example}:', found {found}")
    return Fields(content, root)


def yaml_document(text: str, where: str) -> tuple[yaml.Node | None, Any]:
    """Read one YAML document: its nodes and its plain values.

    Both are None if it is empty.

    Args:
        text: YAML.
        where: Name of the text in messages.

    Raises:
        ConfigError: It is not YAML, or has a field twice; the message names the line if there is
            one.
    """
    try:
        loader = _Loader(text)
        loader.where = where
        root = loader.get_single_node()
        content = None if root is None else loader.construct_document(root)
    except ConfigError:
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"
        said = ": ".join(part for part in (error.context, error.problem) if part)
        raise ConfigError(f"{where}{line}: not YAML: {said}") from error
    except yaml.YAMLError as error:
        said = " ".join(str(error).split())
        raise ConfigError(f"{where}: not YAML: {said}") from error
    except ValueError as error:  # an impossible date, or a number of thousands of digits
        raise ConfigError(f"{where}: not a usable value: {error}") from error
    except RecursionError as error:
        raise ConfigError(f"{where}: nested too deeply for settings") from error
    return root, content


class _Loader(yaml.SafeLoader):
    """Loader of plain values that rejects equal keys.

    YAML's own loader silently takes the last.
    """

    where = ""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                continue
            line = key.start_mark.line + 1
            if (key.tag, key.value) in lines:
                first = lines[key.tag, key.value]
                raise ConfigError(
                    f"{self.where}, line {line}: {key.value!r} is there twice, first in line {first}"
                )
            lines[key.tag, key.value] = line
        return super().construct_mapping(node, deep)
